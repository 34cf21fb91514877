//! A lock is a value of the keyspace: it is saved, loaded, moved, measured and watched like any other.

use crate::support::{assert_just_began, until, Client, Reply, Server};
use std::time::Duration;

/// Locks of every shape that is stored; each has its own key.
const LOCKS: &[&str] = &[
    "LOCK.ACQUIRE mutex a PX 600000",
    "LOCK.ACQUIRE default a",
    "LOCK.ACQUIRE forever a PERSIST",
    "RLOCK.ACQUIRE nested a HOLDS 5 PX 600000",
    "RLOCK.ACQUIRE nested-forever a HOLDS 2 PERSIST",
];
const KEYS: &[&str] = &["mutex", "default", "forever", "nested", "nested-forever", "binary"];

fn take_locks(client: &mut Client) {
    for line in LOCKS {
        client.run(line).fence();
    }
    // The longest owner, with bytes that mean something to somebody.
    let owner: Vec<u8> = b"\0\r\n\xff*$".iter().copied().cycle().take(1024).collect();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"binary", &owner, b"PX", b"600000"]).fence();
}

/// All that is stored, byte by byte.
fn stored(client: &mut Client) -> Vec<(Reply, Reply)> {
    KEYS.iter().map(|key| client.stored(key)).collect()
}

fn assert_locks_still_work(client: &mut Client) {
    assert!(client.run("LOCK.ACQUIRE mutex b").is_nil());
    assert_eq!(client.run("LOCK.RENEW mutex a").int(), 1);
    assert_just_began(client.pttl("mutex"), 600_000);
    assert_eq!(client.run("LOCK.RELEASE mutex a").int(), 1);
    assert_eq!(client.pttl("forever"), -1);
    assert_eq!(client.run("LOCK.RELEASE forever a").int(), 1);
    assert_eq!(client.run("RLOCK.ACQUIRE nested a").items()[2].int(), 6);
    assert_eq!(client.run("RLOCK.RELEASE nested-forever a HOLDS 0").int(), 0);
}

#[test]
fn the_type_has_a_name_and_scan_finds_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET string v");
    take_locks(&mut client);
    for key in KEYS {
        assert_eq!(client.cmd(&["TYPE", key]).text(), "redislock");
    }
    let page = client.run("SCAN 0 COUNT 1000 TYPE redislock");
    let mut found: Vec<&str> = page.items()[1].items().iter().map(Reply::text).collect();
    found.sort_unstable();
    let mut expected = KEYS.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn an_rdb_keeps_locks() {
    let mut server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    assert_eq!(client.run("SAVE"), Reply::ok());
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(stored(&mut client), before);
    assert_locks_still_work(&mut client);
}

#[test]
fn debug_reload_keeps_locks() {
    let server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
    assert_eq!(stored(&mut client), before);
    assert_locks_still_work(&mut client);
}

/// Kills a server that writes an AOF, starts it again and expects the same locks.
fn assert_aof_keeps_locks(preamble: &str, rewrite: bool) {
    let mut server = Server::builder().appendonly().config(format!("aof-use-rdb-preamble {preamble}")).start();
    let mut client = server.client();
    take_locks(&mut client);
    client.run("LOCK.ACQUIRE gone a");
    client.run("LOCK.RELEASE gone a");
    client.run("LOCK.ACQUIRE rewritten-then-gone a");
    if rewrite {
        rewrite_aof(&server);
    }
    // What comes after the rewrite is appended.
    client.run("LOCK.RELEASE rewritten-then-gone a");
    client.run("RLOCK.ACQUIRE nested a PX 900000");
    client.run("RLOCK.RELEASE nested a HOLDS 5");
    client.run("LOCK.RENEW mutex a PX 700000");
    client.run("LOCK.RENEW mutex a PX 600000");
    let before = stored(&mut client);
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(stored(&mut client), before);
    assert_eq!(client.run("EXISTS gone rewritten-then-gone").int(), 0);
    assert_locks_still_work(&mut client);
}

