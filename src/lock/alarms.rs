//! Everything that happens by itself at a time: one structure, so that one timer of the world serves all of it.

use std::collections::BTreeSet;
use std::hash::Hash;

use super::numbered::Numbered;
use super::shrink;
use super::time::At;

/// A set of alarms, at most one for each subject.
#[derive(Debug)]
pub struct Alarms<T> {
    by_subject: Numbered<T, At>,
    by_time: BTreeSet<(At, T)>,
}

impl<T: Copy + Ord + Hash> Default for Alarms<T> {
    fn default() -> Self {
        Alarms { by_subject: Numbered::default(), by_time: BTreeSet::new() }
    }
}

impl<T: Copy + Ord + Hash> Alarms<T> {
    /// The subject's alarm rings at `at`, and no more at the time set before.
    pub fn set(&mut self, subject: T, at: At) {
        if let Some(before) = self.by_subject.insert(subject, at) {
            self.by_time.remove(&(before, subject));
        }
        self.by_time.insert((at, subject));
    }

    /// The alarm rings at `at` at the latest. One that rings too early is harmless where whoever hears it looks again, and cheaper
    /// than moving it at every step.
    pub fn set_no_later(&mut self, subject: T, at: At) {
        if self.by_subject.get(&subject).is_none_or(|before| *before > at) {
            self.set(subject, at);
        }
    }

    pub fn clear(&mut self, subject: T) {
        if let Some(at) = self.by_subject.remove(&subject) {
            shrink::map(&mut self.by_subject);
            self.by_time.remove(&(at, subject));
        }
    }

    /// When the next one rings.
    pub fn next(&self) -> Option<At> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out one whose time has come.
    pub fn pop_due(&mut self, now: At) -> Option<T> {
        let (at, subject) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, subject));
        self.by_subject.remove(&subject);
        shrink::map(&mut self.by_subject);
        Some(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_in_the_order_of_time_and_once() {
        let mut alarms = Alarms::default();
        for (subject, ms) in [(1, 30), (2, 10), (3, 20), (2, 25)] {
            alarms.set(subject, At::from_ms(ms));
        }
        alarms.set_no_later(1, At::from_ms(40));
        alarms.clear(3);
        assert_eq!(alarms.next(), Some(At::from_ms(25)));
        assert_eq!(alarms.pop_due(At::from_ms(24)), None);
        assert_eq!(alarms.pop_due(At::from_ms(30)), Some(2));
        assert_eq!(alarms.pop_due(At::from_ms(30)), Some(1));
        assert_eq!(alarms.next(), None);
    }
}
