//! The wait-for graph around a new request: owners, and the keys that they wait for. It grows as it is explored; each
//! key is opened once. Each node has the number of things that it still waits for.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::Keys;
use crate::key::{KeyRef, RequestId};
use crate::queue::holders::{Holders, Under};
use crate::queue::queues::WaitQueues;
use crate::queue::request::{NewRequest, OwnerId, Place, QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, Share};
use crate::value::owner::Owner;

/// The graph: each key that was reached, with the owners that hold it and the requests that wait for it.
pub(super) struct WaitForGraph<'a, 'k, K> {
    pub holders: &'a mut Holders<'k, K>,
    pub question: Question<'a>,
    pub queues: &'a WaitQueues,
    pub nodes: Nodes<'a>,
    pub states: Vec<KeyState<'a>>,
    pub by_queue: BTreeMap<QueueId, KeyId>,
    /// The keys of the new request.
    pub new_keys: Vec<KeyId>,
    /// The only queued request of the new request's owner: by the new one its owner waits elsewhere too.
    pub only_one_of_new: Option<&'a QueuedRequest>,
    /// Whether a request for several keys is going to get an error, as it can never have one of them.
    pub gets_error: BTreeMap<RequestId, bool>,
    pub passing: BTreeMap<Place, Passing>,
    /// The nodes of requests for several keys.
    pub by_place: BTreeMap<Place, NodeId>,
}

/// The assumptions of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The request that is about to queue.
    pub new: &'a NewRequest<'a>,
    /// Whether the reduction treats it as queued.
    pub is_queued: bool,
    /// Whether the new request may block other requests. If not, requests of its owner for other keys are not explored:
    /// with 10,000 of these, each further request would take 20 ms.
    pub blocks_others: bool,
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
    pub all: Vec<Node>,
    pub by_owner: BTreeMap<OwnerId, NodeId>,
    pub unexplored: Vec<NodeId>,
    /// Nodes that became free and have not been propagated yet.
    pub freed: Vec<NodeId>,
}

/// The state of a key when it was reached.
pub(super) struct KeyState<'a> {
    pub name: &'a [u8],
    pub queue: Option<(QueueId, &'a WaitQueue)>,
    /// The key has another family or type: its requests are going to get an error.
    pub is_another: bool,
    /// The holders that wait themselves, by their nodes.
    pub holders: Vec<(NodeId, Share)>,
    pub limit: u32,
    /// Holders and requests in their order, without requests that cannot block another here.
    pub blockers: Option<Vec<Blocker>>,
    /// The nodes of their places, by `Chain`: such a node is free when all blockers up to there are. `None` if they
    /// were free from the beginning.
    pub places: [Vec<Option<NodeId>>; 3],
    pub permits: Option<Permits>,
}

/// An entry of a wait queue: a queued request or the new one.
#[derive(Clone, Copy)]
pub(super) struct Standing<'a> {
    pub place: Place,
    pub claim: Claim,
    /// `None` for the new request.
    pub queued: Option<(RequestId, &'a QueuedRequest)>,
}

/// A holder, or a request ahead, that blocks a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocker {
    /// The place of the blocking request; `None` for a holder, which is ahead of all.
    pub place: Option<Place>,
    pub owner: BlockingOwner,
    pub is_read: bool,
    /// It is a request for several keys.
    pub is_passable: bool,
}

/// A request that may pass requests for several keys.
pub(super) struct Passing {
    pub node: NodeId,
    pub owner: NodeId,
    /// The place nodes of the requests for several keys ahead of it, by key.
    pub behind: Vec<(KeyId, NodeId)>,
}

/// How far a semaphore is served.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// Permits beyond LIMIT: held by owners that are not free, or asked for by the requests up to `next`.
    pub excess: i64,
    /// These permits by owner.
    pub taken: BTreeMap<NodeId, Share>,
    pub served: Option<Place>,
    /// The next request to serve, with the permits that it asks for, if its owner has no node.
    pub next: Option<(Place, u32)>,
    /// The nodes of the requests that wait here.
    pub waiting: BTreeMap<Place, NodeId>,
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

    fn reach_named(&mut self, owner: &Owner) -> Option<NodeId> {
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

impl KeyState<'_> {
    pub fn held_by(&self, node: NodeId) -> Share {
        let found = self.holders.binary_search_by_key(&node, |(holder, _)| *holder);
        found.map_or_else(|_| Share::default(), |index| self.holders[index].1)
    }
}

