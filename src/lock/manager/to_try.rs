//! What the hand-off tries beside the heads of queues.

use std::collections::{BTreeSet, VecDeque};

use super::due::Due;
use crate::key::RequestId;
use crate::queue::precedence::Reach;
use crate::queue::request::{OwnerId, Place, QueueId};

/// Waiting requests that are to be tried again, wherever they stand in their queues.
#[derive(Clone, Debug, Default)]
pub(super) struct ToTry {
    /// Owners that have gained the key of a queue: their requests are tried.
    pub gained: Due<(QueueId, OwnerId)>,
    /// The owner that is being tried now.
    pub trying: Option<Trying>,
    /// Requests that have to wait, by their places: the requests that they wait for may pass.
    pub stuck: BTreeSet<(Place, RequestId)>,
    /// Requests that may pass requests for several keys, because these wait for their owners (see
    /// [`crate::queue::precedence`]). Tried only if nothing else moves, so that a request that need not pass any is
    /// served first; [`Reach::Holders`] is tried before [`Reach::Everything`].
    pub passing: BTreeSet<(Reach, Place, RequestId)>,
}

/// An owner that has gained the key of a queue, with its requests to be tried again.
#[derive(Clone, Debug)]
pub(super) struct Trying {
    pub queue: QueueId,
    pub owner: OwnerId,
    /// The requests that are left to try.
    pub requests: VecDeque<RequestId>,
}

impl ToTry {
    /// True if no request is to be tried.
    pub fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.trying.is_none() && !self.may_any_pass()
    }

    pub fn may_any_pass(&self) -> bool {
        !self.stuck.is_empty() || !self.passing.is_empty()
    }

    /// True if requests of an owner that gained the queue's key have still to be tried: they come before its head.
    pub fn has_gained(&self, queue: QueueId) -> bool {
        self.trying.as_ref().is_some_and(|trying| trying.queue == queue)
            || self.gained.contains_any((queue, OwnerId::FIRST)..=(queue, OwnerId::LAST))
    }

    /// An owner has lost the key of the queue: its requests are no longer to be tried because of it.
    pub fn lost(&mut self, queue: QueueId, owner: OwnerId) {
        self.gained.remove((queue, owner));
        self.trying.take_if(|trying| trying.queue == queue && trying.owner == owner);
    }

    /// Drops a request that has left its queues.
    pub fn remove(&mut self, place: Place, id: RequestId) {
        if self.may_any_pass() {
            self.stuck.remove(&(place, id));
            self.passing.remove(&(Reach::Holders, place, id));
            self.passing.remove(&(Reach::Everything, place, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::request::Rank;

    fn queue(number: u64) -> QueueId {
        QueueId::numbered(number)
    }

    #[test]
    fn requests_that_are_stuck_or_may_pass_are_dropped_when_they_leave() {
        let (place, id) = (Place { rank: Rank::Normal, arrival: 3 }, RequestId(3));
        for fill in [
            |to_try: &mut ToTry, place, id| _ = to_try.stuck.insert((place, id)),
            |to_try: &mut ToTry, place, id| _ = to_try.passing.insert((Reach::Holders, place, id)),
            |to_try: &mut ToTry, place, id| _ = to_try.passing.insert((Reach::Everything, place, id)),
        ] {
            let mut to_try = ToTry::default();
            assert!(to_try.is_empty() && !to_try.may_any_pass());
            fill(&mut to_try, place, id);
            assert!(to_try.may_any_pass() && !to_try.is_empty());
            to_try.remove(place, id);
            assert!(to_try.is_empty());
        }
    }

    #[test]
    fn requests_of_an_owner_that_gained_a_key_are_tried_until_it_loses_the_key() {
        let owner = |number| OwnerId::numbered(number);
        let trying = |to_try: &mut ToTry| {
            to_try.trying = Some(Trying { queue: queue(1), owner: owner(1), requests: VecDeque::new() });
        };
        let gained = |to_try: &mut ToTry| to_try.gained.insert((queue(1), owner(1)));
        for fill in [&trying as &dyn Fn(&mut ToTry), &gained] {
            let mut to_try = ToTry::default();
            fill(&mut to_try);
            assert!(to_try.has_gained(queue(1)) && !to_try.has_gained(queue(2)));
            for (other_queue, other_owner) in [(1, 2), (2, 1)] {
                to_try.lost(queue(other_queue), owner(other_owner));
                assert!(to_try.has_gained(queue(1)), "{other_queue}, {other_owner}");
            }
            to_try.lost(queue(1), owner(1));
            assert!(to_try.is_empty() && !to_try.has_gained(queue(1)));
        }
    }
}
