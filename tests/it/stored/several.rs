//! Locks with several holders: the end of each is noticed also without waiters, and a key that outlives its holders
//! goes with the last. No test here reads the lock meanwhile: a read would end the leases.

use super::*;
use crate::support::payload::{Envelope, StoredHolder, StoredLock};

/// Two ways to hold a key together: the first for `$1` ms, the second for `$2`.
const TOGETHER: [[&str; 2]; 2] = [
    ["RWLOCK.ACQUIRE k a READ PX $1", "RWLOCK.ACQUIRE k b READ PX $2"],
    ["SEM.ACQUIRE k a LIMIT 9 PX $1", "SEM.ACQUIRE k b LIMIT 9 PERMITS 2 PX $2"],
];

fn together(way: [&str; 2], leases_ms: [u64; 2]) -> Vec<String> {
    let [first, second] = leases_ms.map(|ms| ms.to_string());
    way.iter().map(|line| line.replace("$1", &first).replace("$2", &second)).collect()
}

/// Sends the lines in one transaction.
#[track_caller]
fn all_at_once(client: &mut Client, lines: &[String]) -> Vec<Reply> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let replies = multi(client, &lines);
    assert!(replies.iter().all(|reply| !reply.is_error() && !reply.is_nil()), "{lines:?}: {replies:?}");
    replies
}

/// Waits until `k` is gone, without a command of the module.
#[track_caller]
fn until_gone(client: &mut Client, why: &str) {
    until(&format!("k is gone: {why}"), || client.run("EXISTS k") == Reply::Int(0));
    assert_eq!(client.run("DBSIZE"), Reply::Int(0), "{why}");
    assert_eq!(client.run("SCAN 0 TYPE redislock").items()[1].items(), [], "{why}");
}

#[test]
fn watch_and_tracking_notice_the_end_of_one_of_several_without_waiters() {
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
        let push = reader.next_push(Duration::from_secs(10)).unwrap_or_else(|| panic!("no invalidation: {way:?}"));
        assert_eq!(push.items()[1].items(), [Reply::bulk("k")]);
        assert!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil(), "{way:?}");
        assert_eq!(holders(&mut client, "k"), ["a"], "{way:?}");
        let left = client.pttl("k");
        assert!((50_000..=60_000).contains(&left), "the key ends with who is left: {left}");
    }
}

#[test]
fn a_renewal_in_time_trips_no_watch() {
    let server = quiet().start();
    let mut client = server.client();
    all_at_once(&mut client, &together(TOGETHER[0], [60_000, 200]));
    client.run("RWLOCK.RENEW k b PX 60000");
    let mut watcher = server.client();
    watcher.run("WATCH k");
    let_pass(Duration::from_millis(250));
    assert!(!watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil());
    assert_eq!(holders(&mut client, "k"), ["a", "b"]);
}

/// Ways in which a key outlives its holders.
const LENGTHEN: [&str; 4] = ["PERSIST k", "PEXPIRE k 600000", "EXPIREAT k 4102444800", "PEXPIRE k 600000000"];

#[test]
fn a_key_that_outlives_its_holders_goes_with_the_last_of_them() {
    let server = quiet().start();
    let mut client = server.client();
    for (way, lengthen) in TOGETHER.into_iter().flat_map(|way| LENGTHEN.map(|line| (way, line))) {
        let mut lines = together(way, [30, 60]);
        lines.push(lengthen.into());
        all_at_once(&mut client, &lines);
        until_gone(&mut client, lengthen);
    }
}

#[test]
fn it_goes_under_another_name_and_in_another_database_too() {
    for lines in [
        ["PERSIST k", "RENAME k other"].as_slice(),
        &["RENAME k other", "PERSIST other"],
        &["PERSIST k", "MOVE k 1"],
        &["PERSIST k", "SWAPDB 0 1"],
        &["PERSIST k", "RENAME k other", "SWAPDB 0 3", "SWAPDB 3 2"],
    ] {
        let server = quiet().start();
        let mut client = server.client();
        let mut all = together(TOGETHER[0], [30, 60]);
        all.extend(lines.iter().map(|line| line.to_string()));
        all_at_once(&mut client, &all);
        assert!(server.info("keyspace").find("db0").is_some() || lines.len() > 1);
        let mut count = || {
            let dbs = (0..4).map(|db| client.pipeline(&[format!("SELECT {db}"), "DBSIZE".into()])[1].int());
            dbs.sum::<i64>()
        };
        until(&format!("nothing is left after {lines:?}"), || count() == 0);
    }
}

