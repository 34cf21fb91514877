//! Fencing tokens grow with every grant, whatever happens to the server: that is what makes a late holder harmless.

use crate::support::skip::skips_shifted_clock;
use crate::support::stored::rewrite_aof;
use crate::support::{in_sync, Client, Reply, Server};

/// Enough grants to detect a token that is merely a counter.
const GRANTS: usize = 20;

/// The fencing token of a grant on a key that was never held.
fn next_fence(client: &mut Client) -> i64 {
    let granted = client.run("LOCK.ACQUIRE fresh *");
    let fence = granted.fence();
    assert_eq!(client.cmd(&["LOCK.RELEASE", "fresh", granted.items()[0].text()]).int(), 1);
    fence
}

#[test]
fn fences_grow_across_keys_lock_types_databases_and_releases() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    for round in 0..GRANTS {
        for line in [
            format!("LOCK.ACQUIRE mutex-{round} a"),
            format!("RLOCK.ACQUIRE nested-{round} a"),
            format!("RWLOCK.ACQUIRE read-{round} a READ"),
            format!("RWLOCK.ACQUIRE read-{round} b READ"),
            format!("RWLOCK.ACQUIRE written-{round} a WRITE"),
            format!("SEM.ACQUIRE permits-{round} a LIMIT 2"),
            format!("SEM.ACQUIRE permits-{round} b LIMIT 2"),
            format!("MLOCK.ACQUIRE 2 one-{round} other-{round} a"),
            "LOCK.ACQUIRE again a".into(),
        ] {
            let fence = client.run(&line).fence();
            assert!(fence > last, "{line}: {fence} after {last}");
            last = fence;
        }
        assert_eq!(client.run("LOCK.RELEASE again a").int(), 1);
        client.run(if round % 3 == 0 { "FLUSHALL" } else { "DEL again" });
        client.run(&format!("SELECT {}", round % 16));
    }
}

#[test]
fn fences_stay_below_2_to_the_53() {
    let server = Server::start();
    let mut client = server.client();
    let fence = next_fence(&mut client);
    assert!(fence < 1 << 53);
    // Lua and JavaScript store numbers as doubles.
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'a')[2] + 0";
    let in_lua = client.cmd(&["EVAL", script, "1", "k"]).int();
    assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), in_lua);
}

#[test]
fn fences_grow_within_one_transaction_and_one_script() {
    let server = Server::start();
    let mut client = server.client();
    client.pipeline(&["MULTI", "LOCK.ACQUIRE a t", "LOCK.ACQUIRE b t", "LOCK.ACQUIRE c t"]);
    let replies = client.run("EXEC");
    let fences: Vec<i64> = replies.items().iter().map(Reply::fence).collect();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");

    let script = "local fences = {} \
        for i = 1, 50 do \
            fences[i] = redis.call('LOCK.ACQUIRE', KEYS[1], 't')[2] \
            redis.call('LOCK.RELEASE', KEYS[1], 't') \
        end \
        return fences";
    let reply = client.cmd(&["EVAL", script, "1", "k"]);
    let in_script: Vec<i64> = reply.items().iter().map(Reply::int).collect();
    assert!(in_script[0] > fences[2]);
    assert!(in_script.windows(2).all(|pair| pair[0] < pair[1]), "{in_script:?}");
}

#[test]
fn fences_grow_across_a_restart_without_any_persistence() {
    let mut server = Server::start();
    let last = (0..GRANTS).map(|_| next_fence(&mut server.client())).max().expect("some grants");
    server.stop();
    server.restart();
    assert!(next_fence(&mut server.client()) > last);
}

#[test]
fn fences_grow_across_a_power_failure() {
    for config in ["appendonly no", "appendonly yes"] {
        let mut server = Server::builder().config(config).start();
        let last = (0..GRANTS).map(|_| next_fence(&mut server.client())).max().expect("some grants");
        server.kill();
        server.restart();
        let mut client = server.client();
        // The last release may be lost, because the AOF on disk may be a second behind.
        client.run("DEL fresh");
        assert!(next_fence(&mut client) > last, "{config}");
    }
}

#[test]
fn fences_grow_across_the_promotion_of_a_replica() {
    let mut master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    let last = (0..GRANTS).map(|_| next_fence(&mut master.client())).max().expect("some grants");
    in_sync(&master, &replica);
    master.kill();
    let mut client = replica.client();
    assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
    assert!(next_fence(&mut client) > last);
}

/// RESTORE adds locks of other servers and other times.
mod restore {
    use super::*;
    use crate::support::payload::{Envelope, StoredLock};

    const HOUR_US: i64 = 3_600_000_000;

    /// A lock whose fencing token was made that many hours from now, and the token.
    #[track_caller]
    pub fn lock_from(client: &mut Client, hours: i64) -> (Vec<u8>, i64) {
        let envelope = Envelope::of(client);
        let time = client.run("TIME");
        let [seconds, micros] = [0, 1].map(|at| time.items()[at].text().parse::<i64>().expect("a number"));
        let fence = seconds * 1_000_000 + micros + hours * HOUR_US;
        let lock = StoredLock::mutex("a", u64::try_from(fence).expect("a fence is positive"));
        (envelope.seal(&lock.encode()), fence)
    }

