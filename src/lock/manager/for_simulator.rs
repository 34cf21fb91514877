//! What the simulator asks beside the commands. Nothing of it is in the module.

use super::lock_manager::LockManager;
use crate::value::time::{Instant, Now};

impl LockManager {
    /// True if leases have ended that stay for now, because the server refused writes.
    pub(crate) fn ends_are_put_off(&self, now: Instant) -> bool {
        self.shared_leases.put_off_until().is_some_and(|until| until > now)
    }

    /// The ends that a refusal of writes has put off are due again.
    pub(crate) fn resume_ends(&mut self) {
        self.shared_leases.resume();
    }

    /// True if requests that have ended are still to be answered.
    pub(crate) fn has_endings(&self) -> bool {
        !self.endings.is_empty()
    }

    /// True if new owners may be granted locks.
    pub(crate) fn grace_is_over(&mut self, now: &Now) -> bool {
        !self.grace.is_running(now)
    }

    /// The milliseconds from `now` to each timer that has something to do.
    pub(crate) fn timers_ahead(&self, now: &Now) -> Vec<u64> {
        let timers = self.timers.all().chain(self.bindings.renewals()).map(|when| when.ms_since(now.instant()));
        let lease_ends = self.lease_ends.all().chain(self.shared_leases.all());
        timers.chain(lease_ends.map(|when| when.ms_since(now.timestamp()))).collect()
    }
}