fn rewrite_aof(server: &Server) {
    assert!(!server.client().run("BGREWRITEAOF").is_error());
    server.wait_aof_rewritten();
}

#[test]
fn an_aof_of_plain_commands_keeps_locks() {
    assert_aof_keeps_locks("yes", false);
}

#[test]
fn a_rewritten_aof_with_rdb_preamble_keeps_locks() {
    assert_aof_keeps_locks("yes", true);
}

#[test]
fn a_rewritten_aof_without_rdb_preamble_keeps_locks() {
    assert_aof_keeps_locks("no", true);
}

#[cfg(target_os = "linux")]
#[test]
fn a_lease_ends_while_the_server_is_down() {
    for config in ["appendonly no", "appendonly yes"] {
        let mut server = Server::builder().config(config).clock("+0").start();
        let mut client = server.client();
        take_locks(&mut client);
        assert_eq!(client.run("SAVE"), Reply::ok());
        server.stop();
        server.set_clock("+1h");
        server.restart();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE mutex b").fence();
        client.run("RLOCK.ACQUIRE nested b").fence();
        assert!(client.run("LOCK.ACQUIRE forever b").is_nil(), "for ever is longer");
    }
}

#[test]
fn dump_and_restore_carry_a_lock_to_another_server() {
    let (here, there) = (Server::start(), Server::start());
    let (mut from, mut to) = (here.client(), there.client());
    take_locks(&mut from);
    for key in KEYS {
        let payload = from.cmd(&["DUMP", key]);
        let deadline = from.cmd(&["PEXPIRETIME", key]).int().max(0).to_string();
        let restored = to.cmd(&[b"RESTORE", key.as_bytes(), deadline.as_bytes(), payload.bytes(), b"ABSTTL"]);
        assert_eq!(restored, Reply::ok(), "{key}");
        assert_eq!(to.stored(key), from.stored(key));
    }
    assert_locks_still_work(&mut to);
}

#[test]
fn the_time_to_live_of_a_restore_is_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 60000");
    client.run("LOCK.ACQUIRE forever a PERSIST");
    for key in ["k", "forever"] {
        let payload = client.cmd(&["DUMP", key]);
        for (ttl, expected) in [("0", -1), ("200000", 200_000)] {
            let restored = client.cmd(&[b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload.bytes(), b"REPLACE"]);
            assert_eq!(restored, Reply::ok());
            let held = client.cmd(&["LOCK.HELD", key, "a"]).items()[2].int();
            let shown = client.cmd(&["LOCK.INFO", key]).get("ttl").int();
            if expected == -1 {
                assert_eq!((held, shown), (-1, -1), "{key}");
            } else {
                assert_just_began(held, expected);
                assert_just_began(shown, expected);
            }
        }
    }
}

#[test]
fn a_restored_lock_lies_beside_the_one_it_came_from() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.run("LOCK.ACQUIRE k a").fence();
    let payload = client.run("DUMP k");
    let busy = client.cmd(&[&b"RESTORE"[..], b"k", b"0", payload.bytes()]);
    assert!(busy.error().starts_with("BUSYKEY "));
    client.run("LOCK.RELEASE k a");
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k2", b"60000", payload.bytes()]), Reply::ok());
    assert_eq!(client.run("LOCK.HELD k2 a").items()[0].int(), fence);
    assert!(client.run("LOCK.ACQUIRE k b").fence() > fence);
    assert_eq!(client.run("LOCK.RELEASE k2 a").int(), 1);
}

#[test]
fn rename_and_move_take_the_lock_along() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 600000");
    let (value, deadline) = client.stored("k");
    assert_eq!(client.run("RENAME k renamed"), Reply::ok());
    assert_eq!(client.stored("renamed"), (value.clone(), deadline.clone()));
    let next = client.run("LOCK.ACQUIRE k b").fence();

    assert_eq!(client.run("MOVE renamed 1").int(), 1);
    client.run("LOCK.ACQUIRE renamed c").fence();
    client.run("SELECT 1");
    assert_eq!(client.stored("renamed"), (value, deadline));
    assert!(client.run("LOCK.ACQUIRE renamed c").is_nil());
    assert_eq!(client.run("LOCK.RELEASE renamed a").int(), 1);
    client.run("SELECT 0");
    assert_eq!(client.run("LOCK.HELD k b").items()[0].int(), next);
}

