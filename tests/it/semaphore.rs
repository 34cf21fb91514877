//! What SEM.ACQUIRE, SEM.RELEASE and SEM.RENEW promise: never more permits out than LIMIT, in the order in which they were asked for.

use crate::support::families::{held, lease, left, rows, until_ended};
use crate::support::waiting::*;
use crate::support::{assert_just_began, each_protocol, until, Client, Reply, Server};
use std::time::{Duration, Instant};

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// `what` is owner and options: gives `k`'s permits out for a long time.
#[track_caller]
fn take(client: &mut Client, what: &str) -> i64 {
    client.run(&format!("SEM.ACQUIRE k {what} {LONG}")).fence()
}

/// `what` is owner and options: waits for permits of `k`.
#[track_caller]
fn wait_for(server: &Server, what: &str) -> Waiter {
    Waiter::park(server, &format!("SEM.ACQUIRE k {what} {LONG} BLOCK 0"))
}

/// `SEM.RELEASE k …` leaves its owner so many permits.
#[track_caller]
fn release(client: &mut Client, what: &str, left: i64) {
    assert_eq!(client.run(&format!("SEM.RELEASE k {what}")), Reply::Int(left), "{what}");
}

/// Asserts who has how many permits of `k`, oldest grant first.
#[track_caller]
fn assert_out(client: &mut Client, permits: &[(&str, i64)]) {
    let expected: Vec<_> = permits.iter().map(|(owner, n)| (owner.to_string(), "permits".to_string(), *n)).collect();
    assert_eq!(rows(client, "k"), expected);
}

