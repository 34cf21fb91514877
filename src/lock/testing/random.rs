//! Random schedules on the rules and the model.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

use super::schedule::{Cast, Step};
use super::search::{play_random, seeds};
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

/// Suppresses panic messages, because of all tries only the shortest failing schedule is printed.
pub(super) fn quietly<T>(tries: impl FnOnce() -> T) -> T {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let tried = tries();
    std::panic::set_hook(loud);
    tried
}

fn play_quietly(seed: u64, steps: usize) {
    quietly(|| play_random(seed, steps, play)).unwrap_or_else(|failure| panic!("{failure}"));
}

/// The same schedules in each run. `make check` plays new ones.
#[test]
fn the_rules_do_what_the_contract_says_under_any_schedule() {
    let started = Instant::now();
    let seeds = seeds(400_000);
    seeds.iter().for_each(|(seed, steps)| play_quietly(*seed, *steps));
    let steps: usize = seeds.iter().map(|(_, steps)| steps).sum();
    println!("{steps} steps, {:.0} a second", steps as f64 / started.elapsed().as_secs_f64());
}
