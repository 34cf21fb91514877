//! Deadlocks are refused, not suffered: who would close a circle is told so, and nobody else notices.

use crate::support::waiting::*;
use crate::support::{Client, Reply};
use std::time::Duration;

/// The request is refused with an error that names `owners`, nobody is queued for `key` by it, and the client may
/// go on.
#[track_caller]
fn assert_deadlock(client: &mut Client, line: &str, owners: &[&str]) {
    let key = line.split(' ').nth(1).expect("a key");
    let before = queue(client, key);
    let reply = client.run(line);
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    for owner in owners {
        assert!(error.contains(owner), "{owner} is part of the circle: {error}");
    }
    assert_eq!(queue(client, key), before, "it was not queued");
}

#[test]
fn a_circle_of_two_is_refused_and_disturbs_nobody() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    let [mut alice] = line_up(&server, "y", ["alice"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0", &["alice", "bob"]);
    alice.assert_silent();
    assert_eq!(queue(&mut client, "y"), ["alice"]);
    assert_eq!((holders(&mut client, "x"), holders(&mut client, "y")), (vec!["alice".into()], vec!["bob".into()]));
    client.run("LOCK.RELEASE y bob");
    alice.granted("alice");
}

#[test]
fn a_circle_of_three_is_refused_and_named() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("y", "bob"), ("z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [mut alice] = line_up(&server, "y", ["alice"]);
    let [mut bob] = line_up(&server, "z", ["bob"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x carol BLOCK 0", &["alice", "bob", "carol"]);
    alice.assert_silent();
    client.run("LOCK.RELEASE z carol");
    bob.granted("bob");
    client.run("LOCK.RELEASE y bob");
    alice.granted("alice");
}

#[test]
fn a_circle_over_both_families_is_refused() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "mutex", "alice");
    client.run("RLOCK.ACQUIRE reentrant bob HOLDS 2 PX 60000");
    let mut alice = Waiter::park(&server, "RLOCK.ACQUIRE reentrant alice BLOCK 0");
    assert_deadlock(&mut client, "LOCK.ACQUIRE mutex bob BLOCK 0", &["alice", "bob"]);
    assert_eq!(client.run("RLOCK.RELEASE reentrant bob HOLDS 0"), Reply::Int(0));
    assert_eq!(alice.reply().items()[0], Reply::bulk("alice"));

    // And the other way round: who waits for a mutex, holding a reentrant lock.
    hold(&mut client, "mutex2", "bob");
    let [_alice] = line_up(&server, "mutex2", ["alice"]);
    assert_deadlock(&mut client, "RLOCK.ACQUIRE reentrant bob BLOCK 0", &["alice", "bob"]);
}

#[test]
fn the_waiters_ahead_are_part_of_circles_too() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "holder");
    hold(&mut client, "m", "second");
    let [mut first] = line_up(&server, "k", ["first"]);
    let [mut second] = line_up(&server, "k", ["second"]);
    // "second" comes after "first" on k, so "first" must not wait for "second" on m.
    assert_deadlock(&mut client, "LOCK.ACQUIRE m first BLOCK 0", &["first", "second"]);
    client.run("LOCK.RELEASE k holder");
    first.granted("first");
    client.run("LOCK.RELEASE k first");
    second.granted("second");
}

#[test]
fn a_long_circle_is_found() {
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
fn a_chain_is_no_circle() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("y", "bob"), ("z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [mut alice] = line_up(&server, "y", ["alice"]);
    let [mut bob] = line_up(&server, "z", ["bob"]);
    let [mut dora] = line_up(&server, "x", ["dora"]);
    for waiter in [&mut alice, &mut bob, &mut dora] {
        waiter.assert_silent();
    }
}

#[test]
fn who_asks_again_for_what_it_holds_or_waits_for_closes_no_circle() {
    let server = quiet().start();
    let mut client = server.client();
    let fence = hold(&mut client, "k", "a");
    let [mut older] = line_up(&server, "k", ["b"]);
    assert_eq!(client.run("LOCK.ACQUIRE k a BLOCK 0").fence(), fence);
    let [mut newer] = line_up(&server, "k", ["b"]);
    assert!(older.reply().error().starts_with("UNBLOCKED superseded"));
    newer.assert_silent();
}

#[test]
fn without_block_a_circle_is_only_a_refusal() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    let [_alice] = line_up(&server, "y", ["alice"]);
    assert_eq!(client.run("LOCK.ACQUIRE x bob"), Reply::NullArray);
    assert_eq!(multi(&mut client, &["LOCK.ACQUIRE x bob BLOCK 0"]), [Reply::NullArray]);
}

#[test]
fn who_waits_without_blocking_is_part_of_circles() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    assert_eq!(client.run("LOCK.ACQUIRE y alice BLOCK 0 NOTIFY ch").items()[1], Reply::Int(0));
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0", &["alice", "bob"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0 NOTIFY ch", &["alice", "bob"]);
}

#[test]
fn who_has_left_closes_no_circle() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 60000");
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    assert_eq!(client.run("LOCK.ACQUIRE y alice BLOCK 1"), Reply::NullArray);
    let [mut bob] = line_up(&server, "x", ["bob"]);
    bob.assert_silent();
    // Alice has kept its place, but coming back would close the circle now.
    assert_deadlock(&mut client, "LOCK.ACQUIRE y alice BLOCK 0", &["alice", "bob"]);
}

#[test]
fn a_circle_that_was_broken_up_is_none_any_more() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    let [_alice] = line_up(&server, "y", ["alice"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0", &["alice", "bob"]);
    client.run("LOCK.CANCEL y alice");
    let [mut bob] = line_up(&server, "x", ["bob"]);
    client.run("LOCK.RELEASE x alice");
    bob.granted("bob");
}

#[test]
fn an_owner_is_one_line_of_execution_in_one_database_only() {
    let server = quiet().start();
    let mut zero = server.client();
    let mut one = server.client();
    one.run("SELECT 1");
    hold(&mut zero, "x", "alice");
    hold(&mut one, "y", "bob");
    let mut in_one = server.client();
    in_one.run("SELECT 1");
    let mut alice = Waiter::park_over(in_one, &server, "LOCK.ACQUIRE y alice BLOCK 0");
    let [mut bob] = line_up(&server, "x", ["bob"]);
    alice.assert_silent();
    bob.assert_silent_for(Duration::from_millis(50));
}

#[test]
fn names_in_the_error_are_quoted_and_cut() {
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
fn among_a_thousand_waiters_a_circle_is_found_and_a_chain_is_not_taken_for_one() {
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
