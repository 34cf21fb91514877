//! Random schedules on the rules and the model. `LOCK_SEED` and `LOCK_STEPS` choose what is played; a failure prints
//! its seed and the shortest schedule found that still fails.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::schedule::{schedule, Cast, Step};
use super::simulator::Simulation;

/// Plays a schedule; what went wrong, if anything did.
fn play(cast: &Cast, steps: &[Step]) -> Result<(), String> {
    outcome_of(|| {
        let mut simulation = Simulation::new(cast);
        steps.iter().for_each(|step| simulation.play(step));
        simulation.end();
    })
}

/// What a check that failed says.
pub(super) fn outcome_of(play: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|panic| match panic.downcast_ref::<String>() {
        Some(words) => words.clone(),
        None => panic.downcast_ref::<&str>().map_or(String::new(), |words| words.to_string()),
    })
}

/// The shortest schedule that is found to fail by leaving out steps.
fn shortest(cast: &Cast, mut steps: Vec<Step>) -> Vec<Step> {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..(start + chunk).min(steps.len()));
            match play(cast, &fewer) {
                Err(_) => steps = fewer,
                Ok(()) => start += chunk,
            }
        }
        chunk /= 2;
    }
    steps
}

/// Plays random schedules from this seed on, so many steps in all. What a failing check prints is the shortest
/// schedule.
fn play_random(seed: u64, steps: usize) {
    const LENGTH: usize = 60;
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failed = (0..steps.div_ceil(LENGTH) as u64).find_map(|n| {
        let (cast, schedule) = schedule(seed.wrapping_add(n), LENGTH);
        play(&cast, &schedule).err().map(|_| {
            let schedule = shortest(&cast, schedule);
            (seed.wrapping_add(n), play(&cast, &schedule).unwrap_err(), schedule)
        })
    });
    std::panic::set_hook(quiet);
    if let Some((seed, error, schedule)) = failed {
        let steps: Vec<String> = schedule.iter().map(|step| format!("    {step:?}")).collect();
        panic!("LOCK_SEED={seed}: {error}\n{}", steps.join("\n"));
    }
}

/// A number from the environment.
pub(super) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Always the same schedules, and others each time.
#[test]
fn the_rules_do_what_the_contract_says_under_any_schedule() {
    let started = Instant::now();
    let steps = setting("LOCK_STEPS").unwrap_or(400_000) as usize;
    match setting("LOCK_SEED") {
        Some(seed) => play_random(seed, steps),
        None => {
            let new = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            play_random(1, steps / 2);
            play_random(new, steps / 2);
        }
    }
    println!("{steps} steps, {:.0} a second", steps as f64 / started.elapsed().as_secs_f64());
}
