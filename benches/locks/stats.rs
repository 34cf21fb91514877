//! Medians and spreads of a few dozen readings.

/// A median between its quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Figure {
    /// Requires at least one reading.
    pub fn of(mut readings: Vec<f64>) -> Figure {
        readings.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let position = share * (readings.len() - 1) as f64;
            let below = readings[position.floor() as usize];
            let above = readings[position.ceil() as usize];
            below + (above - below) * position.fract()
        };
        Figure { low: at(0.25), median: at(0.5), high: at(0.75) }
    }

    /// Summarizes the ratios of readings taken in the same round, so that a slow round cancels out.
    pub fn of_ratios(readings: &[f64], to: &[f64]) -> Figure {
        Figure::of(readings.iter().zip(to).map(|(reading, base)| reading / base).collect())
    }

    /// `12 (11 to 13)`: the median and the quartiles.
    pub fn show(&self) -> String {
        format!("{} ({} to {})", digits(self.median), digits(self.low), digits(self.high))
    }
}

/// At most three significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "none".to_owned()
    } else if size >= 100_000.0 {
        format!("{:.0} k", value / 1000.0)
    } else if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}
