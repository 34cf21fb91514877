//! Schedules of commands, ends and events: the bytes choose what happens next. The rules and the model of the contract
//! are played side by side.

use lock::testing::schedule::chosen_schedule;
use lock::testing::simulator::play;

/// Longer ones find little more in the same time.
const LONGEST: usize = 60;

/// Plays the schedule that the bytes choose; panics where the rules differ from the contract.
pub fn schedule(bytes: &[u8]) {
    let (cast, steps) = chosen_schedule(bytes, LONGEST);
    play(&cast, &steps);
}
