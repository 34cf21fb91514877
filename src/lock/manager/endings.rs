//! The phases of a request, and the requests whose removal is pending.

use std::collections::BTreeMap;

use crate::host::WaitOutcome;
use crate::key::RequestId;
use crate::value::fence::Fence;

/// The state of a request, as [`Waits::phase`](super::waits::Waits::phase) finds it.
///
/// ```text
/// acquire ─► Waiting ── granted, dismissed ──────────────────────────► Gone
///             │  ▲ └─ LOCK.CANCEL, TRYAGAIN and so on ─► Ending ─────► Gone, or Detached
///    timed    │  │ └─ the lock is released (COALESCE) ─► Done ───────► Gone
///    out, or  ▼  │ retry: another request at this position
///    left    Detached ── TimedOut, Ending, Done ──────────────────────► Gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has left its queues.
    Gone,
    /// Its client waits. Only a waiting request may be granted.
    Waiting,
    /// Its client has left, and its position is reserved.
    Detached,
    /// It will be ended like this as soon as a time slice has room for it.
    Ending(Ending),
    /// The release of the hold with this fencing token has completed it (COALESCE), but it has no reply yet.
    Done(Fence),
    /// The wait or the reserved position has timed out, but the timer has not processed that yet.
    TimedOut,
}

/// How a request will be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its client gets this outcome.
    Told(WaitOutcome),
    /// Its client has disconnected. Its position may be reserved.
    Left,
}

/// What happens to the position of a request whose client has stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It is reserved if possible: the wait timed out or the connection ended, and the client may come back.
    MayComeBack,
    /// It is not reserved.
    ForGood,
}

/// The requests whose removal is pending, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<RequestId, Ending>);

impl Endings {
    /// Records how the requests will be ended. An outcome replaces `Left`: then the position is not reserved, although
    /// no client gets the reply.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = RequestId>, ending: Ending) {
        for id in ids {
            let known = self.0.entry(id).or_insert(ending);
            if *known == Ending::Left {
                *known = ending;
            }
        }
    }

    /// How the request will be ended; `None` if its removal is not pending.
    #[inline]
    pub fn get(&self, id: RequestId) -> Option<Ending> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&id).copied()
    }

    /// Removes and returns the next request.
    pub fn take_next(&mut self) -> Option<(RequestId, Ending)> {
        self.0.pop_first()
    }

    /// The request is being ended now, or has left its queues.
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
    fn an_outcome_replaces_a_departure_and_no_other_outcome() {
        let (left, timed_out) = (Ending::Left, Ending::Told(WaitOutcome::TimedOut));
        let cancelled = Ending::Told(WaitOutcome::Cancelled);
        for (first, second, expected) in
            [(left, timed_out, timed_out), (timed_out, left, timed_out), (timed_out, cancelled, timed_out)]
        {
            let mut endings = Endings::default();
            endings.extend([RequestId(2)], first);
            endings.extend([RequestId(2)], second);
            assert_eq!(endings.take_next(), Some((RequestId(2), expected)));
        }
    }

    #[test]
    fn a_request_that_left_its_queues_ends_no_more() {
        let mut endings = Endings::default();
        endings.remove(RequestId(1));
        endings.extend([1, 2].map(RequestId), Ending::Left);
        endings.remove(RequestId(1));
        assert!(endings.get(RequestId(1)).is_none() && endings.get(RequestId(2)).is_some() && !endings.is_empty());
    }
}
