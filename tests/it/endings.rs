//! Every way a lock can end, and that each one wakes whoever is next: one grant, at once, replicated after what
//! caused it, or the error that says why there can be none.

use crate::support::waiting::*;
use crate::support::{in_sync, until, Client, Reply, Server, LIMIT};
use std::time::{Duration, Instant};

/// `a` holds `k`, `b` and `c` wait. When `end` has run, `b` holds it and `c` still waits; when it has run again for
/// `b`'s lock, `c` holds it.
#[track_caller]
fn assert_wakes_the_next(end: impl Fn(&mut Client)) {
    let server = quiet().start();
    let mut client = server.client();
    let first = hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);

    end(&mut client);
    let second = b.granted("b");
    assert!(second > first, "fences grow");
    assert_eq!(holders(&mut client, "k"), ["b"]);
    assert_eq!(queue(&mut client, "k"), ["c"]);
    c.assert_silent();

    end(&mut client);
    assert!(c.granted("c") > second);
    assert_nobody_waits(&server, &["k"]);
    assert_eq!(holders(&mut client, "k"), ["c"]);
}

#[test]
fn del_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("DEL k"), Reply::Int(1)));
}

#[test]
fn unlink_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("UNLINK k"), Reply::Int(1)));
}

#[test]
fn flushdb_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHDB SYNC"), Reply::ok()));
}

#[test]
fn flushdb_async_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHDB ASYNC"), Reply::ok()));
}

#[test]
fn flushall_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHALL SYNC"), Reply::ok()));
}

#[test]
fn flushall_async_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok()));
}

#[test]
fn pexpire_with_a_time_that_is_past_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("PEXPIRE k -1"), Reply::Int(1)));
    assert_wakes_the_next(|client| assert_eq!(client.run("EXPIREAT k 1"), Reply::Int(1)));
}

#[test]
fn pexpire_shorter_wakes_the_next_when_that_time_is_over() {
    assert_wakes_the_next(|client| assert_eq!(client.run("PEXPIRE k 50"), Reply::Int(1)));
}

#[test]
fn a_release_in_a_transaction_wakes_the_next() {
    assert_wakes_the_next(|client| {
        let holder = holders(client, "k").remove(0);
        let release = format!("LOCK.RELEASE k {holder}");
        assert_eq!(multi(client, &[&release, &release]), [Reply::Int(1), Reply::Int(0)]);
    });
}

#[test]
fn a_release_in_a_script_wakes_the_next() {
    assert_wakes_the_next(|client| {
        let holder = holders(client, "k").remove(0);
        let script = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])";
        assert_eq!(client.cmd(&["EVAL", script, "1", "k", &holder]), Reply::Int(1));
    });
}

#[test]
fn rename_wakes_the_next_and_takes_the_lock_along() {
    assert_wakes_the_next(|client| {
        let holder = holders(client, "k");
        client.run("DEL elsewhere");
        assert_eq!(client.run("RENAME k elsewhere"), Reply::ok());
        assert_eq!(holders(client, "elsewhere"), holder);
    });
}

#[test]
fn renamenx_wakes_the_next() {
    assert_wakes_the_next(|client| {
        client.run("DEL elsewhere");
        assert_eq!(client.run("RENAMENX k elsewhere"), Reply::Int(1));
    });
}

#[test]
fn move_wakes_the_next_and_takes_the_lock_along() {
    assert_wakes_the_next(|client| {
        let holder = holders(client, "k");
        let replies = client.pipeline(&["SELECT 1", "DEL k", "SELECT 0", "MOVE k 1", "SELECT 1"]);
        assert_eq!(replies[3], Reply::Int(1));
        assert_eq!(holders(client, "k"), holder);
        client.run("SELECT 0");
    });
}

#[test]
fn a_store_command_whose_empty_result_removes_the_key_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("SINTERSTORE k nothing here"), Reply::Int(0)));
}

#[test]
fn restore_of_a_lock_that_has_long_expired_wakes_the_next() {
    assert_wakes_the_next(|client| {
        client.run("LOCK.ACQUIRE other x PX 60000");
        let dump = client.run("DUMP other");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"1", dump.bytes(), b"REPLACE", b"ABSTTL"]);
        assert_eq!(reply, Reply::ok());
    });
}

