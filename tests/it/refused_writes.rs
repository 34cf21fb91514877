//! While the server refuses writes, no lock is granted, not even by the timer; when it accepts them again, the next
//! waiter is granted the lock at once. A grant that got past the write check would be missing on replicas and in the
//! AOF, or would crash the server with an assertion.

use crate::support::waiting::*;
use crate::support::{in_sync, until, Client, Reply, Server};
use std::fs;
use std::time::{Duration, Instant};

/// `a`'s lease on `k` is about to expire; `b` and `c` wait.
struct Setup {
    client: Client,
    b: Waiter,
    c: Waiter,
}

impl Setup {
    #[track_caller]
    fn of(server: &Server) -> Setup {
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [b, c] = line_up(server, "k", ["b", "c"]);
        Setup { client, b, c }
    }

    /// Makes the server refuse writes with these commands, and lets the lease expire: nothing may happen. Returns their
    /// replies.
    #[track_caller]
    fn assert_nothing_is_granted_after(&mut self, close: &[&str]) -> Vec<Reply> {
        // In one round trip, because the lease must not expire before writes are refused.
        let mut replies = self.client.pipeline(&[&["PEXPIRE k 100"], close].concat());
        self.assert_nothing_is_granted();
        replies.split_off(1)
    }

    /// `a`'s lock ends, and nothing happens.
    #[track_caller]
    fn assert_nothing_is_granted(&mut self) {
        until("a's lock has ended", || self.client.run("LOCK.HELD k a").is_nil());
        self.b.assert_silent_for(Duration::from_millis(150));
        self.c.assert_silent();
        let waiters = self.client.run("LOCK.WAITERS k");
        assert_eq!(waiters.items().len(), 2, "both still wait");
        assert!(self.client.run("LOCK.HELD k b").is_nil());
    }

    /// Makes the server accept writes again: `b`, and only `b`, is granted the lock at once.
    #[track_caller]
    fn assert_granted_after(&mut self, open: impl FnOnce(&mut Client)) {
        open(&mut self.client);
        self.b.granted("b");
        assert_eq!(holders(&mut self.client, "k"), ["b"]);
        self.c.assert_silent();
        self.client.run("LOCK.RELEASE k b");
        self.c.granted("c");
    }
}

mod client_pause {
    use super::*;

