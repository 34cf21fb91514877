//! The two clocks: the wall clock, by which the server expires keys and so leases end, and the one that nobody sets.

use std::cell::Cell;

use lock::value::time::{Instant, Now, Timestamp};

use super::ffi::clock as ffi;
use super::ffi::main_thread::MainThread;

/// By so much the difference of the clocks may change without anybody having set one: each is cut to a millisecond, and
/// the server may be held up between two readings. What is less adds up until it is more.
const TOLERANCE_MS: u64 = 20;

/// After so long a turn is over: what is left goes on in the next. With what the server adds, a command and a turn of
/// the timer in one round of its event loop stay below 5 ms.
const TURN_US: u64 = 1_000;

/// The clock is read after so many units of work, each of which takes some microseconds.
const UNITS_A_READING: u32 = 4;

/// When the turn is over.
static TURN_ENDS_US: MainThread<Cell<u64>> = MainThread(Cell::new(0));

/// By how many milliseconds the wall clock was ahead of the other when it was looked at last, or set last.
static AHEAD_MS: MainThread<Cell<Option<i64>>> = MainThread(Cell::new(None));

/// At the module's start: from now on it is noticed when the wall clock is set.
pub fn start() {
    was_set();
}

/// The time of a decision, read when it is first needed.
#[inline]
pub fn now() -> Now {
    Now::by(wall_us, ffi::monotonic_us).within(is_turn_over)
}

/// Whether a turn is over in which so many units of work were done. The first of them begins it.
fn is_turn_over(units: u32) -> bool {
    if units == 1 {
        TURN_ENDS_US.0.set(ffi::monotonic_us() + TURN_US);
        return false;
    }
    units % UNITS_A_READING == 0 && ffi::monotonic_us() >= TURN_ENDS_US.0.get()
}

/// What was done in this turn costs the server so much when the turn is over: that counts too.
pub fn shorten_turn(us: u64) {
    TURN_ENDS_US.0.set(TURN_ENDS_US.0.get().saturating_sub(us));
}

/// The clock that nobody sets, in microseconds.
pub fn monotonic_us() -> u64 {
    ffi::monotonic_us()
}

/// The clock that nobody sets.
pub fn instant() -> Instant {
    Instant::from_ms(ffi::monotonic_us() / 1000)
}

/// Milliseconds until the wall clock reaches this point, if nobody sets it. In a script or a transaction the time of a
/// decision stands still; this does not.
pub fn ms_until(timestamp: Timestamp) -> u64 {
    timestamp.ms_since(Timestamp::from_ms(ffi::wall_ms()))
}

/// Whether somebody has set the wall clock since this was asked last.
pub fn was_set() -> bool {
    let ahead_ms = ffi::wall_ms().wrapping_sub(ffi::monotonic_us() / 1000) as i64;
    let before = AHEAD_MS.0.get();
    let is_same = before.is_some_and(|before| before.abs_diff(ahead_ms) <= TOLERANCE_MS);
    if !is_same {
        AHEAD_MS.0.set(Some(ahead_ms));
    }
    !is_same && before.is_some()
}

/// Microseconds since the epoch.
fn wall_us() -> u64 {
    ffi::cached_us().unwrap_or_else(ffi::system_us)
}
