//! What the simulator asks in addition to the commands. The module does not contain this code.

use super::lock_manager::LockManager;
use super::pending_removals::PendingRemoval;
use crate::key::RequestId;
use crate::queue::queues::WaitQueues;
use crate::value::time::Now;

impl LockManager {
    /// Panics unless the tables agree.
    pub(crate) fn check_tables(&self) {
        let (queues, backlog) = (self.queues(), &self.waits.backlog);
        queues.check_tables();
        self.bindings.check_tables();
        self.deliveries.check_tables();
        assert!(backlog.queues.iter().all(|queue| queues.get(queue).is_some()), "a closed queue is due: {backlog:?}");
        let mut removed = backlog.pending_removals.iter();
        assert!(removed.all(|id| queues.contains(id)), "only queued requests are removed: {backlog:?}");
        let mut in_flight = self.deliveries.requests();
        assert!(!in_flight.any(|id| queues.contains(id)), "a request is queued or in flight, never both");
    }

    /// Whether the removal of any request is pending.
    pub(crate) fn has_pending_removals(&self) -> bool {
        !self.waits.backlog.pending_removals.is_empty()
    }

    /// Whether the request will be ended with an outcome, so that its position is lost.
    pub(crate) fn ends_with_outcome(&self, id: RequestId) -> bool {
        matches!(self.waits.backlog.pending_removals.get(id), Some(PendingRemoval::Reply(_)))
    }

    /// Whether new owners may be granted locks.
    pub(crate) fn has_grace_ended(&mut self, now: &Now) -> bool {
        !self.grace.is_running(now)
    }

    /// Milliseconds from `now` to each timer that has something to do.
    pub(crate) fn timers_ahead(&self, now: &Now) -> Vec<u64> {
        let WaitQueues { wait_timers, lease_timers, .. } = self.queues();
        let instants = wait_timers.all().chain(self.bindings.renewals()).chain(self.grace.watched());
        let timers = instants.map(|when| when.ms_since(now.instant()));
        timers.chain(lease_timers.all().map(|when| when.ms_since(now.timestamp()))).collect()
    }
}
