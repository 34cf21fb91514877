//! Sessions with the clocks of a running server: timely renewals, sleeping, closed sockets, replicas, reloads.

use crate::support::skip::skip;
use crate::support::waiting::*;
use crate::support::{cpu_time, in_sync, until, Client, Reply, Server};
use std::time::Duration;

/// The id of the connection that the only holder of `key` is bound to; 0 for none.
#[track_caller]
fn session(client: &mut Client, key: &str) -> i64 {
    client.cmd(&["LOCK.INFO", key]).get("holders").items()[0].get("session").int()
}

/// A lease that is renewed in time even if the machine pauses for a second, and its length.
const BRIEF: &str = "PX 2000";
/// The result of TIME in milliseconds.
#[track_caller]
fn milliseconds(time: &Reply) -> i64 {
    let [seconds, micros] = [0, 1].map(|at| time.items()[at].text().parse::<i64>().expect("a number"));
    seconds * 1000 + micros / 1000
}

/// Waits until `key` is free, which must happen soon.
#[track_caller]
fn assert_freed_soon(client: &mut Client, key: &str) {
    let mut watch = client.stopwatch();
    until(&format!("{key} is free"), || {
        client.send(&["EXISTS", key]);
        let exists = client.read_by(&mut watch, SOON).expect("a reply in time");
        assert!(watch.elapsed() < SOON, "not within {SOON:?}");
        exists == Reply::Int(0)
    });
}

mod renewal {
    use super::*;

    /// Uses only the server's clock, so that the timing of the test's own readings does not matter. Redis 7.0 would run
    /// its event loop without a pause until the session is renewed, after a third of ten hours.
    #[test]
    fn a_renewal_that_is_hours_away_lets_the_server_sleep() {
        let server = Server::start();
        let mut client = server.client();
        assert!(client.run("LOCK.ACQUIRE k a PX 36000000 SESSION").fence() > 0);
        // A timer that fires makes the server compute the time until the next one.
        assert!(server.client().run("LOCK.ACQUIRE k b BLOCK 20").is_nil());
        let_time_pass(Duration::from_millis(1_500));
        let Some(before) = cpu_time(server.pid()) else { return };
        let pause = Duration::from_millis(500);
        let_time_pass(pause);
        let spent = cpu_time(server.pid()).expect("it is known").saturating_sub(before);
        assert!(spent < pause / 5, "{spent:?} of {pause:?}");
    }

    #[test]
    fn the_server_renews_it_every_third_of_the_lease() {
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
                    // It was restarted between the two readings; its full length remains, minus the lag of the clocks.
                    let whole = looked + LEASE * 8 / 9..=time + LEASE;
                    assert!(whole.contains(&now), "renewed to {} ms of {LEASE}", now - time);
                    break now;
                }
                looked = time;
                let_time_pass(Duration::from_millis(5));
            };
            // Two thirds are left when it is renewed, less on a busy machine. The third is measured by one clock and
            // the lease by another, each truncated to milliseconds, and the server reads them one after the other, with
            // a possible pause in between.
            let after = renewed - deadline;
            assert!((LEASE / 3 - 4..=2 * LEASE / 3).contains(&after), "renewed after {after} ms of {LEASE}");
            (deadline, looked) = (renewed, renewed - LEASE);
        }
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    }

    /// When `k` expires and the current time, both in milliseconds of the server's clock.
    #[track_caller]
    fn deadline_and_time(client: &mut Client) -> (i64, i64) {
        let replies = multi(client, &["TIME", "PEXPIRETIME k"]);
        (replies[1].int(), milliseconds(&replies[0]))
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
}

mod end {
    use super::*;

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

    /// The server does not report a RESET to modules.
    #[test]
    fn reset_keeps_bindings_and_queued_requests_until_the_connection_closes() {
        let server = quiet().start();
        let mut session = server.client();
        session.run("LOCK.ACQUIRE k a PX 60000 SESSION");
        hold(&mut server.client(), "taken", "other");
        session.run("LOCK.ACQUIRE taken a BLOCK 0 NOTIFY answers");
        assert_eq!(session.run("RESET"), Reply::Status("RESET".into()));
        assert_eq!(queue(&mut server.client(), "taken"), ["a"]);
        let [mut b] = line_up(&server, "k", ["b"]);
        assert_eq!(holders(&mut server.client(), "k"), ["a"]);
        drop(session);
        b.granted("b");
        until_queue(&mut server.client(), "taken", &[]);
    }

