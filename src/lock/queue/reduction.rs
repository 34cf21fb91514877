//! Reduces a wait-for graph: an owner that waits for nothing releases all that it holds, which serves other requests,
//! and so on, until nothing changes. The owners that are left are stuck.
//!
//! An owner is free once all of its requests are served. The graph has a node for each owner, and for each place of a
//! queue up to which all owners have to be free. It grows from the new request, only as far as needed: an owner without
//! requests has no node. A semaphore counts permits: its requests are served in the order of the queue, as long as the
//! permits held by owners that are not free, plus the permits that the requests up to there ask for, are within LIMIT.
//!
//! | a request                                     | is served when these owners are free                             |
//! | --------------------------------------------- | ---------------------------------------------------------------- |
//! | covered by a hold or request of its owner     | (no others: it is served at once, or with that request)          |
//! | for a mutex, to write                         | the holders; the owners of all requests ahead for this key only  |
//! | to read                                       | the writers among them                                           |
//! | for permits                                   | enough holders of permits; the requests ahead are served         |
//! | for a key that has become something else      | (it gets an error)                                               |
//!
//! A request for several keys blocks no other for ever: an owner that it waits for passes it (see
//! [`super::precedence`]). It blocks others only after it has been served, while its owner waits elsewhere.

use std::collections::BTreeMap;

use super::edge::Edge;
use super::holders::{Holders, Under};
use super::new_request::NewRequest;
use super::queues::WaitQueues;
use super::request::{OwnerId, Place, QueueId, QueuedRequest};
use super::wait_queue::WaitQueue;
use crate::host::Keys;
use crate::id_map::{IdMap, IdSet};
use crate::key::{KeyRef, RequestId};
use crate::value::claim::{Claim, Count, Family, Share};
use crate::value::owner::Owner;

/// The assumptions of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The request that is about to queue.
    pub new: &'a NewRequest<'a>,
    /// Whether the reduction treats it as queued.
    pub is_queued: bool,
    /// These owners count as free.
    pub free: &'a IdSet<OwnerId>,
}

/// The index of a node.
type NodeId = usize;

/// The index of a key.
type KeyId = usize;

/// The owner of the new request.
const NEW: NodeId = 0;

#[derive(Debug)]
struct Node {
    stands_for: StandsFor,
    /// How many other nodes and semaphores it waits for; one more for an owner until it is explored.
    needs: usize,
    /// The nodes that wait for this one, and on which key.
    dependents: Vec<(NodeId, KeyId)>,
    /// The semaphores to which it gives permits back.
    semaphores: Vec<KeyId>,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug)]
enum StandsFor {
    /// An owner, by its id if it has one yet.
    Owner(Option<OwnerId>),
    /// One of several requests of the owner with this node.
    Request(NodeId),
    /// All requests up to a place.
    Place,
}

/// A holder, or a request ahead, that blocks a request.
#[derive(Clone, Copy, Debug)]
struct Blocker {
    /// The place of the blocking request; `None` for a holder, which is ahead of all.
    place: Option<Place>,
    who: Who,
    is_read: bool,
    /// It is a request for several keys.
    is_passable: bool,
}

/// The blockers that a node for a place stands for.
#[derive(Clone, Copy, Debug)]
enum Chain {
    /// Holders, and requests for one key.
    All,
    /// Writers: a reader waits only for these.
    Writers,
    /// Requests for several keys.
    Passable,
}

