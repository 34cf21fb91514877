//! Runs the model of the contract (`lock::testing`) alongside a real server: random schedules of many clients, with
//! clocks controlled by the schedule. After every step, and whenever a timer fires, everything visible to a client is
//! compared: each reply, each outcome of a wait, and what the server reports about every key.
//!
//! `LOCK_SEED` and `LOCK_STEPS` choose the schedules. A failure prints its seed, the shortest failing schedule found,
//! and what was sent.

mod clients;
mod compare;
mod driver;
mod events;
mod found;
mod lists;
mod play;
mod settle;
mod stretch;
mod wire;

use std::time::Instant;

use lock::testing::search::{play_random, seeds};

use driver::Driver;

/// Plays the same schedules in each run. `make check CHECK=servers` plays new ones.
#[test]
fn a_server_does_what_the_contract_says_under_any_schedule() {
    let Some(mut driver) = Driver::by_standing_clocks() else { return };
    let started = Instant::now();
    let parts = seeds(4_000);
    let steps: usize = parts.iter().map(|(_, steps)| steps).sum();
    for (seed, steps) in parts {
        let played = play_random(seed, steps, |cast, steps| driver.play(cast, steps));
        played.unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{}: {steps} steps, {:.0} a second", driver.version(), steps as f64 / started.elapsed().as_secs_f64());
}
