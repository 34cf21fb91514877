//! A fence grows with every grant, whatever happens to the server: that is what makes a late holder harmless.

use crate::support::skip::skips_shifted_clock;
use crate::support::{in_sync, Client, Reply, Server};

/// Grants enough that a fence that merely counts would be seen.
const GRANTS: usize = 20;

/// The fence of a new grant on a key that nobody has held before.
fn next_fence(client: &mut Client) -> i64 {
    let granted = client.run("LOCK.ACQUIRE fresh *");
    let fence = granted.fence();
    assert_eq!(client.cmd(&["LOCK.RELEASE", "fresh", granted.items()[0].text()]).int(), 1);
    fence
}

#[test]
fn fences_grow_over_keys_families_databases_and_releases() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    for round in 0..GRANTS {
        for line in [
            format!("LOCK.ACQUIRE mutex-{round} a"),
            format!("RLOCK.ACQUIRE nested-{round} a"),
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
    // Lua and JavaScript keep numbers as doubles.
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
fn fences_grow_over_a_restart_without_any_persistence() {
    let mut server = Server::start();
    let last = (0..GRANTS).map(|_| next_fence(&mut server.client())).max().expect("some grants");
    server.stop();
    server.restart();
    assert!(next_fence(&mut server.client()) > last);
}

#[test]
fn fences_grow_over_a_power_cut() {
    for config in ["appendonly no", "appendonly yes"] {
        let mut server = Server::builder().config(config).start();
        let last = (0..GRANTS).map(|_| next_fence(&mut server.client())).max().expect("some grants");
        server.kill();
        server.restart();
        let mut client = server.client();
        // The last release may be lost: an AOF is a second behind where the disk is.
        client.run("DEL fresh");
        assert!(next_fence(&mut client) > last, "{config}");
    }
}

#[test]
fn fences_grow_over_the_promotion_of_a_replica() {
    let mut master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    let last = (0..GRANTS).map(|_| next_fence(&mut master.client())).max().expect("some grants");
    in_sync(&master, &replica);
    master.kill();
    let mut client = replica.client();
    assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
    assert!(next_fence(&mut client) > last);
}

#[cfg(target_os = "linux")]
mod with_a_shifted_clock {
    use super::*;

    /// A lock that was granted on a server whose clock is shifted, and its fence. `None`: the test is skipped.
    fn lock_from(clock: &str) -> Option<(Reply, i64)> {
        if skips_shifted_clock() {
            return None;
        }
        let server = Server::builder().clock(clock).start();
        let mut client = server.client();
        let fence = client.run("LOCK.ACQUIRE k a PERSIST").fence();
        Some((client.run("DUMP k"), fence))
    }

    fn restore(client: &mut Client, key: &str, payload: &Reply) -> Reply {
        client.cmd(&[b"RESTORE", key.as_bytes(), b"0", payload.bytes()])
    }

    #[test]
    fn a_restore_of_an_older_lock_takes_no_fence_back() {
        let Some((payload, older)) = lock_from("-30d") else { return };
        let server = Server::start();
        let mut client = server.client();
        let last = next_fence(&mut client);
        assert!(older < last);
        assert_eq!(restore(&mut client, "k", &payload), Reply::ok());
        assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), older, "the restored grant keeps its own");
        assert!(next_fence(&mut client) > last);
    }

    #[test]
    fn a_restore_of_a_newer_lock_raises_what_follows() {
        let Some((payload, newer)) = lock_from("+6h") else { return };
        let server = Server::start();
        let mut client = server.client();
        assert!(next_fence(&mut client) < newer);
        assert_eq!(restore(&mut client, "k", &payload), Reply::ok());
        assert!(next_fence(&mut client) > newer);
        client.run("LOCK.RELEASE k a");
        assert!(client.run("LOCK.ACQUIRE k b").fence() > newer);
    }

    #[test]
    fn a_restore_of_a_fence_more_than_a_day_ahead_is_refused() {
        let Some((payload, future)) = lock_from("+2d") else { return };
        let server = Server::start();
        let mut client = server.client();
        assert!(restore(&mut client, "k", &payload).is_error());
        assert_eq!(client.run("EXISTS k").int(), 0);
        assert!(next_fence(&mut client) < future, "and it has raised nothing");
    }

    #[test]
    fn fences_grow_while_the_clock_steps_back_under_a_running_server() {
        if skips_shifted_clock() {
            return;
        }
        let mut server = Server::builder().clock("+0").start();
        let last = next_fence(&mut server.client());
        server.set_clock("-1d");
        let mut client = server.client();
        let mut previous = last;
        for _ in 0..GRANTS {
            let fence = next_fence(&mut client);
            assert!(fence > previous, "{fence} after {previous}");
            previous = fence;
        }
    }

    /// Saves, sets the clock back by a day, starts again: the fence must come from what was saved.
    fn assert_fences_grow(mut server: Server, lock_is_held: bool, save: impl Fn(&Server)) {
        let mut client = server.client();
        let mut last = next_fence(&mut client);
        if lock_is_held {
            last = client.run("LOCK.ACQUIRE held a PERSIST").fence();
        }
        save(&server);
        server.kill();
        server.set_clock("-1d");
        server.restart();
        let mut client = server.client();
        assert_eq!(client.run("EXISTS held").int(), i64::from(lock_is_held));
        assert!(next_fence(&mut client) > last);
    }

    fn save_rdb(server: &Server) {
        assert_eq!(server.client().run("SAVE"), Reply::ok());
    }

    fn rewrite_aof(server: &Server) {
        assert!(!server.client().run("BGREWRITEAOF").is_error());
        server.wait_aof_rewritten();
    }

    #[test]
    fn fences_grow_over_a_restart_from_an_rdb_with_the_clock_set_back() {
        if skips_shifted_clock() {
            return;
        }
        for lock_is_held in [true, false] {
            assert_fences_grow(Server::builder().clock("+0").start(), lock_is_held, save_rdb);
        }
    }

    #[test]
    fn fences_grow_over_a_restart_from_an_aof_with_the_clock_set_back() {
        if skips_shifted_clock() {
            return;
        }
        for lock_is_held in [true, false] {
            assert_fences_grow(Server::builder().appendonly().clock("+0").start(), lock_is_held, |_| {});
        }
    }

    #[test]
    fn fences_grow_over_a_restart_from_a_rewritten_aof_with_the_clock_set_back() {
        if skips_shifted_clock() {
            return;
        }
        for (preamble, lock_is_held) in [("yes", true), ("yes", false), ("no", true)] {
            let builder = Server::builder().appendonly().config(format!("aof-use-rdb-preamble {preamble}"));
            assert_fences_grow(builder.clock("+0").start(), lock_is_held, rewrite_aof);
        }
    }

    #[test]
    fn a_replica_with_a_slow_clock_grants_higher_fences_than_its_master_did() {
        if skips_shifted_clock() {
            return;
        }
        let mut master = Server::start();
        let last_before = next_fence(&mut master.client());
        let replica = Server::builder().replica_of(&master).clock("-1d").start();
        in_sync(&master, &replica);
        // Once from the transfer of the whole data set, and then from the stream of effects.
        let last = next_fence(&mut master.client());
        assert!(last > last_before);
        in_sync(&master, &replica);
        master.kill();
        let mut client = replica.client();
        client.run("REPLICAOF NO ONE");
        assert!(next_fence(&mut client) > last);
    }

    #[test]
    fn a_full_transfer_alone_raises_the_fences_of_a_replica_with_a_slow_clock() {
        if skips_shifted_clock() {
            return;
        }
        let mut master = Server::start();
        let last = next_fence(&mut master.client());
        let replica = Server::builder().replica_of(&master).clock("-1d").start();
        in_sync(&master, &replica);
        master.kill();
        let mut client = replica.client();
        client.run("REPLICAOF NO ONE");
        assert!(next_fence(&mut client) > last);
    }
}