impl<'a, 'k, K: Keys> WaitForGraph<'a, 'k, K> {
    /// Opens the keys of the new request.
    pub fn new(
        queues: &'a WaitQueues,
        holders: &'a mut Holders<'k, K>,
        question: Question<'a>,
    ) -> WaitForGraph<'a, 'k, K> {
        let new = question.new;
        let new_id = queues.owner_id(new.db, new.owner());
        let by_owner = new_id.into_iter().map(|id| (id, NEW)).collect();
        let (unexplored, freed) = (vec![NEW], Vec::new());
        let mut nodes = Nodes { queues, question, all: Vec::new(), by_owner, unexplored, freed };
        nodes.add(StandsFor::Owner(new_id), 1);
        let (by_queue, gets_error, by_place) = (BTreeMap::default(), BTreeMap::default(), BTreeMap::default());
        let (states, new_keys) = (Vec::new(), Vec::new());
        let mut queued = new_id.into_iter().flat_map(|id| queues.waiting(id)).map(|(_, queued)| queued);
        let only_one_of_new = queued.next().filter(|queued| question.is_queued && !queued.may_wait_elsewhere);
        let mut graph = WaitForGraph {
            holders,
            question,
            queues,
            nodes,
            states,
            by_queue,
            new_keys,
            only_one_of_new,
            gets_error,
            passing: BTreeMap::new(),
            by_place,
        };
        for name in new.names {
            let queue = queues.id_of(new.key(name)).and_then(|id| Some((id, queues.get(id)?)));
            let key = graph.open(name, queue, new.request.claim);
            graph.new_keys.push(key);
        }
        graph
    }

    pub fn keys_of(&mut self, request: &Standing<'a>) -> Vec<KeyId> {
        let queues = self.queues;
        let Some((_, queued)) = request.queued else { return self.new_keys.clone() };
        let standing = queued.queues.iter().filter_map(|id| Some((*id, queues.get(*id)?)));
        standing.map(|(id, queue)| self.open(&queue.key.name, Some((id, queue)), queued.claim)).collect()
    }

    fn open(&mut self, name: &'a [u8], queue: Option<(QueueId, &'a WaitQueue)>, claim: Claim) -> KeyId {
        if let Some(known) = queue.and_then(|(id, _)| self.by_queue.get(&id)) {
            return *known;
        }
        let Question { new, is_queued, .. } = self.question;
        let (nodes, family) = (&mut self.nodes, claim.family());
        let mut holders = Vec::new();
        let under = self.holders.visit(KeyRef { db: new.db, name }, |hold| {
            holders.extend(nodes.reach_named(hold.owner).map(|node| (node, hold.share())));
        });
        let is_another = !matches!(under, Under::Lock(known) if known.is_none_or(|known| known == family));
        if is_another {
            holders.clear();
        }
        holders.sort_unstable_by_key(|(node, _)| *node);
        let of_queue = queue.and_then(|(_, queue)| queue.limit).or(claim.limit());
        let brought = new.request.claim.limit().filter(|_| is_queued && new.names.contains(&name));
        let limit = brought.or(of_queue).unwrap_or(0);
        let key = self.states.len();
        self.by_queue.extend(queue.map(|(id, _)| (id, key)));
        let (blockers, places, permits) = (None, Default::default(), None);
        self.states.push(KeyState { name, queue, is_another, holders, limit, blockers, places, permits });
        key
    }

    /// The requests in the queue of a key behind a place, the new one included.
    pub fn standing(&self, key: KeyId, after: Option<Place>) -> impl Iterator<Item = Standing<'a>> {
        let (queues, Question { new, is_queued, .. }) = (self.queues, self.question);
        let is_behind = move |place: &Place| after.is_none_or(|after| *place > after);
        let queue = self.states[key].queue.map(|(_, queue)| queue);
        let queued = queue.into_iter().flat_map(move |queue| queue.range(after.unwrap_or(Place::FIRST)..));
        let queued = queued.filter(move |(place, _)| is_behind(place) && *place != new.place);
        let mut queued = queued.filter_map(move |(place, id)| {
            let queued = queues.request(id)?;
            Some(Standing { place, claim: queued.claim, queued: Some((id, queued)) })
        });
        let is_here = is_queued && self.new_keys.contains(&key) && is_behind(&new.place);
        let mut new = is_here.then_some(Standing { place: new.place, claim: new.request.claim, queued: None });
        let mut next = queued.next();
        std::iter::from_fn(move || match (&next, &new) {
            (Some(queued), Some(it)) if it.place < queued.place => new.take(),
            (Some(_), _) => std::mem::replace(&mut next, queued.next()),
            (None, _) => new.take(),
        })
    }

    /// All owners that may be stuck: each with a node, and each with a request in a reached queue.
    pub fn reached(&self) -> Vec<OwnerId> {
        let standing = (0..self.states.len()).flat_map(|key| self.standing(key, None));
        let standing = standing.filter_map(|standing| Some(standing.queued?.1.owner_id));
        (0..self.nodes.all.len()).filter_map(|node| self.nodes.owner_of(node)).chain(standing).collect()
    }
}
