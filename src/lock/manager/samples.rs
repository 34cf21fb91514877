//! The lengths of the waits and holds that ended in this turn: all waits, holds with waiters behind them, and a few
//! other holds. The shell takes the numbers and makes percentiles of them.

/// The most samples of each kind between two takes.
const MOST: usize = 10_000;

/// The samples that were not taken yet, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    waits_ms: Vec<u64>,
    holds_ms: Vec<u64>,
    /// Measure the next hold that ends, even if no request waits for its key.
    pub wants_hold: bool,
}

impl Samples {
    /// A request was granted after a wait of `ms`.
    pub(super) fn waited(&mut self, ms: u64) {
        push(&mut self.waits_ms, ms);
    }

    /// A hold ended after `ms`.
    pub(super) fn held(&mut self, ms: u64) {
        self.wants_hold = false;
        push(&mut self.holds_ms, ms);
    }

    /// True if there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waits_ms.is_empty() && self.holds_ms.is_empty()
    }

    /// Takes all samples: waits, then holds. The memory is kept.
    pub fn take(&mut self, waited: impl FnMut(u64), held: impl FnMut(u64)) {
        self.waits_ms.drain(..).for_each(waited);
        self.holds_ms.drain(..).for_each(held);
    }
}

fn push(list: &mut Vec<u64>, ms: u64) {
    if list.len() < MOST {
        list.push(ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_not_taken_are_bounded() {
        let mut samples = Samples::default();
        for ms in 0..MOST as u64 + 3 {
            samples.waited(ms);
        }
        samples.held(7);
        let (mut waits, mut holds) = (0, Vec::new());
        samples.take(|_| waits += 1, |ms| holds.push(ms));
        assert_eq!((waits, holds, samples.is_empty()), (MOST, vec![7], true));
    }
}
