//! Sessions: the lock belongs to a connection. The server renews it while the connection lives and releases it when
//! the connection ends, and nobody needs a watchdog.

use crate::support::skip::skip;
use crate::support::waiting::*;
use crate::support::{cpu_time, in_sync, until, Client, Reply, Server};
use std::time::Duration;

/// The id of the connection that the only holder of `key` is bound to, 0 for none.
#[track_caller]
fn session(client: &mut Client, key: &str) -> i64 {
    client.cmd(&["LOCK.INFO", key]).get("holders").items()[0].get("session").int()
}

/// A lease that is renewed before it ends even where the machine stands still for a second, and its length.
const BRIEF: &str = "PX 2000";
const BRIEF_MS: i64 = 2000;

/// What TIME answers, in milliseconds.
#[track_caller]
fn milliseconds(time: &Reply) -> i64 {
    let [seconds, micros] = [0, 1].map(|at| time.items()[at].text().parse::<i64>().expect("a number"));
    seconds * 1000 + micros / 1000
}

/// Waits until `key` is free, which must be soon.
#[track_caller]
fn assert_freed_soon(client: &mut Client, key: &str) {
    let mut watch = client.stopwatch();
    until(&format!("{key} is free"), || {
        client.send(&["EXISTS", key]);
        let exists = client.read_by(&mut watch, SOON).expect("an answer in time");
        assert!(watch.elapsed() < SOON, "not within {SOON:?}");
        exists == Reply::Int(0)
    });
}

mod renewal {
    use super::*;

    /// By the server's clock alone, so that it does not matter when we look.
    /// Redis 7.0 would run its event loop without a pause until the session is renewed, after a third of ten hours.
    #[test]
    fn a_renewal_that_is_hours_away_lets_the_server_sleep() {
        let server = Server::start();
        let mut client = server.client();
        assert!(client.run("LOCK.ACQUIRE k a PX 36000000 SESSION").fence() > 0);
        // A timer that fires has the server measure how long it is to the next one.
        assert!(server.client().run("LOCK.ACQUIRE k b BLOCK 20").is_nil());
        let_pass(Duration::from_millis(1_500));
        let Some(before) = cpu_time(server.pid()) else { return };
        let pause = Duration::from_millis(500);
        let_pass(pause);
        let spent = cpu_time(server.pid()).expect("it is known").saturating_sub(before);
        assert!(spent < pause / 5, "{spent:?} of {pause:?}");
    }

    #[test]
    fn the_server_renews_it_after_each_third_of_the_lease() {
        const LEASE: i64 = 3600;
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        let fence = session.run(&format!("LOCK.ACQUIRE k a PX {LEASE} SESSION")).fence();
        let (mut deadline, mut looked) = deadline_and_time(&mut client);
        for _ in 0..2 {
            let renewed = loop {
                let (now, time) = deadline_and_time(&mut client);
                assert!(now > 0, "the lease ended");
                if now != deadline {
                    // It has begun again between the two readings, with all of its length but for what clocks are late.
                    let whole = looked + LEASE * 8 / 9..=time + LEASE;
                    assert!(whole.contains(&now), "renewed to {} ms of {LEASE}", now - time);
                    break now;
                }
                looked = time;
                let_pass(Duration::from_millis(5));
            };
            // Two thirds are left when it is renewed; a busy machine may be late. The third goes by one clock, the
            // lease by another, each cut to its millisecond: so it may be one less here.
            let after = renewed - deadline;
            assert!((LEASE / 3 - 1..=2 * LEASE / 3).contains(&after), "renewed after {after} ms of {LEASE}");
            (deadline, looked) = (renewed, renewed - LEASE);
        }
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    }

    /// When `k` ends and what time it is, both in milliseconds of the server's clock.
    #[track_caller]
    fn deadline_and_time(client: &mut Client) -> (i64, i64) {
        let replies = multi(client, &["TIME", "PEXPIRETIME k"]);
        (replies[1].int(), milliseconds(&replies[0]))
    }

