//! Locks with multiple holders: an expired holder holds nothing. It is removed from the stored lock when a command that
//! changes locks accesses it, or at once if a request waits; the key's own TTL ends the rest.

use super::*;
use crate::support::payload::{Envelope, StoredHolder, StoredLock};

/// Two ways to hold a key together: the first for `$1` ms, the second for `$2`. Then a command that changes nothing,
/// and a request for the entire lock.
const TOGETHER: [[&str; 4]; 2] = [
    [
        "RWLOCK.ACQUIRE k a READ PX $1",
        "RWLOCK.ACQUIRE k b READ PX $2",
        "RWLOCK.RELEASE k z READ",
        "RWLOCK.ACQUIRE k w WRITE PX 60000",
    ],
    [
        "SEM.ACQUIRE k a LIMIT 9 PX $1",
        "SEM.ACQUIRE k b LIMIT 9 PERMITS 2 PX $2",
        "SEM.RELEASE k z",
        "SEM.ACQUIRE k w LIMIT 9 PERMITS 9 PX 60000",
    ],
];

fn together([first, second, ..]: [&str; 4], leases_ms: [u64; 2]) -> Vec<String> {
    let leases_ms = leases_ms.map(|ms| ms.to_string());
    vec![first.replace("$1", &leases_ms[0]), second.replace("$2", &leases_ms[1])]
}

/// Accesses `key` like a command that finds nothing to do.
#[track_caller]
fn touch(client: &mut Client, [.., touch, _]: [&str; 4], key: &str) {
    assert_eq!(client.run(&touch.replace(" k ", &format!(" {key} "))), Reply::Int(-1), "z holds nothing");
}

/// Sends the lines in one transaction.
#[track_caller]
fn all_at_once(client: &mut Client, lines: &[String]) -> Vec<Reply> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let replies = multi(client, &lines);
    assert!(replies.iter().all(|reply| !reply.is_error() && !reply.is_nil()), "{lines:?}: {replies:?}");
    replies
}

#[track_caller]
fn exists(client: &mut Client, key: &str) -> bool {
    client.run(&format!("EXISTS {key}")) == Reply::Int(1)
}

#[test]
fn watch_and_tracking_notice_expiry_of_one_of_multiple_holders_on_access() {
    let server = quiet().start();
    let mut client = server.client();
    for way in TOGETHER {
        client.run("DEL k");
        let mut reader = server.client3();
        reader.run("CLIENT TRACKING ON");
        let mut watcher = server.client();
        all_at_once(&mut client, &together(way, [60_000, 200]));
        assert!(!reader.run("LOCK.INFO k").is_nil());
        watcher.run("WATCH k");
        until_ended(&mut client, "k", "b");
        assert!(reader.next_push(Duration::from_millis(200)).is_none(), "no command has accessed it: {way:?}");
        touch(&mut client, way, "k");
        let push = reader.next_push(Duration::from_secs(10)).unwrap_or_else(|| panic!("no invalidation: {way:?}"));
        assert_eq!(push.items()[1].items(), [Reply::bulk("k")]);
        assert!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil(), "{way:?}");
        assert_eq!(holders(&mut client, "k"), ["a"], "{way:?}");
        let left = client.pttl("k");
        assert!((50_000..=60_000).contains(&left), "the key ends with the holder that is left: {left}");
    }
}

#[test]
fn tracking_notices_expiry_of_one_of_multiple_holders_at_once_if_a_request_waits() {
    let server = quiet().start();
    let mut client = server.client();
    for way in TOGETHER {
        all_at_once(&mut client, &together(way, [60_000, 200]));
        let mut writer = Waiter::park(&server, &format!("{} BLOCK 0", way[3]));
        let mut reader = server.client3();
        reader.run("CLIENT TRACKING ON");
        assert!(!reader.run("LOCK.INFO k").is_nil());
        let push = reader.next_push(Duration::from_secs(10)).unwrap_or_else(|| panic!("no invalidation: {way:?}"));
        assert_eq!(push.items()[1].items(), [Reply::bulk("k")]);
        client.run("PEXPIRE k 1");
        writer.granted("w");
        client.run("DEL k");
    }
}

