//! The order in which permits are given out, the lease that each holder has of its own, and what is a deadlock.

use super::*;

mod order {
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
    fn a_retry_with_the_same_permits_takes_the_place_over() {
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
    fn it_counts_only_where_all_holders_are_deadlocked() {
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