#[test]
fn eviction_wakes_the_next() {
    let server = quiet().config("maxmemory-policy volatile-ttl").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    // All in one turn, so that memory is only short for as long as it takes to evict one lock.
    client.pipeline(&["CONFIG SET maxmemory 100kb", "SET x y", "CONFIG SET maxmemory 0"]);
    b.granted("b");
    assert_eq!(server.info("stats").number("evicted_keys"), 1);
    assert_eq!(holders(&mut client, "k"), ["b"]);
    c.assert_silent();
}

mod lease_ends {
    use super::*;

    #[test]
    fn the_next_is_served_within_milliseconds_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        let lease = Duration::from_millis(400);
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        let start = Instant::now();
        client.run("LOCK.RENEW k a PX 400");
        // From here on nobody says a word.
        b.granted_within("b", lease + SOON);
        assert!(ms_since(start) >= lease.as_millis(), "too early: {:?}", start.elapsed());
        c.assert_silent();
    }

    #[test]
    fn leases_that_end_one_after_the_other_pass_a_lock_along_the_whole_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let mut last = hold(&mut client, "k", "a");
        let mut waiters: Vec<Waiter> =
            (0..6).map(|n| Waiter::park(&server, &format!("LOCK.ACQUIRE k owner-{n} PX 30 BLOCK 0"))).collect();
        client.run("LOCK.RENEW k a PX 30");
        for (n, waiter) in waiters.iter_mut().enumerate() {
            let fence = waiter.granted_within(&format!("owner-{n}"), Duration::from_millis(30) + SOON);
            assert!(fence > last);
            last = fence;
        }
        until("the last lease has ended too", || client.run("EXISTS k") == Reply::Int(0));
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn never_too_early() {
        let server = quiet().start();
        let mut client = server.client();
        for lease in [1, 40, 90, 250] {
            let key = format!("k{lease}");
            let start = Instant::now();
            client.run(&format!("LOCK.ACQUIRE {key} a PX {lease}"));
            let reply = client.run(&format!("LOCK.ACQUIRE {key} b BLOCK 0"));
            assert_eq!(reply.items()[0], Reply::bulk("b"));
            assert!(ms_since(start) >= lease, "{lease} ms were {:?}", start.elapsed());
        }
    }

    #[test]
    fn wake_ups_are_exact_to_a_few_milliseconds() {
        let server = quiet().start();
        let mut client = server.client();
        let mut late: Vec<Duration> = (0..15)
            .map(|n| {
                let lease = Duration::from_millis(20 + 3 * n);
                let mut watch = client.stopwatch();
                client.run(&format!("LOCK.ACQUIRE k{n} a PX {}", lease.as_millis()));
                client.send_line(&format!("LOCK.ACQUIRE k{n} b BLOCK 0"));
                client.read_by(&mut watch, LIMIT).expect("its turn comes");
                watch.elapsed().saturating_sub(lease)
            })
            .collect();
        late.sort();
        // Half of them: a busy machine may delay some. A server's own expiry, ten times a second, is later than that.
        assert!(late[late.len() / 2] < Duration::from_millis(25), "{late:?}");
    }

    #[test]
    fn it_needs_no_help_from_the_servers_own_expiry() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let start = Instant::now();
        client.run("LOCK.RENEW k a PX 100");
        b.granted("b");
        assert!(ms_since(start) >= 100);
    }

    #[test]
    fn a_reentrant_lock_passes_on_with_all_its_holds() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RLOCK.ACQUIRE k a HOLDS 5 PX 60000");
        let mut b = Waiter::park(&server, "RLOCK.ACQUIRE k b BLOCK 0");
        client.run("RLOCK.RENEW k a PX 80");
        assert_eq!(b.reply().items()[2], Reply::Int(1));
        assert_eq!(client.run("RLOCK.RELEASE k a"), Reply::Int(-1));
        assert_eq!(holders(&mut client, "k"), ["b"]);
    }

    #[test]
    fn pexpire_longer_lets_them_wait_longer() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let start = Instant::now();
        multi(&mut client, &["PEXPIRE k 100", "PEXPIRE k 400"]);
        b.granted_within("b", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
    }

    #[test]
    fn persist_lets_them_wait_for_ever() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        assert_eq!(multi(&mut client, &["PEXPIRE k 60", "PERSIST k"])[1], Reply::Int(1));
        b.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["a"]);
        client.run("PEXPIRE k 20");
        b.granted("b");
    }

    #[test]
    fn a_renewal_lets_them_wait_longer() {
        let server = quiet().start();
        let mut client = server.client();
        for (acquire, renew) in [("LOCK.ACQUIRE", "LOCK.RENEW"), ("RLOCK.ACQUIRE", "RLOCK.RENEW")] {
            client.run("DEL k");
            client.run(&format!("{acquire} k a {LONG}"));
            let mut b = Waiter::park(&server, &format!("{acquire} k b PX 60000 BLOCK 0"));
            let start = Instant::now();
            let renewals = [60, 300].map(|lease| format!("{renew} k a PX {lease}"));
            assert_eq!(multi(&mut client, &[&renewals[0], &renewals[1]]), [Reply::Int(1), Reply::Int(1)]);
            assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
            assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
        }
    }

    #[test]
    fn acquiring_again_lets_them_wait_longer() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let start = Instant::now();
        multi(&mut client, &["LOCK.RENEW k a PX 50", "LOCK.ACQUIRE k a PX 300"]);
        assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
        assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
    }
}

