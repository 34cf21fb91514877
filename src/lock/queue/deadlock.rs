//! Refuses a request whose waiting would never end, by the contract: "imagine that every owner that waits for nothing
//! gave back all that it holds, and then those that were served by that, and so on. A request that would still wait
//! then, because of its own waiting, gets DEADLOCK".
//!
//! `Reduction` imagines that. A request that nothing can wait for is spared it.

use super::edge::Edge;
use super::new_request::NewRequest;
use super::queues::WaitQueues;
use super::reduction::{Question, Reduction};
use crate::host::Keys;
use crate::id_map::IdSet;
use crate::value::claim::{Claim, Count};
use crate::value::time::Now;

/// Whether the request may be in the way of others, or of itself, as far as can be told without an open key: false is
/// certain, and the rule.
pub fn may_close_cycle(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    changes_permits(queues, new) || queues.may_be_waited_for(new.db, new.owner(), |_| true)
}

/// The cycle that the request would close, beginning with its own owner; `None`: it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, keys: &mut K, now: &Now, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    let holds =
        |keys: &mut K| queues.may_be_waited_for(new.db, new.owner(), |key| keys.is_held_by(key.as_ref(), new.owner()));
    if !changes_permits(queues, new) && !holds(keys) {
        return None;
    }
    let (now, new_queues) = (now.timestamp(), Vec::from_iter(new.queues(queues)));
    let free = IdSet::default();
    let question = Question { new, is_queued: true, free: &free };
    let mut queued = Reduction::new(queues, keys, now, question, &new_queues);
    if queued.frees_new_owner() {
        return None;
    }
    // Owners that are stuck without it as well are no fault of its waiting.
    let (reached, cycle) = (queued.reached(), queued.cycle());
    let question = Question { is_queued: false, ..question };
    let free = Reduction::new(queues, keys, now, question, &new_queues).stuck(&reached);
    if free.is_empty() {
        return Some(cycle);
    }
    if queues.owner_id(new.db, new.owner()).is_some_and(|id| free.contains(&id)) {
        return None;
    }
    let question = Question { new, is_queued: true, free: &free };
    let mut queued = Reduction::new(queues, keys, now, question, &new_queues);
    (!queued.frees_new_owner()).then(|| queued.cycle())
}

/// It stands ahead of others, takes more permits than its owner has already, or brings a LIMIT that is smaller.
fn changes_permits(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let takes_more = matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. });
    let mut here = new.queues(queues).filter_map(|id| queues.get(id));
    takes_more || here.any(|queue| queue.is_anybody_behind(new.place) || new.request.claim.limit() < queue.limit)
}

#[cfg(test)]
mod tests;
