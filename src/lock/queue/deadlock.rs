//! Refuses a request that would wait for ever. The rule is the contract's: imagine that each owner without a wait
//! releases all its holds, that each owner served by these releases does the same, and so on. A request that still
//! waits then gets DEADLOCK. So does a request ahead of others, if another request of its owner still waits then.
//!
//! The reduction of the wait-for graph computes that.

mod cycle;
mod reduction;
mod wait_for_graph;

pub use self::cycle::Edge;
use self::wait_for_graph::WaitForGraph;
use super::holders::Holders;
use super::queues::WaitQueues;
use super::request::NewRequest;
use super::wait_queue::WaitQueue;
use crate::host::Keys;
use crate::value::claim::{Claim, Count, Family};

/// At most so many keys are opened to learn whether the owner of a request holds one of them: with more, it may.
const MOST_OPENED: usize = 16;

/// Whether the request may close a cycle, judged without opening a key. False is certain, and the common case. The wait
/// of a client that does not know the module ends by itself, and closes none.
pub fn needs_search(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let may_close = || {
        changes_waits(queues, new)
            || takes_more(new)
            || queues.may_be_waited_for(new.owner_id) && !waits_for_nothing_new(queues, new)
    };
    new.request.claim != Claim::AdoptedMutex && may_close()
}

/// The cycle that the request would close; `None` if it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, holders: &mut Holders<'_, K>, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    if !changes_waits(queues, new) && !is_waited_for(queues, holders, new) {
        return None;
    }
    let is_ahead = is_ahead_of_others(queues, new);
    let mut graph = WaitForGraph::new(queues, holders, new, is_ahead);
    (!graph.reduce()).then(|| graph.cycle())
}

/// Whether others may wait for the owner of the request, or the request for its own owner: it waits already, or holds a
/// waited-for key, or permits of the same semaphore. Without this check each request for one of thousands of permits
/// would visit all of their holders.
fn is_waited_for<K: Keys>(queues: &WaitQueues, holders: &mut Holders<'_, K>, new: &NewRequest<'_>) -> bool {
    let owner = new.owner_id;
    if owner.is_some_and(|owner| queues.waiting(owner).next().is_some()) {
        return true;
    }
    if takes_more(new) && new.names.iter().any(|name| holders.is_held_by(new.key(name), new.owner())) {
        return true;
    }
    match queues.may_hold(owner).unknown() {
        Some(to_open) if to_open.len() <= MOST_OPENED => {
            let mut keys = to_open.iter().filter_map(|id| queues.get(*id)).map(|queue| queue.key.as_ref());
            keys.any(|key| key.db == new.db && holders.is_held_by(key, new.owner()))
        }
        _ => true,
    }
}

/// The request is the last in the queue, and an earlier request of its owner covers what it asks for. Without this
/// check each of thousands of requests of one owner for one key would search through all the others.
fn waits_for_nothing_new(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let ([name], claim) = (new.names, &new.request.claim) else { return false };
    claim.family() != Family::Semaphore && queues.is_covered_by_earlier(new.key(name), new.owner_id, &new.place, claim)
}

/// The request changes what other requests wait for: it is ahead of others, or lowers LIMIT.
fn changes_waits(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let lowers_limit = |queue: &WaitQueue| new.request.claim.limit() < queue.limit;
    queues_of(queues, new).any(|queue| is_ahead_in(queue, new) || lowers_limit(queue))
}

fn is_ahead_of_others(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    queues_of(queues, new).any(|queue| is_ahead_in(queue, new))
}

fn is_ahead_in(queue: &WaitQueue, new: &NewRequest<'_>) -> bool {
    queue.has_requests_behind(&new.place)
}

/// The wait queues of the keys of the request, for keys that have one.
fn queues_of<'q>(queues: &'q WaitQueues, new: &'q NewRequest<'_>) -> impl Iterator<Item = &'q WaitQueue> + 'q {
    new.names.iter().filter_map(|name| queues.of_key(new.key(name)))
}

/// The request asks for permits in addition to the permits of its owner, which may leave too few.
fn takes_more(new: &NewRequest<'_>) -> bool {
    matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. })
}

#[cfg(test)]
mod tests;