#[track_caller]
fn limit(client: &mut Client) -> i64 {
    client.run("LOCK.INFO k").get("limit").int()
}

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

    #[test]
    fn a_key_of_another_type_or_family_is_one() {
        each_protocol(|client| {
            client.run("SET s v");
            client.run("LOCK.ACQUIRE mutex a PX 60000");
            client.run("RLOCK.ACQUIRE nested a PX 60000");
            client.run("RWLOCK.ACQUIRE rw a READ PX 60000");
            let before: Vec<_> = ["mutex", "nested", "rw"].map(|key| client.stored(key)).into();
            for (key, error) in
                [("s", WRONGTYPE), ("mutex", "WRONGKIND "), ("nested", "WRONGKIND "), ("rw", "WRONGKIND ")]
            {
                for line in [
                    format!("SEM.ACQUIRE {key} a LIMIT 2"),
                    format!("SEM.ACQUIRE {key} a LIMIT 2 BLOCK 0"),
                    format!("SEM.RELEASE {key} a"),
                    format!("SEM.RENEW {key} a"),
                ] {
                    assert!(client.run(&line).error().starts_with(error), "{line}");
                }
            }
            let after: Vec<_> = ["mutex", "nested", "rw"].map(|key| client.stored(key)).into();
            assert_eq!(after, before);
            assert_eq!(client.run("GET s"), Reply::bulk("v"));
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
            assert!(!client.run("SEM.RELEASE k a HOLDS 0").is_error());
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

mod limits {
    use super::*;

    #[test]
    fn that_of_the_newest_granted_request_counts() {
        each_protocol(|client| {
            take(client, "a LIMIT 3");
            assert_eq!(limit(client), 3);
            take(client, "b LIMIT 7 PERMITS 5");
            assert_eq!(limit(client), 7);
            take(client, "a LIMIT 9 HOLDS 1");
            assert_eq!(limit(client), 9, "also where it was only sent again");
            release(client, "b PERMITS 4", 1);
            assert_eq!(limit(client), 9, "a release has no say");
            take(client, "c LIMIT 4");
            assert_eq!(limit(client), 4);
        });
    }

    #[test]
    fn that_of_a_refused_request_does_not() {
        each_protocol(|client| {
            take(client, "a LIMIT 4 PERMITS 4");
            let before = client.stored("k");
            assert!(client.run("SEM.ACQUIRE k b LIMIT 2").is_nil());
            assert!(client.run("SEM.ACQUIRE k b LIMIT 5 PERMITS 3").is_nil());
            assert!(client.run("SEM.ACQUIRE k b LIMIT 9 PERMITS 10").is_error());
            assert_eq!(client.stored("k"), before);
            assert_eq!(limit(client), 4);
        });
    }

    #[test]
    fn that_of_a_request_that_may_not_queue_does_not() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 4 PERMITS 3");
        take(&mut client, "b LIMIT 4");
        let before = client.stored("k");
        let reply = client.run("SEM.ACQUIRE k a LIMIT 5 PERMITS 3 BLOCK 0");
        assert!(reply.error().starts_with("DEADLOCK "), "{reply:?}");
        assert_eq!(client.run("CONFIG SET lock.max-waiters 0"), Reply::ok());
        let reply = client.run("SEM.ACQUIRE k c LIMIT 1 BLOCK 0");
        assert!(reply.error().starts_with("MAXWAITERS "), "{reply:?}");
        assert_eq!(client.run("SEM.ACQUIRE k c LIMIT 1 BLOCK -1"), Reply::Error("ERR timeout is negative".into()));
        assert_eq!(multi(&mut client, &["SEM.ACQUIRE k c LIMIT 9 PERMITS 9 BLOCK 0"]), [Reply::NullArray]);
        assert_eq!(client.stored("k"), before);
        assert_eq!(limit(&mut client), 4);
    }

    #[test]
    fn a_larger_one_of_a_queued_request_admits_waiters_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 1");
        let mut waiters = ["b", "c", "d"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 1")));
        // It goes to the end of the queue, and is admitted with the rest as far as the new limit goes.
        let mut e = Waiter::park(&server, "SEM.ACQUIRE k e LIMIT 3 PX 60000 BLOCK 0");
        waiters[0].granted("b");
        waiters[1].granted("c");
        waiters[2].assert_silent();
        e.assert_silent();
        assert_eq!(limit(&mut client), 3);
        assert_eq!(queue(&mut client, "k"), ["d", "e"]);
        release(&mut client, "b", 0);
        waiters[2].granted("d");
        release(&mut client, "a", 0);
        e.granted("e");
    }

    #[test]
    fn a_larger_one_may_admit_everybody_and_the_one_who_brought_it() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 1");
        let mut b = wait_for(&server, "b LIMIT 1");
        let grant = client.run("SEM.ACQUIRE k c LIMIT 3 PX 60000 BLOCK 5000");
        assert_eq!((grant.items()[0].text(), grant.items()[2].int()), ("c", 1));
        assert!(b.granted("b") < grant.fence(), "in the order of the queue");
        assert_nobody_waits(&server, &["k"]);
        assert_out(&mut client, &[("a", 1), ("b", 1), ("c", 1)]);
    }

    #[test]
    fn a_larger_one_of_a_holders_retry_admits_waiters_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 1 HOLDS 1");
        let mut waiters = ["b", "c", "d"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 1")));
        take(&mut client, "a LIMIT 3 HOLDS 1");
        waiters[0].granted("b");
        waiters[1].granted("c");
        waiters[2].assert_silent();
    }

    #[test]
    fn a_request_with_a_larger_one_does_not_overtake_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 1");
        let mut b = wait_for(&server, "b LIMIT 1");
        assert!(client.run("SEM.ACQUIRE k c LIMIT 3").is_nil());
        assert_eq!(limit(&mut client), 1, "it was neither granted nor queued");
        b.assert_silent();
    }

    #[test]
    fn a_smaller_one_drains() {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["a", "b", "c"] {
            take(&mut client, &format!("{owner} LIMIT 3"));
        }
        let mut d = wait_for(&server, "d LIMIT 1");
        assert_eq!(limit(&mut client), 1);
        assert_out(&mut client, &[("a", 1), ("b", 1), ("c", 1)]);
        for owner in ["b", "c"] {
            release(&mut client, owner, 0);
            d.assert_silent();
            assert!(client.run("SEM.ACQUIRE k z LIMIT 1").is_nil());
        }
        release(&mut client, "a", 0);
        d.granted("d");
        assert_out(&mut client, &[("d", 1)]);
    }

    #[test]
    fn a_smaller_one_answers_waiters_that_can_never_fit_it_with_an_error() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 5 PERMITS 5");
        let mut four = wait_for(&server, "four LIMIT 5 PERMITS 4");
        let mut two = wait_for(&server, "two LIMIT 5 PERMITS 2");
        let mut exactly = wait_for(&server, "exactly LIMIT 5 HOLDS 3");
        let mut newest = wait_for(&server, "newest LIMIT 2");
        for waiter in [&mut four, &mut exactly] {
            let reply = waiter.only_reply();
            assert!(reply.error().starts_with("ERR "), "{reply:?}");
        }
        two.assert_silent();
        newest.assert_silent();
        assert_eq!(queue(&mut client, "k"), ["two", "newest"]);
        release(&mut client, "a HOLDS 2", 2);
        two.assert_silent();
        release(&mut client, "a HOLDS 0", 0);
        two.granted("two");
        newest.assert_silent();
    }

    #[test]
    fn a_smaller_one_of_a_granted_request_does_so_too() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 4 HOLDS 2");
        let mut three = wait_for(&server, "three LIMIT 4 PERMITS 3");
        take(&mut client, "a LIMIT 2 HOLDS 2");
        assert!(three.only_reply().error().starts_with("ERR "));
        assert_eq!(limit(&mut client), 2);
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_refused_large_request_lets_those_behind_it_in_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 4 HOLDS 2");
        let mut large = wait_for(&server, "large LIMIT 4 PERMITS 4");
        let mut small = wait_for(&server, "small LIMIT 4");
        take(&mut client, "a LIMIT 3 HOLDS 2");
        assert!(large.only_reply().error().starts_with("ERR "));
        small.granted("small");
    }

    #[test]
    fn waiters_are_admitted_by_the_limit_that_counts_and_not_by_their_own() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 9 PERMITS 5");
        take(&mut client, "x LIMIT 9 PERMITS 4");
        let mut b = wait_for(&server, "b LIMIT 9 PERMITS 2");
        let mut c = wait_for(&server, "c LIMIT 6 PERMITS 2");
        release(&mut client, "x HOLDS 0", 0);
        b.assert_silent();
        release(&mut client, "a", 4);
        b.granted("b");
        c.assert_silent();
        assert_eq!(limit(&mut client), 6);
    }
}