#[test]
fn a_renewal_in_time_triggers_no_watch() {
    let server = quiet().start();
    let mut client = server.client();
    all_at_once(&mut client, &together(TOGETHER[0], [60_000, 200]));
    client.run("RWLOCK.RENEW k b PX 60000");
    let mut watcher = server.client();
    watcher.run("WATCH k");
    let_time_pass(Duration::from_millis(250));
    touch(&mut client, TOGETHER[0], "k");
    assert!(!watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil());
    assert_eq!(holders(&mut client, "k"), ["a", "b"]);
}

#[test]
fn a_key_is_removed_with_its_last_holder_without_a_command_of_the_module() {
    let server = Server::start();
    let mut client = server.client();
    for way in TOGETHER {
        all_at_once(&mut client, &together(way, [30, 60]));
        until("k is gone", || client.run("DBSIZE") == Reply::Int(0));
    }
}

/// Ways in which a key outlives its holders.
const LENGTHEN: [&str; 4] = ["PERSIST k", "PEXPIRE k 600000", "EXPIREAT k 4102444800", "PEXPIRE k 600000000"];

/// Checks that `k` is free for every command that reads it, and exists.
#[track_caller]
fn assert_is_free(client: &mut Client, why: &str) {
    assert!(client.run("LOCK.INFO k").is_nil(), "{why}");
    assert!(held(client, "k", "a").is_none() && held(client, "k", "b").is_none(), "{why}");
    let refused = client.run("LOCK.EXEC k b PING");
    assert!(["NOTHELD ", "READONLY "].iter().any(|code| refused.error().starts_with(code)), "{why}: {refused:?}");
    assert_eq!(client.run("LOCK.SCAN 0").items()[1].items(), [], "{why}");
    assert!(exists(client, "k"), "{why}");
}

#[test]
fn a_key_that_outlives_its_holders_is_free_and_removed_on_access() {
    let server = quiet().start();
    let mut client = server.client();
    for (way, lengthen) in TOGETHER.into_iter().flat_map(|way| LENGTHEN.map(|line| (way, line))) {
        for accessed_by in [way[2], way[3], "LOCK.BREAK k"] {
            let mut lines = together(way, [15, 30]);
            lines.push(lengthen.into());
            all_at_once(&mut client, &lines);
            until_ended(&mut client, "k", "b");
            assert_is_free(&mut client, lengthen);
            let reply = client.run(accessed_by);
            if accessed_by == way[3] {
                assert_eq!(reply.items()[0], Reply::bulk("w"), "{accessed_by}");
                assert_eq!(holders(&mut client, "k"), ["w"]);
                client.run("LOCK.BREAK k");
            }
            assert!(!exists(&mut client, "k"), "{lengthen}, {accessed_by}");
        }
    }
}

#[test]
fn a_waiter_is_granted_when_the_last_of_multiple_holders_expires_even_if_the_key_would_live_longer() {
    let server = quiet().start();
    let mut client = server.client();
    for (way, lengthen) in TOGETHER.into_iter().flat_map(|way| LENGTHEN.map(|line| (way, line))) {
        for is_before in [true, false] {
            all_at_once(&mut client, &together(way, [100, 200]));
            if is_before {
                client.run(lengthen);
            }
            let mut waiter = Waiter::park(&server, &format!("{} BLOCK 0", way[3]));
            if !is_before {
                client.run(lengthen);
            }
            waiter.granted("w");
            client.run("DEL k");
        }
    }
}