mod moved_and_overwritten {
    use super::*;

    const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

    /// `end` turns `k` into something that is no mutex; both waiters must be told `error`, and nobody is granted it.
    #[track_caller]
    fn assert_tells_all_waiters(error: &str, end: impl FnOnce(&mut Client)) {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut waiters = line_up(&server, "k", ["b", "c"]);
        end(&mut client);
        for waiter in &mut waiters {
            let reply = waiter.only_reply();
            assert!(reply.error().starts_with(error), "{reply:?}");
        }
        server.wait_blocked(0);
    }

    #[test]
    fn a_key_that_becomes_a_string_tells_its_waiters_wrongtype() {
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            assert_eq!(client.run("SET k v"), Reply::ok());
            assert_eq!(client.run("GET k"), Reply::bulk("v"));
        });
    }

    #[test]
    fn every_way_of_overwriting_tells_them() {
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            client.run("SET s v");
            assert_eq!(client.run("RENAME s k"), Reply::ok());
        });
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            client.run("SET s v");
            assert_eq!(client.run("COPY s k REPLACE"), Reply::Int(1));
        });
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            client.run("SADD s v");
            assert_eq!(client.run("SUNIONSTORE k s"), Reply::Int(1));
        });
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            client.run("SET s v");
            let dump = client.run("DUMP s");
            let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"0", dump.bytes(), b"REPLACE"]);
            assert_eq!(reply, Reply::ok());
        });
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            multi(client, &["DEL k", "LPUSH k v"]);
        });
        assert_tells_all_waiters(WRONG_TYPE, |client| {
            client.run("SELECT 1");
            client.run("SET k v");
            client.run("SELECT 0");
            multi(client, &["DEL k", "SWAPDB 0 1"]);
        });
    }

    #[test]
    fn a_key_that_becomes_another_family_tells_them_wrongkind() {
        assert_tells_all_waiters("WRONGKIND ", |client| {
            client.run("RLOCK.ACQUIRE r x");
            assert_eq!(client.run("RENAME r k"), Reply::ok());
        });
        assert_tells_all_waiters("WRONGKIND ", |client| {
            client.run("RLOCK.ACQUIRE r x");
            let dump = client.run("DUMP r");
            let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"60000", dump.bytes(), b"REPLACE"]);
            assert_eq!(reply, Reply::ok());
        });
    }

    #[test]
    fn the_overwritten_key_is_left_as_it_is() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        client.run("SET k v PX 60000");
        assert!(b.reply().is_error());
        assert_eq!(client.run("GET k"), Reply::bulk("v"));
        assert!(client.run("PTTL k").int() > 0);
        client.run("DEL k");
        assert_eq!(client.run("EXISTS k"), Reply::Int(0), "who was told is no waiter any more");
    }

    #[test]
    fn who_waits_for_a_key_that_restore_replaces_waits_for_its_new_holder() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "other", "x");
        let [mut b] = line_up(&server, "k", ["b"]);
        let dump = client.run("DUMP other");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"60000", dump.bytes(), b"REPLACE"]);
        assert_eq!(reply, Reply::ok());
        b.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["x"]);
        assert_eq!(queue(&mut client, "k"), ["b"]);
        assert_eq!(client.run("LOCK.RELEASE k x"), Reply::Int(1));
        b.granted("b");
    }

    #[test]
    fn a_restored_lock_that_ends_by_its_time_to_live_wakes_them_too() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "other", "x");
        let [mut b] = line_up(&server, "k", ["b"]);
        let dump = client.run("DUMP other");
        let start = Instant::now();
        client.cmd(&[b"RESTORE" as &[u8], b"k", b"150", dump.bytes(), b"REPLACE"]);
        b.granted_within("b", Duration::from_millis(150) + SOON);
        assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
    }

    #[test]
    fn who_waits_for_the_target_of_a_rename_waits_for_the_lock_that_came() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "target", "x");
        let [mut b] = line_up(&server, "k", ["b"]);
        let [mut y] = line_up(&server, "target", ["y"]);
        assert_eq!(client.run("RENAME k target"), Reply::ok());
        b.granted("b");
        y.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "target"), ["a"]);
        assert_eq!(client.run("LOCK.RELEASE target a"), Reply::Int(1));
        y.granted("y");
    }

    #[test]
    fn a_lock_that_was_renamed_ends_with_its_lease_there() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "target", "x");
        let [mut y] = line_up(&server, "target", ["y"]);
        let start = Instant::now();
        multi(&mut client, &["LOCK.ACQUIRE k a PX 150", "RENAME k target"]);
        assert_eq!(y.client.read().items()[0], Reply::bulk("y"));
        assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
    }

    #[test]
    fn a_lock_that_was_moved_ends_with_its_lease_there() {
        let server = quiet().start();
        let mut client = server.client();
        let mut in_one = server.client();
        in_one.run("SELECT 1");
        let start = Instant::now();
        multi(&mut client, &["LOCK.ACQUIRE k a PX 400", "MOVE k 1"]);
        let mut b = Waiter::ask_over(in_one, &server, "LOCK.ACQUIRE k b BLOCK 0");
        assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
        assert_eq!(client.run("EXISTS k"), Reply::Int(0));
    }

    #[test]
    fn swapdb_lets_both_sides_wait_for_what_is_now_there() {
        let server = quiet().start();
        let mut zero = server.client();
        let mut one = server.client();
        one.run("SELECT 1");
        let in_one = || {
            let mut client = server.client();
            client.run("SELECT 1");
            client
        };
        hold(&mut zero, "both", "a0");
        hold(&mut one, "both", "a1");
        hold(&mut zero, "only0", "a0");
        hold(&mut one, "only1", "a1");
        let [mut b0] = line_up(&server, "both", ["b0"]);
        let [mut c0] = line_up(&server, "only0", ["c0"]);
        let mut b1 = Waiter::park_over(in_one(), &server, "LOCK.ACQUIRE both b1 BLOCK 0");
        let mut c1 = Waiter::park_over(in_one(), &server, "LOCK.ACQUIRE only1 c1 BLOCK 0");

        assert_eq!(zero.run("SWAPDB 0 1"), Reply::ok());
        c0.granted("c0");
        c1.granted("c1");
        assert_eq!(holders(&mut zero, "only0"), ["c0"]);
        assert_eq!(holders(&mut zero, "only1"), ["a1"]);
        assert_eq!(holders(&mut one, "only0"), ["a0"]);
        assert_eq!(holders(&mut one, "only1"), ["c1"]);

        b0.assert_silent_for(A_WHILE);
        b1.assert_silent();
        assert_eq!(holders(&mut zero, "both"), ["a1"]);
        assert_eq!(queue(&mut zero, "both"), ["b0"], "the client did not change its database");
        assert_eq!(queue(&mut one, "both"), ["b1"]);
        assert_eq!(one.run("LOCK.RELEASE both a0"), Reply::Int(1));
        b1.granted("b1");
        assert_eq!(zero.run("LOCK.RELEASE both a1"), Reply::Int(1));
        b0.granted("b0");
    }

    #[test]
    fn after_swapdb_leases_end_where_the_locks_are() {
        let server = quiet().start();
        let mut zero = server.client();
        let mut one = server.client();
        one.run("SELECT 1");
        hold(&mut one, "k", "x");
        let in_one = {
            let mut client = server.client();
            client.run("SELECT 1");
            Waiter::park_over(client, &server, "LOCK.ACQUIRE k b BLOCK 0")
        };
        let mut b = in_one;
        let start = Instant::now();
        multi(&mut zero, &["LOCK.ACQUIRE k a PX 150", "SWAPDB 0 1"]);
        b.granted_within("b", Duration::from_millis(150) + SOON);
        assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
    }

    #[test]
    fn a_flush_of_another_database_wakes_nobody() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let replies = client.pipeline(&["SELECT 1", "SET x y", "FLUSHDB", "SELECT 0"]);
        assert_eq!(replies[2], Reply::ok());
        b.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["a"]);
    }

    #[test]
    fn a_key_that_was_removed_and_made_again_in_one_step_goes_by_what_it_is_now() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "other", "x");
        let [mut b] = line_up(&server, "k", ["b"]);
        multi(&mut client, &["DEL k", "RENAME other k"]);
        b.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["x"]);
        multi(&mut client, &["SET k v", "DEL k"]);
        // The queue is asked once, when the step is over, and finds the key free.
        b.granted("b");
    }
}

