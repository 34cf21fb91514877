//! What every integration test stands on: a [`Server`] of its own, [`Client`]s that speak RESP to it, and ways to wait
//! for something that can be observed. Nothing in here sleeps for luck, and nothing pretends to be Redis.

// Each subject uses its own part of the harness.
#![allow(dead_code, unused_imports)]

mod client;
pub mod families;
mod reply;
mod rng;
mod server;
pub mod skip;
mod stopwatch;
mod wait;
pub mod waiting;

pub use client::Client;
pub use reply::Reply;
pub use rng::Rng;
pub use server::{Builder, Info, Server};
pub use stopwatch::Stopwatch;
pub use wait::{in_sync, until, LIMIT};

/// Runs the test over RESP2 and over RESP3, each on a fresh server.
pub fn each_protocol(test: impl Fn(&mut Client)) {
    test(&mut Server::start().client());
    test(&mut Server::start().client3());
}

/// Fails unless `ttl_ms` is what is left of `lease_ms` that began a moment ago. The moment may be long on a busy machine.
#[track_caller]
pub fn assert_just_began(ttl_ms: i64, lease_ms: i64) {
    let left = lease_ms - 10_000..=lease_ms;
    assert!(left.contains(&ttl_ms) && ttl_ms > 0, "{ttl_ms} ms are left of {lease_ms} ms");
}
