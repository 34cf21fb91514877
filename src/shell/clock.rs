//! The two clocks: the wall clock, by which the server expires keys and so leases end, and the monotonic clock.

use lock::value::time::{Instant, Now, Timestamp};

use super::ffi::time as ffi;
use super::main_state::{Turn, MAIN};

/// The wall clock counts as set when its difference to the monotonic clock has changed by more than this. Less may be
/// rounding, or a server that was held up between the two readings. Smaller changes add up until they exceed it.
const TOLERANCE_MS: u64 = 20;

/// The most time of a turn; the rest of the work is left for the next one.
const TURN_US: u64 = 1_000;

/// The least time of a turn, however much the turns before it have taken: nothing starves.
const LEAST_US: u64 = 200;

/// Four microseconds between turns give one back to the next turn. So the commands and the timer of one round of the
/// server's event loop together take hardly more than [`TURN_US`].
const PAUSE_FOR_ONE: u64 = 4;

/// The clock is read after so many units of work, each of which takes some microseconds.
const UNITS_A_READING: u32 = 4;

/// What the server takes to remove a lock outside a turn, with our callback: thousands of leases end together. The time
/// itself is not measured: the server does other work in between.
const REMOVAL_NS: u64 = 400;

/// The longest round of a busy server's event loop, without scripts and other long commands.
const ROUND_US: u64 = 20_000;

/// At the module's start: from now on changes of the wall clock are noticed.
pub fn start() {
    was_set();
}

/// The time of a decision, read when it is first needed.
#[inline]
pub fn now() -> Now {
    Now::by(wall_us, ffi::monotonic_us).within(spends_turn)
}

/// Tells whether the lock of a key that the server removes outside a turn had expired: yes, if its deadline is earlier
/// than this. The time of a decision would be too early by up to a round of the event loop. The server's own expiry
/// goes by the time now, and the last of thousands of grants in one round have fences ahead of the decision's time.
pub fn of_expiry() -> Now {
    Now::by(|| ffi::wall_ms() * 1_000 + ROUND_US, ffi::monotonic_us)
}

/// Begins a turn, which [`end_turn`] ends; returns the time.
pub fn begin_turn() -> u64 {
    let now_us = ffi::monotonic_us();
    let turn = MAIN.clock.turn.get().after_pause(now_us);
    MAIN.clock.turn.set(Turn { began_us: Some(now_us), ..turn });
    now_us
}

/// Ends the turn; returns the time.
pub fn end_turn() -> u64 {
    let now_us = ffi::monotonic_us();
    let turn = MAIN.clock.turn.get();
    let taken_us = turn.taken_us + turn.began_us.map_or(0, |began_us| now_us.saturating_sub(began_us));
    MAIN.clock.turn.set(Turn { began_us: None, ended_us: now_us, taken_us, ..turn });
    now_us
}

impl Turn {
    /// The time of a turn that begins now.
    fn after_pause(self, now_us: u64) -> Turn {
        let made_up_us = now_us.saturating_sub(self.ended_us) / PAUSE_FOR_ONE;
        let taken_us = self.taken_us.saturating_sub(made_up_us) + self.removals * REMOVAL_NS / 1_000;
        let left_us = TURN_US.saturating_sub(taken_us);
        Turn { ends_us: now_us + left_us.max(LEAST_US), taken_us: TURN_US - left_us, removals: 0, ..self }
    }
}

/// Whether the turn is over after this many units of work. The first unit begins the turn, unless one has begun.
fn spends_turn(units: u32) -> bool {
    let turn = MAIN.clock.turn.get();
    if units == 1 {
        if turn.began_us.is_none() {
            let Turn { ends_us, .. } = turn.after_pause(ffi::monotonic_us());
            MAIN.clock.turn.set(Turn { ends_us, ..turn });
        }
        return false;
    }
    units % UNITS_A_READING == 0 && ffi::monotonic_us() >= turn.ends_us
}

/// The server has removed a lock outside a turn: that takes from the time of the next one.
pub fn count_removal() {
    let turn = MAIN.clock.turn.get();
    MAIN.clock.turn.set(Turn { removals: turn.removals + 1, ..turn });
}

/// Takes from the turn the time that its work will cost the server after it, in microseconds.
pub fn shorten_turn(us: u64) {
    let turn = MAIN.clock.turn.get();
    MAIN.clock.turn.set(Turn { ends_us: turn.ends_us.saturating_sub(us), ..turn });
}

/// The monotonic clock.
pub fn instant() -> Instant {
    Instant::from_ms(ffi::monotonic_us() / 1000)
}

/// Milliseconds until the wall clock reaches this point, unless it is set. In a script or a transaction the time of a
/// decision stands still; this does not.
pub fn ms_until(timestamp: Timestamp) -> u64 {
    timestamp.ms_since(Timestamp::from_ms(ffi::wall_ms()))
}

/// Whether the wall clock was set since the last call.
pub fn was_set() -> bool {
    let ahead_ms = ffi::wall_ms().wrapping_sub(ffi::monotonic_us() / 1000) as i64;
    let before = MAIN.clock.ahead_ms.get();
    let is_same = before.is_some_and(|before| before.abs_diff(ahead_ms) <= TOLERANCE_MS);
    if !is_same {
        MAIN.clock.ahead_ms.set(Some(ahead_ms));
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
    fn a_turn_has_what_the_turns_before_it_left_and_a_pause_made_up_for() {
        // Columns: the time taken before the pause, the pause, the locks that the server has removed in it; then the
        // time left, and the time that counts as taken.
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
            let before = Turn { began_us: None, ends_us: 7, ended_us: 1_000_000, taken_us, removals };
            let turn = before.after_pause(1_000_000 + pause_us);
            let found = (turn.ends_us - turn.ended_us - pause_us, turn.taken_us, turn.removals);
            assert_eq!(found, (left_us, still_taken_us, 0), "{taken_us} taken, a pause of {pause_us}, {removals}");
        }
    }
}
