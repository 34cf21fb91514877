//! Refuses a request that would wait for ever. The rule is the contract's: imagine that each owner without a wait
//! releases all its holds, that each owner served by these releases does the same, and so on. A request that still
//! waits then, because of its own waiting, gets DEADLOCK.
//!
//! The reduction of the wait-for graph computes that. It is skipped where the few owners that wait for the new one
//! cannot block its request.

mod cycle;
mod dependents;
mod reduction;
mod wait_for_graph;

use std::collections::BTreeSet;

pub use self::cycle::Edge;
use self::wait_for_graph::{Question, WaitForGraph};
use super::holders::Holders;
use super::queues::WaitQueues;
use super::request::{NewRequest, QueueId};
use crate::host::Keys;
use crate::value::claim::{Claim, Count, Family};

/// Whether other requests may wait for the owner of this one, or the request may block its own, judged without opening
/// a key. False is certain, and the common case.
pub fn may_be_waited_for(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    changes_waits(queues, new) || takes_more(new) || queues.may_be_waited_for(new.db, new.owner())
}

/// The cycle that the request would close, beginning with its own owner; `None` if it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, holders: &mut Holders<'_, K>, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    let (changes_waits, takes_more) = (changes_waits(queues, new), takes_more(new));
    let may_block_itself = takes_more && (waits_here(queues, new) || holds_here(holders, new));
    let is_ordinary = !changes_waits && !may_block_itself;
    if waits_for_nothing_new(queues, new) || is_ordinary && dependents::cannot_block(queues, holders, new) {
        return None;
    }
    let may_block_own = changes_waits || queues.has_requests_for_several();
    let free = BTreeSet::default();
    let question = Question { new, is_queued: true, may_block_own, free: &free };
    let mut graph = WaitForGraph::new(queues, holders, question, &[]);
    if graph.reduce() {
        return None;
    }
    let cycle = graph.cycle();
    // Owners that are stuck even without the new request do not count against it.
    let owners: Vec<_> = graph.owners.iter().filter_map(|owner| owner.id).collect();
    let mut without = WaitForGraph::new(queues, holders, Question { is_queued: false, ..question }, &owners);
    without.reduce();
    let free = without.stuck();
    if free.is_empty() {
        return Some(cycle);
    }
    if queues.owner_id(new.db, new.owner()).is_some_and(|id| free.contains(&id)) {
        return None;
    }
    let mut graph = WaitForGraph::new(queues, holders, Question { free: &free, ..question }, &[]);
    (!graph.reduce()).then(|| graph.cycle())
}

/// The request is the last in the queue, and an earlier request of its owner covers what it asks for. Without this
/// check each of thousands of requests of one owner for one key would search through all the others.
pub fn waits_for_nothing_new(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let ([_], claim) = (new.names, &new.request.claim) else { return false };
    let mut here = queues_of(queues, new);
    claim.family() != Family::Semaphore
        && here.next().is_some_and(|id| {
            queues.get(id).is_some_and(|queue| !queue.has_requests_behind(new.place))
                && queues.is_covered_by_earlier(id, new.owner(), new.place, claim)
        })
}

/// The wait queues of the keys of the request, for keys that have one.
fn queues_of<'q>(queues: &'q WaitQueues, new: &'q NewRequest<'_>) -> impl Iterator<Item = QueueId> + 'q {
    new.names.iter().filter_map(|name| queues.id_of(new.key(name)))
}

/// The request changes what other requests wait for: it is ahead of others, or lowers LIMIT.
fn changes_waits(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let mut here = queues_of(queues, new).filter_map(|id| queues.get(id));
    here.any(|queue| queue.has_requests_behind(new.place) || new.request.claim.limit() < queue.limit)
}

/// The request asks for permits in addition to the permits of its owner.
fn takes_more(new: &NewRequest<'_>) -> bool {
    matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. })
}

/// The owner holds a key of the request: its permits may leave too few.
fn holds_here<K: Keys>(holders: &mut Holders<'_, K>, new: &NewRequest<'_>) -> bool {
    new.names.iter().any(|name| holders.is_held_by(new.key(name), new.owner()))
}

/// The owner waits for a key of the request: the permits that it will be granted may leave too few.
fn waits_here(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let Some(owner) = queues.owner_id(new.db, new.owner()) else { return false };
    queues_of(queues, new).any(|queue| queues.waiting_in(queue, owner).next().is_some())
}

#[cfg(test)]
mod tests;