    #[test]
    fn a_waiter_waits_for_as_long_as_the_session_lives() {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        holder.run(&format!("LOCK.ACQUIRE k a {BRIEF} SESSION"));
        let [mut b] = line_up(&server, "k", ["b"]);
        // Until it has been renewed at or after its first end.
        let first = client.run("PEXPIRETIME k").int();
        until("its first deadline is past", || {
            b.assert_silent();
            client.run("PEXPIRETIME k").int() >= first + BRIEF_MS
        });
        b.assert_silent();
        drop(holder);
        b.granted("b");
    }

    #[test]
    fn renewals_reach_replicas() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        let mut session = server.client();
        session.run(&format!("LOCK.ACQUIRE k a {BRIEF} SESSION"));
        in_sync(&server, &replica);
        let mut client = replica.client();
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        assert_eq!(holders(&mut client, "k"), ["a"]);
    }

    #[test]
    fn they_trip_no_watch() {
        let server = quiet().start();
        let mut session = server.client();
        session.run(&format!("LOCK.ACQUIRE k a {BRIEF} SESSION"));
        let mut watcher = server.client();
        watcher.run("WATCH k");
        until_renewed(&mut watcher, "k");
        let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
        assert_eq!(replies[2].items().len(), 1, "{replies:?}");
    }

    #[test]
    fn a_lease_renewed_by_hand_is_renewed_by_the_server_with_its_new_length() {
        let server = quiet().start();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        assert_eq!(session.run(&format!("LOCK.RENEW k a {BRIEF}")), Reply::Int(1));
        until_renewed(&mut session, "k");
        let left = session.run("PTTL k").int();
        assert!((1..=BRIEF_MS).contains(&left), "{left}");
        until_renewed(&mut session, "k");
        assert_eq!(holders(&mut session, "k"), ["a"]);
    }
}

mod end {
    use super::*;

