//! Reduces a wait-for graph: an owner that waits for nothing gives back all that it holds, which serves others, and so
//! on, until nothing changes. The owners that are left are stuck.
//!
//! An owner is free once all of its requests are served. The graph has a node for each owner, and for each place of a
//! queue up to which all owners have to be free; it grows from the new request, and only as far as it has to: an owner
//! without requests has no node. A semaphore counts: it is served in the order of its queue, as long as what the owners
//! hold that are not free, with what the requests up to there ask for, is within LIMIT.
//!
//! | wait on a key                                 | served when these owners are free                                |
//! | --------------------------------------------- | ---------------------------------------------------------------- |
//! | that the owner holds, or will by a request    | (it is served with that request)                                 |
//! | for a mutex, to write                         | the holders; all requests ahead that it may not pass             |
//! | to read                                       | the writers among them                                           |
//! | for permits                                   | as many as it takes; the requests ahead are served               |
//! | that has become something else                | (the request is told so)                                         |

use std::collections::BTreeMap;

use super::edge::Edge;
use super::new_request::NewRequest;
use super::precedence::{Passing, Several};
use super::queues::WaitQueues;
use super::request::{OwnerId, Place, QueueId, QueuedRequest};
use super::wait_queue::WaitQueue;
use crate::host::{Content, Entry, Keys};
use crate::id_map::{IdMap, IdSet};
use crate::key::{KeyRef, RequestId};
use crate::value::claim::{Claim, Count, Family, Share};
use crate::value::owner::Owner;
use crate::value::time::Timestamp;

/// What is imagined.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The request that asks whether it may queue.
    pub new: &'a NewRequest<'a>,
    /// Whether it is queued.
    pub is_queued: bool,
    /// These owners count as free.
    pub free: &'a IdSet<OwnerId>,
}

/// The number of a node.
type NodeId = usize;

/// The number of a key.
type KeyId = usize;

/// The owner of the new request.
const NEW: NodeId = 0;

#[derive(Debug)]
struct Node {
    /// An owner's number, unless it has none yet, or the node is for a place.
    owner: Option<OwnerId>,
    is_owner: bool,
    /// So many other nodes, and semaphores, have to do something first. An owner that is not explored waits for that.
    needs: usize,
    /// Those that wait for this one, and on which key.
    dependents: Vec<(NodeId, KeyId)>,
    /// The semaphores to which it gives something back.
    semaphores: Vec<KeyId>,
}

/// Something in the way of a request: a holder, or a request ahead of it.
#[derive(Clone, Copy, Debug)]
struct Blocker {
    /// Where the request stands; a holder is ahead of all.
    place: Option<Place>,
    who: Who,
    is_read: bool,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Node(NodeId),
    /// Without a node as yet.
    Owner(OwnerId),
}

/// A key, as it was when it was reached.
struct KeyState<'a> {
    name: &'a [u8],
    queue: Option<(QueueId, &'a WaitQueue)>,
    /// Its requests are going to be told that they can never have it.
    is_another: bool,
    /// The holders that wait for something, by their nodes.
    holders: Vec<(NodeId, Share)>,
    limit: u32,
    /// Holders and requests in their order, but such as are in nobody's way who is not in the way of another here.
    blockers: Option<Vec<Blocker>>,
    /// The nodes of their places: all up to there are free. `None`: they were from the beginning.
    places: Vec<Option<NodeId>>,
    /// The same of the writers among them, which are all that a reader waits for.
    places_of_writers: Vec<Option<NodeId>>,
    permits: Option<Permits>,
}

/// How far a semaphore is served.
#[derive(Debug, Default)]
struct Permits {
    /// What owners hold that are not free, and what is asked for up to `next`, beyond LIMIT.
    excess: i64,
    /// The same by owner.
    taken: IdMap<NodeId, u32>,
    served: Option<Place>,
    /// The request that is served next: what it asks for, unless its owner has a node.
    next: Option<(Place, u32)>,
    /// Nodes whose requests wait here.
    waiting: BTreeMap<Place, NodeId>,
}

/// One wait queue entry, queued or new.
#[derive(Clone, Copy)]
struct Standing<'a> {
    place: Place,
    claim: Claim,
    /// `None`: the new request.
    queued: Option<(RequestId, &'a QueuedRequest)>,
}

