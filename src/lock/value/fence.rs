//! Fencing tokens from a hybrid clock: `max(last + 1, now in microseconds)`.
//!
//! The wall clock keeps them increasing after data loss, failovers and slot moves. The last token, which is persisted
//! and replicated, keeps them increasing when the clock is set back. A token is never issued twice and never decreases.

use std::num::NonZeroU64;

/// A fencing token: positive, and below 2^53 so that JavaScript, Lua and JSON represent it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(NonZeroU64);

/// One more than the largest fence.
const END: u64 = 1 << 53;

impl Fence {
    /// `None` if the number is not a valid fencing token.
    pub fn new(number: u64) -> Option<Fence> {
        NonZeroU64::new(number).filter(|n| n.get() < END).map(Fence)
    }

    /// The number that clients see.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The number as the server's signed integer.
    pub fn signed(self) -> i64 {
        i64::try_from(self.get()).expect("a fence is below 2^53")
    }

    /// Microseconds since its grant; 0 if the clock was set back since then.
    pub fn us_before(self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.get())
    }

    /// Whether it is more than a day ahead of `now_us` (microseconds since the epoch), which no correct clock produces.
    pub fn is_beyond_a_day(self, now_us: u64) -> bool {
        self.get() > now_us.saturating_add(86_400_000_000)
    }
}

/// The source of the fencing tokens of one server.
#[derive(Clone, Debug, Default)]
pub struct FenceClock {
    last: u64,
}

impl FenceClock {
    /// The next fencing token. `now_us` is the wall clock in microseconds. `None` when the numbers below 2^53 are used
    /// up (in the year 2255, or after a forged dump).
    #[inline]
    pub fn next(&mut self, now_us: u64) -> Option<Fence> {
        let fence = Fence::new((self.last + 1).max(now_us))?;
        debug_assert!(Some(fence) > self.last(), "a fencing token is never issued twice");
        self.last = fence.get();
        Some(fence)
    }

    /// Makes every later token greater than `seen`, a token that was loaded, restored or replicated.
    pub fn raise(&mut self, seen: Fence) {
        self.last = self.last.max(seen.get());
    }

    /// The last token issued or seen; `None` at the start.
    pub fn last(&self) -> Option<Fence> {
        Fence::new(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_increase_when_the_clock_stops_or_steps_back() {
        let mut clock = FenceClock::default();
        let mut last = 0;
        for now_us in [50, 50, 51, 10, 0, 52, 1000] {
            let fence = clock.next(now_us).unwrap().get();
            assert!(fence > last);
            last = fence;
        }
        assert_eq!(last, 1000);
    }

    #[test]
    fn a_seen_fence_is_never_reached_again() {
        let mut clock = FenceClock::default();
        clock.raise(Fence::new(900).unwrap());
        assert_eq!(clock.next(10).unwrap().get(), 901);
        clock.raise(Fence::new(5).unwrap());
        assert_eq!(clock.next(10).unwrap().get(), 902);
    }

    #[test]
    fn the_numbers_end_below_two_to_the_53() {
        let mut clock = FenceClock::default();
        clock.raise(Fence::new(END - 1).unwrap());
        assert_eq!(clock.next(10), None);
        assert_eq!(Fence::new(END), None);
        assert_eq!(Fence::new(0), None);
    }

    #[test]
    fn the_clock_knows_its_last_fence_and_a_fence_more_than_a_day_ahead_is_detected() {
        let mut clock = FenceClock::default();
        assert_eq!(clock.last(), None);
        let fence = clock.next(86_400_000_000 + 10).unwrap();
        assert_eq!((clock.last(), fence.get()), (Some(fence), 86_400_000_010));
        assert_eq!(fence.signed(), 86_400_000_010);
        assert!(fence.is_beyond_a_day(9) && !fence.is_beyond_a_day(10) && !fence.is_beyond_a_day(u64::MAX));
    }
}
