//! Work that is left for a later event-loop iteration, because no write is allowed where its cause was noticed or
//! because the time slice was spent. The drain takes one item of each kind in rotation, so that no kind waits behind
//! thousands of another.
//!
//! If the server refuses writes, an item is put back. A queue is then served after all others; the other kinds retry
//! the same item first, because the server refuses writes for every key.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::deliveries::{Deliveries, GrantInFlight};
use super::due::{DueSet, Rescans};
use super::pending_removals::{PendingRemoval, PendingRemovals};
use super::session_bindings::{Binding, Bindings};
use crate::key::RequestId;
use crate::queue::position::QueuePosition;
use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;

/// All pending work except that which other tables already contain: completed COALESCE requests, holds of ended
/// connections, undelivered grants.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// Wait queues to be served as soon as writes are allowed.
    pub queues: DueSet<QueueId>,
    /// Rescans of many wait queues. Each visited queue is served.
    pub rescans: Rescans,
    /// Requests whose removal is pending: they have no reply yet, or are still in their queues.
    pub pending_removals: PendingRemovals,
    /// Multi-key requests to be reevaluated, by position, with the queue of a key that their owner has lost. Processed
    /// only when nothing else is left, because the owner may have the key again by then.
    displaced: BTreeSet<(QueuePosition, RequestId, QueueId)>,
    /// The wait queue that was inspected last in this inspection round.
    pub inspected: Option<QueueId>,
    /// How many queues this drain may still serve. It serves as many as were due when it began.
    queues_to_serve: usize,
}

/// An item of work.
#[derive(Debug)]
pub(super) enum WorkItem {
    /// End a request.
    End(RequestId, PendingRemoval),
    /// Reply to a COALESCE request that a release has completed.
    Reply(RequestId),
    /// Revoke an undelivered grant.
    Revoke(GrantInFlight),
    /// End a hold of a connection that has ended.
    EndHold(Binding),
    /// Serve a queue.
    Serve(QueueId),
    /// Serve a queue that a rescan has reached; `None` if the rescan made a step without reaching a queue.
    Visit(Option<QueueId>),
    /// Reevaluate a multi-key request.
    Reevaluate(QueuePosition, RequestId, QueueId),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Removals,
    Replies,
    UndeliveredGrants,
    EndedSessions,
    Queues,
    Rescans,
}

impl Kind {
    /// All kinds, in the order in which a round takes an item of each.
    pub const ALL: [Kind; 6] =
        [Kind::Removals, Kind::Replies, Kind::UndeliveredGrants, Kind::EndedSessions, Kind::Queues, Kind::Rescans];

    /// Whether work of this kind needs no write.
    fn writes_nothing(self) -> bool {
        matches!(self, Kind::Removals | Kind::Replies)
    }
}

/// Whether the server accepts writes in this drain. Work that writes nothing is done in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Accepted,
    Refused,
}

impl Backlog {
    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.rescans.is_empty()
            && self.pending_removals.is_empty()
            && self.displaced.is_empty()
    }

    /// Starts a drain, which serves as many queues as are due now. If it serves one that becomes due later, another one
    /// is left for the next drain.
    pub fn begin_drain(&mut self) {
        self.queues_to_serve = self.queues.len();
    }

    /// Removes and returns an item of this kind. `None` if none is left for this drain.
    pub fn take(
        &mut self,
        kind: Kind,
        writes: Writes,
        waits: &mut WaitQueues,
        bindings: &mut Bindings,
        deliveries: &mut Deliveries,
    ) -> Option<WorkItem> {
        if writes == Writes::Refused && !kind.writes_nothing() {
            return None;
        }
        match kind {
            Kind::Removals => self.pending_removals.take_next().map(|(id, removal)| WorkItem::End(id, removal)),
            Kind::Replies => waits.next_done().map(WorkItem::Reply),
            Kind::UndeliveredGrants => deliveries.begin_revocation().map(WorkItem::Revoke),
            Kind::EndedSessions => bindings.next_ended().map(WorkItem::EndHold),
            Kind::Queues => self.next_queue().map(WorkItem::Serve),
            Kind::Rescans => self.next_visited(waits),
        }
    }

    /// The owner of this multi-key request, which is at this position, has lost the key of the queue.
    pub fn displace(&mut self, position: QueuePosition, id: RequestId, queue: QueueId) {
        self.displaced.insert((position, id, queue));
    }

    /// The request need not be reevaluated.
    pub fn forget_displaced(&mut self, id: RequestId) {
        self.displaced.retain(|(_, displaced, _)| *displaced != id);
    }

    /// Whether a request is to be reevaluated.
    #[cfg(test)]
    pub fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    /// Removes and returns a request to reevaluate. Called only if no other work is left for this drain. `None` if
    /// there is none, or if a queue still has to be served.
    pub fn take_displaced(&mut self, writes: Writes) -> Option<WorkItem> {
        let is_allowed = writes == Writes::Accepted && self.queues.is_empty();
        let (position, id, queue) = is_allowed.then(|| self.displaced.pop_first()).flatten()?;
        Some(WorkItem::Reevaluate(position, id, queue))
    }

    /// Where the inspection round continues.
    pub fn inspected(&self) -> Bound<QueueId> {
        self.inspected.map_or(Bound::Unbounded, Bound::Excluded)
    }

    fn next_queue(&mut self) -> Option<QueueId> {
        self.queues_to_serve = self.queues_to_serve.checked_sub(1)?;
        self.queues.take_next()
    }

    fn next_visited(&mut self, waits: &mut WaitQueues) -> Option<WorkItem> {
        if self.rescans.is_empty() {
            return None;
        }
        let visited = self.rescans.step(waits);
        if self.rescans.is_empty() {
            waits.end_rescan();
        }
        Some(WorkItem::Visit(visited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::position::Rank;

    fn queue(number: u64) -> QueueId {
        QueueId::numbered(number)
    }

    #[test]
    fn work_without_writes_is_done_while_writes_are_refused_and_reevaluation_comes_last() {
        let mut backlog = Backlog::default();
        backlog.queues.insert(queue(1));
        backlog.pending_removals.extend([RequestId(1)], PendingRemoval::Disconnected);
        backlog.displaced.insert((QueuePosition::last(Rank::Normal, 1), RequestId(9), queue(1)));
        backlog.begin_drain();
        let mut take = |writes: Writes| {
            let (waits, bindings, deliveries) =
                (&mut WaitQueues::default(), &mut Bindings::default(), &mut Deliveries::default());
            let round = Kind::ALL.map(|kind| backlog.take(kind, writes, waits, bindings, deliveries));
            let work: Vec<_> = round.into_iter().flatten().collect();
            let displaced = if work.is_empty() { backlog.take_displaced(writes) } else { None };
            work.into_iter().chain(displaced).map(|work| format!("{work:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(take(Writes::Refused), "End(RequestId(1), Disconnected)");
        assert_eq!(take(Writes::Refused), "");
        assert_eq!(take(Writes::Accepted), "Serve(QueueId(1))");
        assert!(take(Writes::Accepted).starts_with("Reevaluate"));
        assert_eq!(take(Writes::Accepted), "");
    }
}