mod queueing {
    use super::*;

    #[test]
    fn a_release_hands_over_in_one_step() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 2 PERMITS 2");
        let mut waiters = ["b", "c", "d"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 2")));
        let replies = multi(&mut client, &["SEM.RELEASE k a HOLDS 0", "LOCK.INFO k"]);
        let owners: Vec<&str> = replies[1].get("holders").items().iter().map(|held| held.get("owner").text()).collect();
        assert_eq!(owners, ["b", "c"]);
        let first = waiters[0].granted("b");
        assert!(waiters[1].granted("c") > first);
        waiters[2].assert_silent();
        release(&mut client, "b", 0);
        waiters[2].granted("d");
    }

    #[test]
    fn a_large_request_at_the_head_is_not_starved() {
        let server = quiet().start();
        let mut client = server.client();
        for n in 0..4 {
            take(&mut client, &format!("o{n} LIMIT 4"));
        }
        let mut large = wait_for(&server, "large LIMIT 4 PERMITS 4");
        let mut small = wait_for(&server, "small LIMIT 4");
        for n in 0..4 {
            assert!(client.run(&format!("SEM.ACQUIRE k new{n} LIMIT 4")).is_nil(), "nobody overtakes it");
            large.assert_silent();
            small.assert_silent();
            release(&mut client, &format!("o{n}"), 0);
        }
        assert_eq!(large.reply().items()[2], Reply::Int(4));
        small.assert_silent();
        release(&mut client, "large", 3);
        small.granted("small");
    }

    #[test]
    fn an_owner_that_holds_some_and_wants_more_waits_its_turn() {
        let server = quiet().start();
        let mut client = server.client();
        let fence = take(&mut client, "a LIMIT 4");
        take(&mut client, "x LIMIT 4 PERMITS 2");
        let mut b = wait_for(&server, "b LIMIT 4 PERMITS 2");
        assert!(client.run("SEM.ACQUIRE k a LIMIT 4").is_nil(), "one is left, but b came first");
        assert_eq!(client.run("SEM.ACQUIRE k a LIMIT 4 HOLDS 1").fence(), fence, "what it holds it may ask for again");
        let mut more = wait_for(&server, "x LIMIT 4");
        assert_eq!(queue(&mut client, "k"), ["b", "x"]);
        release(&mut client, "a", 0);
        b.granted("b");
        more.assert_silent();
        release(&mut client, "b", 1);
        assert_eq!(more.reply().items()[2], Reply::Int(3));
        assert_out(&mut client, &[("x", 3), ("b", 1)]);
    }

