//! Locks of every type and of every stored shape, and checks that must pass wherever they are loaded.

use super::{assert_just_began, Client, Reply, Server};

/// The keys of [`take_locks`].
pub const KEYS: [&str; 13] = [
    "mutex",
    "default",
    "forever",
    "binary",
    "nested",
    "nested-forever",
    "readers",
    "writer",
    "permits",
    "forever-permits",
    "slots",
    "one",
    "other",
];

/// Acquires a lock of every type, with all relevant combinations of holders, holds and deadlines.
#[track_caller]
pub fn take_locks(client: &mut Client) {
    for line in [
        "LOCK.ACQUIRE mutex a PX 600000",
        "LOCK.ACQUIRE default a",
        "LOCK.ACQUIRE forever a PERSIST",
        "RLOCK.ACQUIRE nested a HOLDS 5 PX 600000",
        "RLOCK.ACQUIRE nested-forever a HOLDS 2 PERSIST",
        "RWLOCK.ACQUIRE readers a READ HOLDS 2 PX 600000",
        "RWLOCK.ACQUIRE readers b READ PX 700000",
        "RWLOCK.ACQUIRE readers c READ PX 90000",
        "RWLOCK.ACQUIRE writer a WRITE HOLDS 2 PX 600000",
        "RWLOCK.ACQUIRE writer a READ HOLDS 3 PX 700000",
        "SEM.ACQUIRE permits a LIMIT 9 PERMITS 4 PX 600000",
        "SEM.ACQUIRE permits b LIMIT 9 PERSIST",
        "SEM.ACQUIRE permits c LIMIT 9 PERMITS 2 PX 90000",
        "SEM.ACQUIRE permits c LIMIT 8 PX 80000",
        "SEM.ACQUIRE forever-permits a LIMIT 1000000 PERMITS 1000000 PERSIST",
        "SEM.ACQUIRE slots gone LIMIT 5 SLOT PX 600000",
        "SEM.ACQUIRE slots a LIMIT 5 SLOT PX 600000",
        "SEM.ACQUIRE slots b LIMIT 5 SLOT PERSIST",
        "SEM.ACQUIRE slots c LIMIT 5 PX 600000",
        "MLOCK.ACQUIRE 2 one other a PX 600000",
    ] {
        assert!(client.run(line).fence() > 0, "{line}");
    }
    assert_eq!(client.run("SEM.RELEASE slots gone"), Reply::Int(0));
    // The longest owner ID, with bytes that are special in some formats.
    let owner: Vec<u8> = b"\0\r\n\xff*$".iter().copied().cycle().take(1024).collect();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"binary", &owner, b"PX", b"600000"]).fence();
}

/// The stored form of all keys, byte by byte, with their deadlines.
#[track_caller]
pub fn stored(client: &mut Client) -> Vec<(Reply, Reply)> {
    KEYS.iter().map(|key| client.stored(key)).collect()
}

/// The checks that must pass wherever [`take_locks`] was loaded.
#[track_caller]
pub fn assert_locks_still_work(client: &mut Client) {
    assert!(client.run("LOCK.ACQUIRE mutex b").is_nil());
    assert_eq!(client.run("LOCK.RENEW mutex a").int(), 1);
    assert_just_began(client.pttl("mutex"), 600_000);
    assert_eq!(client.run("LOCK.RELEASE mutex a").int(), 1);
    assert_eq!(client.pttl("forever"), -1);
    assert_eq!(client.run("LOCK.RELEASE forever a").int(), 1);

    assert!(client.run("RLOCK.ACQUIRE nested b").is_nil());
    assert_eq!(client.run("RLOCK.ACQUIRE nested a").items()[2].int(), 6);
    assert_eq!(client.run("RLOCK.RELEASE nested-forever a HOLDS 0").int(), 0);

    assert_eq!(client.run("LOCK.INFO permits").get("limit"), &Reply::Int(8));
    assert!(client.run("SEM.ACQUIRE permits d LIMIT 8").is_nil(), "eight permits are out");
    assert_eq!(client.run("SEM.RELEASE permits a PERMITS 2"), Reply::Int(2));
    assert_eq!(client.run("SEM.ACQUIRE permits d LIMIT 8 PERMITS 2").items()[2], Reply::Int(2));
    assert!(client.run("SEM.ACQUIRE permits e LIMIT 8").is_nil());
    assert_eq!(client.pttl("forever-permits"), -1);

    let info = client.run("LOCK.INFO slots");
    let rows = info.get("holders").items().iter();
    let slots: Vec<_> = rows.map(|row| (row.get("owner").text(), row.get("slot").int())).collect();
    assert_eq!(slots, [("a", 1), ("b", 2), ("c", -1)]);
    for (owner, slot) in [("b", 2), ("d", 0), ("e", 3)] {
        let granted = client.run(&format!("SEM.ACQUIRE slots {owner} LIMIT 5 SLOT"));
        assert_eq!(granted.items()[3], Reply::Int(slot), "{owner}");
    }

    assert!(client.run("RWLOCK.ACQUIRE readers a WRITE").is_nil());
    assert_eq!(client.run("RWLOCK.RELEASE readers a READ"), Reply::Int(1));
    assert_eq!(client.run("RWLOCK.RELEASE readers b READ"), Reply::Int(0));
    assert_just_began(client.pttl("readers"), 600_000);
    assert_eq!(client.run("RWLOCK.RELEASE readers c READ"), Reply::Int(0));
    assert!(client.run("RWLOCK.ACQUIRE readers a WRITE").fence() > 0, "the only reader");

    assert!(client.run("RWLOCK.ACQUIRE writer b READ").is_nil());
    assert_eq!(client.run("RWLOCK.RELEASE writer a WRITE HOLDS 0"), Reply::Int(0));
    assert!(client.run("RWLOCK.ACQUIRE writer b READ").fence() > 0);
    assert_eq!(client.run("RWLOCK.RELEASE writer a READ"), Reply::Int(2));
    assert_eq!(client.run("MLOCK.RELEASE 2 one other a"), Reply::Int(2));
}

/// Rewrites the AOF, and waits until that is done.
#[track_caller]
pub fn rewrite_aof(server: &Server) {
    assert!(!server.client().run("BGREWRITEAOF").is_error());
    server.wait_aof_rewritten();
}
