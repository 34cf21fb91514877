//! What the three commands answer, which mistakes they name, how permits and HOLDS are counted, and what LOCK.INFO and
//! LOCK.WAITERS show.

use super::*;

mod replies {
    use super::*;

    #[test]
    fn an_acquire_answers_owner_fence_and_the_permits_held() {
        each_protocol(|client| {
            let grant = client.run("SEM.ACQUIRE k a LIMIT 5");
            let fence = grant.fence();
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence), Reply::Int(1)]), "1 if left out");
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 5 PERMITS 2").items()[2], Reply::Int(3));
            let other = client.run("SEM.ACQUIRE k b LIMIT 5 PERMITS 2");
            assert_eq!(other, Reply::Array(vec![Reply::bulk("b"), Reply::Int(other.fence()), Reply::Int(2)]));
            assert!(other.fence() > fence);
            assert_out(client, &[("a", 3), ("b", 2)]);
        });
    }

    #[test]
    fn a_refusal_is_nil_in_both_protocols() {
        let server = Server::start();
        let (mut client, mut resp3) = (server.client(), server.client3());
        take(&mut client, "a LIMIT 3 PERMITS 2");
        let before = client.stored("k");
        for line in ["b LIMIT 3 PERMITS 2", "b LIMIT 3 HOLDS 3", "b LIMIT 3 PERMITS 2 BLOCK 1", "a LIMIT 3 PERMITS 2"] {
            assert_eq!(client.run(&format!("SEM.ACQUIRE k {line}")), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(&format!("SEM.ACQUIRE k {line}")), Reply::Null, "{line}");
        }
        assert_eq!(client.stored("k"), before);
    }

    #[test]
    fn a_release_answers_the_permits_that_this_owner_still_holds() {
        each_protocol(|client| {
            take(client, "a LIMIT 9 PERMITS 6");
            take(client, "b LIMIT 9 PERMITS 3");
            release(client, "a", 5);
            release(client, "a PERMITS 3", 2);
            release(client, "b PERMITS 3", 0);
            release(client, "b", -1);
            release(client, "a HOLDS 1", 1);
            release(client, "a HOLDS 0", 0);
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
            release(client, "a", -1);
        });
    }

    #[test]
    fn a_release_by_who_holds_none_is_minus_1() {
        each_protocol(|client| {
            release(client, "a", -1);
            take(client, "a LIMIT 2");
            for what in ["b", "b PERMITS 2", "b HOLDS 0"] {
                release(client, what, -1);
            }
            assert_out(client, &[("a", 1)]);
        });
    }

    #[test]
    fn a_renewal_answers_1_or_0() {
        each_protocol(|client| {
            take(client, "a LIMIT 2");
            assert_eq!(client.run("SEM.RENEW k a PX 200000"), Reply::Int(1));
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("SEM.RENEW k b"), Reply::Int(0));
            assert_eq!(client.run("SEM.RENEW free b"), Reply::Int(0));
            assert_eq!(client.run("SEM.RENEW k a PERSIST"), Reply::Int(1));
            assert_eq!(client.pttl("k"), -1);
        });
    }

    #[test]
    fn a_star_makes_an_owner_of_its_own_each_time() {
        each_protocol(|client| {
            let first = client.run("SEM.ACQUIRE k * LIMIT 2").items()[0].text().to_string();
            let second = client.run("SEM.ACQUIRE k * LIMIT 2").items()[0].text().to_string();
            assert_ne!(first, second);
            assert!(client.run("SEM.ACQUIRE k * LIMIT 2").is_nil());
            release(client, &first, 0);
            release(client, &second, 0);
        });
    }

    #[test]
    fn names_are_case_insensitive_and_options_come_in_any_order() {
        each_protocol(|client| {
            assert!(client.run("sem.acquire k a pX 60000 pErmits 2 block 5 limit 3").fence() > 0);
            assert_eq!(client.run("Sem.Renew k a ex 60"), Reply::Int(1));
            assert_eq!(client.run("SEM.release k a permits 2"), Reply::Int(0));
        });
    }
}

mod errors {
    use super::*;

