//! How long waits and holds lasted: percentiles, in bounded memory.

use std::cell::RefCell;

use hdrhistogram::Histogram;
use lock::value::time::Instant;

use super::windows::{Figures, Max, Windows};
use crate::shell::ffi::main_thread::MainThread;

/// A longer one counts as this: a year in ms.
const LONGEST_MS: u64 = 31_536_000_000;

/// Percentiles are exact to one in a hundred. One histogram takes 16 KB then.
const DIGITS: u8 = 2;

/// What is told of them, in ms; 0 of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    /// Exact.
    pub max: u64,
}

/// Durations of one kind.
pub struct Durations(MainThread<RefCell<Option<Windows<Gathered>>>>);

/// From queueing to the hand-off.
pub static WAITS: Durations = Durations::new();

/// From the grant to the end of a hold.
pub static HOLDS: Durations = Durations::new();

struct Gathered {
    histogram: Histogram<u32>,
    max: Max,
}

impl Gathered {
    fn new() -> Gathered {
        let histogram = Histogram::new_with_bounds(1, LONGEST_MS, DIGITS).expect("the bounds are in order");
        Gathered { histogram, max: Max(0) }
    }
}

impl Figures for Gathered {
    fn clear(&mut self) {
        self.histogram.reset();
        self.max.clear();
    }
}

impl Durations {
    const fn new() -> Durations {
        Durations(MainThread(RefCell::new(None)))
    }

    /// One more.
    pub fn add(&self, now: Instant, ms: u64) {
        let mut windows = self.0 .0.borrow_mut();
        let windows = windows.get_or_insert_with(|| Windows::new(Gathered::new(), Gathered::new()));
        let gathered = windows.current(now);
        gathered.histogram.saturating_record(ms);
        gathered.max.add(ms);
    }

    /// Of the last one to two minutes.
    pub fn percentiles(&self, now: Instant) -> Percentiles {
        let mut windows = self.0 .0.borrow_mut();
        let Some(windows) = windows.as_mut() else { return Percentiles::default() };
        let [current, previous] = windows.both(now);
        let mut all = current.histogram.clone();
        all.add(&previous.histogram).expect("both have the same bounds");
        let max = current.max.0.max(previous.max.0);
        // The histogram tells the upper end of a range.
        let at = |quantile| if all.is_empty() { 0 } else { all.value_at_quantile(quantile).min(max) };
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_gathered() {
        let durations = Durations::new();
        let now = Instant::from_ms(1);
        assert_eq!(durations.percentiles(now), Percentiles::default());
        for ms in 1..=1_000 {
            durations.add(now, ms);
        }
        let Percentiles { p50, p99, p999, max } = durations.percentiles(now);
        assert!((495..=505).contains(&p50) && (980..=1_000).contains(&p99) && (990..=1_000).contains(&p999));
        assert_eq!(max, 1_000);
        durations.add(now, u64::MAX);
        assert_eq!(durations.percentiles(now).max, u64::MAX);
        assert_eq!(durations.percentiles(Instant::from_ms(999_999)), Percentiles::default());
        durations.add(Instant::from_ms(999_999), 0);
        assert_eq!(durations.percentiles(Instant::from_ms(999_999)), Percentiles::default());
    }
}