impl Chain {
    fn has(self, blocker: &Blocker) -> bool {
        match self {
            Chain::All => !blocker.is_passable,
            Chain::Writers => !blocker.is_read,
            Chain::Passable => blocker.is_passable,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Node(NodeId),
    /// An owner without a node so far.
    Owner(OwnerId),
}

/// The state of a key when it was reached.
struct KeyState<'a> {
    name: &'a [u8],
    queue: Option<(QueueId, &'a WaitQueue)>,
    /// The key has another family or type: its requests are going to get an error.
    is_another: bool,
    /// The holders that wait themselves, by their nodes.
    holders: Vec<(NodeId, Share)>,
    limit: u32,
    /// Holders and requests in their order, without requests that cannot block another here.
    blockers: Option<Vec<Blocker>>,
    /// The nodes of their places, by [`Chain`]: such a node is free when all blockers up to there are. `None` if they
    /// were free from the beginning.
    places: [Vec<Option<NodeId>>; 3],
    permits: Option<Permits>,
}

/// How far a semaphore is served.
#[derive(Debug, Default)]
struct Permits {
    /// Permits beyond LIMIT: those held by owners that are not free, plus those asked for up to `next`.
    excess: i64,
    /// These permits by owner.
    taken: IdMap<NodeId, Share>,
    served: Option<Place>,
    /// The next request to serve, with the permits that it asks for, if its owner has no node.
    next: Option<(Place, u32)>,
    /// The nodes of the requests that wait here.
    waiting: BTreeMap<Place, NodeId>,
}

/// An entry of a wait queue: a queued request or the new one.
#[derive(Clone, Copy)]
struct Standing<'a> {
    place: Place,
    claim: Claim,
    /// `None` for the new request.
    queued: Option<(RequestId, &'a QueuedRequest)>,
}

/// A request that may pass requests for several keys.
struct Passing {
    node: NodeId,
    owner: NodeId,
    /// The place nodes of the requests for several keys ahead of it, by key.
    behind: Vec<(KeyId, NodeId)>,
}

/// The reduction. Each key is opened once.
pub(super) struct Reduction<'a, 'k, K> {
    holders: &'a mut Holders<'k, K>,
    question: Question<'a>,
    queues: &'a WaitQueues,
    nodes: Nodes<'a>,
    states: Vec<KeyState<'a>>,
    by_queue: IdMap<QueueId, KeyId>,
    /// The keys of the new request.
    new_keys: Vec<KeyId>,
    /// The only queued request of the new request's owner: by the new one its owner waits elsewhere too.
    only_one_of_new: Option<&'a QueuedRequest>,
    /// Whether a request for several keys is going to get an error, as it can never have one of them.
    is_told: IdMap<RequestId, bool>,
    passing: BTreeMap<Place, Passing>,
    /// The nodes of requests for several keys.
    by_place: IdMap<Place, NodeId>,
}

/// The nodes, separate from the keys: a key is open while nodes of its holders are added.
struct Nodes<'a> {
    queues: &'a WaitQueues,
    question: Question<'a>,
    new_id: Option<OwnerId>,
    all: Vec<Node>,
    by_owner: IdMap<OwnerId, NodeId>,
    unexplored: Vec<NodeId>,
    /// Nodes that became free and have not been propagated yet.
    freed: Vec<NodeId>,
}

impl KeyState<'_> {
    fn held_by(&self, node: NodeId) -> Share {
        let found = self.holders.binary_search_by_key(&node, |(holder, _)| *holder);
        found.map_or_else(|_| Share::default(), |index| self.holders[index].1)
    }

    fn edge(&self, owner: Owner) -> Edge {
        let key = self.queue.map_or_else(|| self.name.into(), |(_, queue)| queue.key.name.clone());
        Edge { owner, key }
    }
}

impl<'a> Nodes<'a> {
    fn add(&mut self, stands_for: StandsFor, needs: usize) -> NodeId {
        self.all.push(Node { stands_for, needs, dependents: Vec::new(), semaphores: Vec::new() });
        self.all.len() - 1
    }

    fn is_free(&self, node: NodeId) -> bool {
        self.all[node].needs == 0
    }