/// A semaphore's permits out of a dump, held by two until then.
fn permits(fence: u64, until: [u64; 2]) -> StoredLock {
    let holder =
        |owner: &str, until| StoredHolder { owner: owner.into(), fence, lease: 1_000, until, holds: 1, reads: 0 };
    StoredLock { kind: 3, limit: 9, fence, holders: vec![holder("a", until[0]), holder("b", until[1])] }
}

#[test]
fn a_restored_lock_with_expired_holders_goes_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    for ttl in ["0", "600000"] {
        let payload = envelope.seal(&permits(7, [1_000, 2_000]).encode());
        assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", ttl.as_bytes(), &payload]), Reply::ok());
        until_gone(&mut client, "their time had passed");
    }
    // One of them holds on.
    let payload = envelope.seal(&permits(7, [1_000, 4_102_444_800_000]).encode());
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]), Reply::ok());
    assert_eq!(holders(&mut client, "k"), ["b"]);
    assert!(client.pttl("k") > 0, "the key ends with it");
}

/// The server loads the new lock before it removes the old one.
#[test]
fn a_lock_restored_over_another_one_goes_with_the_last_of_its_holders() {
    for between in ["PING", "SEM.ACQUIRE k c LIMIT 3 PX 60000", "DEL k"] {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE k a LIMIT 3 PX 200");
        client.run("SEM.ACQUIRE k b LIMIT 3 PX 300");
        let payload = client.cmd(&["DUMP", "k"]).bytes().to_vec();
        client.run(between);
        assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]), Reply::ok());
        until_gone(&mut client, between);
    }
}

/// The module did not know the lock before the transaction, in which it comes and goes on.
#[test]
fn a_restored_lock_goes_wherever_the_same_transaction_has_brought_it() {
    for lines in [&["SWAPDB 0 1"][..], &["RENAME k other"], &["MOVE k 1"], &["RENAME k other", "SWAPDB 0 1"]] {
        let server = quiet().start();
        let mut client = server.client();
        let payload = Envelope::of(&mut client).seal(&permits(7, [1_000, 2_000]).encode());
        client.run("MULTI");
        client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]);
        lines.iter().for_each(|line| _ = client.run(line));
        assert!(client.run("EXEC").items().iter().all(|reply| !reply.is_error()));
        let mut size = |db| client.pipeline(&[format!("SELECT {db}"), "DBSIZE".into()])[1].int();
        until(&format!("nothing is left after {lines:?}"), || size(0) + size(1) == 0);
    }
}

#[test]
fn a_lock_that_was_loaded_goes_with_the_last_of_its_holders() {
    for (preamble, save) in [("yes", "SAVE"), ("yes", "BGREWRITEAOF"), ("no", "BGREWRITEAOF"), ("no", "PING")] {
        let builder = quiet().config(format!("aof-use-rdb-preamble {preamble}"));
        let mut server = if save == "SAVE" { builder.start() } else { builder.appendonly().start() };
        let mut client = server.client();
        let mut lines = together(TOGETHER[0], [100, 900]);
        lines.push("PERSIST k".into());
        all_at_once(&mut client, &lines);
        match save {
            "BGREWRITEAOF" => rewrite_aof(&server),
            save => assert!(!client.run(save).is_error()),
        }
        server.kill();
        server.restart();
        until_gone(&mut server.client(), &format!("{save}, preamble {preamble}"));
    }
}

#[test]
fn a_replica_ends_nothing_and_once_promoted_everything() {
    let mut master = quiet().start();
    let replica = quiet().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    let mut lines = together(TOGETHER[0], [100, 200]);
    lines.extend(["PERSIST k".into(), "RENAME k renamed".into(), "RENAME renamed k".into()]);
    lines.push("CLIENT PAUSE 60000 WRITE".into());
    all_at_once(&mut client, &lines);
    in_sync(&master, &replica);
    master.kill();
    let mut client = replica.client();
    until_ended(&mut client, "k", "b");
    let_pass(Duration::from_millis(150));
    assert_eq!(client.run("EXISTS k"), Reply::Int(1), "a replica never ends a lease by itself");
    client.run("REPLICAOF NO ONE");
    until_gone(&mut client, "promoted");
}

