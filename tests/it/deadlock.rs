//! A request that would close a cycle fails with an error; other requests are not affected.

use crate::support::waiting::*;
use crate::support::{Client, Reply};

/// The request fails with an error that names `owners`, is not queued for `key`, and the client can continue.
#[track_caller]
fn assert_deadlock(client: &mut Client, line: &str, owners: &[&str]) {
    // After the number of keys, if there is one.
    let key = line.split(' ').skip(1).find(|word| word.parse::<u32>().is_err()).expect("a key");
    let before = queue(client, key);
    let reply = client.run(line);
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    for owner in owners {
        assert!(error.contains(&format!("'{owner}'")), "{owner} is part of the deadlock: {error}");
    }
    assert_eq!(queue(client, key), before, "it was not queued");
}

/// The error does not reveal keys that the user may not read, nor their holders or waiters.
#[test]
fn keys_that_the_caller_may_not_read_are_not_named_nor_their_owners() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("hidden:y", "bob"), ("hidden:z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [_alice] = line_up(&server, "hidden:y", ["alice"]);
    let [_bob] = line_up(&server, "hidden:z", ["bob"]);
    for (patterns, expected) in [
        ("~x", "'carol' waits for 'alice' on 'x', and 2 on keys that this user may not read"),
        ("~x %W~hidden:y", "'carol' waits for 'alice' on 'x', and 2 on keys that this user may not read"),
        (
            "~x %R~hidden:z",
            "'carol' waits for 'alice' on 'x', 'bob' waits for 'carol' on 'hidden:z', \
             and 1 on keys that this user may not read",
        ),
        (
            "~x %R~hidden:*",
            "'carol' waits for 'alice' on 'x', 'alice' waits for 'bob' on 'hidden:y', \
             'bob' waits for 'carol' on 'hidden:z'",
        ),
    ] {
        assert_eq!(client.run(&format!("ACL SETUSER worker reset on nopass +lock.acquire {patterns}")), Reply::ok());
        let mut worker = server.client();
        worker.run("AUTH worker any");
        let expected = Reply::Error(format!("DEADLOCK this request would deadlock: {expected}"));
        assert_eq!(worker.run("LOCK.ACQUIRE x carol BLOCK 0"), expected, "{patterns}");
    }
}

#[test]
fn a_long_cycle_is_detected() {
    let server = quiet().start();
    let mut client = server.client();
    let owners: Vec<String> = (0..30).map(|n| format!("owner-{n}.")).collect();
    for (n, owner) in owners.iter().enumerate() {
        hold(&mut client, &format!("k{n}"), owner);
    }
    let waiters: Vec<[Waiter; 1]> =
        (0..29).map(|n| line_up(&server, &format!("k{}", n + 1), [owners[n].as_str()])).collect();
    assert_deadlock(&mut client, "LOCK.ACQUIRE k0 owner-29. BLOCK 0", &["owner-29."]);
    assert_eq!(server.blocked_clients(), waiters.len() as i64);
}

#[test]
fn names_in_the_error_are_quoted_and_truncated() {
    let server = quiet().start();
    let mut client = server.client();
    let long = "x".repeat(1024);
    let hostile = "a\r\n+OK\r\n\0\"%s";
    let acquire =
        |client: &mut Client, key: &str, owner: &str| client.cmd(&["LOCK.ACQUIRE", key, owner, "PX", "60000"]);
    acquire(&mut client, "x", &long).fence();
    acquire(&mut client, "y", hostile).fence();
    let mut waiter = server.client();
    waiter.cmd(&["CLIENT", "SETNAME", "waiter"]);
    waiter.send(&["LOCK.ACQUIRE", "y", &long, "BLOCK", "0"]);
    server.wait_blocked(1);

    let reply = client.cmd(&["LOCK.ACQUIRE", "x", hostile, "BLOCK", "0"]);
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(error.len() < 800, "{} bytes", error.len());
    assert!(error.contains("xxxx"), "{error}");
    assert_eq!(client.run("PING"), Reply::Status("PONG".into()), "one reply, on one line");
}

