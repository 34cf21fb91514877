//! The report of a deadlock: a cycle of owners, each of which waits for the next one.

use std::rc::Rc;

use super::nodes::{KeyId, Node, NodeId, StandsFor, NEW};
use super::wait_for_graph::{KeyState, WaitForGraph};
use crate::host::Keys;
use crate::value::owner::Owner;
use std::collections::{BTreeMap, BTreeSet};

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The owner that waits.
    pub owner: Owner,
    /// The key that it waits for.
    pub key: Rc<[u8]>,
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
