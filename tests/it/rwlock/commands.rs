//! What the three commands answer, which mistakes they name, what HOLDS means, and what LOCK.INFO and LOCK.WAITERS
//! show.

use super::*;

mod replies {
    use super::*;

    #[test]
    fn an_acquire_answers_owner_fence_and_the_holds_of_that_mode() {
        each_protocol(|client| {
            let grant = client.run("RWLOCK.ACQUIRE k a READ");
            let fence = grant.fence();
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence), Reply::Int(1)]));
            let grant = client.run("RWLOCK.ACQUIRE w a WRITE HOLDS 3");
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(grant.fence()), Reply::Int(3)]));
            assert!(grant.fence() > fence);
        });
    }

    #[test]
    fn a_refusal_is_nil_in_both_protocols() {
        let server = Server::start();
        let (mut client, mut resp3) = (server.client(), server.client3());
        client.run("RWLOCK.ACQUIRE read a READ");
        client.run("RWLOCK.ACQUIRE written a WRITE");
        for line in ["RWLOCK.ACQUIRE read b WRITE", "RWLOCK.ACQUIRE written b WRITE", "RWLOCK.ACQUIRE written b READ"] {
            assert_eq!(client.run(line), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(line), Reply::Null, "{line}");
            assert_eq!(client.run(&format!("{line} BLOCK 1")), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(&format!("{line} BLOCK 1")), Reply::Null, "{line}");
        }
        assert_eq!(
            (holders(&mut client, "read"), holders(&mut client, "written")),
            (vec!["a".into()], vec!["a".into()])
        );
    }

    #[test]
    fn a_release_answers_the_holds_of_that_mode_that_remain() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 3");
            release(client, "a WRITE", 1);
            release(client, "a READ", 2);
            release(client, "a WRITE", 0);
            release(client, "a WRITE", -1);
            release(client, "a READ", 1);
            release(client, "a READ", 0);
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
            release(client, "a READ", -1);
        });
    }

    #[test]
    fn a_release_by_who_does_not_hold_it_in_that_mode_is_minus_1() {
        each_protocol(|client| {
            release(client, "a READ", -1);
            read(client, "a");
            let before = client.stored("k");
            for line in ["b READ", "b WRITE", "a WRITE", "b READ HOLDS 0", "a WRITE HOLDS 0"] {
                release(client, line, -1);
                assert_eq!(client.stored("k"), before, "{line}");
            }
        });
    }

    #[test]
    fn a_renewal_answers_1_or_0() {
        each_protocol(|client| {
            read(client, "a");
            assert_eq!(client.run("RWLOCK.RENEW k a PX 200000"), Reply::Int(1));
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("RWLOCK.RENEW k b PX 500000"), Reply::Int(0));
            assert_eq!(client.run("RWLOCK.RENEW free b"), Reply::Int(0));
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PERSIST"), Reply::Int(1));
            assert_eq!(client.pttl("k"), -1);
        });
    }

    #[test]
    fn a_star_makes_an_owner_of_its_own_each_time() {
        each_protocol(|client| {
            let first = client.run("RWLOCK.ACQUIRE k * READ");
            let second = client.run("RWLOCK.ACQUIRE k * READ");
            let owners = [&first, &second].map(|grant| grant.items()[0].text().to_string());
            assert_ne!(owners[0], owners[1]);
            for owner in &owners {
                assert_eq!(owner.len(), 36, "{owner}");
                release(client, &format!("{owner} READ"), 0);
            }
        });
    }

    #[test]
    fn names_are_case_insensitive_and_options_come_in_any_order() {
        each_protocol(|client| {
            assert!(client.run("rwlock.Acquire k a read hOLDS 2 block 5 px 60000").fence() > 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 2)]);
            assert_eq!(client.run("RwLock.Renew k a eX 60"), Reply::Int(1));
            assert_eq!(client.run("rwlock.release k a Read holds 0"), Reply::Int(0));
        });
    }

    #[test]
    fn it_is_a_key_of_the_modules_type() {
        let server = Server::start();
        let mut client = server.client();
        read(&mut client, "a");
        assert_eq!(client.run("TYPE k"), Reply::Status("redislock".into()));
        assert_eq!(client.run("EXISTS k"), Reply::Int(1));
        release(&mut client, "a READ", 0);
        assert_eq!(client.run("EXISTS k"), Reply::Int(0), "it exists only while somebody holds it");
    }

    #[test]
    fn a_lease_that_is_not_named_is_the_default_one() {
        let server = Server::start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ");
        assert_just_began(client.pttl("k"), 30_000);
        client.run("CONFIG SET lock.default-lease 90000");
        client.run("RWLOCK.ACQUIRE k b READ");
        assert_just_began(left(&mut client, "k", "b"), 90_000);
        assert!(left(&mut client, "k", "a") <= 30_000);
    }
}

