//! The grace period after a start or promotion.

use crate::value::time::{Instant, Now};

/// The grace period after a start or promotion. Locks may have been lost while their holders are still working, so no
/// new owner is granted a lock for some time on the monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Grace {
    /// Start and end; `None` if the grace period has ended, or none was requested.
    period: Option<(Instant, Instant)>,
    /// When a timer must process the end: then the queues are rescanned, because waiters may now be granted their keys.
    watched: Option<Instant>,
    /// Whether `watched` has changed since the last call of [`Grace::take_changed`].
    has_changed: bool,
}

impl Grace {
    /// The server has started or was promoted at `since`.
    pub fn begin(&mut self, since: Instant, grace_ms: u64) {
        self.period = (grace_ms > 0).then(|| (since, since.plus_ms(grace_ms)));
        self.watched = self.ends();
        self.has_changed = true;
    }

    /// Applies a changed setting: a running grace period ends sooner or later than before. One that has ended stays
    /// ended, even if that was not checked yet. Returns whether one was running.
    pub fn change(&mut self, now: &Now, grace_ms: u64) -> bool {
        self.forget_if_ended(now);
        let Some((since, _)) = self.period else { return false };
        self.begin(since, grace_ms);
        true
    }

    /// Whether no grace period can be running. Does not read the clock, so one that has just ended may still count.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.period.is_none()
    }

    /// When the grace period ends, if one may be running.
    pub fn ends(&self) -> Option<Instant> {
        self.period.map(|(_, until)| until)
    }

    /// When a timer must notice the end of the grace period.
    pub fn watched(&self) -> Option<Instant> {
        self.watched
    }

    /// Whether [`Grace::watched`] may have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// True once, at the first call after a grace period has ended by itself.
    pub fn take_end(&mut self, now: &Now) -> bool {
        self.forget_if_ended(now);
        self.watched.take_if(|watched| now.instant() >= *watched).is_some()
    }

    /// Whether a grace period is running.
    pub fn is_running(&mut self, now: &Now) -> bool {
        self.forget_if_ended(now);
        self.period.is_some()
    }

    /// Forgets a grace period that has ended.
    fn forget_if_ended(&mut self, now: &Now) {
        if self.ends().is_some_and(|until| now.instant() >= until) {
            self.period = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The monotonic clock at `ms`.
    fn at(ms: u64) -> Now {
        thread_local!(static CLOCK_MS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        CLOCK_MS.set(ms);
        Now::by(|| panic!("a grace period does not read the wall clock"), || CLOCK_MS.get() * 1_000)
    }

    fn runs_at(grace: &mut Grace, ms: u64) -> bool {
        grace.is_running(&at(ms))
    }

    fn begun(grace_ms: u64) -> Grace {
        let mut grace = Grace::default();
        grace.begin(Instant::from_ms(100), grace_ms);
        grace
    }

    #[test]
    fn a_grace_period_ends_by_itself_and_does_not_resume() {
        let mut grace = begun(50);
        assert_eq!((grace.is_none(), grace.ends()), (false, Some(Instant::from_ms(150))));
        assert!(runs_at(&mut grace, 149));
        assert!(!runs_at(&mut grace, 150));
        assert!(grace.is_none() && grace.ends().is_none());
        assert!(!runs_at(&mut grace, 120), "it does not resume");
        assert!(begun(0).is_none(), "none was requested");
    }

    #[test]
    fn the_end_of_a_grace_period_is_processed_once_by_the_timer_even_after_a_request_has_seen_it() {
        for is_asked in [false, true] {
            let mut grace = begun(50);
            assert!(grace.take_changed() && !grace.take_changed());
            assert!(!grace.take_end(&at(149)));
            assert!(!is_asked || !runs_at(&mut grace, 150));
            assert_eq!(grace.watched(), Some(Instant::from_ms(150)));
            assert!(grace.take_end(&at(150)) && !grace.take_end(&at(150)), "{is_asked}");
            assert_eq!(grace.watched(), None);
        }
        let mut grace = begun(50);
        _ = (grace.take_changed(), grace.change(&at(120), 0));
        assert!(grace.take_changed() && grace.watched().is_none(), "the setting ends it: the caller visits the keys");
    }

    #[test]
    fn a_changed_setting_moves_the_end_of_a_grace_period_and_begins_none() {
        for (changed_ms, ends) in [(10, Some(110)), (90, Some(190)), (0, None)] {
            let mut grace = begun(50);
            assert!(grace.change(&at(120), changed_ms), "it was running");
            assert_eq!(grace.ends().map(Instant::ms), ends, "{changed_ms} ms");
        }
        let mut ended = begun(50);
        assert!(!ended.change(&at(150), 500), "it has ended, although nothing has checked that");
        assert!(!runs_at(&mut ended, 160));
        let mut none = Grace::default();
        assert!(!none.change(&at(120), 50));
        assert!(none.is_none());
    }
}
