//! MLOCK.ACQUIRE, MLOCK.RELEASE and MLOCK.RENEW: multiple mutexes, all or nothing, with one fencing token and a
//! position in the queue of each.

mod commands;
mod random;
mod stored;

use crate::support::lock_types::held;
use crate::support::waiting::*;
use crate::support::{each_protocol, until, Client, Reply, Rng, Server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Gives the keys to the owner for a long time; returns the fencing token.
#[track_caller]
fn take(client: &mut Client, keys_and_owner: &str) -> i64 {
    client.run(&format!("MLOCK.ACQUIRE {} {LONG}", counted(keys_and_owner))).fence()
}

/// Queues a request for multiple keys.
#[track_caller]
fn wait_for(server: &Server, keys_and_owner: &str) -> Waiter {
    Waiter::park(server, &format!("MLOCK.ACQUIRE {} {LONG} BLOCK 0", counted(keys_and_owner)))
}

#[track_caller]
fn release(client: &mut Client, keys_and_owner: &str, released: i64) {
    let line = format!("MLOCK.RELEASE {}", counted(keys_and_owner));
    assert_eq!(client.run(&line), Reply::Int(released), "{line}");
}

/// Prepends numkeys.
fn counted(keys_and_owner: &str) -> String {
    format!("{} {keys_and_owner}", keys_and_owner.split(' ').count() - 1)
}