    #[test]
    fn they_come_in_the_servers_words_and_change_nothing() {
        each_protocol(|client| {
            take(client, "a LIMIT 4 PERMITS 2");
            let before = client.stored("k");
            let cases = [
                ("SEM.ACQUIRE k", "ERR wrong number of arguments for 'sem.acquire' command"),
                ("SEM.RELEASE k", "ERR wrong number of arguments for 'sem.release' command"),
                ("SEM.RENEW k", "ERR wrong number of arguments for 'sem.renew' command"),
                ("SEM.ACQUIRE k a LIMIT 4 PERMITS 1 HOLDS 3", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 LIMIT 4", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 PERMITS 1 PERMITS 1", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 PERMITS", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 READ", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 PERSIST SESSION", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT 4 NOTIFY ch", SYNTAX),
                ("SEM.ACQUIRE k a LIMIT x", NOT_AN_INTEGER),
                ("SEM.ACQUIRE k a LIMIT 4 PERMITS x", NOT_AN_INTEGER),
                ("SEM.ACQUIRE k a LIMIT 4 HOLDS 1e1", NOT_AN_INTEGER),
                ("SEM.ACQUIRE k a LIMIT 4 PX 0", "ERR invalid expire time in 'sem.acquire' command"),
                ("SEM.ACQUIRE k a LIMIT 4 BLOCK -1", "ERR timeout is negative"),
                ("SEM.RELEASE k a PERMITS 1 HOLDS 1", SYNTAX),
                ("SEM.RELEASE k a LIMIT 4", SYNTAX),
                ("SEM.RELEASE k a PERMITS x", NOT_AN_INTEGER),
                ("SEM.RENEW k a LIMIT 4", SYNTAX),
                ("SEM.RENEW k a PX -5", "ERR invalid expire time in 'sem.renew' command"),
            ];
            for (line, error) in cases {
                assert_eq!(client.run(line), Reply::Error(error.into()), "{line}");
                assert_eq!(client.stored("k"), before, "{line}");
            }
        });
    }

    #[test]
    fn limit_and_permits_are_1_to_1_000_000_and_permits_no_more_than_limit() {
        each_protocol(|client| {
            for line in [
                "SEM.ACQUIRE k a PERMITS 1",
                "SEM.ACQUIRE k a LIMIT 0",
                "SEM.ACQUIRE k a LIMIT -1",
                "SEM.ACQUIRE k a LIMIT 1000001",
                "SEM.ACQUIRE k a LIMIT 5 PERMITS 0",
                "SEM.ACQUIRE k a LIMIT 5 PERMITS -1",
                "SEM.ACQUIRE k a LIMIT 1000000 PERMITS 1000001",
                "SEM.ACQUIRE k a LIMIT 5 PERMITS 6",
                "SEM.ACQUIRE k a LIMIT 5 PERMITS 6 BLOCK 0",
                "SEM.ACQUIRE k a LIMIT 5 HOLDS 6",
                "SEM.ACQUIRE k a LIMIT 5 HOLDS 0",
            ] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
                assert_eq!(client.run("EXISTS k"), Reply::Int(0), "{line}");
            }
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 1000000 PERMITS 1000000").items()[2], Reply::Int(1_000_000));
            assert!(client.run("SEM.ACQUIRE k b LIMIT 1000000").is_nil());
            release(client, "a PERMITS 999999", 1);
            release(client, "a PERMITS 1", 0);
        });
    }

    #[test]
    fn releasing_more_than_held_is_one() {
        each_protocol(|client| {
            take(client, "a LIMIT 9 PERMITS 3");
            take(client, "b LIMIT 9 PERMITS 5");
            let before = client.stored("k");
            for what in ["a PERMITS 4", "a PERMITS 1000000", "a HOLDS 4", "b PERMITS 6"] {
                assert!(client.run(&format!("SEM.RELEASE k {what}")).error().starts_with("ERR "), "{what}");
                assert_eq!(client.stored("k"), before, "{what}");
            }
        });
    }
}

mod permits {
    use super::*;

    #[test]
    fn at_most_limit_are_out_at_once() {
        each_protocol(|client| {
            for n in 0..10 {
                take(client, &format!("o{n} LIMIT 10"));
            }
            assert!(client.run("SEM.ACQUIRE k late LIMIT 10").is_nil());
            release(client, "o3", 0);
            assert!(client.run("SEM.ACQUIRE k late LIMIT 10 PERMITS 2").is_nil());
            take(client, "late LIMIT 10");
            assert!(client.run("SEM.ACQUIRE k later LIMIT 10").is_nil());
            let out: i64 = rows(client, "k").iter().map(|row| row.2).sum();
            assert_eq!(out, 10);
        });
    }