    /// The node of an owner that is not free.
    fn reach(&mut self, id: OwnerId) -> Option<NodeId> {
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

    fn reach_named(&mut self, owner: &Owner) -> Option<NodeId> {
        if owner.as_bytes() == self.question.new.owner() {
            return Some(NEW).filter(|new| !self.is_free(*new));
        }
        self.reach(self.queues.owner_id(self.question.new.db, owner.as_bytes())?)
    }

    fn find(&mut self, who: Who) -> Option<NodeId> {
        match who {
            Who::Node(node) => Some(node).filter(|node| !self.is_free(*node)),
            Who::Owner(id) => self.reach(id),
        }
    }

    fn waits_for(&mut self, node: NodeId, blocker: NodeId, key: KeyId) {
        self.all[blocker].dependents.push((node, key));
        self.all[node].needs += 1;
    }

    /// Removes one of the things that the node waits for.
    fn lessen(&mut self, node: NodeId) {
        let needs = &mut self.all[node].needs;
        if *needs > 0 {
            *needs -= 1;
            if *needs == 0 {
                self.freed.push(node);
            }
        }
    }

    /// The id of the owner that the node stands for.
    fn owner_of(&self, node: NodeId) -> Option<OwnerId> {
        match self.all[node].stands_for {
            StandsFor::Owner(id) => id,
            StandsFor::Request(_) | StandsFor::Place => None,
        }
    }
}

impl<'a, 'k, K: Keys> Reduction<'a, 'k, K> {
    /// Opens the keys of the new request.
    pub fn new(
        queues: &'a WaitQueues,
        holders: &'a mut Holders<'k, K>,
        question: Question<'a>,
    ) -> Reduction<'a, 'k, K> {
        let new = question.new;
        let new_id = queues.owner_id(new.db, new.owner());
        let (by_owner, unexplored, freed) = (IdMap::default(), vec![NEW], Vec::new());
        let mut nodes = Nodes { queues, question, new_id, all: Vec::new(), by_owner, unexplored, freed };
        nodes.add(StandsFor::Owner(new_id), 1);
        let (by_queue, is_told, by_place) = (IdMap::default(), IdMap::default(), IdMap::default());
        let (states, new_keys) = (Vec::new(), Vec::new());
        let mut queued = new_id.into_iter().flat_map(|id| queues.waiting(id)).map(|(_, queued)| queued);
        let only_one_of_new = queued.next().filter(|queued| question.is_queued && !queued.may_wait_elsewhere);
        let mut reduction = Reduction {
            holders,
            question,
            queues,
            nodes,
            states,
            by_queue,
            new_keys,
            only_one_of_new,
            is_told,
            passing: BTreeMap::new(),
            by_place,
        };
        for name in new.names {
            let queue = queues.id_of(new.key(name)).and_then(|id| Some((id, queues.get(id)?)));
            let key = reduction.open(name, queue, new.request.claim);
            reduction.new_keys.push(key);
        }
        reduction
    }

    /// Whether the owner of the new request becomes free.
    pub fn frees_new_owner(&mut self) -> bool {
        loop {
            while let Some(node) = self.nodes.unexplored.pop() {
                self.explore(node);
                self.spread();
                if self.nodes.is_free(NEW) {
                    return true;
                }
            }
            if !self.let_one_pass() {
                return self.nodes.is_free(NEW);
            }
        }
    }

    /// The reached owners that are stuck even if the new request gives up. Only for a request that is its owner's only
    /// one and does not change LIMIT.
    pub fn stuck_without_new(&mut self) -> IdSet<OwnerId> {
        self.nodes.all[NEW].needs = 0;
        self.nodes.freed.push(NEW);
        self.spread();
        self.stuck(&[])
    }

    /// The stuck owners among these and all that they wait for.
    pub fn stuck(&mut self, owners: &[OwnerId]) -> IdSet<OwnerId> {
        owners.iter().for_each(|id| _ = self.nodes.reach(*id));
        loop {
            while let Some(node) = self.nodes.unexplored.pop() {
                self.explore(node);
                self.spread();
            }
            if !self.let_one_pass() {
                let stuck = (0..self.nodes.all.len()).filter(|node| !self.nodes.is_free(*node));
                return stuck.filter_map(|node| self.nodes.owner_of(node)).collect();
            }
        }
    }

    /// All owners that may be stuck: those with a node, or with a request in a queue that was reached.
    pub fn reached(&self) -> Vec<OwnerId> {
        let standing = (0..self.states.len()).flat_map(|key| self.standing(key, None));
        let standing = standing.filter_map(|standing| Some(standing.queued?.1.owner_id));
        (0..self.nodes.all.len()).filter_map(|node| self.nodes.owner_of(node)).chain(standing).collect()
    }

