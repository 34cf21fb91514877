//! The wall clock, by which the server expires keys and leases, and the monotonic clock.

use std::cell::Cell;

use lock::value::time::{Instant, Now, Timestamp};

use super::ffi::main_thread::MainThread;
use super::ffi::time as ffi;

/// The wall clock was set if its difference to the monotonic clock has changed by more than this. A smaller change may
/// be rounding, or a delay between the two readings. Small changes add up until the sum exceeds this.
const TOLERANCE_MS: u64 = 20;

/// The longest time slice; remaining work is left for the next one.
const MAX_SLICE_US: u64 = 1_000;

/// The shortest time slice, however long the previous ones were, so that nothing starves.
const MIN_SLICE_US: u64 = 200;

/// A pause of this many microseconds between slices adds one microsecond to the next slice. So the commands and the
/// timer callback of one event-loop iteration together take little more than [`MAX_SLICE_US`].
const PAUSE_PER_EARNED: u64 = 4;

/// How many units of work pass between two readings of the clock. A unit takes a few microseconds.
const UNITS_PER_CLOCK_READ: u32 = 4;

/// What it costs the server to remove a lock outside an engine pass, including the module's callback, when thousands of
/// leases expire together. The module charges this constant instead of measuring, because the server does other work in
/// between.
const REMOVAL_NS: u64 = 400;

/// How long an event-loop iteration of a busy server takes at most, without scripts and other slow commands.
const ITERATION_US: u64 = 20_000;

static CLOCK: MainThread<Clock> = MainThread::new(Clock {
    slice: Cell::new(TimeSlice { began_us: None, ends_us: 0, ended_us: 0, taken_us: 0, removals: 0 }),
    ahead_ms: Cell::new(None),
});

struct Clock {
    slice: Cell<TimeSlice>,
    /// By how many milliseconds the wall clock was ahead of the monotonic clock when last read.
    ahead_ms: Cell<Option<i64>>,
}

/// The current or last time slice, in microseconds of the monotonic clock.
#[derive(Clone, Copy)]
struct TimeSlice {
    /// `None` between slices.
    began_us: Option<u64>,
    ends_us: u64,
    /// When the last slice ended.
    ended_us: u64,
    /// The time used by earlier slices that no pause has made up for.
    taken_us: u64,
    /// The locks that the server has removed since.
    removals: u64,
}

/// Starts to detect changes of the wall clock. Call it at module start.
pub fn start() {
    was_set();
}

/// The time on which decisions are based, read on first use.
#[inline]
pub fn now() -> Now {
    Now::by(wall_us, ffi::monotonic_us).within(charge_budget)
}

/// The time for deciding whether a lock that the server removed outside an engine pass had expired. The decision time
/// would be too early by up to one event-loop iteration, because the server expires keys by the current time, and
/// because the last of thousands of grants in one iteration have fencing tokens ahead of the decision time.
pub fn for_expiry() -> Now {
    Now::by(|| ffi::wall_ms() * 1_000 + ITERATION_US, ffi::monotonic_us)
}

/// Begins a time slice, which [`end_slice`] ends, and returns the time.
pub fn begin_slice() -> u64 {
    let now_us = ffi::monotonic_us();
    let slice = CLOCK.slice.get().after_pause(now_us);
    CLOCK.slice.set(TimeSlice { began_us: Some(now_us), ..slice });
    now_us
}

/// Ends the time slice, and returns the time.
pub fn end_slice() -> u64 {
    let now_us = ffi::monotonic_us();
    let slice = CLOCK.slice.get();
    let taken_us = slice.taken_us + slice.began_us.map_or(0, |began_us| now_us.saturating_sub(began_us));
    CLOCK.slice.set(TimeSlice { began_us: None, ended_us: now_us, taken_us, ..slice });
    now_us
}

