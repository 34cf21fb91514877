//! The wall clock, by which the server expires keys too.

use std::time::{SystemTime, UNIX_EPOCH};

use lock::value::time::Now;

/// The time of a decision, read when it is first needed.
pub fn now() -> Now {
    Now::by(wall_clock_us)
}

/// Microseconds since the epoch.
fn wall_clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
}
