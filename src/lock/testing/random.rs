//! Random schedules on the rules and the model.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::schedule::{Cast, Step};
use super::search::{play_random, setting};
use super::simulator;

/// Plays a schedule. Fails with the message of the check that failed.
fn play(cast: &Cast, steps: &[Step]) -> Result<(), String> {
    outcome_of(|| simulator::play(cast, steps))
}

/// The message of a failed check.
pub(super) fn outcome_of(play: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|panic| match panic.downcast_ref::<String>() {
        Some(words) => words.clone(),
        None => panic.downcast_ref::<&str>().map_or(String::new(), |words| words.to_string()),
    })
}

/// Plays without printing the panics of all tries: only the shortest failing schedule is printed.
fn play_quietly(seed: u64, steps: usize) {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let played = play_random(seed, steps, play);
    std::panic::set_hook(loud);
    played.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Half of the schedules are always the same, half are new in each run.
#[test]
fn the_rules_do_what_the_contract_says_under_any_schedule() {
    let started = Instant::now();
    let steps = setting("LOCK_STEPS").unwrap_or(400_000) as usize;
    match setting("LOCK_SEED") {
        Some(seed) => play_quietly(seed, steps),
        None => {
            let new = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            play_quietly(1, steps / 2);
            play_quietly(new, steps / 2);
        }
    }
    println!("{steps} steps, {:.0} a second", steps as f64 / started.elapsed().as_secs_f64());
}
