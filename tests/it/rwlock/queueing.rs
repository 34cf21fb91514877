//! The order in which readers and writers are served, who moves up when a waiter leaves, and what the end of a lease or
//! a removal lets in.

use super::*;

mod order {
    use super::*;

    #[test]
    fn readers_behind_a_waiting_writer_wait() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut w = writer(&server, "w");
        assert!(client.run("RWLOCK.ACQUIRE k r READ").is_nil(), "no reader overtakes a waiting writer");
        let mut r = reader(&server, "r");
        assert_eq!(queue(&mut client, "k"), ["w", "r"]);
        release(&mut client, "a READ", 0);
        let written = w.granted("w");
        r.assert_silent();
        release(&mut client, "w WRITE", 0);
        assert!(r.granted("r") > written);
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_stream_of_readers_does_not_starve_a_writer() {
        let server = quiet().start();
        let mut client = server.client();
        for n in 0..10 {
            read(&mut client, &format!("r{n}"));
        }
        let mut w = writer(&server, "w");
        for n in 0..10 {
            assert!(client.run(&format!("RWLOCK.ACQUIRE k new{n} READ")).is_nil());
            w.assert_silent();
            release(&mut client, &format!("r{n} READ"), 0);
        }
        w.granted("w");
    }

    #[test]
    fn who_holds_reenters_past_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let a = read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        assert_eq!(read(&mut client, "a"), a);
        let again = client.run("RWLOCK.ACQUIRE k b READ HOLDS 5 BLOCK 1000 PX 60000");
        assert_eq!(again.items()[2], Reply::Int(5));
        assert_eq!(queue(&mut client, "k"), ["w"]);
        w.assert_silent();
        release(&mut client, "a READ HOLDS 0", 0);
        release(&mut client, "b READ HOLDS 0", 0);
        w.granted("w");
    }

    #[test]
    fn the_writer_reenters_in_both_modes_past_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let fence = write(&mut client, "a");
        let (mut w, mut r) = (writer(&server, "w"), reader(&server, "r"));
        assert_eq!(write(&mut client, "a"), fence);
        assert_eq!(read(&mut client, "a"), fence);
        for waiter in [&mut w, &mut r] {
            waiter.assert_silent();
        }
    }

    #[test]
    fn readers_next_to_each_other_are_granted_together() {
        let server = quiet().start();
        let mut client = server.client();
        let mut last = write(&mut client, "a");
        let mut first = ["r1", "r2", "r3"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let mut second = ["r4", "r5"].map(|owner| reader(&server, owner));
        assert_eq!(queue(&mut client, "k"), ["r1", "r2", "r3", "w", "r4", "r5"]);

        let replies = multi(&mut client, &["RWLOCK.RELEASE k a WRITE", "LOCK.INFO k COUNT 0"]);
        assert_eq!(replies[1].get("holders").items().len(), 3, "in one step");
        assert_eq!(replies[1].get("waiters"), &Reply::Int(3));
        for (waiter, owner) in first.iter_mut().zip(["r1", "r2", "r3"]) {
            let fence = waiter.granted(owner);
            assert!(fence > last, "each its own fence, in the order of the queue");
            last = fence;
        }
        w.assert_silent();
        for owner in ["r2", "r1", "r3"] {
            w.assert_silent();
            release(&mut client, &format!("{owner} READ"), 0);
        }
        assert!(w.granted("w") > last);
        for waiter in &mut second {
            waiter.assert_silent();
        }
        release(&mut client, "w WRITE", 0);
        second[0].granted("r4");
        second[1].granted("r5");
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn two_thousand_readers_are_granted_together() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let lines: Vec<String> = (0..2000).map(|n| format!("RWLOCK.ACQUIRE k r{n} READ BLOCK 0 NOTIFY ch")).collect();
        assert!(client.pipeline(&lines).iter().all(|reply| reply.items()[1] == Reply::Int(0)));
        release(&mut client, "a WRITE", 0);
        until("all of them read", || queue(&mut client, "k").is_empty());
        let owners = holders(&mut client, "k");
        assert!(owners.into_iter().eq((0..2000).map(|n| format!("r{n}"))), "all of them, in the order of the queue");
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_downgrade_lets_the_readers_at_the_head_in() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        read(&mut client, "a");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let mut behind = reader(&server, "r3");
        release(&mut client, "a WRITE", 0);
        readers[0].granted("r1");
        readers[1].granted("r2");
        w.assert_silent();
        behind.assert_silent();
        assert_eq!(rows(&mut client, "k"), [row("a", "read", 1), row("r1", "read", 1), row("r2", "read", 1)]);
    }

    #[test]
    fn giving_back_one_of_two_write_holds_lets_nobody_in() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2 PX 60000");
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        let mut r = reader(&server, "r");
        release(&mut client, "a WRITE", 1);
        r.assert_silent();
        release(&mut client, "a READ", 0);
        r.assert_silent();
        release(&mut client, "a WRITE", 0);
        r.granted("r");
    }

    #[test]
    fn a_writer_waits_for_the_last_of_the_readers() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        release(&mut client, "b READ", 0);
        w.assert_silent();
        release(&mut client, "a READ", 1);
        w.assert_silent();
        release(&mut client, "a READ", 0);
        w.granted("w");
    }

    #[test]
    fn writers_take_turns_in_the_order_in_which_they_came() {
        let server = quiet().start();
        let mut client = server.client();
        let mut last = write(&mut client, "first");
        let owners: Vec<String> = (0..10).map(|n| format!("w{n}")).collect();
        let mut waiters: Vec<Waiter> = owners.iter().map(|owner| writer(&server, owner)).collect();
        let mut holder = "first";
        for (waiter, owner) in waiters.iter_mut().zip(&owners) {
            release(&mut client, &format!("{holder} WRITE"), 0);
            let fence = waiter.granted(owner);
            assert!(fence > last);
            assert_eq!(rows(&mut client, "k"), [row(owner, "write", 1)]);
            (holder, last) = (owner, fence);
        }
    }

    #[test]
    fn the_first_reader_to_come_makes_no_way_for_a_writer_that_came_later() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let (mut r, mut w) = (reader(&server, "r"), writer(&server, "w"));
        release(&mut client, "a WRITE", 0);
        r.granted("r");
        w.assert_silent();
        release(&mut client, "r READ", 0);
        w.granted("w");
    }

    #[test]
    fn one_owner_may_wait_in_both_modes_one_beside_the_other() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let (mut reads, mut writes) = (reader(&server, "b"), writer(&server, "b"));
        assert_eq!(queue(&mut client, "k"), ["b", "b"]);
        release(&mut client, "a WRITE", 0);
        let first = reads.granted("b");
        assert!(writes.granted("b") > first, "the only reader upgrades");
        assert_eq!(rows(&mut client, "k"), [row("b", "write", 1), row("b", "read", 1)]);
    }
}

