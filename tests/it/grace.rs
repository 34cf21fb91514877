//! `lock.grace`: after a start or a promotion that may have lost locks, a key is granted only to owners that already
//! hold it. A request without BLOCK is refused; with BLOCK it waits until the grace period has ended.

use crate::support::lock_types::{held, Way, WAYS};
use crate::support::waiting::*;
use crate::support::{in_sync, Client, Reply, Server};
use std::time::{Duration, Instant};

/// Longer than any test takes.
const LASTING: &str = "lock.grace 600000";

/// The key that `a` holds in this way before the start or the promotion.
fn held_key(way: Way) -> String {
    format!("held-{}", way.prefix())
}

fn hold_all(client: &mut Client) {
    for way in WAYS {
        way.hold(client, &held_key(way), "a");
    }
}

/// With every lock type a holder of a key can continue, a free key is not granted, and neither is one that becomes
/// free.
#[track_caller]
fn assert_only_holders_go_on(server: &Server, client: &mut Client) {
    for way in WAYS {
        let key = held_key(way);
        for owner in ["a", "b"] {
            let reply = client.run(&way.acquire("free", owner));
            assert!(reply.error().starts_with("GRACE "), "{way:?}: {reply:?}");
        }
        assert_eq!(client.run("EXISTS free free:too"), Reply::Int(0));
        assert!(client.run(&way.acquire(&key, "b")).is_nil(), "{way:?}");
        let mut first = Waiter::park(server, &format!("{} BLOCK 0", way.acquire("free", "c")));
        let mut next = Waiter::park(server, &format!("{} BLOCK 0", way.acquire(&key, "b")));

        let (fence, ..) = held(client, &key, "a").expect("it was kept");
        let again =
            if way.kind == "mutex" { way.acquire(&key, "a") } else { format!("{} HOLDS 1", way.acquire(&key, "a")) };
        assert_eq!(client.run(&again).fence(), fence, "{way:?}: the holder may acquire it again");
        assert_eq!(client.run(&way.renew(&key, "a")), Reply::Int(1), "{way:?}");
        way.release_held(client, &key, "a");
        first.assert_silent_for(Duration::from_millis(30));
        next.assert_silent();
        assert_eq!(client.cmd(&["EXISTS", &key]), Reply::Int(0), "{way:?}");
        client.run("LOCK.CANCEL free c");
        client.cmd(&["LOCK.CANCEL", &key, "b"]);
        assert!(first.reply().is_error() && next.reply().is_error());
    }
}

#[test]
fn after_a_start_only_holders_continue() {
    let mut server = Server::builder().appendonly().start();
    hold_all(&mut server.client());
    server.kill();
    server.restart_with(&[LASTING]);
    assert_only_holders_go_on(&server, &mut server.client());
}

#[test]
fn after_a_promotion_only_holders_continue() {
    let mut master = Server::start();
    let replica = Server::builder().config(LASTING).replica_of(&master).start();
    hold_all(&mut master.client());
    in_sync(&master, &replica);
    master.kill();
    let mut client = replica.client();
    assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
    assert_only_holders_go_on(&replica, &mut client);
}

#[test]
fn when_it_ends_waiters_are_granted_without_a_command() {
    let start = Instant::now();
    let server = quiet().config("lock.grace 1500").start();
    let mut free = Waiter::request(&server, &format!("LOCK.ACQUIRE k a {LONG} BLOCK 0"));
    let mut readers =
        ["r1", "r2"].map(|owner| Waiter::request(&server, &format!("RWLOCK.ACQUIRE rw {owner} READ {LONG} BLOCK 0")));
    free.granted_within("a", Duration::from_millis(1500) + SOON);
    assert!(ms_since(start) >= 1500, "too early: {:?}", start.elapsed());
    readers[0].granted("r1");
    readers[1].granted("r2");
    assert!(server.client().run("LOCK.ACQUIRE other b").fence() > 0);
}

#[test]
fn setting_it_to_0_ends_it_at_once() {
    let server = Server::builder().config(LASTING).start();
    let mut client = server.client();
    assert!(client.run("LOCK.ACQUIRE other a").error().starts_with("GRACE "));
    let mut waits = Waiter::park(&server, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 0"));
    assert_eq!(client.run("CONFIG SET lock.grace 0"), Reply::ok());
    assert!(client.run("LOCK.ACQUIRE other a").fence() > 0);
    waits.granted("b");
}

/// No lock was requested before, so the module had nothing to do yet.
#[test]
fn setting_it_later_begins_no_grace() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run(&format!("CONFIG SET {LASTING}")), Reply::ok());
    assert!(client.run("LOCK.ACQUIRE k a").fence() > 0);
}

#[test]
fn it_ends_even_if_no_request_came() {
    for is_queried in [false, true] {
        let server = Server::builder().config("lock.grace 100").start();
        let mut client = server.client();
        let_time_pass(Duration::from_millis(200));
        if is_queried {
            assert!(client.run("LOCK.ACQUIRE k a").fence() > 0);
        }
        assert_eq!(client.run(&format!("CONFIG SET {LASTING}")), Reply::ok());
        assert!(client.run("LOCK.ACQUIRE l a").fence() > 0, "asked before: {is_queried}");
    }
}