    #[test]
    fn the_lock_is_released_the_moment_the_connection_ends() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        drop(session);
        assert_freed_soon(&mut client, "k");
    }

    #[test]
    fn quit_client_kill_and_a_closed_socket_release_it() {
        let server = quiet().start();
        let mut client = server.client();
        for end in ["QUIT", "KILL", "close"] {
            let mut session = server.client();
            session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
            let [mut b] = line_up(&server, "k", ["b"]);
            match end {
                "QUIT" => assert_eq!(session.run("QUIT"), Reply::ok()),
                "KILL" => assert_eq!(client.run(&format!("CLIENT KILL ID {}", session.id())), Reply::Int(1)),
                _ => drop(session),
            }
            b.granted("b");
            client.run("LOCK.RELEASE k b");
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
        }
    }

    #[test]
    fn no_command_behind_the_end_takes_the_lock_for_held() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        for key in ["k", "other"] {
            session.run(&format!("LOCK.ACQUIRE {key} a PX 60000 SESSION"));
        }
        session.run("SEM.ACQUIRE s a LIMIT 2 PX 60000 SESSION");
        client.run("SEM.ACQUIRE s b LIMIT 2 PX 60000");
        let kill = format!("CLIENT KILL ID {}", session.id());
        let replies = client.pipeline(&[
            &kill,
            "LOCK.HELD k a",
            "LOCK.EXEC k a SET written 1",
            "LOCK.INFO k",
            "LOCK.SCAN 0 MATCH k",
            "LOCK.INFO s",
            "LOCK.HELD s b",
            "LOCK.ACQUIRE other b PX 60000",
        ]);
        assert_eq!(replies[0], Reply::Int(1));
        assert!(replies[1].is_nil(), "{:?}", replies[1]);
        assert!(replies[2].error().starts_with("NOTHELD"), "{:?}", replies[2]);
        assert!(replies[3].is_nil(), "{:?}", replies[3]);
        assert_eq!(replies[4].items()[1].items(), []);
        let holders = replies[5].get("holders");
        assert_eq!(holders.items().iter().map(|holder| holder.get("owner").text()).collect::<Vec<_>>(), ["b"]);
        assert!(!replies[6].is_nil());
        assert!(replies[7].fence() > 0);
        assert_eq!(client.run("EXISTS written"), Reply::Int(0));
    }

    /// Whether the end of a connection from this port has arrived at the server's socket, read or not.
    fn has_end_arrived(server: &Server, client_port: &str) -> bool {
        const ESTABLISHED: &str = "01";
        let port = |text: &str| i64::from_str_radix(text.rsplit(':').next().unwrap_or_default(), 16).ok();
        let client_port = client_port.parse().ok();
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux tells its sockets");
        !sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
            let [_, local, remote, state, ..] = fields[..] else { return false };
            port(local) == Some(server.port().into()) && port(remote) == client_port && state == ESTABLISHED
        })
    }

    /// The server reads the end first, and closes the client only when the turn is over.
    #[test]
    fn no_look_that_arrives_together_with_the_end_takes_the_lock_for_held() {
        if !cfg!(target_os = "linux") {
            return skip("where a connection stands is read from /proc");
        }
        let server = quiet().start();
        let (mut client, mut another) = (server.client(), server.client());
        for look in ["LOCK.HELD k a", "LOCK.EXEC k a SET written 1"] {
            let mut session = server.client();
            session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
            assert_eq!(client.run("LOCK.HELD k a").items().len(), 3);
            let mut sleeper = put_to_sleep(&server, Duration::from_millis(200));
            let address = session.address();
            drop(session);
            let port = address.rsplit(':').next().expect("an address has a port");
            until("the end has arrived", || has_end_arrived(&server, port));
            another.send_line(look);
            assert_eq!(sleeper.read(), Reply::ok());
            let reply = another.read();
            assert!(reply.is_nil() || reply.is_error() && reply.error().starts_with("NOTHELD"), "{look}: {reply:?}");
            assert_freed_soon(&mut client, "k");
        }
        assert_eq!(client.run("EXISTS written"), Reply::Int(0));
    }

    #[test]
    fn it_releases_all_holds_of_its_locks_in_both_databases_that_it_used() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE m a PX 60000 SESSION");
        session.run("LOCK.ACQUIRE m2 other PX 60000 SESSION");
        session.run("RLOCK.ACQUIRE r a PX 60000 HOLDS 3 SESSION");
        session.run("LOCK.ACQUIRE unbound a PX 60000");
        session.run("SELECT 3");
        session.run("LOCK.ACQUIRE m a PX 60000 SESSION");
        drop(session);
        for key in ["m", "m2", "r"] {
            assert_freed_soon(&mut client, key);
        }
        assert_eq!(holders(&mut client, "unbound"), ["a"], "without SESSION a lock ends with its lease");
        client.run("SELECT 3");
        assert_freed_soon(&mut client, "m");
    }

    #[test]
    fn it_wakes_the_waiters_of_all_its_locks() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
        for key in &keys {
            session.run(&format!("LOCK.ACQUIRE {key} a PX 60000 SESSION"));
        }
        let mut waiters: Vec<[Waiter; 2]> = keys.iter().map(|key| line_up(&server, key, ["b", "c"])).collect();
        drop(session);
        for ([b, c], key) in waiters.iter_mut().zip(&keys) {
            b.granted("b");
            c.assert_silent();
            assert_eq!(holders(&mut client, key), ["b"]);
        }
    }

    #[test]
    fn a_lock_that_passed_on_meanwhile_is_not_touched() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        session.run("LOCK.ACQUIRE k2 a PX 60000 SESSION");
        let [mut b] = line_up(&server, "k", ["b"]);
        session.run("LOCK.RELEASE k a");
        b.granted("b");
        // The same owner again, this time without a session.
        client.run("DEL k2");
        hold(&mut client, "k2", "a");
        session.run("LOCK.ACQUIRE last a PX 60000 SESSION");
        drop(session);
        assert_freed_soon(&mut client, "last");
        assert_eq!(holders(&mut client, "k"), ["b"]);
        assert_eq!(holders(&mut client, "k2"), ["a"]);
    }

    #[test]
    fn replicas_and_the_aof_see_it_too() {
        let mut server = plain_aof(Server::builder()).start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        session.run("RLOCK.ACQUIRE r a PX 60000 HOLDS 2 SESSION");
        in_sync(&server, &replica);
        assert_eq!(all_locks(&replica).len(), 2);
        drop(session);
        assert_freed_soon(&mut client, "k");
        assert_freed_soon(&mut client, "r");
        in_sync(&server, &replica);
        assert_eq!(all_locks(&replica), []);
        server.kill();
        server.restart();
        assert_eq!(all_locks(&server), []);
    }
}

