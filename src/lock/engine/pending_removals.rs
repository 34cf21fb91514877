//! The phases of a request, and the requests whose removal is pending.

use std::collections::BTreeMap;

use crate::host::WaitOutcome;
use crate::key::RequestId;
use crate::value::fence::Fence;

/// The state of a request, as [`Waits::phase`](super::waits::Waits::phase) finds it.
///
/// ```text
/// acquire ─► Waiting ── granted, dismissed ──────────────────────────► Gone
///             │  ▲ └─ LOCK.CANCEL, TRYAGAIN and so on ─► Removing ───► Gone, or Detached
///    timed    │  │ └─ the lock is released (COALESCE) ─► Done ───────► Gone
///    out, or  ▼  │ retry: another request at this position
///    left    Detached ── TimedOut, Removing, Done ────────────────────► Gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has left its queues.
    Gone,
    /// Its client waits. Only a waiting request may be granted.
    Waiting,
    /// Its client has left, and its position is reserved.
    Detached,
    /// Its removal is pending: a later time slice removes it in this way.
    Removing(PendingRemoval),
    /// The release of the hold with this fencing token has completed it (COALESCE), but it has no reply yet.
    Done(Fence),
    /// The wait or the reserved position has timed out, but the timer has not processed that yet.
    TimedOut,
}

/// How a request will be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingRemoval {
    /// Its client gets this outcome.
    Reply(WaitOutcome),
    /// Its client has disconnected. Its position may be reserved.
    Disconnected,
}

/// What happens to the position of a request whose client has stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is reserved if possible: the wait timed out or the connection ended, and the client may come back.
    Detach,
    /// It is not reserved.
    Abandon,
}

/// The requests whose removal is pending, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRemovals(BTreeMap<RequestId, PendingRemoval>);

impl PendingRemovals {
    /// Records how the requests will be removed. An outcome replaces `Disconnected`, so that the position of a
    /// cancelled request is not reserved, although no client gets the reply. The first outcome is kept.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = RequestId>, removal: PendingRemoval) {
        for id in ids {
            let known = self.0.entry(id).or_insert(removal);
            if *known == PendingRemoval::Disconnected {
                *known = removal;
            }
        }
    }

    /// How the request will be removed; `None` if its removal is not pending.
    #[inline]
    pub fn get(&self, id: RequestId) -> Option<PendingRemoval> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&id).copied()
    }

    /// The requests.
    #[cfg(any(test, feature = "testing"))]
    pub fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.0.keys().copied()
    }

    /// Removes and returns the next request.
    pub fn take_next(&mut self) -> Option<(RequestId, PendingRemoval)> {
        self.0.pop_first()
    }

    /// The request is being removed now, or has left its queues.
    pub fn remove(&mut self, id: RequestId) {
        if !self.0.is_empty() {
            self.0.remove(&id);
        }
    }

    /// Whether no removal is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_replaces_a_disconnection_and_no_other_outcome() {
        let (left, timed_out) = (PendingRemoval::Disconnected, PendingRemoval::Reply(WaitOutcome::TimedOut));
        let cancelled = PendingRemoval::Reply(WaitOutcome::Cancelled);
        for (first, second, expected) in
            [(left, timed_out, timed_out), (timed_out, left, timed_out), (timed_out, cancelled, timed_out)]
        {
            let mut pending_removals = PendingRemovals::default();
            pending_removals.extend([RequestId(2)], first);
            pending_removals.extend([RequestId(2)], second);
            assert_eq!(pending_removals.take_next(), Some((RequestId(2), expected)));
        }
    }

    #[test]
    fn a_request_that_left_its_queues_has_no_pending_removal() {
        let mut pending_removals = PendingRemovals::default();
        pending_removals.remove(RequestId(1));
        pending_removals.extend([1, 2].map(RequestId), PendingRemoval::Disconnected);
        pending_removals.remove(RequestId(1));
        assert!(
            pending_removals.get(RequestId(1)).is_none()
                && pending_removals.get(RequestId(2)).is_some()
                && !pending_removals.is_empty()
        );
    }
}
