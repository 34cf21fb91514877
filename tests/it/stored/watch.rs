//! CLIENT TRACKING notifies a client that has read a lock when the lock changes hands.

use super::*;

#[test]
fn a_tracking_reader_is_notified_when_the_lock_changes_hands() {
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
    // Lease expiry, without a command.
    assert_invalidated(&mut reader, "the end of the lease");
}

#[track_caller]
fn assert_invalidated(reader: &mut Client, why: &str) {
    let push = reader.next_push(Duration::from_secs(10)).unwrap_or_else(|| panic!("no invalidation: {why}"));
    assert_eq!(push.items()[0].text(), "invalidate", "{why}");
    assert_eq!(push.items()[1].items(), [Reply::bulk("k")], "{why}");
}
