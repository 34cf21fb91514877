//! Refuses a request that would wait for ever. The rule is the contract's: imagine that each owner without a wait
//! releases all its holds, that each owner served by these releases does the same, and so on. A request that still
//! waits then, because of its own waiting, gets DEADLOCK.
//!
//! The reduction of the wait-for graph computes that. It is skipped where the few owners that wait for the new one
//! cannot block its request.

mod dependents;
mod reduction;
mod wait_for_graph;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::wait_for_graph::{KeyId, KeyState, Node, NodeId, Question, StandsFor, WaitForGraph, NEW};
use super::holders::Holders;
use super::queues::WaitQueues;
use super::request::{NewRequest, QueueId};
use crate::host::Keys;
use crate::value::claim::{Claim, Count, Family};
use crate::value::owner::Owner;

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The owner that waits.
    pub owner: Owner,
    /// The key that it waits for.
    pub key: Rc<[u8]>,
}

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
    let blocks_others = changes_waits || takes_more || queues.has_requests_for_several();
    let free = BTreeSet::default();
    let question = Question { new, is_queued: true, blocks_others, free: &free };
    let mut queued = WaitForGraph::new(queues, holders, question);
    if queued.frees_new_owner() {
        return None;
    }
    // Owners that are stuck even without the new request do not count against it.
    let cycle = queued.cycle();
    let free = match is_only_wait(queues, new) {
        true => queued.stuck_without_new(),
        false => {
            let reached = queued.reached();
            let question = Question { is_queued: false, ..question };
            WaitForGraph::new(queues, holders, question).stuck(&reached)
        }
    };
    if free.is_empty() {
        return Some(cycle);
    }
    if queues.owner_id(new.db, new.owner()).is_some_and(|id| free.contains(&id)) {
        return None;
    }
    let question = Question { free: &free, ..question };
    let mut queued = WaitForGraph::new(queues, holders, question);
    (!queued.frees_new_owner()).then(|| queued.cycle())
}

/// The owner of the request waits for nothing else, and the request does not change LIMIT.
fn is_only_wait(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let owner = queues.owner_id(new.db, new.owner());
    let mut others = owner.into_iter().flat_map(|id| queues.waiting(id)).filter(|(_, other)| other.place != new.place);
    let mut here = queues_of(queues, new).filter_map(|id| queues.get(id));
    let is_same = |limit: Option<u32>| limit.is_none() || limit == new.request.claim.limit();
    others.next().is_none() && here.all(|queue| is_same(queue.limit))
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

impl<'k, K: Keys> WaitForGraph<'_, 'k, K> {
    /// A cycle of stuck owners: the shortest one from the new owner back to it, if there is one.
    pub fn cycle(&self) -> Vec<Edge> {
        let mut waits: BTreeMap<NodeId, (NodeId, KeyId)> = BTreeMap::default();
        let mut found = vec![NEW];
        let mut next = 0;
        while let Some(node) = found.get(next).copied() {
            next += 1;
            for (waiter, key) in self.waiting_for(node) {
                if !waits.contains_key(&waiter) && waiter != node {
                    waits.insert(waiter, (node, key));
                    found.push(waiter);
                }
            }
            if waits.contains_key(&NEW) {
                return self.edges(NEW, &waits);
            }
        }
        // Otherwise it asks for more permits than its own holds leave, or its LIMIT makes others stuck, which block it.
        for (node, _) in self.nodes.all.iter().enumerate().filter(|(node, _)| !self.nodes.is_free(*node)) {
            for (waiter, key) in self.waiting_for(node) {
                if waiter != node || !waits.contains_key(&waiter) {
                    waits.insert(waiter, (node, key));
                }
            }
        }
        let mut seen = BTreeSet::default();
        let mut node = NEW;
        while seen.insert(node) {
            node = waits.get(&node).map_or(NEW, |(blocker, _)| *blocker);
        }
        self.edges(node, &waits)
    }

    /// The edges from a node over the nodes that it waits for back to it.
    fn edges(&self, from: NodeId, waits: &BTreeMap<NodeId, (NodeId, KeyId)>) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut node = from;
        while let Some((blocker, key)) = waits.get(&node) {
            // For an owner with several requests, the edge is that of the request that waits for another owner.
            let owner = match (self.nodes.all[node].stands_for, self.nodes.all[*blocker].stands_for) {
                (StandsFor::Place, _) | (_, StandsFor::Request(_)) => None,
                (StandsFor::Owner(_), _) => Some(node),
                (StandsFor::Request(owner), _) => Some(owner),
            };
            if let Some(owner) = owner {
                let known = self.nodes.owner_of(owner).and_then(|id| self.queues.owner(id));
                let owner = known.cloned().unwrap_or_else(|| self.question.new.request.owner.to_owner());
                edges.push(edge(owner, &self.states[*key]));
            }
            node = *blocker;
            if node == from {
                break;
            }
        }
        edges
    }

    /// The nodes that are stuck behind this node, and on which key.
    fn waiting_for(&self, node: NodeId) -> impl Iterator<Item = (NodeId, KeyId)> + use<'_, 'k, K> {
        let Node { dependents, semaphores, .. } = &self.nodes.all[node];
        let by_permits = semaphores.iter().flat_map(move |key| {
            let permits = self.states[*key].permits.as_ref();
            permits.into_iter().flat_map(|permits| permits.waiting.values()).map(move |waiter| (*waiter, *key))
        });
        let all = dependents.iter().copied().chain(by_permits);
        all.filter(|(waiter, _)| !self.nodes.is_free(*waiter))
    }
}

fn edge(owner: Owner, state: &KeyState<'_>) -> Edge {
    let key = state.queue.map_or_else(|| state.name.into(), |(_, queue)| queue.key.name.clone());
    Edge { owner, key }
}

#[cfg(test)]
mod tests;