mod errors {
    use super::*;

    #[test]
    fn they_come_in_the_servers_words_and_change_nothing() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
            let before = client.stored("k");
            let cases = [
                ("RWLOCK.ACQUIRE k b", "ERR wrong number of arguments for 'rwlock.acquire' command"),
                ("RWLOCK.RELEASE k a", "ERR wrong number of arguments for 'rwlock.release' command"),
                ("RWLOCK.RENEW k", "ERR wrong number of arguments for 'rwlock.renew' command"),
                ("RWLOCK.ACQUIRE k b EXCLUSIVE", SYNTAX),
                ("RWLOCK.ACQUIRE k b PX 5000 READ", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ WRITE", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS 1 HOLDS 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PX 5000 EX 5", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PERSIST SESSION", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PERMITS 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ LIMIT 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ NOTIFY ch", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS x", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ HOLDS -1", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ HOLDS 1.5", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ PX x", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ PX 0", "ERR invalid expire time in 'rwlock.acquire' command"),
                ("RWLOCK.RENEW k a PX 0", "ERR invalid expire time in 'rwlock.renew' command"),
                ("RWLOCK.RENEW k a READ", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ BLOCK -1", "ERR timeout is negative"),
                ("RWLOCK.RELEASE k a READ PX 5", SYNTAX),
                ("RWLOCK.RELEASE k a BOTH", SYNTAX),
                ("RWLOCK.RELEASE k a READ HOLDS -1", NOT_AN_INTEGER),
            ];
            for (line, error) in cases {
                assert_eq!(client.run(line), Reply::Error(error.into()), "{line}");
                assert_eq!(client.stored("k"), before, "{line}");
            }
            assert!(client.run("RWLOCK.ACQUIRE k b READ HOLDS 0").error().starts_with("ERR "), "n is at least 1");
            assert!(client.run("RWLOCK.ACQUIRE free b READ HOLDS 0").error().starts_with("ERR "));
            assert_eq!(client.stored("k"), before);
            assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        });
    }

    #[test]
    fn while_anyone_waits_a_free_key_stays_a_read_write_lock() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut w = writer(&server, "w");
        let replies = multi(&mut client, &["DEL k", "SEM.ACQUIRE k z LIMIT 1", "LOCK.ACQUIRE k z", "LOCK.INFO k"]);
        assert!(replies[1].error().starts_with("WRONGKIND "), "{replies:?}");
        assert!(replies[2].error().starts_with("WRONGKIND "), "{replies:?}");
        assert_eq!(replies[3].get("kind"), &Reply::bulk("rw"));
        assert_eq!(replies[3].get("limit"), &Reply::Int(0));
        assert_eq!(replies[3].get("ttl"), &Reply::Int(-2));
        w.granted("w");
    }
}

mod holds {
    use super::*;

    #[test]
    fn holds_says_how_often_and_can_be_sent_again() {
        each_protocol(|client| {
            for mode in ["READ", "WRITE"] {
                let acquire = format!("RWLOCK.ACQUIRE k a {mode} HOLDS 3");
                let first = client.run(&acquire);
                assert_eq!(first.items()[2].int(), 3);
                assert_eq!(client.run(&acquire), first);
                let again = client.run(&format!("RWLOCK.ACQUIRE k a {mode} HOLDS 5"));
                assert_eq!((again.fence(), again.items()[2].int()), (first.fence(), 5));
                for _ in 0..2 {
                    release(client, &format!("a {mode} HOLDS 2"), 2);
                }
                assert_eq!(client.run(&format!("RWLOCK.ACQUIRE k a {mode}")).items()[2].int(), 3);
                release(client, &format!("a {mode} HOLDS 0"), 0);
                assert_eq!(client.run("EXISTS k"), Reply::Int(0));
                release(client, &format!("a {mode} HOLDS 0"), -1);
            }
        });
    }