mod binding {
    use super::*;

    #[test]
    fn a_lock_without_session_can_be_bound_later() {
        let server = quiet().start();
        let mut client = server.client();
        let fence = hold(&mut client, "k", "a");
        let mut late = server.client();
        assert_eq!(late.run("LOCK.ACQUIRE k a PX 60000 SESSION").fence(), fence);
        assert_eq!(session(&mut client, "k"), late.id());
        drop(late);
        assert_freed_soon(&mut client, "k");
    }

    #[test]
    fn a_waiters_session_begins_with_a_grant_that_no_command_made() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut b = Waiter::park(&server, &format!("LOCK.ACQUIRE k b {BRIEF} BLOCK 0 SESSION"));
        let [mut c] = line_up(&server, "k", ["c"]);
        client.run("LOCK.RENEW k a PX 60");
        b.granted("b");
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        c.assert_silent();
        assert_eq!(session(&mut client, "k"), b.id);
        drop(b);
        c.granted("c");
    }

    /// The server removes an expired lock when somebody looks for it, which is in the middle of the next one's request.
    #[test]
    fn a_session_on_a_lock_that_has_just_expired_is_not_taken_for_the_old_ones() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("LOCK.ACQUIRE bound-too a PX 60000 SESSION");
        client.run("LOCK.ACQUIRE k a PX 20");
        let_pass(Duration::from_millis(40));
        let mut b = server.client();
        assert_eq!(b.run(&format!("LOCK.ACQUIRE k b {BRIEF} SESSION")).items()[0], Reply::bulk("b"));
        assert_eq!(session(&mut client, "k"), b.id());
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        assert_eq!(holders(&mut client, "k"), ["b"], "it is renewed");
        drop(b);
        assert_freed_soon(&mut client, "k");
    }

    #[test]
    fn a_waiter_that_dies_before_its_session_began_holds_nothing() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let b = Waiter::park(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0 SESSION");
        let mut c = Waiter::park(&server, "LOCK.ACQUIRE k c PX 60000 BLOCK 0 SESSION");
        multi(&mut client, &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
        c.granted("c");
        drop(c);
        assert_freed_soon(&mut client, "k");
    }

    #[test]
    fn it_works_in_a_transaction() {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        multi(&mut holder, &["LOCK.ACQUIRE k a PX 60000 SESSION"]);
        assert_eq!(session(&mut client, "k"), holder.id());
        drop(holder);
        assert_freed_soon(&mut client, "k");
    }
}

mod never_stored {
    use super::*;