    pub fn restore(client: &mut Client, payload: &[u8]) -> Reply {
        client.cmd(&[b"RESTORE", &b"k"[..], b"0", payload])
    }

    #[test]
    fn an_older_lock_lowers_no_fence() {
        let server = Server::start();
        let mut client = server.client();
        let (payload, older) = lock_from(&mut client, -30 * 24);
        let last = next_fence(&mut client);
        assert!(older < last);
        assert_eq!(restore(&mut client, &payload), Reply::ok());
        assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), older, "the restored grant keeps its own");
        assert!(next_fence(&mut client) > last);
    }

    #[test]
    fn a_newer_lock_raises_later_fences() {
        for hours in [6, 23] {
            let server = Server::start();
            let mut client = server.client();
            let (payload, newer) = lock_from(&mut client, hours);
            assert!(next_fence(&mut client) < newer);
            assert_eq!(restore(&mut client, &payload), Reply::ok());
            assert!(next_fence(&mut client) > newer);
            assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
            assert!(client.run("LOCK.ACQUIRE k b").fence() > newer);
        }
    }

    #[test]
    fn a_fence_more_than_a_day_ahead_is_rejected() {
        for hours in [25, 48] {
            let server = Server::start();
            let mut client = server.client();
            let (payload, future) = lock_from(&mut client, hours);
            assert!(restore(&mut client, &payload).is_error());
            assert_eq!(client.run("EXISTS k").int(), 0);
            assert!(next_fence(&mut client) < future, "and it has raised nothing");
        }
    }
}

/// After a clock was set back, or with a slow clock, fencing tokens are ahead of it: here by most of a day.
mod ahead_of_the_clock {
    use super::restore::*;
    use super::*;

    /// Raises the server's fencing tokens far ahead of its clock; returns the last one.
    #[track_caller]
    fn raise(client: &mut Client) -> i64 {
        let (payload, ahead) = lock_from(client, 23);
        assert_eq!(restore(client, &payload), Reply::ok());
        assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
        let last = next_fence(client);
        assert!(last > ahead);
        last
    }

    #[test]
    fn fences_grow_under_a_running_server() {
        let server = Server::start();
        let mut client = server.client();
        let mut last = raise(&mut client);
        for _ in 0..GRANTS {
            let fence = next_fence(&mut client);
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
    }

    /// Saves, kills and restarts: the fencing token must come from the saved file.
    #[track_caller]
    fn assert_fences_grow(mut server: Server, lock_is_held: bool, save: impl Fn(&Server)) {
        let mut client = server.client();
        let mut last = raise(&mut client);
        if lock_is_held {
            last = client.run("LOCK.ACQUIRE held a PERSIST").fence();
        }
        save(&server);
        server.kill();
        server.restart();
        let mut client = server.client();
        assert_eq!(client.run("EXISTS held").int(), i64::from(lock_is_held));
        assert!(next_fence(&mut client) > last);
    }

    fn save_rdb(server: &Server) {
        assert_eq!(server.client().run("SAVE"), Reply::ok());
    }

    #[test]
    fn fences_grow_across_a_restart_from_an_rdb() {
        for lock_is_held in [true, false] {
            assert_fences_grow(Server::start(), lock_is_held, save_rdb);
        }
    }

    #[test]
    fn fences_grow_across_a_restart_from_an_aof() {
        for lock_is_held in [true, false] {
            assert_fences_grow(Server::builder().appendonly().start(), lock_is_held, |_| {});
        }
    }

    #[test]
    fn fences_grow_across_a_restart_from_a_rewritten_aof() {
        for (preamble, lock_is_held) in [("yes", true), ("yes", false), ("no", true)] {
            let builder = Server::builder().appendonly().config(format!("aof-use-rdb-preamble {preamble}"));
            assert_fences_grow(builder.start(), lock_is_held, rewrite_aof);
        }
    }

    /// A full synchronization with the stream of effects after it, or the full synchronization alone.
    #[test]
    fn a_replica_grants_higher_fences_than_its_master_did() {
        for with_stream in [true, false] {
            let mut master = Server::start();
            let mut last = raise(&mut master.client());
            let replica = Server::builder().replica_of(&master).start();
            in_sync(&master, &replica);
            if with_stream {
                last = next_fence(&mut master.client());
                in_sync(&master, &replica);
            }
            master.kill();
            let mut client = replica.client();
            assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
            assert!(next_fence(&mut client) > last, "with a stream: {with_stream}");
        }
    }

    #[test]
    fn the_stream_of_effects_alone_raises_a_replicas_fences() {
        let mut master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        in_sync(&master, &replica);
        let last = raise(&mut master.client());
        in_sync(&master, &replica);
        master.kill();
        let mut client = replica.client();
        assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
        assert!(next_fence(&mut client) > last);
    }
}

/// RESTORE's limit of a day does not apply to the server's own data: the clock may have been set back by any amount.
#[cfg(target_os = "linux")]
#[test]
fn fences_grow_across_a_restart_with_the_clock_set_back_by_days() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = Server::builder().clock("+0").start();
    let mut client = server.client();
    let last = client.run("LOCK.ACQUIRE held a PERSIST").fence();
    assert_eq!(client.run("SAVE"), Reply::ok());
    server.kill();
    server.set_clock("-3d");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.HELD held a").items()[0], Reply::Int(last));
    assert!(next_fence(&mut client) > last);
}