#[test]
fn among_a_thousand_waiters_a_deadlock_is_detected_and_a_chain_is_not() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "holder");
    hold(&mut client, "x", "alice");
    for n in 0..1000 {
        assert_eq!(client.run(&format!("LOCK.ACQUIRE k owner-{n} BLOCK 0 NOTIFY ch")).items()[1], Reply::Int(0));
    }
    let [_alice] = line_up(&server, "k", ["alice"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x owner-500 BLOCK 0", &["alice", "owner-500"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x holder BLOCK 0", &["alice", "holder"]);
    let [mut free] = line_up(&server, "x", ["nobody-else"]);
    free.assert_silent();
}

mod each_lock_type {
    use super::*;
    use crate::support::lock_types::{wait_for, WAYS};

    #[test]
    fn a_deadlock_across_any_two_lock_types_fails_and_affects_no_other_request() {
        let server = quiet().start();
        let mut client = server.client();
        for one in WAYS {
            for other in WAYS {
                one.hold(&mut client, "x", "alice");
                other.hold(&mut client, "y", "bob");
                let mut alice = wait_for(other, &server, "y", "alice");
                assert_deadlock(&mut client, &format!("{} BLOCK 0", one.acquire("x", "bob")), &["alice", "bob"]);
                assert!(client.run(&one.acquire("x", "bob")).is_nil(), "without BLOCK it is only a refusal");
                assert_eq!(queue(&mut client, "x"), [""; 0], "it was not queued: {one:?}, {other:?}");
                alice.assert_silent();
                assert_eq!(
                    (holders(&mut client, "x"), holders(&mut client, "y")),
                    (vec!["alice".into()], vec!["bob".into()])
                );
                other.release_held(&mut client, "y", "bob");
                alice.granted("alice");
                client.run("FLUSHALL");
            }
        }
    }

    #[test]
    fn a_deadlock_across_all_lock_types_is_detected_and_listed() {
        let server = quiet().start();
        let mut client = server.client();
        let owners = ["alice", "bob", "carol", "dora", "eve"];
        for (n, way) in WAYS.iter().enumerate() {
            way.hold(&mut client, &format!("k{n}"), owners[n]);
        }
        let _waiters: Vec<Waiter> =
            (0..4).map(|n| wait_for(WAYS[n + 1], &server, &format!("k{}", n + 1), owners[n])).collect();
        assert_deadlock(&mut client, &format!("{} BLOCK 0", WAYS[0].acquire("k0", "eve")), &owners);
    }
}

/// The connection of a's session closes, and its client continues on another one before the module has removed the
/// hold: no request waits for that hold any more.
#[test]
fn a_session_that_has_ended_closes_no_deadlock() {
    let server = quiet().start();
    let mut client = server.client();
    let mut session = server.client();
    assert!(session.run("LOCK.ACQUIRE x a SESSION").fence() > 0);
    hold(&mut client, "y", "b");
    let [mut b] = line_up(&server, "x", ["b"]);
    let id = session.run("CLIENT ID").int();
    let lines = [format!("CLIENT KILL ID {id}"), format!("LOCK.ACQUIRE y a {LONG} BLOCK 60000 NOTIFY granted")];
    let replies = client.pipeline(&lines);
    assert_eq!(replies[0], Reply::Int(1));
    assert_eq!(replies[1].items()[1], Reply::Int(0), "it waits: {:?}", replies[1]);
    b.granted("b");
}

/// b waits for x and y, both free for a moment. a held y by a session that has ended, which gives it no precedence.
#[test]
fn a_session_that_has_ended_gives_its_owner_no_precedence() {
    let server = quiet().start();
    let mut client = server.client();
    let mut session = server.client();
    assert!(session.run("LOCK.ACQUIRE y a SESSION").fence() > 0);
    hold(&mut client, "x", "d");
    let mut b = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 x y b {LONG} BLOCK 0"));
    let id = session.run("CLIENT ID").int();
    let replies = client.pipeline(&["DEL x".to_string(), format!("CLIENT KILL ID {id}"), "LOCK.ACQUIRE x a".into()]);
    assert_eq!(replies, [Reply::Int(1), Reply::Int(1), Reply::NullArray]);
    b.granted("b");
}
