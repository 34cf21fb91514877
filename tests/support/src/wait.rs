//! Waiting for observed state, always with an overall limit.

use std::thread;
use std::time::{Duration, Instant};

/// How long any wait in the tests may take before it is a failure: generous, because two cores run many servers, some
/// of them under valgrind.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Asks again and again until `condition` holds; fails the test, naming `what`, when it does not within [`LIMIT`].
/// The pauses grow with the wait: what takes seconds (a cluster, a failover) is not asked for each millisecond, which
/// cost more of the processors than the servers did.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what}");
        thread::sleep((started.elapsed() / 20).clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
}
