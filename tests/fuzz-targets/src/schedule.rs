//! Schedules of commands, disconnects and events: the bytes select what happens next. The engine and the model of the
//! contract run the same schedule.

use lock::testing::schedule::chosen_schedule;
use lock::testing::simulator::play;

/// Longer schedules find little more in the same time.
const LONGEST: usize = 60;

/// Runs the schedule that the bytes select; panics if the engine deviates from the contract.
pub fn schedule(bytes: &[u8]) {
    let (cast, steps) = chosen_schedule(bytes, LONGEST);
    play(&cast, &steps);
}
