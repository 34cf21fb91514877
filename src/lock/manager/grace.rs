//! The grace after a start or promotion: locks may have been lost whose holders still work, so nobody new is granted
//! anything for a while.

use crate::value::time::{Now, Timestamp};

/// A grace that may be running.
#[derive(Debug, Default)]
pub struct Grace {
    /// When it began and when it ends; `None` when it is over, or none was asked for.
    period: Option<(Timestamp, Timestamp)>,
}

impl Grace {
    /// The server has started or become the primary at `since`.
    pub fn begin(&mut self, since: Timestamp, grace_ms: u64) {
        self.period = (grace_ms > 0).then(|| (since, since.plus_ms(grace_ms)));
    }

    /// The setting was changed: a grace that may be running ends sooner or later, but none begins. Whether one may be.
    pub fn change(&mut self, grace_ms: u64) -> bool {
        let Some((since, _)) = self.period else { return false };
        self.begin(since, grace_ms);
        true
    }

    /// Whether it is certain that none runs, without a look at the clock.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.period.is_none()
    }

    /// When it ends, if one may be running.
    pub fn ends(&self) -> Option<Timestamp> {
        self.period.map(|(_, until)| until)
    }

    /// Whether it runs now.
    pub fn is_running(&mut self, now: &Now) -> bool {
        self.end_if_over(now);
        self.period.is_some()
    }

    /// Forgets a grace that is over.
    pub fn end_if_over(&mut self, now: &Now) {
        if self.ends().is_some_and(|until| now.timestamp() >= until) {
            self.period = None;
        }
    }
}
