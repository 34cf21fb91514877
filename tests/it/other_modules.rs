//! Another module calls the commands of this one. It has no connection that could wait, get a reply or close.

use crate::support::waiting::*;
use crate::support::{built_caller, Client, Reply, Server};
use std::time::{Duration, Instant};

/// A server with a second module: `TEST.CALL command [arg …]`.
fn with_caller() -> (Server, Client) {
    let Some(caller) = built_caller() else {
        panic!("no test module next to the tests: `cargo build --workspace` in this profile builds it")
    };
    let server = quiet().config(format!("loadmodule {}", caller.display())).start();
    let client = server.client();
    (server, client)
}

#[test]
fn a_module_acquires_and_releases_locks() {
    let (_server, mut client) = with_caller();
    let fence = client.run("TEST.CALL LOCK.ACQUIRE k a PX 60000").fence();
    assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    let waits = client.run("TEST.CALL LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    assert!(waits.is_null(), "BLOCK is ignored: {waits:?}");
    assert_eq!(client.run("LOCK.INFO k").get("waiters"), &Reply::Int(0));
    assert_eq!(client.run("TEST.CALL LOCK.RELEASE k a"), Reply::Int(1));
}

#[test]
fn session_and_notify_are_errors_in_a_call_of_a_module() {
    let (_server, mut client) = with_caller();
    let refused = "ERR SESSION and NOTIFY are not allowed in scripts or in calls from modules";
    let free = ["LOCK.ACQUIRE k a PX 60000 SESSION", "LOCK.ACQUIRE k a PX 60000 BLOCK 0 NOTIFY ch"];
    for round in ["free", "held"] {
        for line in free {
            let call = format!("TEST.CALL {line}");
            assert_eq!(client.run(&call), Reply::Error(refused.into()), "{round}: {call}");
            assert_eq!(multi(&mut client, &[&call]), [Reply::Error(refused.into())], "{round}, in MULTI: {call}");
        }
        if round == "free" {
            assert_eq!(client.run("EXISTS k"), Reply::Int(0), "nothing was granted");
            hold(&mut client, "k", "b");
        }
    }
    assert_eq!(client.run("LOCK.INFO k").get("waiters"), &Reply::Int(0));
}

/// The module's own connection may use both, whatever another module has called before.
#[test]
fn session_in_a_transaction_is_bound_to_its_connection() {
    let (server, mut client) = with_caller();
    client.run("TEST.CALL LOCK.ACQUIRE other a");
    let mut bound = server.client();
    let id = bound.id();
    assert!(multi(&mut bound, &["LOCK.ACQUIRE k a PX 60000 SESSION"])[0].fence() > 0);
    assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("session"), &Reply::Int(id));
    let [mut b] = line_up(&server, "k", ["b"]);
    drop(bound);
    b.granted("b");
}

/// The main thread sleeps; only the server's cron wakes it, once a second. No request waits, so inspections do not wake
/// it either: only the module's timer renews a session's lease. By chance, the cron may run at the right time in every
/// second attempt. A round in which the machine took time from the server proves nothing.
#[test]
fn a_session_with_a_lease_that_another_modules_thread_has_shortened_is_renewed_in_time() {
    let (server, mut client) = with_caller();
    let mut session = server.client();
    let mut rounds = 0;
    while rounds < 8 {
        assert!(session.run("LOCK.ACQUIRE k a PX 600000 SESSION").fence() > 0);
        client.run("TEST.THREAD LOCK.RENEW k a PX 500");
        let (begin, mut had) = (Instant::now(), client.stopwatch());
        while begin.elapsed() < Duration::from_millis(800) {
            let_time_pass(Duration::from_millis(5));
            had.elapsed();
        }
        let taken = begin.elapsed().saturating_sub(had.elapsed());
        if client.run("LOCK.HELD k a").is_nil() {
            assert!(
                taken > Duration::from_millis(100),
                "round {rounds}: it keeps sleeping, {taken:?} were taken from it"
            );
            continue;
        }
        rounds += 1;
        assert!(client.pttl("k") <= 500, "round {rounds}: the thread has shortened it");
        assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    }
}
