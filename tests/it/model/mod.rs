//! The model of the contract (`lock::testing`) beside a real server: random schedules of many clients, under clocks set
//! by the schedule. After every step, and whenever a timer fires, all that a client can see is compared: each reply,
//! each answer to a waiter, and what the server shows of every key.
//!
//! `LOCK_SEED` and `LOCK_STEPS` choose what is played. A failure prints its seed, the shortest schedule that was found
//! to fail, and what was sent.

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

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lock::testing::search::{play_random, setting};

use driver::Driver;

/// Always the same schedules, and others each time.
#[test]
fn a_server_does_what_the_contract_says_under_any_schedule() {
    let Some(mut driver) = Driver::by_standing_clocks() else { return };
    let started = Instant::now();
    let steps = setting("LOCK_STEPS").unwrap_or(4_000) as usize;
    let new = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let parts = match setting("LOCK_SEED") {
        Some(seed) => vec![(seed, steps)],
        None => vec![(1, steps / 2), (new, steps / 2)],
    };
    for (seed, steps) in parts {
        let played = play_random(seed, steps, |cast, steps| driver.play(cast, steps));
        played.unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{}: {steps} steps, {:.0} a second", driver.version(), steps as f64 / started.elapsed().as_secs_f64());
}