#[test]
fn holders_expire_wherever_their_lock_is_moved() {
    for (lines, db, key) in [
        (["PERSIST k", "RENAME k other"].as_slice(), 0, "other"),
        (&["RENAME k other", "PERSIST other"], 0, "other"),
        (&["PERSIST k", "MOVE k 1"], 1, "k"),
        (&["PERSIST k", "SWAPDB 0 1"], 1, "k"),
        (&["PERSIST k", "RENAME k other", "SWAPDB 0 3", "SWAPDB 3 2"], 2, "other"),
    ] {
        let server = quiet().start();
        let mut client = server.client();
        let mut all = together(TOGETHER[0], [30, 60]);
        all.extend(lines.iter().map(|line| line.to_string()));
        all_at_once(&mut client, &all);
        client.run(&format!("SELECT {db}"));
        assert!(exists(&mut client, key), "{lines:?}");
        until_ended(&mut client, key, "b");
        assert!(client.run(&format!("LOCK.INFO {key}")).is_nil(), "{lines:?}");
        touch(&mut client, TOGETHER[0], key);
        assert!(!exists(&mut client, key), "{lines:?}");
        assert_eq!(client.run("DBSIZE"), Reply::Int(0));
    }
}

/// A semaphore's permits for a dump, held by two owners until then.
fn permits(fence: u64, until: [u64; 2]) -> StoredLock {
    let holder =
        |owner: &str, until| StoredHolder { owner: owner.into(), fence, lease: 1_000, until, holds: 1, reads: 0 };
    StoredLock { kind: 3, limit: 9, fence, holders: vec![holder("a", until[0]), holder("b", until[1])] }
}

#[test]
fn the_expired_holders_of_a_restored_lock_hold_nothing() {
    let server = quiet().start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    for ttl in ["0", "600000"] {
        let payload = envelope.seal(&permits(7, [1_000, 2_000]).encode());
        assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", ttl.as_bytes(), &payload]), Reply::ok());
        assert_is_free(&mut client, "their time had passed");
        assert_eq!(client.run(TOGETHER[1][3]).items()[0], Reply::bulk("w"));
        client.run("DEL k");
    }
    // One of them keeps holding.
    let payload = envelope.seal(&permits(7, [1_000, 4_102_444_800_000]).encode());
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]), Reply::ok());
    assert_eq!(holders(&mut client, "k"), ["b"]);
    assert_eq!(client.pttl("k"), -1);
    touch(&mut client, TOGETHER[1], "k");
    assert!(client.pttl("k") > 0, "the key ends with it");
}

/// The server loads the new lock before it removes the old one.
#[test]
fn a_lock_restored_over_another_one_is_held_by_its_own_holders() {
    for between in ["PING", "SEM.ACQUIRE k c LIMIT 3 PX 60000", "DEL k"] {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE k a LIMIT 3 PX 200");
        client.run("SEM.ACQUIRE k b LIMIT 3 PX 300");
        let payload = client.cmd(&["DUMP", "k"]).bytes().to_vec();
        client.run(between);
        assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]), Reply::ok());
        assert_eq!(holders(&mut client, "k"), ["a", "b"], "{between}");
        let mut waiter = Waiter::park(&server, "SEM.ACQUIRE k w LIMIT 3 PERMITS 3 BLOCK 0");
        waiter.granted("w");
    }
}

#[test]
fn the_expired_holders_of_a_loaded_lock_hold_nothing() {
    for (preamble, save) in [("yes", "SAVE"), ("yes", "BGREWRITEAOF"), ("no", "BGREWRITEAOF"), ("no", "PING")] {
        let builder = quiet().config(format!("aof-use-rdb-preamble {preamble}"));
        let mut server = if save == "SAVE" { builder.start() } else { builder.appendonly().start() };
        let mut client = server.client();
        let mut lines = together(TOGETHER[0], [100, 400]);
        lines.push("PERSIST k".into());
        all_at_once(&mut client, &lines);
        match save {
            "BGREWRITEAOF" => rewrite_aof(&server),
            save => assert!(!client.run(save).is_error()),
        }
        server.kill();
        server.restart();
        let (mut client, why) = (server.client(), format!("{save}, preamble {preamble}"));
        until_ended(&mut client, "k", "b");
        assert_is_free(&mut client, &why);
        touch(&mut client, TOGETHER[0], "k");
        assert!(!exists(&mut client, "k"), "{why}");
    }
}