    fn explore(&mut self, node: NodeId) {
        let (queues, Question { new, is_queued, .. }) = (self.queues, self.question);
        let id = self.nodes.owner_of(node);
        let queued = id.into_iter().flat_map(|id| queues.waiting(id)).filter(|(_, queued)| queued.place != new.place);
        let queued = queued.map(|(id, queued)| Standing {
            place: queued.place,
            claim: queued.claim,
            queued: Some((id, queued)),
        });
        let mut requests: Vec<_> = queued.collect();
        if node == NEW && is_queued {
            requests.push(Standing { place: new.place, claim: new.request.claim, queued: None });
        }
        requests.sort_unstable_by_key(|request| request.place);
        let has_several = requests.len() > 1;
        // What the owner will hold once its requests are served.
        let mut will_hold: IdMap<KeyId, (Share, NodeId)> = IdMap::default();
        for request in &requests {
            let keys = self.keys_of(request);
            if self.is_told(request, &keys) {
                continue;
            }
            let waiter = match has_several {
                true => self.nodes.add(StandsFor::Request(node), 1),
                false => node,
            };
            if keys.len() > 1 {
                self.by_place.insert(request.place, waiter);
            }
            for key in &keys {
                let held = self.states[*key].held_by(node);
                let (share, by) = will_hold.get(key).map_or((held, None), |(share, by)| (*share, Some(*by)));
                match by.filter(|by| !held.covers(&request.claim) && !self.nodes.is_free(*by)) {
                    _ if !share.covers(&request.claim) => self.wait(node, waiter, request, *key, share),
                    Some(by) => self.nodes.waits_for(waiter, by, *key),
                    None => {}
                }
                if has_several {
                    will_hold.insert(*key, (share.with(&request.claim), waiter));
                }
            }
            if let (true, Some(key)) = (has_several, keys.first()) {
                self.nodes.waits_for(node, waiter, *key);
                self.nodes.lessen(waiter);
            }
        }
        self.nodes.lessen(node);
    }

    fn keys_of(&mut self, request: &Standing<'a>) -> Vec<KeyId> {
        let queues = self.queues;
        let Some((_, queued)) = request.queued else { return self.new_keys.clone() };
        let standing = queued.queues.iter().filter_map(|id| Some((*id, queues.get(*id)?)));
        standing.map(|(id, queue)| self.open(&queue.key.name, Some((id, queue)), queued.claim)).collect()
    }

    /// Whether the request is going to get an error, as it can never be served.
    fn is_told(&self, request: &Standing<'_>, keys: &[KeyId]) -> bool {
        let is_told = |key: &KeyId| {
            let state = &self.states[*key];
            state.is_another || request.queued.is_some() && self.never_fits(*key, request)
        };
        keys.iter().any(is_told)
    }

    /// Whether the LIMIT of the new request is too small for this one, with what its owner holds already: it gets an
    /// error.
    fn never_fits(&self, key: KeyId, request: &Standing<'_>) -> bool {
        let Some((_, queued)) = request.queued.filter(|_| request.claim.family() == Family::Semaphore) else {
            return false;
        };
        let count = request.claim.count();
        if !self.question.is_queued || !self.new_keys.contains(&key) {
            return count.number() > self.states[key].limit;
        }
        let node = match Some(queued.owner_id) == self.nodes.new_id {
            true => Some(NEW),
            false => self.nodes.by_owner.get(&queued.owner_id).copied(),
        };
        let share = node.map(|node| self.states[key].held_by(node)).unwrap_or_default();
        let wanted = match count {
            Count::Step(n) => share.holds.saturating_add(n),
            Count::Exactly(n) => n,
        };
        wanted > self.states[key].limit
    }
}

/// Keys.
impl<'a, K: Keys> Reduction<'a, '_, K> {
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
    fn standing(&self, key: KeyId, after: Option<Place>) -> impl Iterator<Item = Standing<'a>> {
        let (queues, Question { new, is_queued, .. }) = (self.queues, self.question);
        let is_behind = move |place: &Place| after.is_none_or(|after| *place > after);
        let queue = self.states[key].queue.map(|(_, queue)| queue);
        let queued = queue.into_iter().flat_map(move |queue| queue.present_from(after.unwrap_or(Place::FIRST)));
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