    #[test]
    fn a_release_of_some_permits_serves_whoever_fits() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 5 PERMITS 5");
        let mut two = wait_for(&server, "two LIMIT 5 PERMITS 2");
        let mut one = wait_for(&server, "one LIMIT 5");
        release(&mut client, "a", 4);
        two.assert_silent();
        one.assert_silent();
        release(&mut client, "a PERMITS 2", 2);
        two.granted("two");
        one.granted("one");
        assert_out(&mut client, &[("a", 2), ("two", 2), ("one", 1)]);
    }

    #[test]
    fn a_large_request_that_leaves_lets_those_behind_it_in_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        for leave in ["LOCK.CANCEL k large", "CLIENT UNBLOCK ID", "CLIENT KILL ID ID"] {
            client.run("DEL k");
            take(&mut client, "a LIMIT 3 PERMITS 2");
            let large = wait_for(&server, "large LIMIT 3 PERMITS 2");
            let mut small = wait_for(&server, "small LIMIT 3");
            small.assert_silent();
            // "KILL ID" is a word of the command itself.
            let id = large.id.to_string();
            let (words, last) = leave.rsplit_once(' ').expect("words");
            let last = if last == "ID" { id.as_str() } else { last };
            assert_eq!(client.run(&format!("{words} {last}")), Reply::Int(1), "{leave}");
            small.granted("small");
            assert_nobody_waits(&server, &["k"]);
        }
    }

    #[test]
    fn a_large_request_whose_time_runs_out_lets_those_behind_it_in() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3 PERMITS 2");
        let mut large = Waiter::ask(&server, "SEM.ACQUIRE k large LIMIT 3 PERMITS 2 BLOCK 300");
        let mut small = Waiter::ask(&server, "SEM.ACQUIRE k small LIMIT 3 PX 60000 BLOCK 0");
        small.granted_within("small", Duration::from_millis(300) + SOON);
        assert_eq!(large.only_reply(), Reply::NullArray);
    }

    #[test]
    fn a_retry_with_the_same_permits_takes_the_place_and_another_number_queues_afresh() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3 PERMITS 3");
        let mut older = wait_for(&server, "b LIMIT 3 PERMITS 2");
        let _c = wait_for(&server, "c LIMIT 3");
        let mut newer = wait_for(&server, "b LIMIT 3 PERMITS 2");
        assert_eq!(older.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        release(&mut client, "a HOLDS 0", 0);
        assert_eq!(newer.reply().items()[2], Reply::Int(2));
    }

    #[test]
    fn another_number_of_the_same_owner_queues_beside_it() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3 PERMITS 3");
        let mut two = wait_for(&server, "b LIMIT 3 PERMITS 2");
        let mut one = wait_for(&server, "b LIMIT 3");
        assert_eq!(queue(&mut client, "k"), ["b", "b"]);
        let waiters = client.run("LOCK.WAITERS k");
        let permits: Vec<i64> = waiters.items().iter().map(|waiter| waiter.get("permits").int()).collect();
        assert_eq!(permits, [2, 1]);
        release(&mut client, "a HOLDS 0", 0);
        assert_eq!(two.reply().items()[2], Reply::Int(2));
        assert_eq!(one.reply().items()[2], Reply::Int(3));
    }

    #[test]
    fn undelivered_permits_pass_to_the_next() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3 PERMITS 3");
        let gone = wait_for(&server, "gone LIMIT 3 PERMITS 2");
        let mut next = wait_for(&server, "next LIMIT 3 PERMITS 3");
        multi(&mut client, &["SEM.RELEASE k a HOLDS 0", &format!("CLIENT KILL ID {}", gone.id)]);
        assert_eq!(next.reply().items()[2], Reply::Int(3));
        assert_out(&mut client, &[("next", 3)]);
    }

    #[test]
    fn more_permits_for_an_owner_that_has_gone_are_taken_back_and_it_keeps_what_it_had() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3");
        take(&mut client, "b LIMIT 3 PERMITS 2");
        let more = wait_for(&server, "a LIMIT 3 PERMITS 2");
        let mut next = wait_for(&server, "next LIMIT 3 PERMITS 2");
        multi(&mut client, &["SEM.RELEASE k b HOLDS 0", &format!("CLIENT KILL ID {}", more.id)]);
        next.granted("next");
        assert_out(&mut client, &[("a", 1), ("next", 2)]);
    }

    #[test]
    fn del_gives_all_permits_to_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 3");
        take(&mut client, "b LIMIT 3 PERMITS 2");
        let mut waiters = ["c", "d", "e"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 3 PERMITS 1")));
        let mut large = wait_for(&server, "large LIMIT 3 PERMITS 3");
        let replies = multi(&mut client, &["DEL k", "SEM.ACQUIRE k z LIMIT 3", "LOCK.INFO k"]);
        assert_eq!(replies[1], Reply::NullArray);
        assert_eq!(replies[2].get("kind"), &Reply::bulk("semaphore"));
        assert_eq!(replies[2].get("limit"), &Reply::Int(3));
        assert_eq!(replies[2].get("ttl"), &Reply::Int(-2));
        for (waiter, owner) in waiters.iter_mut().zip(["c", "d", "e"]) {
            waiter.granted(owner);
        }
        large.assert_silent();
    }
}