#[test]
fn rename_over_a_lock_ends_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a");
    client.run("LOCK.ACQUIRE other b");
    assert_eq!(client.run("RENAME other k"), Reply::ok());
    assert!(client.run("LOCK.HELD k a").is_nil());
    assert!(!client.run("LOCK.HELD k b").is_nil());
}

#[test]
fn copy_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a");
    let before = client.stored("k");
    for line in ["COPY k copy", "COPY k copy REPLACE", "COPY k k DB 1"] {
        assert!(client.run(line).is_error(), "two keys must not carry one grant: {line}");
    }
    assert_eq!(client.run("EXISTS copy").int(), 0);
    assert_eq!(client.stored("k"), before);
}

#[test]
fn a_lock_costs_at_most_200_bytes_beyond_its_key_and_owner() {
    let server = Server::start();
    let mut client = server.client();
    for (key_length, owner_length) in [(1, 1), (16, 36), (40, 23), (40, 24), (60, 100), (200, 500)] {
        let (key, owner) = ("k".repeat(key_length), "o".repeat(owner_length));
        for command in ["LOCK.ACQUIRE", "RLOCK.ACQUIRE"] {
            client.cmd(&[command, &key, &owner]).fence();
            let used = client.cmd(&["MEMORY", "USAGE", &key]).int();
            let own = i64::try_from(key_length + owner_length).expect("small numbers");
            // Valkey does not count a key that is part of its entry.
            assert!(used >= own - i64::try_from(key_length).expect("small"), "{command}: {used} bytes cannot be all");
            assert!(used - own <= 200, "{command}, key of {key_length}, owner of {owner_length}: {used} bytes");
            client.cmd(&["DEL", &key]);
        }
    }
}

#[test]
fn object_and_debug_commands_survive_a_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a");
    for line in [
        "OBJECT ENCODING k",
        "OBJECT REFCOUNT k",
        "OBJECT IDLETIME k",
        "DEBUG OBJECT k",
        "DEBUG DIGEST",
        "DEBUG DIGEST-VALUE k",
        "TOUCH k",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    for line in ["OBJECT FREQ k", "SORT k", "STRLEN k", "APPEND k v", "OBJECT HELP"] {
        client.run(line);
    }
    assert!(!client.run("LOCK.HELD k a").is_nil());
}

/// Whether a transaction that watches `k` is still carried out after `line`.
fn survives_watch(server: &Server, line: &str) -> bool {
    let mut watcher = server.client();
    watcher.run("WATCH k");
    assert!(!server.client().run(line).is_error(), "{line}");
    watcher.run("MULTI");
    watcher.run("PING");
    !watcher.run("EXEC").is_nil()
}

#[test]
fn watch_trips_on_every_change_of_holders_or_holds() {
    let server = Server::start();
    for line in [
        "LOCK.ACQUIRE k a",
        "LOCK.RELEASE k a",
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a HOLDS 5",
        "RLOCK.RELEASE k a",
        "RLOCK.RELEASE k a HOLDS 2",
        "RLOCK.RELEASE k a HOLDS 0",
    ] {
        assert!(!survives_watch(&server, line), "{line}");
    }
    server.client().run("LOCK.ACQUIRE k a");
    assert!(!survives_watch(&server, "DEL k"));
}

