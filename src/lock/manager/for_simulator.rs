//! What the simulator asks beside the commands. Nothing of it is in the module.

use super::endings::Ending;
use super::lock_manager::LockManager;
use crate::key::RequestId;
use crate::queue::queues::WaitQueues;
use crate::value::time::Now;

impl LockManager {
    /// True if requests that have ended are still to be answered.
    pub(crate) fn has_endings(&self) -> bool {
        !self.waits.backlog.endings.is_empty()
    }

    /// True if the request is to end with an outcome: its place is lost.
    pub(crate) fn ends_with_outcome(&self, id: RequestId) -> bool {
        matches!(self.waits.backlog.endings.get(id), Some(Ending::Told(_)))
    }

    /// True if new owners may be granted locks.
    pub(crate) fn grace_is_over(&mut self, now: &Now) -> bool {
        !self.grace.is_running(now)
    }

    /// The milliseconds from `now` to each timer that has something to do.
    pub(crate) fn timers_ahead(&self, now: &Now) -> Vec<u64> {
        let WaitQueues { ends, lease_ends, .. } = self.queues();
        let instants = ends.all().chain(self.bindings.renewals()).chain(self.grace.watched());
        let timers = instants.map(|when| when.ms_since(now.instant()));
        timers.chain(lease_ends.all().map(|when| when.ms_since(now.timestamp()))).collect()
    }
}