/// The reduction. Keys are opened once.
pub(super) struct Reduction<'a, K> {
    keys: &'a mut K,
    now: Timestamp,
    question: Question<'a>,
    queues: &'a WaitQueues,
    nodes: Nodes<'a>,
    states: Vec<KeyState<'a>>,
    by_queue: IdMap<QueueId, KeyId>,
    /// The keys of the new request, and their queues.
    new_keys: Vec<KeyId>,
    new_queues: &'a [QueueId],
    /// The one request that its owner has queued, which waits elsewhere by the new one.
    only_one_of_new: Option<&'a QueuedRequest>,
    /// Whether a request for several keys is going to be told that it can never have one of them.
    is_told: IdMap<RequestId, bool>,
}

/// The nodes, apart from the keys: those are open while holders are looked for.
struct Nodes<'a> {
    queues: &'a WaitQueues,
    question: Question<'a>,
    new_id: Option<OwnerId>,
    all: Vec<Node>,
    by_owner: IdMap<OwnerId, NodeId>,
    unexplored: Vec<NodeId>,
    /// Free, and nobody knows yet.
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
    fn add(&mut self, owner: Option<OwnerId>, is_owner: bool, needs: usize) -> NodeId {
        self.all.push(Node { owner, is_owner, needs, dependents: Vec::new(), semaphores: Vec::new() });
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
        let node = self.add(Some(id), true, 1);
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

    /// It needs one thing less.
    fn lessen(&mut self, node: NodeId) {
        let needs = &mut self.all[node].needs;
        *needs -= 1;
        if *needs == 0 {
            self.freed.push(node);
        }
    }
}

impl<'a, K: Keys> Reduction<'a, K> {
    /// `new_queues`: those of the new request.
    pub fn new(
        queues: &'a WaitQueues,
        keys: &'a mut K,
        now: Timestamp,
        question: Question<'a>,
        new_queues: &'a [QueueId],
    ) -> Reduction<'a, K> {
        let new = question.new;
        let new_id = queues.owner_id(new.db, new.owner());
        let (by_owner, unexplored, freed) = (IdMap::default(), vec![NEW], Vec::new());
        let mut nodes = Nodes { queues, question, new_id, all: Vec::new(), by_owner, unexplored, freed };
        nodes.add(new_id, true, 1);
        let (by_queue, is_told) = (IdMap::default(), IdMap::default());
        let (states, new_keys) = (Vec::new(), Vec::new());
        let mut queued = new_id.into_iter().flat_map(|id| queues.waiting(id)).map(|(_, queued)| queued);
        let only_one_of_new = queued.next().filter(|queued| question.is_queued && !queued.may_wait_elsewhere);
        let mut reduction = Reduction {
            keys,
            now,
            question,
            queues,
            nodes,
            states,
            by_queue,
            new_keys,
            new_queues,
            only_one_of_new,
            is_told,
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
        while !self.nodes.is_free(NEW) {
            let Some(node) = self.nodes.unexplored.pop() else { return false };
            self.explore(node);
            self.spread();
        }
        true
    }

    /// The owners that are stuck, of these and of all whom they wait for.
    pub fn stuck(&mut self, owners: &[OwnerId]) -> IdSet<OwnerId> {
        owners.iter().for_each(|id| _ = self.nodes.reach(*id));
        while let Some(node) = self.nodes.unexplored.pop() {
            self.explore(node);
            self.spread();
        }
        let stuck = self.nodes.all.iter().filter(|node| node.needs > 0);
        stuck.filter_map(|node| node.owner).collect()
    }

    /// All owners that are stuck, or may be: those that have a node, or stand in a queue that was reached.
    pub fn reached(&self) -> Vec<OwnerId> {
        let standing = (0..self.states.len()).flat_map(|key| self.standing(key, None));
        let standing = standing.filter_map(|standing| Some(standing.queued?.1.owner_id));
        self.nodes.all.iter().filter_map(|node| node.owner).chain(standing).collect()
    }