    /// An expired key is not deleted during a pause, and Redis hits an assertion if one is overwritten.
    #[test]
    fn a_transaction_that_itself_paused_writes_is_granted_nothing() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE k a PX 1");
        until("the lease has ended", || client.run("LOCK.HELD k a").is_nil());
        let lines = ["CLIENT PAUSE 60000 WRITE", "LOCK.ACQUIRE k b", "LOCK.RELEASE k a", "LOCK.CANCEL k b"];
        let replies = multi(&mut client, &lines);
        for refused in [&replies[1], &replies[3]] {
            assert!(refused.error().starts_with("ERR no lock can be granted while"), "{replies:?}");
        }
        assert_eq!(replies[2], Reply::Int(0));
        client.run("CLIENT UNPAUSE");
        client.run("LOCK.ACQUIRE k b").fence();
    }

    #[test]
    fn client_pause_write_stops_grants_until_client_unpause() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        setup.assert_nothing_is_granted_after(&["CLIENT PAUSE 60000 WRITE"]);
        setup.assert_granted_after(|client| {
            client.run("CLIENT UNPAUSE");
        });
    }

    #[test]
    fn client_pause_write_stops_grants_until_it_times_out() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        let start = Instant::now();
        setup.client.pipeline(&["PEXPIRE k 50", "CLIENT PAUSE 400 WRITE"]);
        setup.b.granted_within("b", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "granted after {:?}", start.elapsed());
    }

    #[test]
    fn client_pause_all_stops_grants_until_it_times_out() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        let start = Instant::now();
        setup.client.pipeline(&["PEXPIRE k 50", "CLIENT PAUSE 400 ALL"]);
        setup.b.granted_within("b", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "granted after {:?}", start.elapsed());
        assert_eq!(holders(&mut setup.client, "k"), ["b"]);
    }

    #[test]
    fn a_request_sent_during_the_pause_queues_behind_the_waiters() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        setup.assert_nothing_is_granted_after(&["CLIENT PAUSE 60000 WRITE"]);
        // The server postpones this and runs it when the pause ends, perhaps before anything else.
        let mut newcomer = server.client();
        newcomer.send_line("LOCK.ACQUIRE k z");
        server.wait_blocked(3);
        setup.client.run("CLIENT UNPAUSE");
        assert_eq!(newcomer.read(), Reply::NullArray);
        setup.b.granted("b");
        setup.c.assert_silent();
    }

    #[test]
    fn a_release_during_the_pause_hands_off_after_it() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        setup.client.run("CLIENT PAUSE 60000 WRITE");
        let mut holder = server.client();
        holder.send_line("LOCK.RELEASE k a");
        server.wait_blocked(3);
        setup.b.assert_silent_for(Duration::from_millis(50));
        setup.assert_granted_after(|client| {
            client.run("CLIENT UNPAUSE");
        });
        assert_eq!(holder.read(), Reply::Int(1));
    }

    #[test]
    fn a_session_that_ends_during_the_pause_is_released_after_it() {
        let server = Server::start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        session.run("LOCK.ACQUIRE unwanted a PX 60000 SESSION");
        let [mut b] = line_up(&server, "k", ["b"]);
        client.run("CLIENT PAUSE 60000 WRITE");
        drop(session);
        b.assert_silent_for(A_WHILE);
        for key in ["k", "unwanted"] {
            assert_eq!(client.run(&format!("EXISTS {key}")), Reply::Int(1), "nothing is written during the pause");
            assert!(client.run(&format!("LOCK.HELD {key} a")).is_nil(), "the hold counts as ended all the same");
        }
        client.run("CLIENT UNPAUSE");
        b.granted("b");
        until("the other lock is free", || client.run("EXISTS unwanted") == Reply::Int(0));
    }

    #[test]
    fn a_session_outlives_a_pause() {
        let server = Server::start();
        let mut client = server.client();
        let mut session = server.client();
        // Longer than a third of the lease, after which it is renewed.
        let replies = session.pipeline(&["LOCK.ACQUIRE k a PX 2400 SESSION", "CLIENT PAUSE 900 WRITE"]);
        let fence = replies[0].fence();
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    }

    #[test]
    fn waits_time_out_during_a_pause() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let start = Instant::now();
        let mut b = Waiter::request(&server, "LOCK.ACQUIRE k b BLOCK 200");
        client.run("CLIENT PAUSE 60000 WRITE");
        assert_eq!(b.reply_within(Duration::from_millis(200) + SOON), Reply::NullArray);
        assert!(ms_since(start) >= 200);
    }

    #[test]
    fn a_waiter_that_leaves_during_a_pause_is_not_granted_after_it() {
        let server = Server::start();
        let Setup { mut client, b, mut c } = Setup::of(&server);
        client.pipeline(&["PEXPIRE k 50", "CLIENT PAUSE 60000 WRITE"]);
        until("a's lock has ended", || client.run("LOCK.HELD k a").is_nil());
        drop(b);
        until_queue(&mut client, "k", &["c"]);
        c.assert_silent();
        client.run("CLIENT UNPAUSE");
        c.granted("c");
    }

    #[test]
    fn a_flush_just_before_the_pause_is_served_after_it() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        let replies = setup.client.pipeline(&["FLUSHALL ASYNC", "CLIENT PAUSE 60000 WRITE"]);
        assert_eq!(replies, [Reply::ok(), Reply::ok()]);
        setup.assert_nothing_is_granted();
        setup.assert_granted_after(|client| {
            client.run("CLIENT UNPAUSE");
        });
    }
}

mod failover {
    use super::*;

