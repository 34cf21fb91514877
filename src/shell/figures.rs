//! Figures of the last one to two minutes in bounded memory: durations of waits, and the longest engine pass. Also
//! rate limiting of log lines.

use std::cell::RefCell;
use std::mem;

use hdrhistogram::Histogram;
use lock::value::time::Instant;

use super::ffi::main_thread::MainThread;

pub static FIGURES: MainThread<Figures> =
    MainThread::new(Figures { waits: RefCell::new(Durations::new()), longest_pass: RefCell::new(Windows::new(0, 0)) });

/// Measured durations.
pub struct Figures {
    /// From queueing to grant.
    pub waits: RefCell<Durations>,
    pub longest_pass: RefCell<Windows<u64>>,
}

const WINDOW_MS: u64 = 60_000;

/// The current and the previous window.
pub struct Windows<F> {
    current: F,
    previous: F,
    /// When the current window began.
    began: Instant,
}

impl<F: Default> Windows<F> {
    /// Two empty windows.
    pub const fn new(current: F, previous: F) -> Windows<F> {
        Windows { current, previous, began: Instant::START }
    }

    pub fn current(&mut self, now: Instant) -> &mut F {
        self.rotate(now);
        &mut self.current
    }

    /// The current and the previous window.
    pub fn both(&mut self, now: Instant) -> [&F; 2] {
        self.rotate(now);
        [&self.current, &self.previous]
    }

    fn rotate(&mut self, now: Instant) {
        let passed = now.ms_since(self.began) / WINDOW_MS;
        if passed == 0 {
            return;
        }
        let ended = mem::take(&mut self.current);
        self.previous = if passed == 1 { ended } else { F::default() };
        self.began = self.began.plus_ms(passed * WINDOW_MS);
    }
}

/// A longer duration counts as this one, which is a year.
const MAX_DURATION_MS: u64 = 31_536_000_000;

/// Percentiles are exact to 1 %. A histogram then takes 16 KB.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Percentiles in ms; 0 if there are no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    /// The exact maximum.
    pub max: u64,
}

/// Durations of one kind, for percentiles. Allocates nothing while empty.
pub struct Durations(Option<Windows<Samples>>);

struct Samples {
    histogram: Histogram<u32>,
    max: u64,
}

impl Default for Samples {
    fn default() -> Samples {
        let histogram =
            Histogram::new_with_bounds(1, MAX_DURATION_MS, SIGNIFICANT_DIGITS).expect("the bounds are in order");
        Samples { histogram, max: 0 }
    }
}

impl Durations {
    pub const fn new() -> Durations {
        Durations(None)
    }

    /// Adds a duration.
    pub fn add(&mut self, now: Instant, ms: u64) {
        let windows = self.0.get_or_insert_with(|| Windows::new(Samples::default(), Samples::default()));
        let gathered = windows.current(now);
        gathered.histogram.saturating_record(ms);
        gathered.max = gathered.max.max(ms);
    }

    /// The percentiles of the last one to two minutes.
    pub fn percentiles(&mut self, now: Instant) -> Percentiles {
        let Some(windows) = self.0.as_mut() else { return Percentiles::default() };
        let [current, previous] = windows.both(now);
        let mut all = current.histogram.clone();
        all.add(&previous.histogram).expect("both have the same bounds");
        let max = current.max.max(previous.max);
        // The histogram returns the upper end of a bucket.
        let at = |quantile| if all.is_empty() { 0 } else { all.value_at_quantile(quantile).min(max) };
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max }
    }
}

/// The shortest time between two lines of one kind, in milliseconds.
const MIN_INTERVAL_MS: u64 = 1_000;

/// Rate limiting for one kind of line: the time of the last line, and how many have been omitted since.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateLimit {
    last: Option<Instant>,
    omitted: u64,
}

impl RateLimit {
    /// No line has been written yet.
    pub const NEVER: RateLimit = RateLimit { last: None, omitted: 0 };

    /// Whether a line may be written now: how many lines were omitted before it, or `None` if it must be omitted too.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.ms_since(last) < MIN_INTERVAL_MS) {
            self.omitted += 1;
            return None;
        }
        self.last = Some(now);
        Some(mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_forgotten_after_one_to_two_minutes() {
        let of_both = |windows: &mut Windows<u64>, ms| windows.both(Instant::from_ms(ms)).map(|number| *number);
        let mut windows = Windows::new(0, 0);
        for (number, ms) in [(7, 500_001), (9, 539_999), (5, 540_000), (6, 540_001)] {
            *windows.current(Instant::from_ms(ms)) += number;
        }
        assert_eq!(of_both(&mut windows, 599_999), [11, 16]);
        assert_eq!(of_both(&mut windows, 600_000), [0, 11]);
        assert_eq!(of_both(&mut windows, 660_000), [0, 0]);
        *windows.current(Instant::from_ms(660_000)) += 3;
        assert_eq!(of_both(&mut windows, 780_000), [0, 0], "no query for two minutes");
    }

    #[test]
    fn percentiles_are_computed_from_the_samples() {
        let mut durations = Durations::new();
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
