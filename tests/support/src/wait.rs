//! Waiting for observed state, always with an overall limit.

use std::thread;
use std::time::{Duration, Instant};

/// How long any wait in the tests may take before it counts as a failure. Generous, because two cores run many servers,
/// some of them under valgrind.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Polls until `condition` holds; fails the test, naming `what`, if it does not within [`LIMIT`]. The pauses grow with
/// the wait: polling each millisecond for something that takes seconds (a cluster, a failover) used more CPU time than
/// the servers did.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what}");
        thread::sleep((started.elapsed() / 20).clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
}
