//! The wait-for graph of a new request: the owners that it waits for, directly or through others, with their requests
//! and the keys that these wait for. Each key is opened once.
//!
//! The graph contains each waiting holder of its keys. It omits an owner whose only request is for a mutex, ahead of
//! another request: once that request is served, the owner waits for nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::host::Keys;
use crate::key::{KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::holders::{HolderLookup, StoredValue};
use crate::queue::position::QueuePosition;
use crate::queue::queues::WaitQueues;
use crate::queue::request::{NewRequest, OwnerId, QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, Share};

/// The graph stops growing after this many steps, which take 1 to 2 ms (Redis 7.0.15, AMD EPYC). By then it contains
/// the nearest owners. All others count as free, so a deadlock of thousands of owners is not found. Visiting a holder
/// or a queued request is one step.
pub(super) const MAX_STEPS: usize = 13_000;

/// Opening a key takes as long as this many visits.
const STEPS_OF_A_KEY: usize = 8;

/// Adding an owner, or a request for one key, takes as long as this many visits.
const STEPS_OF_A_NODE: usize = 3;

pub(super) struct WaitForGraph<'a, 'k, K> {
    pub queues: &'a WaitQueues,
    holders: &'a mut HolderLookup<'k, K>,
    /// The request that is about to be queued.
    pub new: &'a NewRequest<'a>,
    /// Requests wait behind the new one, which may then block other requests of its owner. Otherwise these are added
    /// only if they block others: with 10,000 of them, each further request would take some milliseconds.
    pub is_ahead: bool,
    doubled: Doubled,
    /// Whether an adopted request was omitted.
    pub lacks_doubled: bool,
    pub owners: Vec<Waiter>,
    by_owner: BTreeMap<OwnerId, OwnerIndex>,
    pub keys: Vec<WaitedFor<'a>>,
    by_queue: BTreeMap<QueueId, KeyIndex>,
    pub requests: Vec<GraphRequest>,
    /// The unserved requests, by owner and key.
    pub own: BTreeSet<(OwnerIndex, KeyIndex, RequestIndex)>,
    to_explore: VecDeque<OwnerIndex>,
    /// Requests of the new owner that block others.
    own_ahead: Vec<(RequestId, &'a QueuedRequest)>,
    pub steps: usize,
}

pub(super) type OwnerIndex = usize;
pub(super) type KeyIndex = usize;
pub(super) type RequestIndex = usize;

/// The owner of the new request.
pub(super) const NEW: OwnerIndex = 0;

/// An owner that waits.
pub(super) struct Waiter {
    /// `None` for a new owner that neither waits nor holds a waited-for key.
    pub id: Option<OwnerId>,
    /// How many of its requests must still be served, plus one until it is explored. An owner with none is free.
    pub unserved: usize,
    /// The keys in which it has a share.
    pub holds: Vec<KeyIndex>,
}

/// A key that is waited for.
pub(super) struct WaitedFor<'a> {
    pub name: &'a [u8],
    pub queue: Option<(QueueId, &'a WaitQueue)>,
    /// The key has another lock type or value type, so its requests get an error.
    is_another: bool,
    pub limit: u32,
    /// The holders that are not free.
    pub shares: BTreeMap<OwnerIndex, Share>,
    /// Their exclusive holds or permits, summed up.
    pub in_use: u64,
    /// The unserved requests.
    pub waiting: BTreeMap<QueuePosition, RequestIndex>,
    /// The owners of the requests ahead of this position have been added.
    reached: QueuePosition,
}

/// What happens to the adopted requests of owners that also have a native request for the same key. The grant of such a
/// request covers the native one, so either outcome can be the worse one. For any other adopted request being served is
/// worse: its owner then holds the key, and nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubled {
    /// They time out.
    TimeOut,
    /// Each is served in order.
    AreServed,
}

/// A request of an owner in the graph.
pub(super) struct GraphRequest {
    pub owner: OwnerIndex,
    pub claim: Claim,
    pub position: QueuePosition,
    pub keys: OneOrMany<KeyIndex>,
    pub is_served: bool,
}

impl GraphRequest {
    /// Whether its owner is stuck until it is served.
    pub fn must_be_served(&self) -> bool {
        self.claim != Claim::AdoptedMutex
    }
}

impl<'a, 'k, K: Keys> WaitForGraph<'a, 'k, K> {
    /// Builds the graph around the new request.
    pub fn new(
        queues: &'a WaitQueues,
        holders: &'a mut HolderLookup<'k, K>,
        new: &'a NewRequest<'a>,
        is_ahead: bool,
        doubled: Doubled,
    ) -> WaitForGraph<'a, 'k, K> {
        let id = queues.owner_id(new.db, new.owner());
        let mut graph = WaitForGraph {
            queues,
            holders,
            new,
            is_ahead,
            doubled,
            lacks_doubled: false,
            owners: vec![Waiter { id, unserved: 1, holds: Vec::new() }],
            by_owner: id.into_iter().map(|id| (id, NEW)).collect(),
            keys: Vec::new(),
            by_queue: BTreeMap::new(),
            requests: Vec::new(),
            own: BTreeSet::new(),
            to_explore: VecDeque::from([NEW]),
            own_ahead: Vec::new(),
            steps: 0,
        };
        while let Some(owner) = graph.to_explore.pop_front() {
            if graph.steps < MAX_STEPS {
                graph.explore(owner);
            }
            while let Some((id, queued)) = graph.own_ahead.pop() {
                graph.add_queued(NEW, id, queued);
            }
            graph.end_request(owner);
        }
        graph
    }

    /// The owner, unless it is free. Adds it to the graph.
    fn reach(&mut self, id: OwnerId) -> Option<OwnerIndex> {
        if let Some(owner) = self.by_owner.get(&id) {
            return Some(*owner).filter(|owner| !self.is_free(*owner));
        }
        let owner = self.owners.len();
        self.owners.push(Waiter { id: Some(id), unserved: 1, holds: Vec::new() });
        self.by_owner.insert(id, owner);
        self.to_explore.push_back(owner);
        Some(owner)
    }

    /// Adds the requests of an owner.
    fn explore(&mut self, owner: OwnerIndex) {
        let queues = self.queues;
        if owner == NEW {
            self.add_new();
        }
        if let Some(id) = self.owners[owner].id.filter(|_| owner != NEW || self.is_ahead) {
            let waiting = |is_adopted| {
                let all = queues.of_owner(Some(id)).waiting();
                all.filter(move |(_, queued)| (queued.claim == Claim::AdoptedMutex) == is_adopted)
            };
            for (id, queued) in waiting(false) {
                self.add_queued(owner, id, queued);
            }
            // An owner without a request that must be served is free, whatever it is granted.
            if self.owners[owner].unserved > 1 {
                for (id, queued) in waiting(true) {
                    self.add_queued(owner, id, queued);
                }
            }
        }
    }

    fn add_new(&mut self) {
        let (queues, new) = (self.queues, self.new);
        let (claim, position) = (new.request.claim, new.position.clone());
        let queue_of = |name: &&'a [u8]| queues.id_of(new.key(name)).and_then(|id| Some((id, queues.get(id)?)));
        let adopted = self.owners[NEW].id.filter(|_| claim == Claim::AdoptedMutex);
        let queue = new.names.first().and_then(queue_of);
        if adopted.zip(queue).is_some_and(|(owner, (queue, _))| self.leaves_out(owner, queue)) {
            return;
        }
        let keys: OneOrMany<_> = new.names.iter().map(|name| self.open(name, queue_of(name), claim)).collect();
        self.add(GraphRequest { owner: NEW, claim, position, keys, is_served: false });
    }

    fn add_queued(&mut self, owner: OwnerIndex, id: RequestId, queued: &'a QueuedRequest) {
        if self.new.replaces == Some(id) || self.steps > MAX_STEPS {
            return;
        }
        if queued.claim == Claim::AdoptedMutex && self.leaves_out(queued.owner_id, queued.listed_under) {
            return;
        }
        let (claim, position) = (queued.claim, queued.position.clone());
        let queues = queued.queues.iter().filter_map(|id| Some((*id, self.queues.get(*id)?)));
        let keys: OneOrMany<_> =
            queues.map(|(id, queue)| self.open(&queue.key.name, Some((id, queue)), claim)).collect();
        let is_added = keys.iter().any(|key| self.keys[*key].waiting.contains_key(&position));
        if !is_added && !keys.iter().any(|key| self.exceeds_limit(*key, owner, &claim)) {
            self.add(GraphRequest { owner, claim, position, keys, is_served: false });
        }
    }

    /// Whether the graph omits an adopted request of this owner in this queue.
    fn leaves_out(&mut self, owner: OwnerId, queue: QueueId) -> bool {
        if self.doubled == Doubled::AreServed {
            return false;
        }
        let (queues, new, steps) = (self.queues, self.new, &mut self.steps);
        let mut own = queues.of_owner(Some(owner)).all_waiting_in(queue).inspect(|_| *steps += 1);
        let is_native = |claim: &Claim| *claim != Claim::AdoptedMutex;
        let is_new = is_native(&new.request.claim) && self.owners[NEW].id == Some(owner);
        let is_doubled = is_new && new.names.iter().any(|name| queues.id_of(new.key(name)) == Some(queue))
            || own.any(|(id, queued)| is_native(&queued.claim) && new.replaces != Some(id));
        self.lacks_doubled |= is_doubled;
        is_doubled
    }

    fn add(&mut self, request: GraphRequest) {
        if request.keys.iter().any(|key| self.keys[*key].is_another) {
            return;
        }
        self.steps += STEPS_OF_A_NODE * request.keys.len();
        self.owners[request.owner].unserved += usize::from(request.must_be_served());
        let index = self.requests.len();
        for key in &request.keys {
            self.keys[*key].waiting.insert(request.position.clone(), index);
            self.own.insert((request.owner, *key, index));
            self.reach_ahead(*key, &request.position);
        }
        self.requests.push(request);
    }

    /// Opens a key when it is reached for the first time.
    fn open(&mut self, name: &'a [u8], queue: Option<(QueueId, &'a WaitQueue)>, claim: Claim) -> KeyIndex {
        if let Some(known) = queue.and_then(|(id, _)| self.by_queue.get(&id)) {
            return *known;
        }
        let (queues, lock_type, new) = (self.queues, claim.lock_type(), self.new);
        let (mut holds, mut steps) = (Vec::new(), self.steps + STEPS_OF_A_KEY);
        let most = self.most_steps_here();
        let under = self.holders.visit(KeyRef { db: new.db, name }, |hold| {
            if steps > most {
                return;
            }
            steps += 1;
            let is_new = hold.owner.as_bytes() == new.owner();
            let id =
                queues.of_owner(queues.owner_id(new.db, hold.owner.as_bytes())).with_requests().filter(|_| !is_new);
            if is_new || id.is_some() {
                steps += STEPS_OF_A_NODE;
                holds.push((id, hold.share()));
            }
        });
        self.steps = steps;
        let key = self.keys.len();
        self.by_queue.extend(queue.map(|(id, _)| (id, key)));
        let brought = new.request.claim.limit().filter(|_| new.names.contains(&name));
        let limit = brought.or(queue.and_then(|(_, queue)| queue.limit)).or(claim.limit());
        self.keys.push(WaitedFor {
            name,
            queue,
            is_another: !matches!(under, StoredValue::Lock(known) if known.is_none_or(|known| known == lock_type)),
            limit: limit.unwrap_or(0),
            shares: BTreeMap::new(),
            in_use: 0,
            waiting: BTreeMap::new(),
            reached: QueuePosition::FIRST,
        });
        if self.keys[key].is_another {
            holds.clear();
        }
        for (id, share) in holds {
            if let Some(owner) = id.map_or(Some(NEW), |id| self.reach(id)).filter(|owner| !self.is_free(*owner)) {
                self.give(key, owner, share);
            }
        }
        key
    }

    /// Adds the owners of the requests ahead that may also wait elsewhere. For a shared lock it adds all of them,
    /// because they may wait for more holders than the request does.
    fn reach_ahead(&mut self, key: KeyIndex, position: &QueuePosition) {
        let (queues, asked, new) = (self.queues, self.new, self.owners[NEW].id);
        if self.keys[key].reached >= *position {
            return;
        }
        let from = std::mem::replace(&mut self.keys[key].reached, position.clone());
        let Some((id, queue)) = self.keys[key].queue else { return };
        // With the new request, its owner waits elsewhere too.
        let is_ahead = asked.position < *position && self.keys[key].waiting.contains_key(&asked.position);
        let is_new_here = is_ahead || new.is_some_and(|new| queues.of_owner(Some(new)).waiting_in(id).next().is_some());
        let reaches_all = !queue.lock_type.is_exclusive();
        if queue.with_other_waits == 0 && !is_new_here && (!reaches_all || self.keys[key].shares.is_empty()) {
            return;
        }
        let most = self.most_steps_here();
        for (id, queued) in queue.range(&from..position).filter_map(|(_, id)| Some((id, queues.request(id)?))) {
            if self.steps > most {
                return;
            }
            self.steps += 1;
            if Some(queued.owner_id) == new {
                self.own_ahead.push((id, queued));
            } else if queued.may_have_other_waits || reaches_all {
                self.steps += STEPS_OF_A_NODE;
                self.reach(queued.owner_id);
            }
        }
    }

    /// One key may use half of the remaining steps. The rest is for the requests of the owners found there.
    fn most_steps_here(&self) -> usize {
        self.steps + MAX_STEPS.saturating_sub(self.steps) / 2
    }

    /// Whether the request gets an error because it exceeds LIMIT. If LIMIT is new, what its owner holds counts too.
    /// Otherwise that counts only at the head of the queue.
    fn exceeds_limit(&self, key: KeyIndex, owner: OwnerIndex, claim: &Claim) -> bool {
        let WaitedFor { queue, limit, .. } = &self.keys[key];
        let is_new_limit = queue.is_some_and(|(_, queue)| queue.limit != Some(*limit));
        let held = if is_new_limit { self.share(key, owner).holds } else { 0 };
        claim.never_fits(held, *limit)
    }

    /// Gives the owner this share of the key.
    pub fn give(&mut self, key: KeyIndex, owner: OwnerIndex, share: Share) {
        let WaitedFor { shares, in_use, .. } = &mut self.keys[key];
        let before = shares.insert(owner, share);
        *in_use += u64::from(share.holds) - before.map_or(0, |before| u64::from(before.holds));
        if before.is_none() {
            self.owners[owner].holds.push(key);
        }
    }

    pub fn share(&self, key: KeyIndex, owner: OwnerIndex) -> Share {
        self.keys[key].shares.get(&owner).copied().unwrap_or_default()
    }

    /// Counts one request of the owner as served. With the last one the owner becomes free and releases everything;
    /// returns these keys.
    pub fn end_request(&mut self, owner: OwnerIndex) -> Vec<KeyIndex> {
        self.owners[owner].unserved -= 1;
        if !self.is_free(owner) {
            return Vec::new();
        }
        let released = std::mem::take(&mut self.owners[owner].holds);
        for key in &released {
            let WaitedFor { shares, in_use, .. } = &mut self.keys[*key];
            *in_use -= shares.remove(&owner).map_or(0, |share| u64::from(share.holds));
        }
        released
    }

    pub fn is_free(&self, owner: OwnerIndex) -> bool {
        self.owners[owner].unserved == 0
    }
}