    /// Whether no request in this queue ahead of the place waits elsewhere, and no holder waits: served one after the
    /// other, each releases what it was granted.
    fn is_open(&self, key: KeyId, place: Place) -> bool {
        let (state, Question { new, is_queued, .. }) = (&self.states[key], self.question);
        let is_new_ahead = is_queued && new.place < place && self.new_keys.contains(&key);
        let is_only = |id: &QueueId| self.only_one_of_new.is_some_and(|queued| queued.stands_in(*id));
        let is_open = |(id, queue): &(QueueId, &WaitQueue)| queue.elsewhere == 0 && !is_only(id);
        state.holders.is_empty() && !is_new_ahead && state.queue.as_ref().is_none_or(is_open)
    }

    fn is_only_one_of_new(&self, queued: &QueuedRequest) -> bool {
        self.only_one_of_new.is_some_and(|only| only.place == queued.place)
    }

    /// The owner waits on the key with this request, which has a node of its own if it is one of several.
    fn wait(&mut self, owner: NodeId, node: NodeId, request: &Standing<'a>, key: KeyId, share: Share) {
        let place = request.place;
        if self.states[key].permits.is_none() && self.is_open(key, place) {
            return;
        }
        if request.claim.family() == Family::Semaphore {
            return self.wait_for_permits(node, place, key);
        }
        self.list_blockers(key);
        match request.claim.is_read() {
            true => _ = self.wait_for_place(node, place, key, Chain::Writers),
            // A reader that wants to write does not block itself.
            false if share != Share::default() => self.wait_for_each(owner, node, place, key),
            false => {
                _ = self.wait_for_place(node, place, key, Chain::All);
                if let Some(behind) = self.wait_for_place(node, place, key, Chain::Passable) {
                    let passing = self.passing.entry(place);
                    passing.or_insert(Passing { node, owner, behind: Vec::new() }).behind.push((key, behind));
                }
            }
        }
    }

    /// Lists the holders and requests that block others. Requests of owners that wait for nothing else are left out.
    fn list_blockers(&mut self, key: KeyId) {
        if self.states[key].blockers.is_some() {
            return;
        }
        let holders = self.states[key].holders.iter();
        let holder = |(node, share): &(NodeId, Share)| {
            let (place, who, is_read) = (None, Who::Node(*node), share.holds == 0);
            Blocker { place, who, is_read, is_passable: false }
        };
        let mut blockers: Vec<_> = holders.map(holder).collect();
        for ahead in self.standing(key, None).collect::<Vec<_>>() {
            let is_listed =
                |queued: &QueuedRequest| queued.may_wait_elsewhere || queued.claim.family() == Family::ReadWrite;
            if ahead.queued.is_none_or(|(_, queued)| is_listed(queued) || self.is_only_one_of_new(queued)) {
                blockers.extend(self.blocker(&ahead));
            }
        }
        self.states[key].blockers = Some(blockers);
    }

    fn blocker(&mut self, ahead: &Standing<'a>) -> Option<Blocker> {
        let who = match ahead.queued {
            None => Who::Node(NEW),
            Some((_, queued)) if Some(queued.owner_id) == self.nodes.new_id => Who::Node(NEW),
            Some((_, queued)) => Who::Owner(queued.owner_id),
        };
        if let Some((id, _)) = ahead.queued.filter(|(_, queued)| queued.has_several_keys()) {
            let is_told = self.is_told.get(&id).copied().unwrap_or_else(|| {
                let keys = self.keys_of(ahead);
                self.is_told(ahead, &keys)
            });
            self.is_told.insert(id, is_told);
            if is_told {
                return None;
            }
        }
        let is_passable = ahead.queued.map_or(self.new_keys.len() > 1, |(_, queued)| queued.has_several_keys());
        Some(Blocker { place: Some(ahead.place), who, is_read: ahead.claim.is_read(), is_passable })
    }

    /// The node waits for all blockers of this chain ahead of the place. Returns the node of that place.
    fn wait_for_place(&mut self, node: NodeId, place: Place, key: KeyId, chain: Chain) -> Option<NodeId> {
        let blockers = self.states[key].blockers.as_deref().unwrap_or_default();
        let ahead = blockers.partition_point(|blocker| blocker.place.is_none_or(|ahead| ahead < place));
        let up_to = ahead.checked_sub(1).and_then(|last| self.place(key, last, chain))?;
        self.nodes.waits_for(node, up_to, key);
        Some(up_to)
    }