    fn explore(&mut self, node: NodeId) {
        let (queues, Question { new, is_queued, .. }) = (self.queues, self.question);
        let id = self.nodes.all[node].owner;
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
        // What it holds by its requests, once they are served.
        let mut will_hold: IdMap<KeyId, Share> = IdMap::default();
        let mut passing = None;
        for request in &requests {
            let keys = self.keys_of(request);
            if self.is_told(request, &keys) {
                continue;
            }
            for key in &keys {
                let held = will_hold.get(key).copied();
                let share = held.unwrap_or_else(|| self.states[*key].held_by(node));
                if !share.covers(&request.claim) {
                    self.wait(node, request, *key, share, &mut passing);
                }
                if has_several {
                    will_hold.insert(*key, share.with(&request.claim));
                }
            }
            if has_several {
                let passing: &mut Passing<'a> = passing.get_or_insert_with(|| self.passing_of(node));
                passing.serve(self.several(request));
            }
        }
        self.nodes.lessen(node);
    }

    fn passing_of(&self, node: NodeId) -> Passing<'a> {
        let Question { new, is_queued, .. } = self.question;
        let name = self.nodes.all[node].owner.and_then(|id| self.queues.owner(id));
        let name = if node == NEW { new.owner() } else { name.map_or(&[][..], Owner::as_bytes) };
        let also = if node != NEW && is_queued && new.names.len() > 1 { self.new_queues } else { &[] };
        Passing::with(self.queues, new.db, name, also)
    }

    fn several(&self, request: &Standing<'a>) -> Several<'a> {
        let new = Several { owner: self.nodes.new_id, place: request.place, queues: self.new_queues };
        request.queued.map_or(new, |(_, queued)| Several::of(queued))
    }

    fn keys_of(&mut self, request: &Standing<'a>) -> Vec<KeyId> {
        let queues = self.queues;
        let Some((_, queued)) = request.queued else { return self.new_keys.clone() };
        let standing = queued.queues.iter().filter_map(|id| Some((*id, queues.get(*id)?)));
        standing.map(|(id, queue)| self.open(&queue.key.name, Some((id, queue)), queued.claim)).collect()
    }

    /// Whether the request is going to be told that it can never be served.
    fn is_told(&self, request: &Standing<'_>, keys: &[KeyId]) -> bool {
        let is_told = |key: &KeyId| {
            let state = &self.states[*key];
            state.is_another || request.queued.is_some() && self.never_fits(*key, request)
        };
        keys.iter().any(is_told)
    }

    /// The LIMIT of the new request turns those out that ask for more, with what their owner holds already.
    fn never_fits(&self, key: KeyId, request: &Standing<'_>) -> bool {
        let (Claim::Permits { count, .. }, Some((_, queued))) = (request.claim, request.queued) else { return false };
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
impl<'a, K: Keys> Reduction<'a, K> {
    fn open(&mut self, name: &'a [u8], queue: Option<(QueueId, &'a WaitQueue)>, claim: Claim) -> KeyId {
        if let Some(known) = queue.and_then(|(id, _)| self.by_queue.get(&id)) {
            return *known;
        }
        let Question { new, is_queued, .. } = self.question;
        let (nodes, now, family) = (&mut self.nodes, self.now, claim.family());
        let mut holders = Vec::new();
        let mut entry = self.keys.open(KeyRef { db: new.db, name });
        let is_another = match entry.content() {
            Content::Free => false,
            Content::Foreign => true,
            Content::Lock(lock) if lock.family() != Some(family) => true,
            Content::Lock(lock) => {
                for hold in lock.live_holds(now) {
                    let share = Share { holds: hold.holds, reads: hold.reads };
                    holders.extend(nodes.reach_named(hold.owner).map(|node| (node, share)));
                }
                false
            }
        };
        drop(entry);
        holders.sort_unstable_by_key(|(node, _)| *node);
        let of_queue = queue.and_then(|(_, queue)| queue.limit).or(claim.limit());
        let brought = new.request.claim.limit().filter(|_| is_queued && new.names.contains(&name));
        let limit = brought.or(of_queue).unwrap_or(0);
        let key = self.states.len();
        self.by_queue.extend(queue.map(|(id, _)| (id, key)));
        let (blockers, places, places_of_writers, permits) = (None, Vec::new(), Vec::new(), None);
        self.states.push(KeyState {
            name,
            queue,
            is_another,
            holders,
            limit,
            blockers,
            places,
            places_of_writers,
            permits,
        });
        key
    }

    /// The requests that stand in the queue of a key from a place on; the new one among them.
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

    /// No request that stands in this queue ahead of the place waits elsewhere, and no holder waits: served one after
    /// the other, they give back what they get.
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

    /// The owner waits on the key, by this request.
    fn wait(
        &mut self,
        node: NodeId,
        request: &Standing<'a>,
        key: KeyId,
        share: Share,
        passing: &mut Option<Passing<'a>>,
    ) {
        let place = request.place;
        if self.states[key].permits.is_none() && self.is_open(key, place) {
            return;
        }
        match request.claim.family() {
            Family::Semaphore => self.wait_for_permits(node, place, key),
            Family::ReadWrite => {
                self.list_blockers(key, |_| true);
                let is_read = request.claim.is_read();
                // A reader that wants to write is not in its own way.
                match share == Share::default() {
                    true => self.wait_for_place(node, place, key, is_read),
                    false => self.wait_for_each(node, key, |blocker| blocker.place.is_none_or(|ahead| ahead < place)),
                }
            }
            Family::Mutex | Family::Reentrant => {
                let queue = self.states[key].queue.map(|(_, queue)| queue);
                if queue.is_some_and(WaitQueue::has_requests_for_several) || self.new_queues.len() > 1 {
                    let passing = passing.get_or_insert_with(|| self.passing_of(node));
                    if !passing.is_idle() {
                        return self.wait_for_those_not_passed(node, place, key, passing);
                    }
                }
                self.list_blockers(key, |queued| queued.may_wait_elsewhere);
                self.wait_for_place(node, place, key, false);
            }
        }
    }

    /// Holders and requests in the way of others. The requests of owners that do nothing else here are left out.
    fn list_blockers(&mut self, key: KeyId, is_listed: impl Fn(&QueuedRequest) -> bool) {
        if self.states[key].blockers.is_some() {
            return;
        }
        let holders = self.states[key].holders.iter();
        let holder =
            |(node, share): &(NodeId, Share)| Blocker { place: None, who: Who::Node(*node), is_read: share.holds == 0 };
        let mut blockers: Vec<_> = holders.map(holder).collect();
        for ahead in self.standing(key, None).collect::<Vec<_>>() {
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
        Some(Blocker { place: Some(ahead.place), who, is_read: ahead.claim.is_read() })
    }

    /// It waits for all who are listed ahead of the place, a reader for the writers among them.
    fn wait_for_place(&mut self, node: NodeId, place: Place, key: KeyId, is_read: bool) {
        let blockers = self.states[key].blockers.as_deref().unwrap_or_default();
        let ahead = blockers.partition_point(|blocker| blocker.place.is_none_or(|ahead| ahead < place));
        if let Some(up_to) = ahead.checked_sub(1).and_then(|last| self.place(key, last, is_read)) {
            self.nodes.waits_for(node, up_to, key);
        }
    }

    /// The node of all who are listed up to this one, or of the writers among them, unless they are free.
    fn place(&mut self, key: KeyId, last: usize, writers: bool) -> Option<NodeId> {
        let KeyState { blockers, places, places_of_writers, .. } = &mut self.states[key];
        let places = if writers { places_of_writers } else { places };
        for index in places.len()..=last {
            let blocker = blockers.as_ref().and_then(|blockers| blockers.get(index))?;
            let before = index.checked_sub(1).and_then(|before| places[before]);
            let before = before.filter(|before| !self.nodes.is_free(*before));
            let owner = Some(blocker.who).filter(|_| !writers || !blocker.is_read);
            let place = match owner.and_then(|who| self.nodes.find(who)) {
                None => before,
                Some(owner) => {
                    let place = self.nodes.add(None, false, 0);
                    self.nodes.waits_for(place, owner, key);
                    before.into_iter().for_each(|before| self.nodes.waits_for(place, before, key));
                    Some(place)
                }
            };
            places.push(place);
        }
        places[last].filter(|place| !self.nodes.is_free(*place))
    }

    /// It waits for each of these but itself.
    fn wait_for_each(&mut self, node: NodeId, key: KeyId, is_waited_for: impl Fn(&Blocker) -> bool) {
        let blockers = self.states[key].blockers.clone().unwrap_or_default();
        for blocker in blockers.iter().filter(|blocker| is_waited_for(blocker)) {
            if let Some(other) = self.nodes.find(blocker.who).filter(|other| *other != node) {
                self.nodes.waits_for(node, other, key);
            }
        }
    }

    /// Behind a request that it passes may stand one that it has to wait for, and that waits for nothing else.
    fn wait_for_those_not_passed(&mut self, node: NodeId, place: Place, key: KeyId, passing: &mut Passing<'a>) {
        let mut ahead: Vec<_> = self.states[key].holders.iter().map(|(holder, _)| *holder).collect();
        for other in self.standing(key, None).take_while(|other| other.place < place).collect::<Vec<_>>() {
            if !passing.passes(self.keys, &self.several(&other)) {
                let blocker = self.blocker(&other);
                ahead.extend(blocker.and_then(|blocker| self.nodes.find(blocker.who)));
            }
        }
        ahead.retain(|other| *other != node && !self.nodes.is_free(*other));
        ahead.into_iter().for_each(|other| self.nodes.waits_for(node, other, key));
    }
}

/// Semaphores, and what follows where an owner becomes free.
impl<'a, K: Keys> Reduction<'a, K> {
    fn wait_for_permits(&mut self, node: NodeId, place: Place, key: KeyId) {
        let KeyState { permits, holders, limit, .. } = &mut self.states[key];
        if permits.is_none() {
            let mut here = Permits { excess: -i64::from(*limit), ..Permits::default() };
            for (holder, share) in holders {
                if !self.nodes.is_free(*holder) {
                    here.excess += i64::from(share.holds);
                    here.taken.insert(*holder, share.holds);
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

    /// Serves requests of a semaphore, as far as it goes.
    fn serve(&mut self, key: KeyId) {
        loop {
            let Some(permits) = &mut self.states[key].permits else { return };
            if let Some((place, of_unknown)) = permits.next {
                if permits.excess > 0 {
                    return;
                }
                // Its owner had nothing else to wait for.
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

    /// Counts what the next request asks for.
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
            let share = Share { holds: taken.unwrap_or(0), reads: 0 };
            let after = share.with(&next.claim).holds;
            permits.excess += i64::from(after - share.holds);
            permits.taken.insert(node, after);
            if taken.is_none() {
                self.nodes.all[node].semaphores.push(key);
            }
        }
        permits.next = Some((next.place, of_unknown));
    }

    /// Whoever is free gives everything back.
    fn spread(&mut self) {
        while let Some(node) = self.nodes.freed.pop() {
            for (dependent, _) in std::mem::take(&mut self.nodes.all[node].dependents) {
                self.nodes.lessen(dependent);
            }
            for key in std::mem::take(&mut self.nodes.all[node].semaphores) {
                if let Some(permits) = &mut self.states[key].permits {
                    permits.excess -= permits.taken.remove(&node).map_or(0, i64::from);
                }
                self.serve(key);
            }
        }
    }
}

/// What is told of a deadlock.
impl<K: Keys> Reduction<'_, K> {
    /// A cycle of owners that are stuck: the shortest one from the new owner back to it, if it is on one.
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
        // Only by more permits than are left beside its own; or its LIMIT makes others stuck, and these it.
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

    /// From a node over those that it waits for back to it.
    fn edges(&self, from: NodeId, waits: &IdMap<NodeId, (NodeId, KeyId)>) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut node = from;
        while let Some((blocker, key)) = waits.get(&node) {
            if self.nodes.all[node].is_owner {
                let known = self.nodes.all[node].owner.and_then(|id| self.queues.owner(id));
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

    /// Those that are stuck behind this node, and on which key.
    fn waiting_for(&self, node: NodeId) -> impl Iterator<Item = (NodeId, KeyId)> + '_ {
        let Node { dependents, semaphores, .. } = &self.nodes.all[node];
        let by_permits = semaphores.iter().flat_map(move |key| {
            let permits = self.states[*key].permits.as_ref();
            permits.into_iter().flat_map(|permits| permits.waiting.values()).map(move |waiter| (*waiter, *key))
        });
        let all = dependents.iter().copied().chain(by_permits);
        all.filter(|(waiter, _)| !self.nodes.is_free(*waiter))
    }
}