#[test]
fn a_replica_removes_nothing_by_itself_and_follows_its_primary() {
    let mut master = quiet().start();
    let replica = quiet().replica_of(&master).start();
    in_sync(&master, &replica);
    let (mut client, mut follower) = (master.client(), replica.client());
    for accessed_on in ["the primary", "the promoted replica"] {
        let mut lines = together(TOGETHER[0], [100, 200]);
        lines.extend(["PERSIST k".into(), "RENAME k renamed".into(), "RENAME renamed k".into()]);
        all_at_once(&mut client, &lines);
        in_sync(&master, &replica);
        until_ended(&mut follower, "k", "b");
        assert_is_free(&mut follower, "on the replica");
        if accessed_on == "the primary" {
            touch(&mut client, TOGETHER[0], "k");
            in_sync(&master, &replica);
        } else {
            master.kill();
            follower.run("REPLICAOF NO ONE");
            assert_is_free(&mut follower, "promoted");
            touch(&mut follower, TOGETHER[0], "k");
        }
        assert!(!exists(&mut follower, "k"), "accessed on {accessed_on}");
    }
}

#[test]
fn leases_with_waiters_expire_when_a_pause_ends() {
    let server = quiet().start();
    let mut client = server.client();
    all_at_once(&mut client, &together(TOGETHER[0], [150, 200]));
    let mut waiter = Waiter::park(&server, &format!("{} BLOCK 0", TOGETHER[0][3]));
    all_at_once(&mut client, &["PERSIST k".into(), "CLIENT PAUSE 60000 WRITE".into()]);
    until_ended(&mut client, "k", "b");
    waiter.assert_silent_for(Duration::from_millis(50));
    assert!(exists(&mut client, "k"), "nothing is written while the server pauses");
    client.run("CLIENT UNPAUSE");
    waiter.granted("w");
}

/// Changes to a key with holders of 60 and 90 s; then their deadlines and the key's: after a transaction, and with a
/// command that accesses the lock after each line.
type Shortened = (&'static [&'static str], [i64; 2], [i64; 2], i64);

const SHORTENED: &[Shortened] = &[
    (&["PEXPIRE k 5000", "PEXPIRE k 50000"], [50_000, 50_000], [5_000, 5_000], 50_000),
    (&["PEXPIRE k 75000", "PERSIST k"], [60_000, 90_000], [60_000, 75_000], -1),
    (&["PEXPIRE k 5000", "PEXPIRE k 70000", "PEXPIRE k 3000", "EXPIRE k 80"], [60_000, 80_000], [3_000, 3_000], 80_000),
    (&["PEXPIRE k 70000", "PEXPIRE k 5000", "PERSIST k", "PEXPIRE k 90000"], [60_000, 90_000], [5_000, 5_000], 90_000),
    (&["PEXPIRE k 5000", "RWLOCK.RENEW k b PX 40000"], [5_000, 40_000], [5_000, 40_000], 40_000),
    (
        &["PEXPIRE k 5000", "PERSIST k", "RENAME k other", "PERSIST other", "RENAME other k"],
        [60_000, 90_000],
        [5_000, 5_000],
        -1,
    ),
    (&["PEXPIRE k 5000", "PERSIST k", "SWAPDB 0 1", "SWAPDB 1 0"], [60_000, 90_000], [5_000, 5_000], -1),
    (&["PERSIST k", "PEXPIRE k 500000"], [60_000, 90_000], [60_000, 90_000], 500_000),
];

