//! `lock.adopt-wait`: clients that poll become a fair queue.

use super::*;
use crate::info::field;
use crate::support::until;
use crate::support::waiting::{let_time_pass, queue, until_queue, Waiter};
use std::thread;
use std::time::{Duration, Instant};

fn patient(ms: u64) -> Server {
    Server::builder().config("lock.adopt lock:*").config(format!("lock.adopt-wait {ms}")).start()
}

const SET: &str = "SET lock:k";

#[test]
fn a_killed_waiter_is_skipped() {
    let server = patient(60_000);
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let b = Waiter::park(&server, &format!("{SET} b NX PX 60000"));
    let mut c = Waiter::park(&server, &format!("{SET} c NX PX 60000"));
    assert_eq!(client.run(&format!("CLIENT KILL ID {}", b.id)), Reply::Int(1));
    until_queue(&mut client, "lock:k", &["c"]);
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    assert_eq!(c.reply(), Reply::ok());
    assert_eq!((field(&server, "adopted_acquires"), field(&server, "grants_after_wait")), (2, 1));
}

#[test]
fn a_user_that_lost_permission_for_the_original_is_granted_nothing() {
    let server = patient(60_000);
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert_eq!(client.run("ACL SETUSER u on nopass ~lock:* +set +lock.adopted +client|id +ping"), Reply::ok());
    let mut user = server.client();
    user.run("AUTH u any");
    let mut b = Waiter::park_over(user, &server, &format!("{SET} b NX PX 60000"));
    until("its permissions are checked again", || {
        client.run("LOCK.WAITERS lock:k").items()[0].get("waited").int() > 20
    });
    assert_eq!(client.run("ACL SETUSER u -set"), Reply::ok());
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    let reply = b.only_reply();
    assert!(reply.is_error() && reply.error().starts_with("NOPERM "), "{reply:?}");
    assert_eq!(client.run("EXISTS lock:k").int(), 0);
}

/// An expiry time in a SET is the lease's expiry, however long the SET has waited.
#[test]
fn a_lease_with_an_expiry_time_is_not_extended_by_the_wait() {
    let server = patient(60_000);
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let end_ms = client.run("PEXPIRETIME lock:k").int() + 60_000;
    let mut b = Waiter::park(&server, &format!("{SET} b NX PXAT {end_ms}"));
    let_time_pass(Duration::from_millis(5));
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    assert_eq!(b.reply(), Reply::ok());
    assert_eq!(client.run("PEXPIRETIME lock:k").int(), end_ms);
}

#[test]
fn a_demotion_is_an_error() {
    let (server, other) = (patient(60_000), Server::start());
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let mut b = Waiter::park(&server, &format!("{SET} b NX PX 60000"));
    client.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert!(b.reply().is_error());
}

#[test]
fn beyond_max_waiters_it_gets_nil() {
    let server = Server::builder()
        .config("lock.adopt lock:*")
        .config("lock.adopt-wait 60000")
        .config("lock.max-waiters 1")
        .start();
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let mut b = Waiter::park(&server, &format!("{SET} b NX PX 60000"));
    assert!(!set_nx(&mut server.client(), "lock:k", "c"));
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    assert_eq!(b.reply(), Reply::ok());
}

/// Each client retries with the same token per acquire, as redis-py and related libraries do.
#[test]
fn pollers_become_a_fair_queue() {
    let server = patient(200);
    const CLIENTS: usize = 12;
    let end = Instant::now() + Duration::from_secs(2);
    let iterations: Vec<(u32, u32)> = thread::scope(|scope| {
        let polls = |number: usize| {
            let mut client = server.client();
            scope.spawn(move || {
                let (mut held, mut asked) = (0, 0);
                while Instant::now() < end {
                    let token = format!("{number}-{held}");
                    loop {
                        asked += 1;
                        if set_nx(&mut client, "lock:k", &token) {
                            break;
                        }
                    }
                    assert!(compare_and_delete(&mut client, "lock:k", &token));
                    held += 1;
                }
                (held, asked)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(polls).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let (least, most) = (iterations.iter().map(|(held, _)| held).min(), iterations.iter().map(|(held, _)| held).max());
    let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
    // A client that starts late, on a busy machine, is granted the lock less often.
    assert!(least > 10 && most - least <= 2 + most / 4, "{iterations:?}");
    let (held, asked): (u32, u32) =
        iterations.iter().fold((0, 0), |sum, iteration| (sum.0 + iteration.0, sum.1 + iteration.1));
    assert!(asked < held + held / 10, "{asked} commands for {held} grants");
    assert!(queue(&mut server.client(), "lock:k").is_empty());
}