    #[test]
    fn an_upgrade_and_a_downgrade_with_holds_can_be_sent_again() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 1");
            let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 1");
            assert_eq!(client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 1"), upgrade);
            assert_eq!(client.run("RWLOCK.ACQUIRE k a READ HOLDS 1").fence(), upgrade.fence());
            assert_eq!(rows(client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
            release(client, "a WRITE HOLDS 0", 0);
            release(client, "a WRITE HOLDS 0", -1);
            assert_eq!(rows(client, "k"), [row("a", "read", 1)]);
        });
    }

    #[test]
    fn an_acquire_takes_no_hold_away_and_a_release_adds_none() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 3 PX 60000");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
            let before = client.stored("k");
            for line in [
                "RWLOCK.ACQUIRE k a WRITE HOLDS 2",
                "RWLOCK.ACQUIRE k a READ HOLDS 1 PX 200000",
                "RWLOCK.RELEASE k a WRITE HOLDS 4",
                "RWLOCK.RELEASE k a READ HOLDS 3",
            ] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
                assert_eq!(client.stored("k"), before, "{line}");
            }
        });
    }

    #[test]
    fn a_waiting_request_with_holds_is_granted_as_many() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut b = Waiter::park(&server, "RWLOCK.ACQUIRE k b READ HOLDS 4 PX 60000 BLOCK 0");
        let mut c = Waiter::park(&server, "RWLOCK.ACQUIRE k c WRITE HOLDS 2 PX 60000 BLOCK 0");
        release(&mut client, "a WRITE", 0);
        assert_eq!(b.reply().items()[2], Reply::Int(4));
        release(&mut client, "b READ HOLDS 0", 0);
        assert_eq!(c.reply().items()[2], Reply::Int(2));
        assert_eq!(rows(&mut client, "k"), [row("c", "write", 2)]);
    }
}

mod inspection {
    use super::*;

    #[test]
    fn lock_info_tells_all_that_it_promises() {
        each_protocol(|client| {
            let a = client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000").fence();
            let b = client.run("RWLOCK.ACQUIRE k b READ PX 90000 SESSION").fence();
            let info = client.run("LOCK.INFO k");
            let names: Vec<&str> = info.pairs().iter().map(|(name, _)| name.text()).collect();
            assert_eq!(names, ["kind", "limit", "fence", "ttl", "holders", "waiters", "holding"]);
            assert_eq!(info.get("kind"), &Reply::bulk("rw"));
            assert_eq!(info.get("limit"), &Reply::Int(0));
            assert_eq!(info.get("fence"), &Reply::Int(b));
            assert_just_began(info.get("ttl").int(), 90_000);
            assert_eq!(info.get("waiters"), &Reply::Int(0));
            let id = client.id();
            let expected = [("a", 2, a, 60_000, 0), ("b", 1, b, 90_000, id)];
            for (held, (owner, holds, fence, lease, session)) in info.get("holders").items().iter().zip(expected) {
                let names: Vec<&str> = held.pairs().iter().map(|(name, _)| name.text()).collect();
                assert_eq!(names, ["owner", "mode", "holds", "fence", "ttl", "lease", "age", "session"]);
                assert_eq!(held.get("owner"), &Reply::bulk(owner));
                assert_eq!(held.get("mode"), &Reply::bulk("read"));
                assert_eq!(held.get("holds"), &Reply::Int(holds));
                assert_eq!(held.get("fence"), &Reply::Int(fence));
                assert_just_began(held.get("ttl").int(), lease);
                assert_eq!(held.get("lease"), &Reply::Int(lease));
                assert!((0..10_000).contains(&held.get("age").int()));
                assert_eq!(held.get("session"), &Reply::Int(session));
            }
        });
    }

    #[test]
    fn lock_waiters_tells_the_modes() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let (_w, _r) = (writer(&server, "w"), reader(&server, "r"));
        let waiters = client.run("LOCK.WAITERS k");
        let modes: Vec<&str> = waiters.items().iter().map(|waiter| waiter.get("mode").text()).collect();
        assert_eq!(modes, ["write", "read"]);
        assert!(waiters.items().iter().all(|waiter| waiter.get("permits") == &Reply::Int(1)));
        assert_eq!(client.run("LOCK.INFO k").get("waiters"), &Reply::Int(2));
    }
}
