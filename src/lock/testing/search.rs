//! Searches for a random schedule that fails, and shortens it. `LOCK_SEED` and `LOCK_STEPS` select the schedules. A
//! failure prints its seed and the schedule.

use std::time::{SystemTime, UNIX_EPOCH};

use super::schedule::{schedule, Cast, Step};

/// The length of a schedule in steps.
pub(super) const LENGTH: usize = 60;

/// A schedule that fails.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the random schedule, for [`super::schedule::schedule`].
    pub seed: u64,
    /// The error of the shortened schedule.
    pub error: String,
    /// The names in the schedule.
    pub cast: Cast,
    /// The steps of the shortened schedule.
    pub steps: Vec<Step>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LOCK_SEED={}: {}", self.seed, self.error)?;
        self.steps.iter().try_for_each(|step| write!(f, "\n    {step:?}"))
    }
}

/// Plays random schedules beginning with this seed, `steps` steps in total.
///
/// # Errors
/// A schedule fails.
pub fn play_random(
    seed: u64,
    steps: usize,
    mut play: impl FnMut(&Cast, &[Step]) -> Result<(), String>,
) -> Result<(), Box<Failure>> {
    for n in 0..steps.div_ceil(LENGTH) as u64 {
        let seed = seed.wrapping_add(n);
        let (cast, steps) = schedule(seed, LENGTH);
        if let Err(error) = play(&cast, &steps) {
            let (steps, error) = shortest(&cast, steps, error, &mut play);
            return Err(Box::new(Failure { seed, error, cast, steps }));
        }
    }
    Ok(())
}

/// The shortest failing schedule found by omitting steps, and its error.
fn shortest(
    cast: &Cast,
    mut steps: Vec<Step>,
    mut error: String,
    play: &mut impl FnMut(&Cast, &[Step]) -> Result<(), String>,
) -> (Vec<Step>, String) {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..(start + chunk).min(steps.len()));
            match play(cast, &fewer) {
                Err(fails) => (steps, error) = (fewer, fails),
                Ok(()) => start += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, error)
}

/// Which schedules to play: seeds, each with a number of steps. Without `LOCK_STEPS` the same `steps` in each run; with
/// it, half of them are new. If `LOCK_SEED` is set, it alone decides.
pub fn seeds(steps: usize) -> Vec<(u64, usize)> {
    let asked_for = setting("LOCK_STEPS").map(|steps| steps as usize);
    let new = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    match (setting("LOCK_SEED"), asked_for) {
        (Some(seed), _) => vec![(seed, asked_for.unwrap_or(steps))],
        (None, Some(steps)) => vec![(1, steps / 2), (new, steps / 2)],
        (None, None) => vec![(1, steps)],
    }
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}