#[test]
fn watch_does_not_trip_where_nobody_changes() {
    let server = Server::start();
    assert!(survives_watch(&server, "LOCK.RELEASE k a"));
    assert!(survives_watch(&server, "LOCK.RENEW k a"));
    server.client().run("LOCK.ACQUIRE k a");
    for line in [
        "LOCK.RENEW k a",
        "LOCK.RENEW k a PX 100000",
        "LOCK.RENEW k a PERSIST",
        "LOCK.ACQUIRE k a",
        "LOCK.ACQUIRE k b",
        "LOCK.RELEASE k b",
        "LOCK.RENEW k b",
        "LOCK.HELD k a",
        "LOCK.INFO k",
    ] {
        assert!(survives_watch(&server, line), "{line}");
    }
    server.client().run("DEL k");
    server.client().run("RLOCK.ACQUIRE k a HOLDS 2");
    for line in ["RLOCK.RENEW k a", "RLOCK.ACQUIRE k a HOLDS 2", "RLOCK.RELEASE k a HOLDS 2", "RLOCK.RELEASE k b"] {
        assert!(survives_watch(&server, line), "{line}");
    }
}

#[test]
fn watch_trips_when_the_lease_ends() {
    let server = Server::start();
    let mut watcher = server.client();
    // In one journey: the lease must not end before anybody watches.
    watcher.pipeline(&["LOCK.ACQUIRE k a PX 50", "WATCH k"]);
    until("the lease has ended", || server.client().run("LOCK.HELD k a").is_nil());
    watcher.run("MULTI");
    watcher.run("PING");
    assert!(watcher.run("EXEC").is_nil());
}

#[test]
fn a_tracking_reader_is_told_when_the_lock_changes_hands() {
    let server = Server::start();
    let mut other = server.client();
    for (read, change) in [
        ("LOCK.INFO k", "LOCK.ACQUIRE k a"),
        ("LOCK.INFO k", "LOCK.RELEASE k a"),
        ("LOCK.HELD k a", "LOCK.ACQUIRE k a"),
        ("LOCK.HELD k a", "LOCK.RELEASE k a"),
        ("LOCK.INFO k", "RLOCK.ACQUIRE k a"),
        ("LOCK.INFO k", "DEL k"),
        ("LOCK.INFO k", "LOCK.ACQUIRE k a PX 2000"),
    ] {
        let mut reader = server.client3();
        reader.run("CLIENT TRACKING ON");
        reader.run(read);
        other.run(change);
        assert_invalidated(&mut reader, &format!("{read}, then {change}"));
    }
    let mut reader = server.client3();
    reader.run("CLIENT TRACKING ON");
    assert!(!reader.run("LOCK.INFO k").is_nil());
    // The end of the lease, with no command from anyone.
    assert_invalidated(&mut reader, "the end of the lease");
}

#[track_caller]
fn assert_invalidated(reader: &mut Client, why: &str) {
    let push = reader.next_push(Duration::from_secs(10)).unwrap_or_else(|| panic!("no invalidation: {why}"));
    assert_eq!(push.items()[0].text(), "invalidate", "{why}");
    assert_eq!(push.items()[1].items(), [Reply::bulk("k")], "{why}");
}

#[test]
fn a_million_pairs_do_not_grow_the_heap() {
    let server = Server::start();
    let mut client = server.client();
    let pairs: Vec<String> = (0..1000)
        .flat_map(|key| match key % 2 {
            0 => [format!("LOCK.ACQUIRE k{key} owner-{key}"), format!("LOCK.RELEASE k{key} owner-{key}")],
            _ => [format!("RLOCK.ACQUIRE k{key} owner-{key}"), format!("RLOCK.RELEASE k{key} owner-{key}")],
        })
        .collect();
    let mut thousand_pairs = || {
        for (at, reply) in client.pipeline(&pairs).iter().enumerate() {
            assert!(!reply.is_error() && !reply.is_nil(), "{}: {reply:?}", pairs[at]);
        }
    };
    // The first rounds fill the caches and buffers that stay.
    (0..20).for_each(|_| thousand_pairs());
    let before = server.info("memory").number("used_memory");
    (0..1000).for_each(|_| thousand_pairs());
    // The server trims its clients' buffers in its own time.
    let mut after = 0;
    until("the heap is as small as before, but for a tenth of a byte a pair", || {
        after = server.info("memory").number("used_memory");
        after - before < 100_000
    });
    assert_eq!(server.client().run("DBSIZE").int(), 0);
}