mod at_the_same_moment {
    use super::*;

    #[test]
    fn a_release_and_the_end_of_the_head_waiters_client_pass_the_lock_on() {
        let server = quiet().start();
        let mut client = server.client();
        for kill_first in [false, true] {
            hold(&mut client, "k", "a");
            let [b, mut c] = line_up(&server, "k", ["b", "c"]);
            let kill = format!("CLIENT KILL ID {}", b.id);
            let mut lines = ["LOCK.RELEASE k a", &kill];
            if kill_first {
                lines.reverse();
            }
            assert_eq!(multi(&mut client, &lines), [Reply::Int(1), Reply::Int(1)]);
            c.granted("c");
            assert_eq!(holders(&mut client, "k"), ["c"]);
            assert_nobody_waits(&server, &["k"]);
            client.run("LOCK.RELEASE k c");
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
        }
    }

    #[test]
    fn a_lock_granted_to_many_dead_clients_reaches_the_first_that_lives() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [b, c, d, mut e, mut f] = line_up(&server, "k", ["b", "c", "d", "e", "f"]);
        let mut lines = vec!["LOCK.RELEASE k a".to_string()];
        lines.extend([&b, &c, &d].map(|dead| format!("CLIENT KILL ID {}", dead.id)));
        multi(&mut client, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        e.granted("e");
        f.assert_silent();
        assert_eq!(queue(&mut client, "k"), ["f"]);
    }