impl TimeSlice {
    /// The time slice that begins now.
    fn after_pause(self, now_us: u64) -> TimeSlice {
        let earned_us = now_us.saturating_sub(self.ended_us) / PAUSE_PER_EARNED;
        let taken_us = self.taken_us.saturating_sub(earned_us) + self.removals * REMOVAL_NS / 1_000;
        let left_us = MAX_SLICE_US.saturating_sub(taken_us);
        TimeSlice { ends_us: now_us + left_us.max(MIN_SLICE_US), taken_us: MAX_SLICE_US - left_us, removals: 0, ..self }
    }
}

/// Whether the time slice is used up after this many units of work. The first unit begins a slice unless one has begun.
fn charge_budget(units: u32) -> bool {
    let slice = CLOCK.slice.get();
    if units == 1 {
        if slice.began_us.is_none() {
            let TimeSlice { ends_us, .. } = slice.after_pause(ffi::monotonic_us());
            CLOCK.slice.set(TimeSlice { ends_us, ..slice });
        }
        return false;
    }
    units % UNITS_PER_CLOCK_READ == 0 && ffi::monotonic_us() >= slice.ends_us
}

/// The server has removed a lock outside an engine pass, which shortens the next time slice.
pub fn count_removal() {
    let slice = CLOCK.slice.get();
    CLOCK.slice.set(TimeSlice { removals: slice.removals + 1, ..slice });
}

/// Shortens the time slice by the microseconds that its work will cost the server afterwards.
pub fn shorten_slice(us: u64) {
    let slice = CLOCK.slice.get();
    CLOCK.slice.set(TimeSlice { ends_us: slice.ends_us.saturating_sub(us), ..slice });
}

/// The monotonic clock.
pub fn instant() -> Instant {
    Instant::from_ms(ffi::monotonic_us() / 1000)
}

/// Milliseconds until the wall clock reaches this time, unless it is set. This reads the current time, whereas the
/// decision time does not advance during a script or a transaction.
pub fn ms_until(timestamp: Timestamp) -> u64 {
    timestamp.ms_since(Timestamp::from_ms(ffi::wall_ms()))
}

/// Whether the wall clock was set since the previous call.
pub fn was_set() -> bool {
    let ahead_ms = ffi::wall_ms().wrapping_sub(ffi::monotonic_us() / 1000) as i64;
    let before = CLOCK.ahead_ms.get();
    let is_same = before.is_some_and(|before| before.abs_diff(ahead_ms) <= TOLERANCE_MS);
    if !is_same {
        CLOCK.ahead_ms.set(Some(ahead_ms));
    }
    !is_same && before.is_some()
}

/// Microseconds since the epoch.
fn wall_us() -> u64 {
    ffi::cached_us().unwrap_or_else(ffi::system_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_what_earlier_slices_left_plus_what_a_pause_earned() {
        // Columns: time used before the pause, the pause, locks removed by the server during it; then the time left,
        // and the time that counts as used.
        let rows = [
            (0, 0, 0, 1_000, 0),
            (600, 0, 0, 400, 600),
            (600, 400, 0, 500, 500),
            (600, 2_400, 0, 1_000, 0),
            (600, 1_000_000, 0, 1_000, 0),
            (900, 0, 0, 200, 900),
            (5_000, 400, 0, 200, 1_000),
            (5_000, 20_000, 0, 1_000, 0),
            (600, 2_400, 1_000, 600, 400),
            (0, 20_000, 10_000, 200, 1_000),
        ];
        for (taken_us, pause_us, removals, left_us, still_taken_us) in rows {
            let before = TimeSlice { began_us: None, ends_us: 7, ended_us: 1_000_000, taken_us, removals };
            let slice = before.after_pause(1_000_000 + pause_us);
            let found = (slice.ends_us - slice.ended_us - pause_us, slice.taken_us, slice.removals);
            assert_eq!(found, (left_us, still_taken_us, 0), "{taken_us} taken, a pause of {pause_us}, {removals}");
        }
    }
}
