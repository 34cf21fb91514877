//! The work that is left for a later turn, because no write is allowed where it was noticed or because the turn was
//! over. The drain takes one piece of each kind in rotation, so that no kind waits behind thousands of another. A queue
//! that is put back, because the server refuses writes, comes after all others. Of the other kinds the same piece comes
//! again: a closed gate is closed for every key.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::deliveries::{Deliveries, GrantInFlight};
use super::due::{Due, Walks};
use super::endings::{Ending, Endings};
use super::session_bindings::{Binding, Bindings};
use crate::key::RequestId;
use crate::queue::place::Place;
use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;

/// All work that is left, but for the pieces that other tables have anyway: answered requests with COALESCE, holds of
/// ended connections, lost grants.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// Wait queues to be served as soon as writes are allowed.
    pub queues: Due<QueueId>,
    /// Walks over many wait queues; each queue is served.
    pub walks: Walks,
    /// Requests that end, but are not answered or removed from their queues yet.
    pub endings: Endings,
    /// Requests for several keys to be decided anew, by their places, with the queue of a key that their owner has
    /// lost. Decided only if nothing else is left to do: the owner may have the key again by then.
    pub undecided: BTreeSet<(Place, RequestId, QueueId)>,
    /// The wait queue that was inspected last in this round of inspections.
    pub inspected: Option<QueueId>,
    /// So many queues are served in this drain: as many as were due when it began.
    queues_to_serve: usize,
}

/// A piece of work.
#[derive(Debug)]
pub(super) enum Work {
    /// A request ends.
    End(RequestId, Ending),
    /// A request with COALESCE that a release has answered gets its reply.
    Answer(RequestId),
    /// A grant that was not received is taken back.
    TakeBack(GrantInFlight),
    /// A hold of a connection that has ended ends.
    EndHold(Binding),
    /// A queue is served.
    Serve(QueueId),
    /// A queue that a walk has come to is served; `None`: the walk has come to none.
    Visit(Option<QueueId>),
    /// A request for several keys is decided anew.
    DecideAnew(Place, RequestId, QueueId),
}

/// The kinds of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Endings,
    Answers,
    LostGrants,
    EndedSessions,
    Queues,
    Walks,
}

impl Kind {
    /// All of them, in the order in which a round takes a piece of each.
    pub const ALL: [Kind; 6] =
        [Kind::Endings, Kind::Answers, Kind::LostGrants, Kind::EndedSessions, Kind::Queues, Kind::Walks];

    /// Whether nothing is written for such work.
    fn writes_nothing(self) -> bool {
        matches!(self, Kind::Endings | Kind::Answers)
    }
}

/// Whether the server accepts writes in this drain. What writes nothing is done all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Accepted,
    Refused,
}

impl Backlog {
    /// True if nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.walks.is_empty() && self.endings.is_empty() && self.undecided.is_empty()
    }

    /// A drain begins: a queue that becomes due meanwhile may be served in it, but then another one is left.
    pub fn begin_drain(&mut self) {
        self.queues_to_serve = self.queues.len();
    }

    /// Takes a piece of this kind out. `None`: none is left for this drain.
    pub fn take(
        &mut self,
        kind: Kind,
        writes: Writes,
        waits: &mut WaitQueues,
        bindings: &mut Bindings,
        deliveries: &mut Deliveries,
    ) -> Option<Work> {
        if writes == Writes::Refused && !kind.writes_nothing() {
            return None;
        }
        match kind {
            Kind::Endings => self.endings.take_next().map(|(id, ending)| Work::End(id, ending)),
            Kind::Answers => waits.next_done().map(Work::Answer),
            Kind::LostGrants => deliveries.begin_to_take_back().map(Work::TakeBack),
            Kind::EndedSessions => bindings.next_ended().map(Work::EndHold),
            Kind::Queues => self.next_queue().map(Work::Serve),
            Kind::Walks => self.next_visited(waits),
        }
    }

    /// Takes a request out that is to be decided anew. Called if no other work is left for this drain. `None`: none is,
    /// or a queue is still to be served.
    pub fn take_undecided(&mut self, writes: Writes) -> Option<Work> {
        let may_be = writes == Writes::Accepted && self.queues.is_empty();
        let (place, id, queue) = may_be.then(|| self.undecided.pop_first()).flatten()?;
        Some(Work::DecideAnew(place, id, queue))
    }

    /// Where the round of inspections goes on.
    pub fn inspected(&self) -> Bound<QueueId> {
        self.inspected.map_or(Bound::Unbounded, Bound::Excluded)
    }

    fn next_queue(&mut self) -> Option<QueueId> {
        self.queues_to_serve = self.queues_to_serve.checked_sub(1)?;
        self.queues.take_next()
    }

    fn next_visited(&mut self, waits: &mut WaitQueues) -> Option<Work> {
        if self.walks.is_empty() {
            return None;
        }
        let visited = self.walks.step(waits);
        if self.walks.is_empty() {
            waits.end_walk();
        }
        Some(Work::Visit(visited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::place::Rank;

    fn queue(number: u64) -> QueueId {
        QueueId::numbered(number)
    }

    #[test]
    fn what_writes_nothing_is_done_while_writes_are_refused_and_the_undecided_come_last() {
        let mut backlog = Backlog::default();
        backlog.queues.insert(queue(1));
        backlog.endings.extend([RequestId(1)], Ending::Left);
        backlog.undecided.insert((Place::last(Rank::Normal, 1), RequestId(9), queue(1)));
        backlog.begin_drain();
        let mut take = |writes: Writes| {
            let (waits, bindings, deliveries) =
                (&mut WaitQueues::default(), &mut Bindings::default(), &mut Deliveries::default());
            let round = Kind::ALL.map(|kind| backlog.take(kind, writes, waits, bindings, deliveries));
            let work: Vec<_> = round.into_iter().flatten().collect();
            let undecided = if work.is_empty() { backlog.take_undecided(writes) } else { None };
            work.into_iter().chain(undecided).map(|work| format!("{work:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(take(Writes::Refused), "End(RequestId(1), Left)");
        assert_eq!(take(Writes::Refused), "");
        assert_eq!(take(Writes::Accepted), "Serve(QueueId(1))");
        assert!(take(Writes::Accepted).starts_with("DecideAnew"));
        assert_eq!(take(Writes::Accepted), "");
    }
}