    #[test]
    fn when_all_who_waited_are_dead_the_lock_is_free() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [b, c] = line_up(&server, "k", ["b", "c"]);
        let kills = [&b, &c].map(|dead| format!("CLIENT KILL ID {}", dead.id));
        multi(&mut client, &["LOCK.RELEASE k a", &kills[0], &kills[1]]);
        until("the lock is free", || client.run("EXISTS k") == Reply::Int(0));
        assert!(client.run("LOCK.ACQUIRE k z").fence() > 0);
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_release_and_client_unblock_error_leave_no_lock_with_whom_was_told_otherwise() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        let unblock = format!("CLIENT UNBLOCK {} ERROR", b.id);
        multi(&mut client, &["LOCK.RELEASE k a", &unblock]);
        let reply = b.only_reply();
        if reply.is_error() {
            c.granted("c");
            assert_eq!(holders(&mut client, "k"), ["c"]);
        } else {
            assert_eq!(reply.items()[0], Reply::bulk("b"));
            assert_eq!(holders(&mut client, "k"), ["b"]);
        }
    }

    #[test]
    fn a_release_and_a_cancel_settle_for_the_grant() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        let replies = multi(&mut client, &["LOCK.RELEASE k a", "LOCK.CANCEL k b"]);
        assert_eq!(replies[1], Reply::Int(0), "b does not wait any more, it holds");
        b.granted("b");
        assert_eq!(client.run("PING"), Reply::Status("PONG".into()));
        c.assert_silent();
    }

    #[test]
    fn a_removal_and_the_end_of_the_head_waiters_client_pass_the_lock_on() {
        for end in ["DEL k", "FLUSHALL", "RENAME k elsewhere", "PEXPIRE k 0"] {
            let server = quiet().start();
            let mut client = server.client();
            hold(&mut client, "k", "a");
            let [b, mut c] = line_up(&server, "k", ["b", "c"]);
            let kill = format!("CLIENT KILL ID {}", b.id);
            multi(&mut client, &[end, &kill]);
            c.granted("c");
            assert_eq!(holders(&mut client, "k"), ["c"], "{end}");
            assert_nobody_waits(&server, &["k"]);
        }
    }

    /// The release sees the lock alive, because a script's clock stands still; when the script is over, its lease has
    /// long ended. That old end must not end the next owner's lease as well.
    #[test]
    fn a_release_after_a_lease_end_in_a_transaction_makes_one_grant() {
        let server = quiet().start();
        let mut client = server.client();
        for round in 0..5 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            let [mut b, mut c] = line_up(&server, &key, ["b", "c"]);
            let renew = format!("LOCK.RENEW {key} a PX 20");
            let release = format!("LOCK.RELEASE {key} a");
            multi(&mut client, &[&renew, "DEBUG SLEEP 0.05", &release]);
            b.granted("b");
            c.assert_silent_for(Duration::from_millis(50));
            assert_eq!(holders(&mut client, &key), ["b"]);
            assert_eq!(queue(&mut client, &key), ["c"]);
        }
    }

    /// Both are due when the server wakes up: the timer of the lease, and the release on the socket.
    #[test]
    fn a_release_and_a_lease_end_in_one_turn_make_one_grant() {
        let server = quiet().start();
        let mut client = server.client();
        for round in 0..5 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            let [mut b, mut c] = line_up(&server, &key, ["b", "c"]);
            client.run(&format!("PEXPIRE {key} 40"));
            let mut sleeper = put_to_sleep(&server, Duration::from_millis(120));
            client.send_line(&format!("LOCK.RELEASE {key} a"));
            assert_eq!(sleeper.read(), Reply::ok());
            client.read();
            b.granted("b");
            c.assert_silent_for(Duration::from_millis(30));
            assert_eq!(holders(&mut client, &key), ["b"]);
            assert_eq!(queue(&mut client, &key), ["c"]);
        }
    }

    #[test]
    fn releases_around_the_very_millisecond_of_the_lease_end_make_one_grant_each() {
        let server = quiet().start();
        let mut client = server.client();
        let lease = Duration::from_millis(12);
        let mut b = server.client();
        let mut c = server.client();
        let mut released = 0;
        for round in 0..80_u32 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            for (waiter, owner) in [(&mut b, "b"), (&mut c, "c")] {
                waiter.send_line(&format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"));
                until("it waits", || queue(&mut client, &key).iter().any(|queued| queued == owner));
            }
            client.run(&format!("LOCK.RENEW {key} a PX {}", lease.as_millis()));
            // From a millisecond before the end to two after it, in steps of 37 microseconds.
            let release_at = Instant::now() + lease - Duration::from_millis(1) + Duration::from_micros(37) * round;
            while Instant::now() < release_at {
                std::hint::spin_loop();
            }
            released += client.run(&format!("LOCK.RELEASE {key} a")).int();
            assert_eq!(b.read().items()[0], Reply::bulk("b"));
            assert_eq!(holders(&mut client, &key), ["b"]);
            assert_eq!(queue(&mut client, &key), ["c"]);
            client.run(&format!("LOCK.RELEASE {key} b"));
            assert_eq!(c.read().items()[0], Reply::bulk("c"));
            client.run(&format!("LOCK.RELEASE {key} c"));
            assert_eq!(client.run(&format!("EXISTS {key}")), Reply::Int(0));
        }
        assert!(released > 0, "some releases came before the end");
    }

    /// 7.0 can time a client out in the turn in which it was unblocked, and then answers nothing at all.
    #[test]
    fn a_waiter_whose_time_ends_in_the_turn_of_its_grant_gets_one_answer_that_is_true() {
        let server = quiet().start();
        let mut client = server.client();
        for round in 0..5 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            let mut b = Waiter::ask(&server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 150"));
            let [mut c] = line_up(&server, &key, ["c"]);
            let mut sleeper = put_to_sleep(&server, Duration::from_millis(250));
            client.send_line(&format!("LOCK.RELEASE {key} a"));
            sleeper.read();
            assert_eq!(client.read(), Reply::Int(1));
            assert_truth_was_told(&mut client, &key, &mut b, &mut c);
        }
    }

    #[test]
    fn a_waiter_whose_time_ends_around_the_release_gets_one_answer_that_is_true() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 0");
        for round in 0..40_u32 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            let b = server.client();
            let start = Instant::now();
            let mut b = Waiter::ask_over(b, &server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 15"));
            let [mut c] = line_up(&server, &key, ["c"]);
            let release_at = start + Duration::from_millis(14) + Duration::from_micros(60) * round;
            while Instant::now() < release_at {
                std::hint::spin_loop();
            }
            client.run(&format!("LOCK.RELEASE {key} a"));
            assert_truth_was_told(&mut client, &key, &mut b, &mut c);
        }
    }

    /// Either `b` was granted the lock and holds it, or it was refused and `c` holds it.
    #[track_caller]
    fn assert_truth_was_told(client: &mut Client, key: &str, b: &mut Waiter, c: &mut Waiter) {
        if b.only_reply().is_nil() {
            c.granted("c");
            assert_eq!(holders(client, key), ["c"]);
        } else {
            assert_eq!(holders(client, key), ["b"]);
            assert_eq!(queue(client, key), ["c"]);
            c.assert_silent();
        }
    }

    #[test]
    fn a_lease_that_ends_while_the_waiter_times_out_gets_one_answer_that_is_true() {
        let server = quiet().start();
        let mut client = server.client();
        for round in 0..10 {
            let key = format!("k{round}");
            hold(&mut client, &key, "a");
            let mut b = Waiter::ask(&server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 200"));
            let [mut c] = line_up(&server, &key, ["c"]);
            // Where b's time is over already, c is the first, which waits for ever: then the lease ends at once.
            let left = client.run(&format!("LOCK.WAITERS {key}")).items()[0].get("remaining").int();
            client.run(&format!("PEXPIRE {key} {}", left + round % 3 - 1));
            until("the lease has ended", || holders(&mut client, &key) != ["a"]);
            assert_truth_was_told(&mut client, &key, &mut b, &mut c);
        }
    }
}

