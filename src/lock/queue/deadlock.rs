//! Refuses a request that would deadlock, by the rule of the contract. Assume that each owner that does not wait
//! releases all its holds, that each owner served by these releases does the same, and so on. If the request would
//! still wait, it gets DEADLOCK. A request that is queued ahead of others also gets it if another request of its owner
//! would still wait.
//!
//! This is computed by reducing the wait-for graph.

mod cycle;
mod reduction;
mod wait_for_graph;

pub use self::cycle::Edge;
use self::wait_for_graph::{Doubled, WaitForGraph};
use super::holders::HolderLookup;
use super::queues::WaitQueues;
use super::request::NewRequest;
use crate::host::Keys;
use crate::value::claim::{Claim, Count, LockType};

/// At most this many keys are opened to check whether the owner of a request holds one of them. With more, it is
/// assumed that it may.
const MAX_OPENED: usize = 16;

/// A search that must run before a request is queued.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Requests wait behind the position of the new one.
    is_ahead: bool,
    /// The request changes what other requests wait for: it is ahead of others, or it lowers LIMIT.
    changes_waits: bool,
}

/// The search that must run before the request is queued. `None`, the common case: it certainly completes no cycle, as
/// the queues show without opening a key. An adopted request waits for a bounded time, so only its grant can complete a
/// cycle.
pub fn search_for(queues: &WaitQueues, new: &NewRequest<'_>) -> Option<Search> {
    if new.request.claim == Claim::AdoptedMutex {
        return search_before_grant(queues, new);
    }
    let search = Search::of(queues, new);
    let may_close = || {
        search.changes_waits
            || asks_for_additional_permits(new)
            || queues.may_be_waited_for(new.db, new.owner(), new.owner_id) && !waits_for_nothing_new(queues, new)
    };
    may_close().then_some(search)
}

/// The search that must run before the request is granted. A retry that resumes its position is granted the lock ahead
/// of requests that wait for it, and another request of its owner may wait for the owners of those.
pub fn search_before_grant(queues: &WaitQueues, new: &NewRequest<'_>) -> Option<Search> {
    let replaces = new.replaces?;
    let search = Search::of(queues, new);
    let mut others = queues.of_owner(new.owner_id).waiting().filter(|(id, _)| *id != replaces);
    let mut must_others_be_served = || others.any(|(_, queued)| queued.claim != Claim::AdoptedMutex);
    (search.is_ahead && must_others_be_served()).then_some(search)
}

impl Search {
    pub(super) fn of(queues: &WaitQueues, new: &NewRequest<'_>) -> Search {
        let (mut is_ahead, mut lowers_limit) = (false, false);
        let limit = new.request.claim.limit();
        // The common case. Looking up the queue takes 260 of 33,000 instructions of a hand-off among 48 clients
        // (callgrind, Redis 7.0.15).
        if limit.is_none() && queues.is_last(&new.position) {
            return Search { is_ahead: false, changes_waits: false };
        }
        for queue in new.names.iter().filter_map(|name| queues.of_key(new.key(name))) {
            is_ahead |= queue.has_requests_behind(&new.position);
            lowers_limit |= limit < queue.limit;
        }
        Search { is_ahead, changes_waits: is_ahead || lowers_limit }
    }

    /// The cycle that the request would complete; `None` if it may wait.
    pub fn find<K: Keys>(
        self,
        queues: &WaitQueues,
        holders: &mut HolderLookup<'_, K>,
        new: &NewRequest<'_>,
    ) -> Option<Vec<Edge>> {
        if !self.changes_waits && !is_waited_for(queues, holders, new) {
            return None;
        }
        let mut cycle_if = |doubled| {
            let mut graph = WaitForGraph::new(queues, holders, new, self.is_ahead, doubled);
            let cycle = (!graph.reduce()).then(|| graph.cycle());
            (cycle, graph.lacks_doubled)
        };
        match cycle_if(Doubled::TimeOut) {
            (None, true) => cycle_if(Doubled::AreServed).0,
            (cycle, _) => cycle,
        }
    }
}

/// Whether other requests may wait for the owner of this request, or this request for its own owner: the owner already
/// waits, holds a waited-for key, or holds permits of the same semaphore. Without this check, each request for one of
/// thousands of permits would visit all of their holders.
fn is_waited_for<K: Keys>(queues: &WaitQueues, holders: &mut HolderLookup<'_, K>, new: &NewRequest<'_>) -> bool {
    let owner = new.owner_id;
    if owner.is_some_and(|owner| queues.of_owner(Some(owner)).waiting().next().is_some()) {
        return true;
    }
    if asks_for_additional_permits(new) && new.names.iter().any(|name| holders.is_held_by(new.key(name), new.owner())) {
        return true;
    }
    match queues.may_hold(new.db, new.owner()).keys_to_open() {
        Some(to_open) if to_open.len() <= MAX_OPENED => {
            let mut keys = to_open.iter().filter_map(|id| queues.get(*id)).map(|queue| queue.key.as_ref());
            keys.any(|key| key.db == new.db && holders.is_held_by(key, new.owner()))
        }
        _ => true,
    }
}

/// Whether the request is the last in the queue, and an earlier request of its owner covers what it asks for. Without
/// this check, each of thousands of requests of one owner for one key would search through all the others.
fn waits_for_nothing_new(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let ([name], claim) = (new.names, &new.request.claim) else { return false };
    claim.lock_type() != LockType::Semaphore
        && queues.of_owner(new.owner_id).is_covered_by_earlier(new.key(name), &new.position, claim)
}

/// Whether the request asks for permits in addition to those that its owner holds. Then the owner may wait for itself.
fn asks_for_additional_permits(new: &NewRequest<'_>) -> bool {
    matches!(new.request.claim, Claim::Permits { count: Count::Delta(_), .. })
}

#[cfg(test)]
mod tests;
