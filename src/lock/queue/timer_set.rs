//! Timers, ordered by the time at which they fire.

use std::collections::BTreeSet;
use std::hash::Hash;

use crate::id_map::IdMap;
use crate::key::RequestId;

/// What a timer of the monotonic clock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The wait of a request times out.
    WaitEnds(RequestId),
    /// The kept place of a request ends.
    PlaceEnds(RequestId),
    /// The grace ends.
    GraceIsOver,
}

/// A set of timers, ordered by the time at which they fire, by points `P` of one clock, at most one timer for each
/// subject.
#[derive(Clone, Debug)]
pub struct TimerSet<T, P> {
    by_subject: IdMap<T, P>,
    by_time: BTreeSet<(P, T)>,
    /// True if a timer was set that fires before all timers that were there at the last call of
    /// [`TimerSet::take_sooner`].
    sooner: bool,
}

impl<T: Copy + Ord + Hash, P: Copy + Ord> Default for TimerSet<T, P> {
    fn default() -> Self {
        TimerSet { by_subject: IdMap::default(), by_time: BTreeSet::new(), sooner: false }
    }
}

impl<T: Copy + Ord + Hash, P: Copy + Ord> TimerSet<T, P> {
    /// Sets the subject's timer to `when`; an earlier setting no longer counts.
    pub fn set(&mut self, subject: T, when: P) {
        if let Some(before) = self.by_subject.insert(subject, when) {
            self.by_time.remove(&(before, subject));
        }
        self.sooner |= self.next().is_none_or(|next| when < next);
        self.by_time.insert((when, subject));
    }

    /// Makes the subject's timer fire at `when` at the latest. A timer that fires too early is harmless if its handler
    /// inspects the state again, and cheaper than a timer that moves at every step.
    pub fn set_no_later(&mut self, subject: T, when: P) {
        if !self.fires_by(subject, when) {
            self.set(subject, when);
        }
    }

    /// True if the subject has a timer that fires at `when` at the latest.
    pub fn fires_by(&self, subject: T, when: P) -> bool {
        self.by_subject.get(&subject).is_some_and(|set| *set <= when)
    }

    /// Removes the subject's timer.
    pub fn clear(&mut self, subject: T) {
        if let Some(when) = self.by_subject.remove(&subject) {
            self.by_time.remove(&(when, subject));
        }
    }

    /// True if a timer was set that fires before all timers that were there at the last call. No such timer is missed;
    /// it may have been cleared since.
    #[inline]
    pub fn take_sooner(&mut self) -> bool {
        std::mem::take(&mut self.sooner)
    }

    /// When the subject's timer fires.
    pub fn of(&self, subject: T) -> Option<P> {
        self.by_subject.get(&subject).copied()
    }

    /// When the next timer fires.
    pub fn next(&self) -> Option<P> {
        self.by_time.first().map(|(when, _)| *when)
    }

    /// When the timers fire, the next one first.
    #[cfg(any(test, feature = "testing"))]
    pub fn all(&self) -> impl Iterator<Item = P> + '_ {
        self.by_time.iter().map(|(when, _)| *when)
    }

    /// Takes out a timer that is due.
    pub fn pop_due(&mut self, now: P) -> Option<T> {
        let (when, subject) = self.by_time.first().copied().filter(|(when, _)| *when <= now)?;
        self.by_time.remove(&(when, subject));
        self.by_subject.remove(&subject);
        Some(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::time::Timestamp;

    fn timestamp(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    /// All subjects with timers that are due at `ms`.
    fn fired(timers: &mut TimerSet<u32, Timestamp>, ms: u64) -> Vec<u32> {
        std::iter::from_fn(|| timers.pop_due(timestamp(ms))).collect()
    }

    #[test]
    fn timers_fire_in_the_order_of_time_and_once() {
        let mut timers = TimerSet::default();
        for (subject, ms) in [(1, 30), (2, 10), (3, 20), (4, 30)] {
            timers.set(subject, timestamp(ms));
        }
        assert_eq!(timers.next(), Some(timestamp(10)));
        assert_eq!(fired(&mut timers, 9), []);
        assert_eq!(fired(&mut timers, 20), [2, 3]);
        assert_eq!(timers.next(), Some(timestamp(30)));
        assert_eq!(fired(&mut timers, 99), [1, 4]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_subject_has_one_timer_which_moves() {
        let mut timers = TimerSet::default();
        timers.set(1, timestamp(10));
        timers.set(1, timestamp(30));
        assert_eq!(timers.next(), Some(timestamp(30)), "later");
        timers.set(1, timestamp(20));
        assert_eq!(timers.next(), Some(timestamp(20)), "earlier");
        timers.set_no_later(1, timestamp(25));
        assert_eq!(timers.next(), Some(timestamp(20)), "the earlier time stays");
        timers.set_no_later(1, timestamp(15));
        assert_eq!((timers.next(), timers.of(1), timers.of(2)), (Some(timestamp(15)), Some(timestamp(15)), None));
        assert_eq!((fired(&mut timers, 99), timers.of(1)), (vec![1], None));
        timers.set_no_later(1, timestamp(40));
        assert_eq!(timers.next(), Some(timestamp(40)), "the fired timer is forgotten");
    }

    #[test]
    fn a_timer_that_fires_before_all_others_is_reported_once() {
        let mut timers = TimerSet::default();
        for (subject, ms, is_sooner) in [(1, 30, true), (2, 40, false), (3, 30, false), (4, 20, true), (4, 25, true)] {
            timers.set(subject, timestamp(ms));
            assert_eq!(timers.take_sooner(), is_sooner, "{subject}, {ms}");
            assert!(!timers.take_sooner());
        }
        timers.set_no_later(1, timestamp(10));
        assert!(timers.take_sooner());
        assert_eq!(fired(&mut timers, 99), [1, 4, 3, 2]);
        timers.set(1, timestamp(200));
        assert!(timers.take_sooner(), "after all others have fired");
    }

    #[test]
    fn a_cleared_timer_does_not_fire() {
        let mut timers = TimerSet::default();
        timers.set(1, timestamp(10));
        timers.set(2, timestamp(10));
        timers.clear(1);
        timers.clear(3);
        assert_eq!(fired(&mut timers, 99), [2]);
        timers.set_no_later(1, timestamp(40));
        assert_eq!(timers.next(), Some(timestamp(40)), "the cleared timer is forgotten");
    }
}