mod many {
    use super::*;

    #[test]
    fn flushall_async_with_a_thousand_waiters_makes_one_grant_for_each_key() {
        let server = quiet().start();
        let mut client = server.client();
        let keys: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
        for key in &keys {
            hold(&mut client, key, "a");
        }
        let mut waiters: Vec<[Client; 2]> = Vec::new();
        for key in &keys {
            let mut pair = [server.client(), server.client()];
            for (waiter, owner) in pair.iter_mut().zip(["b", "c"]) {
                waiter.send_line(&format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"));
            }
            waiters.push(pair);
        }
        server.wait_blocked(1000);
        let next: Vec<String> = keys.iter().map(|key| queue(&mut client, key).remove(0)).collect();

        assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
        let mut fences = Vec::new();
        for (n, key) in keys.iter().enumerate() {
            let winner = usize::from(next[n] == "c");
            let grant = waiters[n][winner].read();
            assert_eq!(grant.items()[0], Reply::bulk(&next[n]));
            fences.push(grant.fence());
            assert_eq!(holders(&mut client, key), [next[n].clone()]);
            assert_eq!(queue(&mut client, key).len(), 1);
        }
        assert_eq!(server.blocked_clients(), 500);
        fences.sort();
        fences.dedup();
        assert_eq!(fences.len(), 500, "no fence twice");

        assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
        for (n, pair) in waiters.iter_mut().enumerate() {
            let other = usize::from(next[n] == "b");
            assert!(pair[other].read().fence() > 0);
        }
        server.wait_blocked(0);
    }

    #[test]
    fn flushall_async_with_a_thousand_waiters_for_one_key_serves_one() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut waiters: Vec<Client> = (0..1000).map(|_| server.client()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            waiter.send_line(&format!("LOCK.ACQUIRE k {n} {LONG} BLOCK 0"));
        }
        server.wait_blocked(1000);
        let order = queue(&mut client, "k");
        assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
        let first: usize = order[0].parse().expect("owners are numbers");
        assert_eq!(waiters[first].read().items()[0], Reply::bulk(&order[0]));
        assert_eq!(queue(&mut client, "k"), order[1..]);
        assert_eq!(server.blocked_clients(), 999);
    }
}