#[test]
fn leases_end_when_a_pause_is_over() {
    let server = quiet().start();
    let mut client = server.client();
    let mut lines = together(TOGETHER[0], [20, 40]);
    lines.extend(["PERSIST k".into(), "CLIENT PAUSE 60000 WRITE".into()]);
    all_at_once(&mut client, &lines);
    until_ended(&mut client, "k", "b");
    let_pass(Duration::from_millis(50));
    assert_eq!(client.run("EXISTS k"), Reply::Int(1), "nothing is written while the server pauses");
    client.run("CLIENT UNPAUSE");
    until_gone(&mut client, "unpaused");
}

/// What is done to a key with holders of 60 and 90 s; their deadlines then, and the key's: after a transaction, and
/// with a round of inspections after each line.
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

/// Lengthening changes no holder; of several changes in one transaction the last counts, also if the key is read
/// meanwhile. Replicas and the append-only file agree.
#[test]
fn lengthening_changes_no_holder_and_of_several_changes_in_one_transaction_the_last_counts() {
    let mut master = Server::builder().appendonly().start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    let_two_hold_zz(&mut client);
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
                        until_a_round_has_come(&mut client);
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
    until_a_round_has_come(&mut client);
    client.run("PEXPIRE k 50000");
    assert_ends(&master, &[30_000, 30_000], 50_000, "before a restart");
    master.kill();
    master.restart();
    assert_ends(&master, &[30_000, 30_000], 50_000, "after it");
}

#[test]
fn a_transaction_sees_the_time_to_live_that_it_has_just_set() {
    let server = Server::start();
    let mut client = server.client();
    all_at_once(&mut client, &together(TOGETHER[0], [60_000, 90_000]));
    for ms in [5_000, 50_000] {
        let expire = format!("PEXPIRE k {ms}");
        let replies = multi(&mut client, &[&expire, "LOCK.HELD k a", "LOCK.HELD k b", "LOCK.INFO k"]);
        if ms == 5_000 {
            for held in &replies[1..3] {
                assert_just_began(held.items()[2].int(), ms);
            }
            assert_just_began(replies[3].get("holders").items()[1].get("ttl").int(), ms);
        }
        assert_just_began(replies[3].get("ttl").int(), ms);
    }
}

#[test]
fn holders_end_at_the_deadline_that_was_shorter_before() {
    let server = quiet().start();
    let mut client = server.client();
    let_two_hold_zz(&mut client);
    for lengthen in ["PERSIST k", "PEXPIRE k 60000"] {
        all_at_once(&mut client, &together(TOGETHER[1], [60_000, 90_000]));
        client.run("PEXPIRE k 300");
        until_a_round_has_come(&mut client);
        client.run(lengthen);
        until(&format!("k is gone: {lengthen}"), || client.run("EXISTS k") == Reply::Int(0));
    }
}

/// A bug may leave such a lock: the module must be able to load its stored form.
#[test]
fn a_lock_without_holders_is_saved_and_loaded_and_goes_then() {
    let mut server = quiet().start();
    let mut client = server.client();
    let payload = Envelope::of(&mut client).seal(b"");
    client.run("LOCK.ACQUIRE other a PERSIST");
    client.run("MULTI");
    client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]);
    for line in ["DUMP k", "LOCK.INFO k", "MEMORY USAGE k", "CLIENT PAUSE 60000 WRITE"] {
        client.run(line);
    }
    let replies = client.run("EXEC");
    let [restored, dumped, info, ..] = replies.items() else { panic!("{replies:?}") };
    assert_eq!((restored, dumped.bytes(), info.is_nil()), (&Reply::ok(), &payload[..], true));
    // While it pauses the server removes nothing.
    assert_eq!((client.run("SAVE"), client.run("EXISTS k")), (Reply::ok(), Reply::Int(1)));
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(holders(&mut client, "other"), ["a"], "everything else was loaded");
    until("k is gone", || client.run("EXISTS k") == Reply::Int(0));
    for (key, ms) in [("k", "0"), ("k", "60000"), ("l", "0")] {
        assert_eq!(client.cmd(&[&b"RESTORE"[..], key.as_bytes(), ms.as_bytes(), &payload]), Reply::ok());
        until("it goes at once", || client.run(&format!("EXISTS {key}")) == Reply::Int(0));
    }
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]), Reply::ok());
    assert!(client.run("LOCK.ACQUIRE k a").fence() > 0);
}
