//! EXPIRE, PERSIST and the time to live of RESTORE: of one holder it is the lease, of several each ends at the earlier
//! of its own deadline and the key's.

use super::*;

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
fn a_restore_without_a_time_to_live_changes_no_holder() {
    let server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let dump = client.run("DUMP readers");
    assert_eq!(client.cmd(&[b"RESTORE" as &[u8], b"copy", b"0", dump.bytes()]), Reply::ok());
    for (owner, ms) in [("a", 600_000), ("b", 700_000), ("c", 90_000)] {
        assert_just_began(left(&mut client, "copy", owner), ms);
    }
    assert_eq!(client.cmd(&[b"RESTORE" as &[u8], b"copy", b"50000", dump.bytes(), b"REPLACE"]), Reply::ok());
    for owner in ["a", "b", "c"] {
        assert_just_began(left(&mut client, "copy", owner), 50_000);
    }
}

/// `a` reads `k` for 60 s, `b` for 90 s.
fn two_readers(client: &mut Client) {
    client.run("RWLOCK.ACQUIRE k a READ PX 60000").fence();
    client.run("RWLOCK.ACQUIRE k b READ PX 90000").fence();
}

#[test]
fn the_time_to_live_of_one_holder_is_its_lease() {
    let server = Server::start();
    let mut client = server.client();
    for acquire in ["RWLOCK.ACQUIRE k a READ", "RWLOCK.ACQUIRE k a WRITE", "SEM.ACQUIRE k a LIMIT 2"] {
        client.run("DEL k");
        client.run(&format!("{acquire} PX 60000"));
        for ms in [20_000, 300_000] {
            assert_eq!(client.run(&format!("PEXPIRE k {ms}")), Reply::Int(1));
            assert_just_began(left(&mut client, "k", "a"), ms);
            assert_just_began(client.run("LOCK.INFO k").get("ttl").int(), ms);
        }
        assert_eq!(client.run("EXPIRE k 40"), Reply::Int(1));
        assert_just_began(client.run("TTL k").int() * 1000, 40_000);
        assert_just_began(left(&mut client, "k", "a"), 40_000);
        assert_eq!(client.run("PERSIST k"), Reply::Int(1));
        assert_eq!(left(&mut client, "k", "a"), -1, "{acquire}");
        assert_eq!(client.run("EXPIREAT k 1"), Reply::Int(1));
        assert!(client.run("LOCK.INFO k").is_nil(), "{acquire}");
    }
}

#[test]
fn with_one_holder_it_counts_also_when_others_join_and_leave() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE k a READ PX 60000");
    client.run("PEXPIRE k 300000");
    client.run("RWLOCK.ACQUIRE k b READ PX 90000");
    assert_just_began(left(&mut client, "k", "a"), 300_000);
    assert_just_began(client.pttl("k"), 300_000);
    client.run("RWLOCK.RELEASE k b READ");
    assert_just_began(client.pttl("k"), 300_000);
}

#[test]
fn of_several_each_ends_at_the_earlier_of_its_own_deadline_and_the_keys() {
    let server = Server::start();
    let mut client = server.client();
    two_readers(&mut client);
    assert_eq!(client.run("PEXPIRE k 75000"), Reply::Int(1));
    assert_just_began(left(&mut client, "k", "a"), 60_000);
    assert_just_began(left(&mut client, "k", "b"), 75_000);
    assert_eq!(client.run("PEXPIRE k 20000"), Reply::Int(1));
    for owner in ["a", "b"] {
        assert_just_began(left(&mut client, "k", owner), 20_000);
    }
    assert_just_began(client.run("LOCK.INFO k").get("ttl").int(), 20_000);
}

#[test]
fn all_end_with_the_key() {
    let server = quiet().start();
    let mut client = server.client();
    two_readers(&mut client);
    let mut w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 0");
    let start = Instant::now();
    client.run("PEXPIRE k 150");
    w.granted_within("w", Duration::from_millis(150) + SOON);
    assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
    assert_eq!(rows(&mut client, "k"), [("w".into(), "write".into(), 1)]);
    assert_eq!(client.run("RWLOCK.RELEASE k a READ"), Reply::Int(-1));
}

#[test]
fn of_several_lengthening_or_persist_changes_no_holder() {
    let server = Server::start();
    let mut client = server.client();
    two_readers(&mut client);
    for line in ["PEXPIRE k 500000", "PERSIST k"] {
        assert_eq!(client.run(line), Reply::Int(1));
        assert_just_began(left(&mut client, "k", "a"), 60_000);
        assert_just_began(left(&mut client, "k", "b"), 90_000);
    }
    assert_eq!(client.pttl("k"), -1);
}

#[test]
fn of_several_holders_one_ends_in_time_though_the_key_persists() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("SEM.ACQUIRE k a LIMIT 2 PX 60000");
    client.run("SEM.ACQUIRE k b LIMIT 2 PX 60000");
    let mut next = Waiter::park(&server, "SEM.ACQUIRE k next LIMIT 2 PX 60000 BLOCK 0");
    assert_eq!(multi(&mut client, &["SEM.RENEW k a PX 200", "PERSIST k"]), [Reply::Int(1), Reply::Int(1)]);
    next.granted_within("next", Duration::from_millis(200) + SOON);
    assert_eq!(holders(&mut client, "k"), ["b", "next"]);
}

#[test]
fn when_the_last_of_several_has_ended_the_key_is_free_though_it_was_persisted() {
    let server = quiet().start();
    let mut client = server.client();
    let lines = ["SEM.ACQUIRE k a LIMIT 2 PX 40", "SEM.ACQUIRE k b LIMIT 2 PX 60", "PERSIST k"];
    assert_eq!(multi(&mut client, &lines)[2], Reply::Int(1));
    until_ended(&mut client, "k", "b");
    assert!(client.run("LOCK.INFO k").is_nil());
    assert!(client.run("LOCK.ACQUIRE k z").fence() > 0, "of any family");
}

#[test]
fn any_change_of_holders_sets_the_keys_to_the_latest_of_theirs() {
    let server = Server::start();
    let mut client = server.client();
    two_readers(&mut client);
    client.run("PEXPIRE k 500000");
    client.run("RWLOCK.ACQUIRE k c READ PX 10000");
    assert_just_began(client.pttl("k"), 90_000);
    client.run("PERSIST k");
    client.run("RWLOCK.RELEASE k c READ");
    assert_just_began(client.pttl("k"), 90_000);
    client.run("PEXPIRE k 30000");
    client.run("RWLOCK.ACQUIRE k c READ PX 5000");
    assert_just_began(client.pttl("k"), 30_000);
    assert_just_began(left(&mut client, "k", "b"), 30_000);
    client.run("RWLOCK.ACQUIRE k c READ PX 200000");
    assert_just_began(client.pttl("k"), 200_000);
    assert_just_began(left(&mut client, "k", "a"), 30_000);
}

#[test]
fn a_renewal_after_expire_brings_one_holder_back_and_no_other() {
    let server = Server::start();
    let mut client = server.client();
    two_readers(&mut client);
    client.run("PEXPIRE k 20000");
    assert_eq!(client.run("RWLOCK.RENEW k a"), Reply::Int(1));
    assert_just_began(left(&mut client, "k", "a"), 60_000);
    assert_just_began(left(&mut client, "k", "b"), 20_000);
    assert_just_began(client.pttl("k"), 60_000);
}