mod leaving {
    use super::*;

    /// `a` reads, `w` waits to write and two readers wait behind it. When `leave` has taken `w` away, they read at
    /// once.
    #[track_caller]
    fn assert_lets_readers_in(leave: impl FnOnce(&mut Client, Waiter)) {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let w = writer(&server, "w");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        leave(&mut client, w);
        readers[0].granted("r1");
        readers[1].granted("r2");
        assert_eq!(rows(&mut client, "k"), ["a", "r1", "r2"].map(|owner| row(owner, "read", 1)));
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_cancelled_writer_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run("LOCK.CANCEL k w"), Reply::Int(1));
            assert_eq!(w.only_reply(), Reply::Error("UNBLOCKED cancelled".into()));
        });
    }

    #[test]
    fn client_unblock_of_a_writer_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {}", w.id)), Reply::Int(1));
            assert_eq!(w.only_reply(), Reply::NullArray);
        });
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {} ERROR", w.id)), Reply::Int(1));
            assert!(w.only_reply().error().starts_with("UNBLOCKED "));
        });
    }

    #[test]
    fn a_writer_whose_client_goes_away_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|_, w| drop(w));
        assert_lets_readers_in(|client, w| {
            assert_eq!(client.run(&format!("CLIENT KILL ID {}", w.id)), Reply::Int(1));
        });
    }

    #[test]
    fn a_writer_whose_time_runs_out_lets_the_readers_behind_it_in_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let start = Instant::now();
        let mut w = Waiter::ask(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 400");
        let mut readers =
            ["r1", "r2"].map(|owner| Waiter::ask(&server, &format!("RWLOCK.ACQUIRE k {owner} READ PX 60000 BLOCK 0")));
        for (reader, owner) in readers.iter_mut().zip(["r1", "r2"]) {
            reader.granted_within(owner, Duration::from_millis(400) + SOON);
        }
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
        assert_eq!(w.only_reply(), Reply::NullArray);
    }

    #[test]
    fn a_superseded_writer_keeps_them_waiting() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut older = writer(&server, "w");
        let mut r = reader(&server, "r");
        let mut newer = writer(&server, "w");
        assert_eq!(older.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        assert_eq!(queue(&mut client, "k"), ["w", "r"]);
        r.assert_silent_for(A_WHILE);
        release(&mut client, "a READ", 0);
        newer.granted("w");
        r.assert_silent();
    }

    #[test]
    fn the_other_mode_is_no_retry() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut first = writer(&server, "b");
        let _reads = reader(&server, "b");
        let _c = writer(&server, "c");
        first.assert_silent();
        assert_eq!(queue(&mut client, "k"), ["b", "b", "c"], "it queues afresh, beside it");
    }

    #[test]
    fn a_grant_to_one_of_several_readers_whose_client_has_gone_is_taken_back() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut first = reader(&server, "r1");
        let gone = reader(&server, "gone");
        let mut w = writer(&server, "w");
        multi(&mut client, &["RWLOCK.RELEASE k a WRITE", &format!("CLIENT KILL ID {}", gone.id)]);
        first.granted("r1");
        until("the undelivered grant is taken back", || rows(&mut client, "k") == [row("r1", "read", 1)]);
        w.assert_silent();
        release(&mut client, "r1 READ", 0);
        w.granted("w");
    }

    #[test]
    fn a_kept_place_of_a_writer_is_passed_over_by_readers() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        read(&mut client, "a");
        assert_eq!(client.run("RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 1"), Reply::NullArray);
        assert!(read(&mut client, "r") > 0, "who is away holds nobody up");
        let mut late = writer(&server, "late");
        let mut w = writer(&server, "w");
        assert_eq!(queue(&mut client, "k"), ["w", "late"]);
        for owner in ["a", "r"] {
            release(&mut client, &format!("{owner} READ"), 0);
        }
        w.granted("w");
        late.assert_silent();
    }
}