    /// The node of all blockers of this chain up to this one, unless they are free.
    fn place(&mut self, key: KeyId, last: usize, chain: Chain) -> Option<NodeId> {
        let KeyState { blockers, places, .. } = &mut self.states[key];
        let places = &mut places[chain as usize];
        for index in places.len()..=last {
            let blocker = blockers.as_ref().and_then(|blockers| blockers.get(index))?;
            let before = index.checked_sub(1).and_then(|before| places[before]);
            let before = before.filter(|before| !self.nodes.is_free(*before));
            let owner = Some(blocker).filter(|blocker| chain.has(blocker)).map(|blocker| blocker.who);
            let place = match owner.and_then(|who| self.nodes.find(who)) {
                None => before,
                Some(owner) => {
                    let place = self.nodes.add(StandsFor::Place, 0);
                    self.nodes.waits_for(place, owner, key);
                    before.into_iter().for_each(|before| self.nodes.waits_for(place, before, key));
                    Some(place)
                }
            };
            places.push(place);
        }
        places[last].filter(|place| !self.nodes.is_free(*place))
    }

    /// The node waits for each blocker ahead of the place, except its own owner.
    fn wait_for_each(&mut self, owner: NodeId, node: NodeId, place: Place, key: KeyId) {
        let blockers = self.states[key].blockers.clone().unwrap_or_default();
        for blocker in blockers.iter().filter(|blocker| blocker.place.is_none_or(|ahead| ahead < place)) {
            if let Some(other) = self.nodes.find(blocker.who).filter(|other| *other != owner) {
                self.nodes.waits_for(node, other, key);
            }
        }
    }

    /// If nothing else makes progress: the first request that waits only for requests for several keys ahead of it,
    /// none of them served before, passes them.
    fn let_one_pass(&mut self) -> bool {
        let passes = |(place, passing): &(&Place, &Passing)| {
            let behind = || passing.behind.iter().filter(|(_, place)| !self.nodes.is_free(*place));
            let needs = self.nodes.all[passing.node].needs;
            needs > 0 && needs == behind().count() && behind().all(|(key, _)| self.unserved(*key, **place).is_some())
        };
        let Some((place, passing)) = self.passing.iter().find(passes) else { return false };
        let (node, owner) = (passing.node, passing.owner);
        let passed = passing
            .behind
            .iter()
            .flat_map(|(key, _)| self.unserved(*key, *place).into_iter().flatten().map(move |request| (request, *key)));
        let passed: Vec<_> = passed.collect();
        self.nodes.all[node].needs = 0;
        self.nodes.freed.push(node);
        self.spread();
        // They wait for it as long as its owner waits elsewhere.
        for (request, key) in passed {
            if !self.nodes.is_free(owner) && !self.nodes.is_free(request) {
                self.nodes.waits_for(request, owner, key);
            }
        }
        true
    }

    /// The unserved requests for several keys ahead of this place; `None` if one of them was served while its owner
    /// waits elsewhere.
    fn unserved(&self, key: KeyId, place: Place) -> Option<Vec<NodeId>> {
        let blockers = self.states[key].blockers.iter().flatten().filter(|blocker| blocker.is_passable);
        let ahead = blockers.map_while(|blocker| blocker.place.filter(|ahead| *ahead < place));
        let mut unserved = Vec::new();
        for request in ahead.filter_map(|ahead| self.by_place.get(&ahead)) {
            let owner = match self.nodes.all[*request].stands_for {
                StandsFor::Request(owner) => owner,
                StandsFor::Owner(_) | StandsFor::Place => *request,
            };
            match (self.nodes.is_free(owner), self.nodes.is_free(*request)) {
                (true, _) => {}
                (false, true) => return None,
                (false, false) => unserved.push(*request),
            }
        }
        Some(unserved)
    }
}

