//! Shared by the integration tests: the servers and clients of the crate `support`, and scenarios used by more than one
//! subject.

pub mod io_threads;
pub mod lock_types;
pub mod payload;
pub mod skip;
pub mod stored;
pub mod waiting;

pub use ::support::*;

/// Runs the test over RESP2 and over RESP3, each on a fresh server.
pub fn each_protocol(test: impl Fn(&mut Client)) {
    test(&mut Server::start().client());
    test(&mut Server::start().client3());
}

/// Fails unless `ttl_ms` is what remains of `lease_ms` that started a moment ago. That moment may be long on a busy
/// machine.
#[track_caller]
pub fn assert_just_began(ttl_ms: i64, lease_ms: i64) {
    let left = lease_ms - 10_000..=lease_ms;
    assert!(left.contains(&ttl_ms) && ttl_ms > 0, "{ttl_ms} ms are left of {lease_ms} ms");
}