    /// `loss` comes at once after a grant of `k` with SESSION, and leaves the lock in `db` under `key`. From then on it
    /// belongs to no connection any more: it ends with its lease, and with nothing else.
    #[track_caller]
    fn assert_unbound_after(loss: &str, lease_ms: u64, db: u8, key: &str) {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        let id = holder.id();
        // In one round trip: the lease runs, and the lock must be there when it is asked for.
        let replies = holder.pipeline(&[
            format!("LOCK.ACQUIRE k a PX {lease_ms} SESSION"),
            loss.into(),
            format!("SELECT {db}"),
            format!("LOCK.INFO {key}"),
            format!("PEXPIRETIME {key}"),
        ]);
        assert!(!replies[1].is_error(), "{replies:?}");
        assert_eq!(replies[3].get("holders").items()[0].get("session"), &Reply::Int(0));
        let deadline = replies[4].int();
        drop(holder);
        until_gone(&mut client, id);
        client.run(&format!("SELECT {db}"));
        let replies = multi(&mut client, &[&format!("EXISTS {key}"), "TIME"]);
        assert!(
            replies[0] == Reply::Int(1) || milliseconds(&replies[1]) >= deadline,
            "the connection's end released a lock that was not bound to it any more"
        );
        let mut in_db = server.client();
        in_db.run(&format!("SELECT {db}"));
        let mut b = Waiter::ask_over(in_db, &server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 0"));
        // Too late means that it is still renewed.
        b.granted_within("b", Duration::from_millis(lease_ms) + SOON);
        assert_eq!(holders(&mut client, key), ["b"]);
    }

    #[test]
    fn after_debug_reload_it_ends_with_its_lease() {
        // Longer, because loading takes time, and leaves out what has ended.
        assert_unbound_after("DEBUG RELOAD", 1500, 0, "k");
    }

    #[test]
    fn after_a_rename_it_ends_with_its_lease() {
        assert_unbound_after("RENAME k elsewhere", 600, 0, "elsewhere");
    }

    #[test]
    fn after_a_move_it_ends_with_its_lease() {
        assert_unbound_after("MOVE k 1", 600, 1, "k");
    }

    #[test]
    fn after_swapdb_it_ends_with_its_lease() {
        assert_unbound_after("SWAPDB 0 1", 600, 1, "k");
    }

    #[test]
    fn after_a_restore_it_ends_with_its_lease() {
        let script = "return(redis.call('RESTORE',KEYS[1],600,redis.call('DUMP',KEYS[1]),'REPLACE'))";
        assert_unbound_after(&format!("EVAL {script} 1 k"), 600, 0, "k");
    }

    #[test]
    fn after_a_restart_it_ends_with_its_lease() {
        let mut server = Server::builder().appendonly().start();
        let mut holder = server.client();
        holder.run("LOCK.ACQUIRE k a PX 4000 SESSION").fence();
        let deadline = holder.run("PEXPIRETIME k").int();
        server.kill();
        server.restart();
        let mut client = server.client();
        let mut b = Waiter::ask(&server, "LOCK.ACQUIRE k b BLOCK 0");
        let replies = multi(&mut client, &["LOCK.INFO k", "TIME"]);
        if replies[0].get("holders").items()[0].get("owner") == &Reply::bulk("a") {
            assert_eq!(session(&mut client, "k"), 0, "bound to nobody");
            b.granted_within("b", Duration::from_millis(4000) + SOON);
        }
        let granted = milliseconds(&client.run("TIME"));
        assert!(granted >= deadline, "{} ms too early", deadline - granted);
        assert_eq!(holders(&mut client, "k"), ["b"]);
    }

    #[test]
    fn its_owner_may_acquire_it_again_first() {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        let acquire = |key: &str| format!("LOCK.ACQUIRE {key} a {BRIEF} SESSION");
        let fence = holder.run(&acquire("k")).fence();
        client.run("RENAME k elsewhere");
        assert_eq!(holder.run(&acquire("elsewhere")).fence(), fence);
        assert_eq!(session(&mut client, "elsewhere"), holder.id());
        until_renewed(&mut client, "elsewhere");
        until_renewed(&mut client, "elsewhere");
        assert_eq!(holders(&mut client, "elsewhere"), ["a"], "it is renewed again");
        drop(holder);
        assert_freed_soon(&mut client, "elsewhere");
    }

    #[test]
    fn what_takes_the_old_places_is_not_touched_by_the_old_sessions_end() {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        holder.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        client.run("RENAME k elsewhere");
        hold(&mut client, "k", "a");
        holder.run("LOCK.ACQUIRE last a PX 60000 SESSION");
        drop(holder);
        assert_freed_soon(&mut client, "last");
        assert_eq!(holders(&mut client, "k"), ["a"]);
        assert_eq!(holders(&mut client, "elsewhere"), ["a"]);
    }
}

mod each_family {
    use super::*;
    use crate::support::families::{each_way, held, rows, wait_for, Way, WAYS};

    /// A lease that is renewed before it ends even where the machine stands still for a second.
    const BRIEF: &str = "PX 2000";