mod leases {
    use super::*;

    #[test]
    fn each_holder_has_one_of_its_own_and_the_key_lives_as_long_as_the_longest() {
        each_protocol(|client| {
            client.run("SEM.ACQUIRE k a LIMIT 5 PX 50000");
            client.run("SEM.ACQUIRE k b LIMIT 5 PX 200000");
            client.run("SEM.ACQUIRE k c LIMIT 5 PX 20000");
            for (owner, ms) in [("a", 50_000), ("b", 200_000), ("c", 20_000)] {
                assert_just_began(left(client, "k", owner), ms);
                assert_eq!(lease(client, "k", owner), ms);
            }
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("SEM.RENEW k b PX 30000"), Reply::Int(1));
            assert_just_began(client.pttl("k"), 50_000);
            release(client, "a", 0);
            assert_just_began(client.pttl("k"), 30_000);
        });
    }

    #[test]
    fn more_permits_never_shorten_it() {
        each_protocol(|client| {
            client.run("SEM.ACQUIRE k a LIMIT 5 PX 60000");
            let before = client.stored("k").1;
            client.run("SEM.ACQUIRE k a LIMIT 5 PX 1000").fence();
            assert_eq!(client.stored("k").1, before);
            client.run("SEM.ACQUIRE k a LIMIT 5 PX 100000").fence();
            assert_just_began(left(client, "k", "a"), 100_000);
        });
    }

    #[test]
    fn the_permits_come_back_when_it_ends_while_others_hold_on() {
        each_protocol(|client| {
            take(client, "short LIMIT 3 PERMITS 2");
            take(client, "long LIMIT 3");
            assert!(client.run("SEM.ACQUIRE k b LIMIT 3 PERMITS 2").is_nil());
            client.run("SEM.RENEW k short PX 60");
            until_ended(client, "k", "short");
            assert_out(client, &[("long", 1)]);
            release(client, "short", -1);
            assert_eq!(client.run("SEM.RENEW k short"), Reply::Int(0));
            take(client, "b LIMIT 3 PERMITS 2");
            assert!(client.run("SEM.ACQUIRE k short LIMIT 3").is_nil());
        });
    }

    #[test]
    fn waiters_get_the_permits_of_a_lease_that_ends_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["long", "a", "b"] {
            take(&mut client, &format!("{owner} LIMIT 3"));
        }
        let (mut c, mut d) = (wait_for(&server, "c LIMIT 3"), wait_for(&server, "d LIMIT 3"));
        let start = Instant::now();
        multi(&mut client, &["SEM.RENEW k a PX 300", "SEM.RENEW k b PX 450"]);
        c.granted_within("c", Duration::from_millis(300) + SOON);
        assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
        d.granted_within("d", Duration::from_millis(150) + SOON);
        assert!(ms_since(start) >= 450, "{:?}", start.elapsed());
        assert_out(&mut client, &[("long", 1), ("c", 1), ("d", 1)]);
    }

    #[test]
    fn leases_of_many_holders_end_one_by_one() {
        let server = quiet().start();
        let mut client = server.client();
        // Far more than are walked through, with deadlines in no order.
        let lines: Vec<String> =
            (0..200).map(|n| format!("SEM.ACQUIRE k o{n} LIMIT 200 PX {}", 200 + (n * 37) % 200)).collect();
        let start = Instant::now();
        client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
        let mut large = Waiter::ask(&server, "SEM.ACQUIRE k large LIMIT 200 PERMITS 200 PX 60000 BLOCK 0");
        let reply = large.reply_within(Duration::from_secs(1) + SOON);
        assert_eq!(reply.items()[2], Reply::Int(200));
        assert!(ms_since(start) >= 399, "the last lease ends after 399 ms, not {:?}", start.elapsed());
        assert_out(&mut client, &[("large", 200)]);
    }
}