    #[test]
    fn every_acquire_adds_its_permits() {
        each_protocol(|client| {
            take(client, "a LIMIT 6 PERMITS 2");
            take(client, "b LIMIT 6");
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 6 PERMITS 3").items()[2], Reply::Int(5));
            assert!(client.run("SEM.ACQUIRE k a LIMIT 6").is_nil());
            assert_eq!(held(client, "k", "a").map(|held| held.1), Some(5));
            release(client, "a PERMITS 4", 1);
            assert_eq!(client.run("SEM.ACQUIRE k b LIMIT 6 PERMITS 4").items()[2], Reply::Int(5));
        });
    }

    #[test]
    fn holds_says_how_many_and_can_be_sent_again() {
        each_protocol(|client| {
            let first = client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 3");
            assert_eq!(first.items()[2], Reply::Int(3));
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 3"), first);
            assert_out(client, &[("a", 3)]);
            take(client, "b LIMIT 5 HOLDS 2");
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 3"), first, "also where none are left");
            assert!(client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 4").is_nil());
            for _ in 0..2 {
                release(client, "a HOLDS 1", 1);
            }
            assert_out(client, &[("a", 1), ("b", 2)]);
            assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 3").items()[2], Reply::Int(3));
            let before = client.stored("k");
            assert!(client.run("SEM.ACQUIRE k a LIMIT 5 HOLDS 2").error().starts_with("ERR "), "it takes none away");
            assert!(client.run("SEM.RELEASE k a HOLDS 4").error().starts_with("ERR "), "it adds none");
            assert_eq!(client.stored("k"), before);
            release(client, "a HOLDS 0", 0);
            release(client, "a HOLDS 0", -1);
        });
    }

    #[test]
    fn the_fence_of_an_owner_is_above_that_of_every_earlier_owner() {
        let server = Server::start();
        let mut client = server.client();
        let mut last = 0;
        for n in 0..20 {
            let fence = take(&mut client, &format!("o{n} LIMIT 100"));
            assert!(fence > last);
            assert_eq!(held(&mut client, "k", &format!("o{n}")).map(|held| held.0), Some(fence));
            last = fence;
        }
        assert_eq!(client.run("LOCK.INFO k").get("fence"), &Reply::Int(last));
    }
}

mod inspection {
    use super::*;

    #[test]
    fn lock_info_and_lock_waiters_tell_the_permits() {
        each_protocol(|client| {
            let a = client.run("SEM.ACQUIRE k a LIMIT 7 PERMITS 4 PX 60000").fence();
            let b = client.run("SEM.ACQUIRE k b LIMIT 7 PERMITS 3 PX 90000 SESSION").fence();
            client.run("SEM.ACQUIRE k c LIMIT 7 PERMITS 5 BLOCK 50000 NOTIFY ch");
            let info = client.run("LOCK.INFO k");
            assert_eq!(info.get("kind"), &Reply::bulk("semaphore"));
            assert_eq!(info.get("limit"), &Reply::Int(7));
            assert_eq!(info.get("fence"), &Reply::Int(b));
            assert_just_began(info.get("ttl").int(), 90_000);
            assert_eq!(info.get("waiters"), &Reply::Int(1));
            let id = client.id();
            let expected = [("a", 4, a, 60_000, 0), ("b", 3, b, 90_000, id)];
            assert_eq!(info.get("holders").items().len(), expected.len());
            for (held, (owner, permits, fence, lease, session)) in info.get("holders").items().iter().zip(expected) {
                assert_eq!(held.get("owner"), &Reply::bulk(owner));
                assert_eq!(held.get("mode"), &Reply::bulk("permits"));
                assert_eq!(held.get("holds"), &Reply::Int(permits));
                assert_eq!(held.get("fence"), &Reply::Int(fence));
                assert_just_began(held.get("ttl").int(), lease);
                assert_eq!(held.get("lease"), &Reply::Int(lease));
                assert_eq!(held.get("session"), &Reply::Int(session));
            }
            let waiters = client.run("LOCK.WAITERS k");
            let c = &waiters.items()[0];
            assert_eq!((c.get("owner"), c.get("mode")), (&Reply::bulk("c"), &Reply::bulk("permits")));
            assert_eq!((c.get("permits"), c.get("client")), (&Reply::Int(5), &Reply::Int(id)));
            assert!((1..=50_000).contains(&c.get("remaining").int()));
        });
    }
}