    /// A key for each of [`WAYS`], all on one server, so that time has to pass only once.
    const KEYS: [&str; WAYS.len()] = ["k0", "k1", "k2", "k3", "k4"];

    fn each_key<T>(mut step: impl FnMut(Way, &str) -> T) -> [T; WAYS.len()] {
        std::array::from_fn(|n| step(WAYS[n], KEYS[n]))
    }

    #[test]
    fn the_lock_is_released_the_moment_the_connection_ends() {
        each_way(quiet, |way, server, client| {
            let mut session = server.client();
            session.run(&format!("{} PX 60000 SESSION", way.acquire("k", "a"))).fence();
            assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("session"), &Reply::Int(session.id()));
            let mut b = wait_for(way, server, "k", "b");
            drop(session);
            b.granted("b");
            assert_eq!(holders(client, "k"), ["b"], "{way:?}");
        });
    }

    #[test]
    fn the_server_renews_it_for_as_long_as_the_connection_lives() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        let fences = each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        let mut waiters = each_key(|way, key| wait_for(way, &server, key, "b"));
        // Time passes for all of them at once.
        until_all_renewed(&mut client, &KEYS);
        until_all_renewed(&mut client, &KEYS);
        waiters.iter_mut().for_each(|b| b.assert_silent());
        let held = each_key(|_, key| held(&mut client, key, "a").map(|held| held.0));
        assert_eq!(held, fences.map(Some));
        drop(session);
        waiters.iter_mut().for_each(|b| assert!(b.granted("b") > 0));
    }

    #[test]
    fn it_is_renewed_too_where_nobody_waits_and_nobody_looks() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        session.run("SEM.ACQUIRE shared long LIMIT 5 PX 60000").fence();
        session.run("SEM.ACQUIRE shared unbound LIMIT 5 PX 150").fence();
        session.run(&format!("SEM.ACQUIRE shared bound LIMIT 5 {BRIEF} SESSION")).fence();
        // More than the lease.
        let_pass(Duration::from_millis(2200));
        each_key(|way, key| assert_eq!(holders(&mut client, key), ["a"], "{way:?}"));
        until_all_renewed(&mut client, &KEYS);
        assert_eq!(holders(&mut client, "shared"), ["long", "bound"]);
    }

    #[test]
    fn acquiring_again_with_session_moves_it_and_without_leaves_it() {
        each_way(quiet, |way, server, client| {
            let acquire = way.acquire("k", "a").replace("LIMIT 1", "LIMIT 5");
            let (mut old, mut new) = (server.client(), server.client());
            let fence = old.run(&format!("{acquire} PX 60000 SESSION")).fence();
            client.run(&format!("{acquire} PX 60000"));
            let session =
                |client: &mut Client| client.run("LOCK.INFO k").get("holders").items()[0].get("session").int();
            assert_eq!(session(client), old.id(), "{way:?}");
            assert_eq!(new.run(&format!("{acquire} PX 60000 SESSION")).fence(), fence);
            assert_eq!(session(client), new.id(), "{way:?}");
            old.run("LOCK.ACQUIRE last x SESSION");
            drop(old);
            until("the old connection's locks are gone", || client.run("EXISTS last") == Reply::Int(0));
            assert_eq!(holders(client, "k"), ["a"], "{way:?}");
            drop(new);
            until("the lock is free", || client.run("EXISTS k") == Reply::Int(0));
        });
    }

    #[test]
    fn a_waiters_session_begins_with_its_grant() {
        let server = quiet().start();
        let mut client = server.client();
        let sessions = each_key(|way, key| {
            way.hold(&mut client, key, "a");
            let mut b = Waiter::park(&server, &format!("{} {BRIEF} BLOCK 0 SESSION", way.acquire(key, "b")));
            way.give_back(&mut client, key, "a");
            b.granted("b");
            let info = client.cmd(&["LOCK.INFO", key]);
            assert_eq!(info.get("holders").items()[0].get("session"), &Reply::Int(b.id), "{way:?}");
            b
        });
        let mut waiters = each_key(|way, key| wait_for(way, &server, key, "c"));
        // Time passes for all of them at once.
        until_all_renewed(&mut client, &KEYS);
        until_all_renewed(&mut client, &KEYS);
        waiters.iter_mut().for_each(|c| c.assert_silent());
        for (b, c) in sessions.into_iter().zip(&mut waiters) {
            c.assert_silent();
            drop(b);
            c.granted("c");
        }
    }

    #[test]
    fn the_end_of_one_connection_releases_all_its_holds_of_all_families_and_nobody_elses() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        for line in [
            "RWLOCK.ACQUIRE rw a READ HOLDS 3 PX 60000 SESSION",
            "RWLOCK.ACQUIRE written a WRITE HOLDS 2 PX 60000 SESSION",
            "RWLOCK.ACQUIRE written a READ PX 60000",
            "SEM.ACQUIRE sem a LIMIT 6 PERMITS 3 PX 60000 SESSION",
            "SEM.ACQUIRE sem a2 LIMIT 6 PX 60000 SESSION",
            "MLOCK.ACQUIRE 3 x y z a PX 60000 SESSION",
            "RLOCK.ACQUIRE nested a HOLDS 2 PX 60000 SESSION",
        ] {
            session.run(line).fence();
        }
        client.run("RWLOCK.ACQUIRE rw other READ PX 60000").fence();
        client.run("SEM.ACQUIRE sem other LIMIT 6 PERMITS 2 PX 60000").fence();
        let mut writer = Waiter::park(&server, "RWLOCK.ACQUIRE rw w WRITE PX 60000 BLOCK 0");
        let mut reader = Waiter::park(&server, "RWLOCK.ACQUIRE written r READ PX 60000 BLOCK 0");
        let mut permits = Waiter::park(&server, "SEM.ACQUIRE sem next LIMIT 6 PERMITS 4 PX 60000 BLOCK 0");
        let mut several = Waiter::park(&server, "MLOCK.ACQUIRE 2 z x next PX 60000 BLOCK 0");
        drop(session);
        reader.granted("r");
        permits.granted("next");
        several.granted("next");
        writer.assert_silent();
        until("y and nested are free", || client.run("EXISTS y nested") == Reply::Int(0));
        assert_eq!(rows(&mut client, "rw"), [("other".into(), "read".into(), 1)]);
        assert_eq!(rows(&mut client, "sem").len(), 2);
        client.run("RWLOCK.RELEASE rw other READ");
        writer.granted("w");
    }

    #[test]
    fn two_readers_of_two_connections_end_each_for_itself() {
        let server = quiet().start();
        let mut client = server.client();
        let (mut one, mut two) = (server.client(), server.client());
        one.run("RWLOCK.ACQUIRE k a READ PX 60000 SESSION");
        two.run("RWLOCK.ACQUIRE k b READ PX 60000 SESSION");
        let mut w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
        drop(one);
        until("a has gone", || holders(&mut client, "k") == ["b"]);
        w.assert_silent();
        drop(two);
        w.granted("w");
    }

    #[test]
    fn the_only_reader_left_by_a_connections_end_upgrades() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("RWLOCK.ACQUIRE k gone READ PX 60000 SESSION");
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        let mut a = Waiter::park(&server, "RWLOCK.ACQUIRE k a WRITE PX 60000 BLOCK 0");
        drop(session);
        a.granted("a");
        assert_eq!(rows(&mut client, "k"), [("a".into(), "write".into(), 1), ("a".into(), "read".into(), 1)]);
    }

    #[test]
    fn the_binding_is_never_stored() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
        each_key(|way, key| {
            let info = client.cmd(&["LOCK.INFO", key]);
            assert_eq!(info.get("holders").items()[0].get("session"), &Reply::Int(0), "{way:?}");
        });
        each_key(|way, key| {
            until(&format!("it ends with its lease: {way:?}"), || client.cmd(&["LOCK.HELD", key, "a"]).is_nil());
        });
        // Still there: its end is not what ended the locks.
        assert_eq!(session.run("PING"), Reply::Status("PONG".into()));
    }
}
