//! The nodes of the wait-for graph, each with the number of things that it still waits for.

use crate::queue::queues::WaitQueues;
use crate::queue::request::{NewRequest, OwnerId};
use crate::value::owner::Owner;
use std::collections::{BTreeMap, BTreeSet};

/// The assumptions of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The request that is about to queue.
    pub new: &'a NewRequest<'a>,
    /// Whether the reduction treats it as queued.
    pub is_queued: bool,
    /// These owners count as free.
    pub free: &'a BTreeSet<OwnerId>,
}

/// The index of a node.
pub(super) type NodeId = usize;

/// The index of a key.
pub(super) type KeyId = usize;

/// The owner of the new request.
pub(super) const NEW: NodeId = 0;

#[derive(Debug)]
pub(super) struct Node {
    pub stands_for: StandsFor,
    /// How many other nodes and semaphores it waits for; one more for an owner until it is explored.
    pub needs: usize,
    /// The nodes that wait for this one, and on which key.
    pub dependents: Vec<(NodeId, KeyId)>,
    /// The semaphores to which it gives permits back.
    pub semaphores: Vec<KeyId>,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum StandsFor {
    /// An owner, by its id if it has one yet.
    Owner(Option<OwnerId>),
    /// One of several requests of the owner with this node.
    Request(NodeId),
    /// All requests up to a place.
    Place,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BlockingOwner {
    Node(NodeId),
    /// An owner without a node so far.
    Owner(OwnerId),
}

/// The nodes, separate from the keys: a key is open while nodes of its holders are added.
pub(super) struct Nodes<'a> {
    pub queues: &'a WaitQueues,
    pub question: Question<'a>,
    pub new_id: Option<OwnerId>,
    pub all: Vec<Node>,
    pub by_owner: BTreeMap<OwnerId, NodeId>,
    pub unexplored: Vec<NodeId>,
    /// Nodes that became free and have not been propagated yet.
    pub freed: Vec<NodeId>,
}

impl<'a> Nodes<'a> {
    pub fn add(&mut self, stands_for: StandsFor, needs: usize) -> NodeId {
        self.all.push(Node { stands_for, needs, dependents: Vec::new(), semaphores: Vec::new() });
        self.all.len() - 1
    }

    pub fn is_free(&self, node: NodeId) -> bool {
        self.all[node].needs == 0
    }

    /// The node of an owner that is not free.
    pub fn reach(&mut self, id: OwnerId) -> Option<NodeId> {
        if Some(id) == self.new_id {
            return Some(NEW).filter(|new| !self.is_free(*new));
        }
        if let Some(node) = self.by_owner.get(&id) {
            return Some(*node).filter(|node| !self.is_free(*node));
        }
        if self.question.free.contains(&id) || self.queues.waiting(id).next().is_none() {
            return None;
        }
        let node = self.add(StandsFor::Owner(Some(id)), 1);
        self.by_owner.insert(id, node);
        self.unexplored.push(node);
        Some(node)
    }

    pub fn reach_named(&mut self, owner: &Owner) -> Option<NodeId> {
        if owner.as_bytes() == self.question.new.owner() {
            return Some(NEW).filter(|new| !self.is_free(*new));
        }
        self.reach(self.queues.owner_id(self.question.new.db, owner.as_bytes())?)
    }

    pub fn find(&mut self, owner: BlockingOwner) -> Option<NodeId> {
        match owner {
            BlockingOwner::Node(node) => Some(node).filter(|node| !self.is_free(*node)),
            BlockingOwner::Owner(id) => self.reach(id),
        }
    }

    pub fn waits_for(&mut self, node: NodeId, blocker: NodeId, key: KeyId) {
        self.all[blocker].dependents.push((node, key));
        self.all[node].needs += 1;
    }

    /// Removes one of the things that the node waits for.
    pub fn reduce_needs(&mut self, node: NodeId) {
        let needs = &mut self.all[node].needs;
        if *needs > 0 {
            *needs -= 1;
            if *needs == 0 {
                self.freed.push(node);
            }
        }
    }

    /// The id of the owner that the node stands for.
    pub fn owner_of(&self, node: NodeId) -> Option<OwnerId> {
        match self.all[node].stands_for {
            StandsFor::Owner(id) => id,
            StandsFor::Request(_) | StandsFor::Place => None,
        }
    }
}