mod ends {
    use super::*;

    #[test]
    fn a_writers_lease_that_ends_lets_the_readers_in_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut readers = ["r1", "r2", "r3"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let start = Instant::now();
        client.run("RWLOCK.RENEW k a PX 300");
        readers[0].granted_within("r1", Duration::from_millis(300) + SOON);
        readers[1].granted("r2");
        readers[2].granted("r3");
        assert!(ms_since(start) >= 300, "too early: {:?}", start.elapsed());
        w.assert_silent();
    }

    #[test]
    fn a_writer_is_served_when_the_last_readers_lease_has_ended() {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["a", "b", "c"] {
            read(&mut client, owner);
        }
        let mut w = writer(&server, "w");
        let start = Instant::now();
        multi(&mut client, &["RWLOCK.RENEW k a PX 400", "RWLOCK.RENEW k b PX 150", "RWLOCK.RENEW k c PX 250"]);
        w.granted_within("w", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "too early: {:?}", start.elapsed());
    }

    #[test]
    fn one_reader_that_renews_keeps_the_writer_waiting() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        client.run("RWLOCK.ACQUIRE k b READ PX 50");
        let mut w = writer(&server, "w");
        let start = Instant::now();
        assert_eq!(multi(&mut client, &["RWLOCK.RENEW k a PX 100", "RWLOCK.RENEW k a PX 400"])[1], Reply::Int(1));
        assert_eq!(w.client.read().items()[0], Reply::bulk("w"));
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
    }

    #[test]
    fn a_release_and_the_end_of_a_lease_together_let_the_writer_in() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        client.run("RWLOCK.RENEW k a PX 100");
        release(&mut client, "b READ", 0);
        w.granted_within("w", Duration::from_millis(100) + SOON);
    }

    #[test]
    fn del_ends_every_hold_and_the_queue_goes_first() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        let replies = multi(&mut client, &["DEL k", "RWLOCK.ACQUIRE k z READ", "EXISTS k", "RWLOCK.ACQUIRE k a WRITE"]);
        assert_eq!(replies[1], Reply::NullArray);
        assert_eq!(replies[2], Reply::Int(0));
        assert_eq!(replies[3], Reply::NullArray, "who held it before is a newcomer");
        w.granted("w");
        release(&mut client, "a READ", -1);
        release(&mut client, "b READ", -1);
    }

    #[test]
    fn del_lets_the_readers_at_the_head_in_together() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        assert_eq!(client.run("DEL k"), Reply::Int(1));
        readers[0].granted("r1");
        readers[1].granted("r2");
        w.assert_silent();
    }

    #[test]
    fn rename_brings_all_readers_along() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        let before = client.run("DUMP k");
        assert_eq!(client.run("RENAME k elsewhere"), Reply::ok());
        w.granted("w");
        assert_eq!(client.run("DUMP elsewhere"), before);
        assert_eq!(rows(&mut client, "elsewhere"), [row("a", "read", 1), row("b", "read", 1)]);
        assert_eq!(client.run("RWLOCK.RELEASE elsewhere a READ"), Reply::Int(0));
    }
}