    /// Whether the close of a connection from this port has arrived at the server's socket, read or not.
    fn has_end_arrived(server: &Server, client_port: &str) -> bool {
        const ESTABLISHED: &str = "01";
        let port = |text: &str| i64::from_str_radix(text.rsplit(':').next().unwrap_or_default(), 16).ok();
        let client_port = client_port.parse().ok();
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists its sockets");
        !sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
            let [_, local, remote, state, ..] = fields[..] else { return false };
            port(local) == Some(server.port().into()) && port(remote) == client_port && state == ESTABLISHED
        })
    }

    /// The server reads the close first, and closes the client only at the end of the iteration.
    #[test]
    fn no_read_that_arrives_with_the_close_considers_the_lock_held() {
        if !cfg!(target_os = "linux") {
            return skip("the state of a connection is read from /proc");
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
    fn replicas_and_the_aof_get_it_too() {
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

    /// The server removes an expired lock when a command reads it: here in the middle of the next owner's request.
    #[test]
    fn a_session_on_a_just_expired_lock_is_not_mistaken_for_the_old_one() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("LOCK.ACQUIRE bound-too a PX 60000 SESSION");
        client.run("LOCK.ACQUIRE k a PX 20");
        let_time_pass(Duration::from_millis(40));
        let mut b = server.client();
        assert_eq!(b.run(&format!("LOCK.ACQUIRE k b {BRIEF} SESSION")).items()[0], Reply::bulk("b"));
        assert_eq!(session(&mut client, "k"), b.id());
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        assert_eq!(holders(&mut client, "k"), ["b"], "it is renewed");
        drop(b);
        assert_freed_soon(&mut client, "k");
    }
}

mod never_stored {
    use super::*;

    /// `loss` follows right after a grant of `k` with SESSION, and leaves the lock in `db` under `key`. From then on it
    /// is not bound to any connection: only its lease ends it.
    #[track_caller]
    fn assert_unbound_after(loss: &str, lease_ms: u64, db: u8, key: &str) {
        let server = quiet().start();
        let mut client = server.client();
        let mut holder = server.client();
        let id = holder.id();
        // In one round trip: the lease is running, and the lock must exist when it is queried.
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
        until_exited(&mut client, id);
        client.run(&format!("SELECT {db}"));
        let replies = multi(&mut client, &[&format!("EXISTS {key}"), "TIME"]);
        assert!(
            replies[0] == Reply::Int(1) || milliseconds(&replies[1]) >= deadline,
            "the connection's end released a lock that was not bound to it any more"
        );
        let mut in_db = server.client();
        in_db.run(&format!("SELECT {db}"));
        let mut b = Waiter::request_over(in_db, &server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 0"));
        // Too late would mean that it is still renewed.
        b.granted_within("b", Duration::from_millis(lease_ms) + SOON);
        assert_eq!(holders(&mut client, key), ["b"]);
    }

    #[test]
    fn after_debug_reload_it_ends_with_its_lease() {
        // Longer, because loading takes time and omits what has expired.
        assert_unbound_after("DEBUG RELOAD", 1500, 0, "k");
    }
}

mod each_lock_type {
    use super::*;
    use crate::support::lock_types::{Way, WAYS};

    /// A lease that is renewed in time even if the machine pauses for a second.
    const BRIEF: &str = "PX 2000";

    /// A key for each of [`WAYS`], all on one server, so that time has to pass only once.
    const KEYS: [&str; WAYS.len()] = ["k0", "k1", "k2", "k3", "k4"];

    fn each_key<T>(mut step: impl FnMut(Way, &str) -> T) -> [T; WAYS.len()] {
        std::array::from_fn(|n| step(WAYS[n], KEYS[n]))
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
        // Still connected, so its disconnection did not end the locks.
        assert_eq!(session.run("PING"), Reply::Status("PONG".into()));
    }
}