/// Semaphores, and the consequences of an owner that becomes free.
impl<'a, K: Keys> Reduction<'a, '_, K> {
    fn wait_for_permits(&mut self, node: NodeId, place: Place, key: KeyId) {
        let KeyState { permits, holders, limit, .. } = &mut self.states[key];
        if permits.is_none() {
            let mut here = Permits { excess: -i64::from(*limit), ..Permits::default() };
            for (holder, share) in holders {
                if !self.nodes.is_free(*holder) {
                    here.excess += i64::from(share.holds);
                    here.taken.insert(*holder, *share);
                    self.nodes.all[*holder].semaphores.push(key);
                }
            }
            *permits = Some(here);
            self.serve(key);
        }
        let Some(permits) = &mut self.states[key].permits else { return };
        if permits.served < Some(place) {
            permits.waiting.insert(place, node);
            self.nodes.all[node].needs += 1;
        }
    }

    /// Serves requests of a semaphore, as far as LIMIT allows.
    fn serve(&mut self, key: KeyId) {
        loop {
            let Some(permits) = &mut self.states[key].permits else { return };
            if let Some((place, of_unknown)) = permits.next {
                if permits.excess > 0 {
                    return;
                }
                // Its owner waits for nothing else, so it releases them at once.
                permits.excess -= i64::from(of_unknown);
                (permits.served, permits.next) = (Some(place), None);
                if let Some(node) = permits.waiting.remove(&place) {
                    self.nodes.lessen(node);
                }
            }
            let served = permits.served;
            let Some(next) = self.standing(key, served).next() else { return };
            self.take_up(key, &next);
        }
    }

    /// Counts the permits that the next request asks for.
    fn take_up(&mut self, key: KeyId, next: &Standing<'a>) {
        let is_told = next.queued.is_some() && (self.states[key].is_another || self.never_fits(key, next));
        let known = match next.queued {
            _ if is_told => None,
            None => Some(NEW),
            Some((_, queued)) if Some(queued.owner_id) == self.nodes.new_id => Some(NEW),
            Some((_, queued)) if queued.may_wait_elsewhere => self.nodes.reach(queued.owner_id),
            Some((_, queued)) => self.nodes.by_owner.get(&queued.owner_id).copied(),
        };
        let is_unknown = next.queued.is_some_and(|(_, queued)| {
            !is_told && known.is_none() && !queued.may_wait_elsewhere && !self.question.free.contains(&queued.owner_id)
        });
        let of_unknown = if is_unknown { next.claim.count().number() } else { 0 };
        let Some(permits) = &mut self.states[key].permits else { return };
        permits.excess += i64::from(of_unknown);
        if let Some(node) = known.filter(|node| !self.nodes.is_free(*node)) {
            let taken = permits.taken.get(&node).copied();
            let share = taken.unwrap_or_default();
            let after = share.with(&next.claim);
            permits.excess += i64::from(after.holds - share.holds);
            permits.taken.insert(node, after);
            if taken.is_none() {
                self.nodes.all[node].semaphores.push(key);
            }
        }
        permits.next = Some((next.place, of_unknown));
    }

    /// Owners that became free release everything.
    fn spread(&mut self) {
        while let Some(node) = self.nodes.freed.pop() {
            for (dependent, _) in std::mem::take(&mut self.nodes.all[node].dependents) {
                self.nodes.lessen(dependent);
            }
            for key in std::mem::take(&mut self.nodes.all[node].semaphores) {
                if let Some(permits) = &mut self.states[key].permits {
                    permits.excess -= permits.taken.remove(&node).map_or(0, |share| i64::from(share.holds));
                }
                self.serve(key);
            }
        }
    }
}

/// The report of a deadlock.
impl<'k, K: Keys> Reduction<'_, 'k, K> {
    /// A cycle of stuck owners: the shortest one from the new owner back to it, if there is one.
    pub fn cycle(&self) -> Vec<Edge> {
        let mut waits: IdMap<NodeId, (NodeId, KeyId)> = IdMap::default();
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
        let mut seen = IdSet::default();
        let mut node = NEW;
        while seen.insert(node) {
            node = waits.get(&node).map_or(NEW, |(blocker, _)| *blocker);
        }
        self.edges(node, &waits)
    }

    /// The edges from a node over the nodes that it waits for back to it.
    fn edges(&self, from: NodeId, waits: &IdMap<NodeId, (NodeId, KeyId)>) -> Vec<Edge> {
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
                edges.push(self.states[*key].edge(owner));
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