mod replication {
    use super::*;

    /// Ends `k` in the selected database; what of it must stand in the replication stream before the grant.
    type Ending = (&'static str, &'static [&'static str]);

    const ENDINGS: [Ending; 10] = [
        ("FLUSHALL", &["FLUSHALL"]),
        ("FLUSHALL ASYNC", &["FLUSHALL"]),
        ("FLUSHDB", &["FLUSHDB"]),
        ("DEL k", &["DEL"]),
        ("UNLINK k", &["UNLINK"]),
        ("PEXPIRE k -1", &["DEL", "UNLINK"]),
        ("RENAME k elsewhere", &["RENAME"]),
        ("MOVE k 1", &["MOVE"]),
        ("SWAPDB 0 2", &["SWAPDB"]),
        ("SINTERSTORE k nothing here", &["SINTERSTORE", "DEL"]),
    ];

    fn name(command: &[Vec<u8>]) -> String {
        String::from_utf8_lossy(&command[0]).to_uppercase()
    }

    fn mentions(command: &[Vec<u8>], what: &str) -> bool {
        command.iter().any(|arg| arg.windows(what.len()).any(|part| part == what.as_bytes()))
    }

    #[test]
    fn a_grant_is_replicated_after_what_caused_it() {
        for (ending, causes) in ENDINGS {
            let server = plain_aof(quiet()).start();
            let mut client = server.client();
            hold(&mut client, "k", "a");
            let [mut b] = line_up(&server, "k", ["the-next-owner"]);
            client.run(ending);
            b.granted("the-next-owner");
            let commands = aof(&server);
            let cause = commands.iter().position(|command| causes.contains(&name(command).as_str()));
            let grant = commands.iter().position(|command| mentions(command, "the-next-owner"));
            let (Some(cause), Some(grant)) = (cause, grant) else {
                panic!("{ending}: {cause:?} {grant:?} in {commands:?}");
            };
            assert!(cause < grant, "{ending}: the grant came before its cause");
            let grants = commands.iter().filter(|command| mentions(command, "the-next-owner")).count();
            assert_eq!(grants, 1, "{ending}: one grant");
        }
    }

    #[test]
    fn a_replica_and_an_aof_end_with_the_same_locks_as_their_master() {
        let mut server = plain_aof(quiet().config("repl-ping-replica-period 1")).start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        in_sync(&server, &replica);
        for (n, (ending, _)) in ENDINGS.iter().enumerate() {
            // The flushes come first, so that all others leave their traces.
            hold(&mut client, "k", "a");
            let [mut b, _c] = line_up(&server, "k", ["b", "c"]);
            client.run(ending);
            b.granted("b");
            in_sync(&server, &replica);
            assert_eq!(all_locks(&server), all_locks(&replica), "{ending}");
            let held = format!("kept-{n}");
            client.run("LOCK.CANCEL k c");
            assert_eq!(client.run(&format!("RENAME k {held}")), Reply::ok());
            client.run(&format!("DEL elsewhere {}", if n % 2 == 0 { held.as_str() } else { "nothing" }));
            client.pipeline(&["SELECT 1", "DEL k", "SELECT 2", "DEL k", "SELECT 0"]);
        }
        // The other ways: a release, a lease end, a session's end, a restored lock, an overwritten key.
        hold(&mut client, "released", "a");
        hold(&mut client, "leased", "a");
        hold(&mut client, "restored", "a");
        hold(&mut client, "overwritten", "a");
        let mut session = server.client();
        session.run("LOCK.ACQUIRE session a PX 60000 SESSION");
        let keys = ["released", "leased", "restored", "overwritten", "session"];
        let mut waiters = keys.map(|key| line_up(&server, key, ["b"]));
        client.run("LOCK.RELEASE released a");
        client.run("PEXPIRE leased 30");
        client.run("SET overwritten v");
        let dump = client.run("DUMP released");
        client.cmd(&[b"RESTORE" as &[u8], b"restored", b"30", dump.bytes(), b"REPLACE"]);
        drop(session);
        for [waiter] in &mut waiters {
            waiter.reply();
        }
        in_sync(&server, &replica);
        let locks = all_locks(&server);
        assert!(locks.len() > keys.len(), "{locks:?}");
        assert_eq!(all_locks(&replica), locks);

        server.kill();
        server.restart();
        assert_eq!(all_locks(&server), locks, "the AOF tells the same");
    }

    #[test]
    fn leases_are_the_same_to_the_millisecond_on_a_replica() {
        let server = quiet().start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "d", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let [mut c] = line_up(&server, "d", ["c"]);
        client.run("LOCK.RELEASE k a");
        client.run("DEL d");
        b.granted("b");
        c.granted("c");
        in_sync(&server, &replica);
        for key in ["k", "d"] {
            let ask = format!("PEXPIRETIME {key}");
            assert_eq!(client.run(&ask), replica.client().run(&ask));
            assert!(client.run(&ask).int() > 0);
        }
    }
}
