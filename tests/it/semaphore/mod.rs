//! What SEM.ACQUIRE, SEM.RELEASE and SEM.RENEW promise: never more permits out than LIMIT, in the order in which they
//! were asked for.

mod commands;
mod limit;
mod queueing;

use crate::support::families::{held, lease, left, rows, until_ended};
use crate::support::waiting::*;
use crate::support::{assert_just_began, each_protocol, Client, Reply, Server};
use std::time::{Duration, Instant};

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// `what` is owner and options: gives `k`'s permits out for a long time.
#[track_caller]
fn take(client: &mut Client, what: &str) -> i64 {
    client.run(&format!("SEM.ACQUIRE k {what} {LONG}")).fence()
}

/// `what` is owner and options: waits for permits of `k`.
#[track_caller]
fn wait_for(server: &Server, what: &str) -> Waiter {
    Waiter::park(server, &format!("SEM.ACQUIRE k {what} {LONG} BLOCK 0"))
}

/// `SEM.RELEASE k …` leaves its owner so many permits.
#[track_caller]
fn release(client: &mut Client, what: &str, left: i64) {
    assert_eq!(client.run(&format!("SEM.RELEASE k {what}")), Reply::Int(left), "{what}");
}

/// Asserts who has how many permits of `k`, oldest grant first.
#[track_caller]
fn assert_out(client: &mut Client, permits: &[(&str, i64)]) {
    let expected: Vec<_> = permits.iter().map(|(owner, n)| (owner.to_string(), "permits".to_string(), *n)).collect();
    assert_eq!(rows(client, "k"), expected);
}

#[track_caller]
fn limit(client: &mut Client) -> i64 {
    client.run("LOCK.INFO k").get("limit").int()
}
