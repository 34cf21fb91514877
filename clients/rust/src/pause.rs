//! How long an acquire goes on, the length of one wait, and the pauses before a request is resent.

use std::time::{Duration, Instant};

use crate::token::jittered;

/// The longest BLOCK without a reply timeout.
const SLICE: Duration = Duration::from_secs(5);
/// The server accepts no BLOCK beyond the range of its clock.
const LONGEST_SLICE: Duration = Duration::from_secs(3600);

/// How long an acquire waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Do not wait.
    Not,
    Until(Instant),
    Unlimited,
}

impl Wait {
    pub(crate) fn within(time: Duration) -> Wait {
        // A wait beyond the range of the clock is unlimited.
        Instant::now().checked_add(time).map_or(Wait::Unlimited, Wait::Until)
    }

    pub(crate) fn ends(self) -> Option<Instant> {
        match self {
            Wait::Until(ends) => Some(ends),
            Wait::Not | Wait::Unlimited => None,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.ends().is_some_and(|ends| Instant::now() >= ends)
    }
}

/// The length of BLOCK, which leaves time for the reply before the timeout.
pub(crate) fn slice_of(reply_timeout: Option<Duration>) -> Duration {
    match reply_timeout {
        None => SLICE,
        Some(timeout) if timeout < Duration::from_secs(1) => timeout / 2,
        Some(timeout) => (timeout / 4 * 3).min(timeout - Duration::from_millis(500)).min(LONGEST_SLICE),
    }
}

/// Jittered pauses, far below lock.keep-place (1 s), so that the waiter keeps its queue position.
pub(crate) struct Backoff {
    longest: Duration,
    last: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(10);
    const LAST: Duration = Duration::from_millis(250);

    pub(crate) fn new() -> Backoff {
        Backoff { longest: Backoff::FIRST, last: Backoff::LAST }
    }

    pub(crate) fn next(&mut self, until: Option<Instant>) -> Duration {
        let pause = jittered(self.longest, 0.5, 1.0);
        self.longest = (self.longest * 2).min(self.last);
        match until {
            Some(until) => pause.min(until.saturating_duration_since(Instant::now())),
            None => pause,
        }
    }
}

/// How long a release is retried while a caller waits for it, or for a later request of the owner: long enough for a
/// failover.
const RELEASE: Duration = Duration::from_secs(10);

/// Retries a request for a limited time after its first failure. It is always tried twice, however late the first
/// attempt failed.
pub(crate) struct Resend {
    /// None: no limit.
    limit: Option<Duration>,
    until: Option<Instant>,
    backoff: Backoff,
}

impl Resend {
    pub(crate) fn within(limit: Duration) -> Resend {
        Resend { limit: Some(limit), until: None, backoff: Backoff::new() }
    }

    /// For a release that a caller waits for, or that another release of the owner waits for.
    pub(crate) fn of_a_release() -> Resend {
        Resend::within(RELEASE)
    }

    /// For the cleanup after a caller that is gone: no caller waits for it, and no queue position depends on its
    /// pauses.
    pub(crate) fn behind(limit: Option<Duration>) -> Resend {
        let backoff = Backoff { last: Duration::from_secs(1), ..Backoff::new() };
        Resend { limit, until: None, backoff }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        match (self.until, self.limit) {
            (Some(until), _) => Instant::now() >= until,
            (None, limit) => {
                // A limit beyond the range of the clock is no limit.
                self.until = limit.and_then(|limit| Instant::now().checked_add(limit));
                false
            }
        }
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.backoff.next(self.until)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_before_the_reply_is_late() {
        assert_eq!(slice_of(None), SLICE);
        assert_eq!(slice_of(Some(Duration::MAX)), LONGEST_SLICE);
        for ms in [50, 500, 990, 1000, 1500, 2000, 5000, 30_000, 600_000] {
            let timeout = Duration::from_millis(ms);
            let slice = slice_of(Some(timeout));
            assert!(slice > Duration::ZERO && slice <= timeout * 3 / 4, "{timeout:?}: {slice:?}");
            assert!(ms < 1000 || slice + Duration::from_millis(500) <= timeout, "{timeout:?}: {slice:?}");
        }
    }

    #[test]
    fn pauses_grow_and_stay_below_keep_place() {
        let mut backoff = Backoff::new();
        assert!(backoff.next(None) <= Backoff::FIRST);
        let last = (0..20).map(|_| backoff.next(None)).last().unwrap();
        assert!(last >= Backoff::LAST / 2 && last <= Backoff::LAST, "{last:?}");
        assert_eq!(backoff.next(Some(Instant::now())), Duration::ZERO);
    }

    #[test]
    fn a_request_is_sent_a_second_time_however_late_it_failed() {
        let mut resend = Resend::within(Duration::ZERO);
        assert!(!resend.is_over());
        assert!(resend.is_over());
    }
}
