//! WATCH trips on every change of holders or holds and on nothing else; CLIENT TRACKING tells a reader of the same
//! changes.

use super::*;

/// Whether a transaction that watches `k` is still carried out after `line`.
#[track_caller]
fn survives_watch(server: &Server, line: &str) -> bool {
    let mut watcher = server.client();
    watcher.run("WATCH k");
    assert!(!server.client().run(line).is_error(), "{line}");
    !watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil()
}

/// Each line changes who holds `k`, or how often; together they leave it free.
const CHANGES: &[&[&str]] = &[
    &["LOCK.ACQUIRE k a", "LOCK.RELEASE k a", "LOCK.ACQUIRE k a", "DEL k"],
    &[
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a HOLDS 5",
        "RLOCK.RELEASE k a",
        "RLOCK.RELEASE k a HOLDS 2",
        "RLOCK.RELEASE k a HOLDS 0",
    ],
    &[
        "RWLOCK.ACQUIRE k a READ PX 60000",
        "RWLOCK.ACQUIRE k b READ PX 60000",
        "RWLOCK.ACQUIRE k b READ PX 60000",
        "RWLOCK.RELEASE k b READ",
        "RWLOCK.RELEASE k b READ",
        "RWLOCK.ACQUIRE k a WRITE PX 60000",
        "RWLOCK.RELEASE k a WRITE",
        "RWLOCK.RELEASE k a READ",
    ],
    &[
        "SEM.ACQUIRE k a LIMIT 4 PX 60000",
        "SEM.ACQUIRE k b LIMIT 4 PERMITS 2 PX 60000",
        "SEM.ACQUIRE k a LIMIT 4 PX 60000",
        "SEM.RELEASE k b",
        "SEM.RELEASE k b",
        "SEM.RELEASE k a HOLDS 0",
    ],
    &[
        "MLOCK.ACQUIRE 2 other k a",
        // A wider grant is a new one on each of its keys.
        "MLOCK.ACQUIRE 3 other k more a",
        "MLOCK.RELEASE 3 other k more a",
    ],
];

#[test]
fn watch_trips_on_every_change_of_holders_or_holds() {
    let server = Server::start();
    for lines in CHANGES {
        for line in *lines {
            assert!(!survives_watch(&server, line), "{line}");
        }
        assert_eq!(server.client().run("EXISTS k"), Reply::Int(0), "{lines:?}");
    }
}

/// Those who take `k`, and what changes no holder then: renewals, retries, refusals and reads.
const NO_CHANGES: &[(&[&str], &[&str])] = &[
    (&[], &["LOCK.RELEASE k a", "LOCK.RENEW k a", "MLOCK.RELEASE 2 k other a", "LOCK.INFO k"]),
    (
        &["LOCK.ACQUIRE k a"],
        &[
            "LOCK.RENEW k a",
            "LOCK.RENEW k a PX 100000",
            "LOCK.RENEW k a PERSIST",
            "LOCK.ACQUIRE k a",
            "LOCK.ACQUIRE k b",
            "LOCK.RELEASE k b",
            "LOCK.RENEW k b",
            "LOCK.HELD k a",
            "LOCK.INFO k",
            "LOCK.WAITERS k",
            "MLOCK.ACQUIRE 1 k a",
            "MLOCK.ACQUIRE 2 other k b",
            "MLOCK.RENEW 1 k a",
            "LOCK.CANCEL k a",
        ],
    ),
    (
        &["RLOCK.ACQUIRE k a HOLDS 2"],
        &["RLOCK.RENEW k a", "RLOCK.ACQUIRE k a HOLDS 2", "RLOCK.RELEASE k a HOLDS 2", "RLOCK.RELEASE k b"],
    ),
    (
        &["RWLOCK.ACQUIRE k a READ PX 60000", "RWLOCK.ACQUIRE k b READ PX 60000"],
        &[
            "RWLOCK.RENEW k a PX 90000",
            "RWLOCK.RENEW k a PX 1000000",
            "RWLOCK.ACQUIRE k a READ HOLDS 1",
            "RWLOCK.ACQUIRE k a WRITE",
            "RWLOCK.ACQUIRE k c WRITE BLOCK 1",
            "RWLOCK.RELEASE k c READ",
            "LOCK.INFO k",
        ],
    ),
    (
        &["SEM.ACQUIRE k a LIMIT 4 HOLDS 2 PX 60000"],
        &[
            "SEM.RENEW k a PX 90000",
            "SEM.RENEW k a PX 1000000",
            "SEM.ACQUIRE k a LIMIT 4 HOLDS 2 PX 60000",
            "SEM.ACQUIRE k c LIMIT 4 PERMITS 4",
            "SEM.RELEASE k c",
        ],
    ),
];

#[test]
fn watch_does_not_trip_where_nobody_changes() {
    for (holders, lines) in NO_CHANGES {
        let server = Server::start();
        for line in *holders {
            server.client().run(line).fence();
        }
        for line in *lines {
            assert!(survives_watch(&server, line), "{line}");
        }
    }
}

#[test]
fn watch_trips_when_the_lease_ends() {
    let server = Server::start();
    let mut watcher = server.client();
    // In one round trip: the lease must not end before anybody watches.
    watcher.pipeline(&["LOCK.ACQUIRE k a PX 50", "WATCH k"]);
    until("the lease has ended", || server.client().run("LOCK.HELD k a").is_nil());
    assert!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2].is_nil());
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
        ("LOCK.INFO k", "RWLOCK.ACQUIRE k a READ"),
        ("LOCK.HELD k a", "RWLOCK.ACQUIRE k b READ"),
        ("LOCK.INFO k", "RWLOCK.RELEASE k b READ"),
        ("LOCK.HELD k a", "RWLOCK.RELEASE k a READ"),
        ("LOCK.INFO k", "SEM.ACQUIRE k a LIMIT 2"),
        ("LOCK.INFO k", "SEM.ACQUIRE k b LIMIT 2"),
        ("LOCK.HELD k b", "SEM.RELEASE k a"),
        ("LOCK.HELD k b", "SEM.RELEASE k b"),
        ("LOCK.INFO k", "MLOCK.ACQUIRE 2 other k a"),
        ("LOCK.HELD k a", "MLOCK.RELEASE 2 other k a"),
        ("LOCK.INFO k", "LOCK.ACQUIRE k a PX 2000"),
    ] {
        let mut reader = server.client3();
        reader.run("CLIENT TRACKING ON");
        reader.run(read);
        assert!(!other.run(change).is_error(), "{change}");
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
fn watch_trips_on_a_hand_off() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let mut watcher = server.client();
    watcher.run("WATCH k");
    client.run("LOCK.RELEASE k a");
    b.granted("b");
    let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
    assert_eq!(replies[2], Reply::NullArray);
}

#[test]
fn watch_trips_on_a_grant_that_no_command_made() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let mut watcher = server.client();
    // In one round trip: the lease must not end before anybody watches.
    watcher.pipeline(&["LOCK.RENEW k a PX 60", "WATCH k"]);
    b.granted("b");
    let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
    assert_eq!(replies[2], Reply::NullArray);
}