    /// `FAILOVER` pauses writes and waits for the replica, which sleeps.
    #[test]
    fn a_failover_in_progress_stops_grants_until_it_is_aborted() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        let mut setup = Setup::of(&server);
        in_sync(&server, &replica);
        // Until it is killed at the end of the test.
        let _sleeper = put_to_sleep(&replica, FOR_EVER);
        assert_eq!(setup.assert_nothing_is_granted_after(&["FAILOVER"]), [Reply::ok()]);
        assert_eq!(server.info("replication").text("master_failover_state"), "waiting-for-sync");
        setup.assert_granted_after(|client| {
            assert_eq!(client.run("FAILOVER ABORT"), Reply::ok());
        });
    }

    #[test]
    fn after_a_failover_the_lock_is_where_it_was_and_waiters_retry_on_the_new_primary() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        let fence = hold(&mut client, "k", "a");
        let mut waiters = line_up(&server, "k", ["b", "c"]);
        in_sync(&server, &replica);
        assert_eq!(client.run("FAILOVER"), Reply::ok());
        for waiter in &mut waiters {
            let reply = waiter.client.read();
            assert!(reply.is_error(), "{reply:?}");
        }
        until("the replica is the primary", || replica.info("replication").text("role") == "master");
        let mut client = replica.client();
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
        let [mut b] = line_up(&replica, "k", ["b"]);
        assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
        assert!(b.granted("b") > fence);
        in_sync(&replica, &server);
        assert_eq!(all_locks(&server), all_locks(&replica));
        server.wait_blocked(0);
    }
}

mod replicas_and_saves {
    use super::*;

    #[test]
    fn without_enough_replicas_no_lock_is_granted() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        let replies = setup.assert_nothing_is_granted_after(&["CONFIG SET min-replicas-to-write 1", "SET x y"]);
        assert_eq!(replies[0], Reply::ok());
        assert!(replies[1].error().starts_with("NOREPLICAS "));
        setup.assert_granted_after(|client| {
            client.run("CONFIG SET min-replicas-to-write 0");
        });
    }

    #[test]
    fn when_a_replica_arrives_the_next_is_served() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        setup.assert_nothing_is_granted_after(&["CONFIG SET min-replicas-to-write 1"]);
        let replica = Server::builder().replica_of(&server).start();
        until("writes are accepted", || !setup.client.run("SET x y").is_error());
        setup.b.granted("b");
        in_sync(&server, &replica);
        assert_eq!(holders(&mut replica.client(), "k"), ["b"]);
    }

    #[test]
    fn after_a_failed_save_no_lock_is_granted() {
        let server = Server::builder().config("save 3600 1").config("dbfilename dump.rdb").start();
        let mut setup = Setup::of(&server);
        // A directory with the file's name makes the save fail.
        let in_the_way = server.dir().join("dump.rdb");
        fs::create_dir(&in_the_way).expect("the server's folder is ours");
        assert!(!setup.client.run("BGSAVE").is_error());
        until("the save has failed", || server.info("persistence").text("rdb_last_bgsave_status") == "err");
        assert!(setup.client.run("SET x y").error().starts_with("MISCONF "));
        // The lock's expiry cannot be shortened any more; but a script may still remove it, or it expires by itself.
        setup.client.run("CONFIG SET stop-writes-on-bgsave-error no");
        setup.assert_nothing_is_granted_after(&["CONFIG SET stop-writes-on-bgsave-error yes"]);
        fs::remove_dir(&in_the_way).expect("it is empty");
        setup.assert_granted_after(|client| {
            assert!(!client.run("BGSAVE").is_error());
            until("the save succeeds", || server.info("persistence").text("rdb_last_bgsave_status") == "ok");
        });
    }

    #[test]
    fn a_session_that_ends_while_writes_are_refused_is_released_later() {
        let server = Server::start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        let [mut b] = line_up(&server, "k", ["b"]);
        client.run("CONFIG SET min-replicas-to-write 1");
        drop(session);
        b.assert_silent_for(A_WHILE);
        client.run("CONFIG SET min-replicas-to-write 0");
        b.granted("b");
    }

    #[test]
    fn waiters_may_leave_while_writes_are_refused() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let start = Instant::now();
        let mut b = Waiter::request(&server, "LOCK.ACQUIRE k b BLOCK 200");
        let [c] = line_up(&server, "k", ["c"]);
        client.run("CONFIG SET min-replicas-to-write 1");
        drop(c);
        assert_eq!(b.reply_within(Duration::from_millis(200) + SOON), Reply::NullArray);
        assert!(ms_since(start) >= 200);
        assert_no_waiters(&server, &["k"]);
    }
}

