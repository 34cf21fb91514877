//! What RWLOCK.ACQUIRE, RWLOCK.RELEASE and RWLOCK.RENEW promise: many readers or one writer, in the order in which they
//! came.

mod commands;
mod holders;
mod queueing;
mod upgrade;

use crate::support::families::{held, lease, left, rows, until_ended};
use crate::support::waiting::*;
use crate::support::{assert_just_began, each_protocol, until, Client, Reply, Server};
use std::time::{Duration, Instant};

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// Lets `owner` read `k` for a long time.
#[track_caller]
fn read(client: &mut Client, owner: &str) -> i64 {
    client.run(&format!("RWLOCK.ACQUIRE k {owner} READ {LONG}")).fence()
}

/// Lets `owner` write `k` for a long time.
#[track_caller]
fn write(client: &mut Client, owner: &str) -> i64 {
    client.run(&format!("RWLOCK.ACQUIRE k {owner} WRITE {LONG}")).fence()
}

/// `owner` waits to read `k`.
#[track_caller]
fn reader(server: &Server, owner: &str) -> Waiter {
    Waiter::park(server, &format!("RWLOCK.ACQUIRE k {owner} READ {LONG} BLOCK 0"))
}

/// `owner` waits to write `k`.
#[track_caller]
fn writer(server: &Server, owner: &str) -> Waiter {
    Waiter::park(server, &format!("RWLOCK.ACQUIRE k {owner} WRITE {LONG} BLOCK 0"))
}

/// `RWLOCK.RELEASE k …` leaves this many holds of the mode.
#[track_caller]
fn release(client: &mut Client, owner_and_mode: &str, left: i64) {
    assert_eq!(client.run(&format!("RWLOCK.RELEASE k {owner_and_mode}")), Reply::Int(left), "{owner_and_mode}");
}

/// What [`rows`] says of one hold.
fn row(owner: &str, mode: &str, holds: i64) -> (String, String, i64) {
    (owner.into(), mode.into(), holds)
}
