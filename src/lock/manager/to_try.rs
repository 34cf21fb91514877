//! What the hand-off tries beside the heads of queues.

use std::collections::{BTreeSet, VecDeque};

use super::due::Due;
use crate::key::RequestId;
use crate::queue::place::Place;
use crate::queue::request::{OwnerId, QueueId};

/// Waiting requests that are to be tried again, wherever they stand in their queues.
#[derive(Clone, Debug, Default)]
pub(super) struct ToTry {
    /// Owners that have gained the key of a queue: their requests are tried.
    pub gained: Due<(QueueId, OwnerId)>,
    /// The owner that is being tried now.
    pub trying: Option<Trying>,
    /// Requests for several keys to be decided anew, by their places, with the queue of a key that their owner has
    /// lost. Decided only if nothing else is left to do: the owner may have the key again by then.
    pub lost: BTreeSet<(Place, RequestId, QueueId)>,
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
        self.gained.is_empty() && self.trying.is_none() && self.lost.is_empty()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(number: u64) -> QueueId {
        QueueId::numbered(number)
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
