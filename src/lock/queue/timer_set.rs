//! Timers, ordered by the time at which they fire.

use std::collections::BTreeSet;

/// Timers in the order in which they fire. `P` is a time on one clock. Each subject has at most one timer; it stores
/// the time of its timer, which this set needs to find the timer.
#[derive(Clone, Debug)]
pub(crate) struct TimerSet<T, P> {
    by_time: BTreeSet<(P, T)>,
    /// Since the last call of [`TimerSet::take_needs_rearm`], a timer was set that fires before all others.
    needs_rearm: bool,
}

impl<T, P> Default for TimerSet<T, P> {
    fn default() -> Self {
        TimerSet { by_time: BTreeSet::new(), needs_rearm: false }
    }
}

impl<T: Copy + Ord, P: Copy + Ord> TimerSet<T, P> {
    /// Moves the subject's timer from `before` to `when`.
    pub(super) fn set(&mut self, subject: T, before: Option<P>, when: P) {
        self.clear(subject, before);
        self.needs_rearm |= self.next().is_none_or(|next| when < next);
        let is_new = self.by_time.insert((when, subject));
        debug_assert!(is_new, "a subject has one timer");
    }

    /// Removes the subject's timer, which was set to `before`, unless it has fired.
    pub(super) fn clear(&mut self, subject: T, before: Option<P>) {
        if let Some(before) = before {
            self.by_time.remove(&(before, subject));
        }
    }

    /// Whether the host must rearm its timer: since the last call, a timer was set that fires before all others. It may
    /// have been cleared since.
    #[inline]
    pub fn take_needs_rearm(&mut self) -> bool {
        std::mem::take(&mut self.needs_rearm)
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

    /// Whether the subject's timer is set to this time.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn contains(&self, subject: T, when: P) -> bool {
        self.by_time.contains(&(when, subject))
    }

    /// Whether no timer is set.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// Removes and returns a timer that is due.
    pub fn pop_due(&mut self, now: P) -> Option<T> {
        let (when, subject) = self.by_time.first().copied().filter(|(when, _)| *when <= now)?;
        self.by_time.remove(&(when, subject));
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

    /// Subject 1 fires at 10 ms, and so on.
    fn timers<const N: usize>(all: [(u32, u64); N]) -> TimerSet<u32, Timestamp> {
        let mut timers = TimerSet::default();
        all.into_iter().for_each(|(subject, ms)| timers.set(subject, None, timestamp(ms)));
        timers
    }

    /// All subjects with timers that are due at `ms`.
    fn fired(timers: &mut TimerSet<u32, Timestamp>, ms: u64) -> Vec<u32> {
        std::iter::from_fn(|| timers.pop_due(timestamp(ms))).collect()
    }

    #[test]
    fn timers_fire_in_the_order_of_time_and_once() {
        let mut timers = timers([(1, 30), (2, 10), (3, 20), (4, 30)]);
        assert_eq!(timers.next(), Some(timestamp(10)));
        assert_eq!(fired(&mut timers, 9), []);
        assert_eq!(fired(&mut timers, 20), [2, 3]);
        assert_eq!(timers.next(), Some(timestamp(30)));
        assert_eq!(fired(&mut timers, 99), [1, 4]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_timer_moves_and_is_cleared() {
        let mut timers = timers([(1, 10), (2, 10)]);
        timers.set(1, Some(timestamp(10)), timestamp(30));
        assert_eq!(fired(&mut timers, 29), [2]);
        timers.clear(2, Some(timestamp(10)));
        timers.clear(3, None);
        assert_eq!(timers.all().collect::<Vec<_>>(), [timestamp(30)], "the fired timer is gone already");
        timers.clear(1, Some(timestamp(30)));
        assert!(timers.is_empty());
    }

    #[test]
    fn a_timer_that_fires_before_all_others_is_reported_once() {
        let mut timers = TimerSet::default();
        let rows = [(1, None, 30, true), (2, None, 40, false), (3, None, 30, false), (4, None, 20, true)];
        for (subject, before, ms, is_sooner) in rows.into_iter().chain([(4, Some(20), 25, true)]) {
            timers.set(subject, before.map(timestamp), timestamp(ms));
            assert_eq!(timers.take_needs_rearm(), is_sooner, "{subject}, {ms}");
            assert!(!timers.take_needs_rearm());
        }
        assert_eq!(fired(&mut timers, 99), [4, 1, 3, 2]);
        timers.set(1, Some(timestamp(30)), timestamp(200));
        assert!(timers.take_needs_rearm(), "after all others have fired");
    }
}