mod stuck {
    use super::*;

    #[test]
    fn more_than_are_left_beside_ones_own_is_a_deadlock() {
        each_protocol(|client| {
            take(client, "a LIMIT 4 PERMITS 3");
            let reply = client.run("SEM.ACQUIRE k a LIMIT 4 PERMITS 2 BLOCK 0");
            assert!(reply.error().starts_with("DEADLOCK "), "{reply:?}");
            assert!(client.run("SEM.ACQUIRE k a LIMIT 4 PERMITS 2").is_nil());
            assert_eq!(queue(client, "k"), [""; 0]);
            assert_out(client, &[("a", 3)]);
        });
    }

    #[test]
    fn it_counts_only_where_all_holders_are_in_circles() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 2");
        take(&mut client, "b LIMIT 2");
        hold(&mut client, "m", "c");
        let [_a] = line_up(&server, "m", ["a"]);
        // b may end, and give c its permit.
        let mut c = wait_for(&server, "c LIMIT 2");
        assert_eq!(client.run("LOCK.CANCEL k c"), Reply::Int(1));
        c.reply();
        let [_b] = line_up(&server, "m", ["b"]);
        let reply = client.run("SEM.ACQUIRE k c LIMIT 2 BLOCK 0");
        let error = reply.error();
        assert!(error.starts_with("DEADLOCK "), "{error}");
        assert!(error.contains("'c'"), "{error}");
        assert_out(&mut client, &[("a", 1), ("b", 1)]);
        assert_eq!(queue(&mut client, "m"), ["a", "b"]);
    }

    #[test]
    fn two_that_want_each_others_permits_are_told() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "a LIMIT 2");
        take(&mut client, "b LIMIT 2");
        let mut a = wait_for(&server, "a LIMIT 2");
        let reply = client.run("SEM.ACQUIRE k b LIMIT 2 BLOCK 0");
        assert!(reply.error().starts_with("DEADLOCK "), "{reply:?}");
        a.assert_silent();
        release(&mut client, "b", 0);
        assert_eq!(a.reply().items()[2], Reply::Int(2));
    }
}

mod looking {
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

    #[test]
    fn watch_trips_on_every_change_of_holders_or_permits_and_not_on_a_renewal() {
        let server = quiet().start();
        let (mut client, mut watcher) = (server.client(), server.client());
        let mut survives = |line: &str| {
            watcher.run("WATCH k");
            assert!(!client.run(line).is_error(), "{line}");
            !watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil()
        };
        for line in [
            "SEM.ACQUIRE k a LIMIT 4 PX 60000",
            "SEM.ACQUIRE k b LIMIT 4 PERMITS 2 PX 60000",
            "SEM.ACQUIRE k a LIMIT 4 PX 60000",
            "SEM.RELEASE k b",
            "SEM.RELEASE k b",
        ] {
            assert!(!survives(line), "{line}");
        }
        for line in [
            "SEM.RENEW k a PX 90000",
            "SEM.RENEW k a PX 1000000",
            "SEM.ACQUIRE k a LIMIT 4 HOLDS 2 PX 60000",
            "SEM.ACQUIRE k c LIMIT 4 PERMITS 4",
            "SEM.RELEASE k c",
        ] {
            assert!(survives(line), "{line}");
        }
        assert!(!survives("SEM.RELEASE k a HOLDS 0"));
    }

    #[test]
    fn it_is_free_when_the_last_lease_has_ended() {
        let server = Server::start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE k a LIMIT 2 PX 40");
        client.run("SEM.ACQUIRE k b LIMIT 2 PX 80");
        until("the key is gone", || client.run("EXISTS k") == Reply::Int(0));
        assert!(client.run("LOCK.INFO k").is_nil());
    }
}