/// Lengthening changes no holder; of multiple changes in one transaction the last one counts, even if the key is read
/// before it. Replicas and the append-only file match.
#[test]
fn lengthening_changes_no_holder_and_of_multiple_changes_in_one_transaction_the_last_counts() {
    let mut master = Server::builder().appendonly().start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    let assert_ends = |server: &Server, holders: &[i64; 2], key: i64, how: &str| {
        let mut client = server.client();
        for (owner, ms) in ["a", "b"].into_iter().zip(holders) {
            let left = left(&mut client, "k", owner);
            assert!((ms - 2_000..=*ms).contains(&left), "{how}: {owner} has {left} ms of {ms}");
        }
        let left = client.pttl("k");
        assert!((key - 2_000..=key).contains(&left) && (left < 0) == (key < 0), "{how}: {left}");
    };
    for (lines, after_transaction, after_each, key) in SHORTENED {
        for way in ["a transaction", "a transaction that looks", "one by one"] {
            client.run("DEL k");
            all_at_once(&mut client, &together(TOGETHER[0], [60_000, 90_000]));
            let mut expected = after_transaction;
            match way {
                "a transaction" => _ = multi(&mut client, lines),
                "a transaction that looks" => {
                    let looked: Vec<&str> = lines.iter().flat_map(|line| [*line, "LOCK.INFO k"]).collect();
                    _ = multi(&mut client, &looked);
                }
                _ => {
                    expected = after_each;
                    for line in *lines {
                        assert!(!master.client().run(line).is_error(), "{line}");
                        touch(&mut client, TOGETHER[0], "k");
                    }
                }
            }
            let how = format!("{lines:?}, {way}");
            assert_ends(&master, expected, *key, &how);
            in_sync(&master, &replica);
            assert_ends(&replica, expected, *key, &how);
        }
    }
    client.run("DEL k");
    all_at_once(&mut client, &together(TOGETHER[0], [60_000, 90_000]));
    client.run("PEXPIRE k 30000");
    touch(&mut client, TOGETHER[0], "k");
    client.run("PEXPIRE k 50000");
    assert_ends(&master, &[30_000, 30_000], 50_000, "before a restart");
    master.kill();
    master.restart();
    assert_ends(&master, &[30_000, 30_000], 50_000, "after it");
}

#[test]
fn a_transaction_sees_the_ttl_that_it_has_just_set() {
    let server = Server::start();
    let mut client = server.client();
    all_at_once(&mut client, &together(TOGETHER[0], [60_000, 90_000]));
    for ms in [5_000, 50_000] {
        let expire = format!("PEXPIRE k {ms}");
        let replies = multi(&mut client, &[&expire, "LOCK.HELD k a", "LOCK.HELD k b", "LOCK.INFO k"]);
        for held in &replies[1..3] {
            assert_just_began(held.items()[2].int(), ms);
        }
        assert_just_began(replies[3].get("holders").items()[1].get("ttl").int(), ms);
        assert_just_began(replies[3].get("ttl").int(), ms);
    }
}

/// An inspection finds that the key with waiters now expires sooner.
#[test]
fn holders_of_a_lock_with_waiters_expire_at_the_earlier_deadline() {
    let server = quiet().start();
    let mut client = server.client();
    for lengthen in ["PERSIST k", "PEXPIRE k 60000"] {
        all_at_once(&mut client, &together(TOGETHER[1], [60_000, 90_000]));
        let mut waiter = Waiter::park(&server, &format!("{} BLOCK 0", TOGETHER[1][3]));
        let before = client.run("DUMP k");
        client.run("PEXPIRE k 1000");
        until("an inspection has found it", || client.run("DUMP k") != before);
        client.run(lengthen);
        waiter.granted_within("w", Duration::from_secs(10));
        client.run("DEL k");
    }
}

/// A bug may leave such a lock; the module must be able to load its stored form.
#[test]
fn a_lock_without_holders_is_saved_and_loaded_and_is_free() {
    let mut server = quiet().start();
    let mut client = server.client();
    let payload = Envelope::of(&mut client).seal(b"");
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]), Reply::ok());
    assert_eq!(client.run("DUMP k").bytes(), payload);
    assert_is_free(&mut client, "restored");
    assert!(!client.run("MEMORY USAGE k").is_error());
    client.run("LOCK.ACQUIRE other a PERSIST");
    assert_eq!(client.run("SAVE"), Reply::ok());
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(holders(&mut client, "other"), ["a"], "everything else was loaded");
    assert!(client.run("LOCK.INFO k").is_nil() && exists(&mut client, "k"));
    assert!(client.run("LOCK.ACQUIRE k a").fence() > 0);
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert!(!exists(&mut client, "k"));
}