mod reload {
    use super::*;

    #[test]
    fn debug_reload_keeps_holders_and_waiters() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        let before = all_locks(&server);
        assert_eq!(setup.client.run("DEBUG RELOAD"), Reply::ok());
        setup.b.assert_silent_for(A_WHILE);
        assert_eq!(all_locks(&server), before);
        assert_eq!(queue(&mut setup.client, "k"), ["b", "c"]);
        setup.assert_granted_after(|client| {
            client.run("LOCK.RELEASE k a");
        });
    }

    #[test]
    fn a_lease_that_expires_around_a_reload_wakes_the_next() {
        let server = Server::start();
        let mut setup = Setup::of(&server);
        setup.client.run("PEXPIRE k 150");
        assert_eq!(setup.client.run("DEBUG RELOAD"), Reply::ok());
        setup.assert_granted_after(|_| ());
    }

    #[test]
    fn a_lock_missing_in_the_loaded_data_goes_to_the_next_waiter() {
        let server = Server::builder().config("save 3600 1000").start();
        let mut client = server.client();
        hold(&mut client, "old", "a");
        assert_eq!(client.run("SAVE"), Reply::ok());
        let [mut o] = line_up(&server, "old", ["o"]);
        let mut setup = Setup::of(&server);
        // Loads a file saved before k existed.
        assert_eq!(setup.client.run("DEBUG RELOAD NOSAVE"), Reply::ok());
        setup.assert_granted_after(|_| ());
        o.assert_silent();
        assert_eq!(holders(&mut setup.client, "old"), ["a"]);
    }

    #[test]
    fn debug_loadaof_keeps_holders_and_waiters() {
        let server = plain_aof(Server::builder()).start();
        let mut setup = Setup::of(&server);
        let before = all_locks(&server);
        assert_eq!(setup.client.run("DEBUG LOADAOF"), Reply::ok());
        setup.b.assert_silent_for(A_WHILE);
        assert_eq!(all_locks(&server), before);
        setup.assert_granted_after(|client| {
            client.run("LOCK.RELEASE k a");
        });
    }

    #[test]
    fn waiters_without_blocking_survive_a_reload() {
        let server = Server::start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        client.run("LOCK.ACQUIRE k b PX 60000 BLOCK 0 NOTIFY ch");
        let [mut c] = line_up(&server, "k", ["c"]);
        assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        client.run("LOCK.RELEASE k a");
        assert_eq!(holders(&mut client, "k"), ["b"]);
        client.run("LOCK.RELEASE k b");
        c.granted("c");
    }
}

mod roles {
    use super::*;

    #[test]
    fn a_lock_that_ends_in_the_step_of_a_demotion_is_not_granted() {
        let master = Server::start();
        let server = Server::start();
        let Setup { mut client, mut b, mut c } = Setup::of(&server);
        let demote = format!("REPLICAOF 127.0.0.1 {}", master.port());
        client.pipeline(&["DEL k", &demote]);
        for waiter in [&mut b, &mut c] {
            let reply = waiter.reply();
            assert!(reply.is_error(), "{reply:?}");
        }
        in_sync(&master, &server);
        assert_eq!(all_locks(&server), []);
        server.wait_blocked(0);
    }
}

mod shutdown {
    use super::*;

    /// A shutdown waits for its replicas, and refuses writes during that time.
    #[test]
    fn a_shutdown_that_waits_for_a_replica_stops_grants_until_it_is_aborted() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        let mut setup = Setup::of(&server);
        in_sync(&server, &replica);
        // Until it is killed at the end of the test.
        let _sleeper = put_to_sleep(&replica, FOR_EVER);
        let mut stopper = server.client();
        // The replica lacks this write, so the shutdown waits.
        stopper.send_raw(b"PEXPIRE k 100\r\nSHUTDOWN\r\n");
        assert_eq!(stopper.read(), Reply::Int(1));
        server.wait_blocked(3);
        setup.assert_nothing_is_granted();
        setup.assert_granted_after(|client| {
            assert_eq!(client.run("SHUTDOWN ABORT"), Reply::ok());
        });
        assert!(stopper.read().is_error());
    }
}
