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
//! [`crate::queue::precedence`]). It blocks others only after it has been served, while its owner waits elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::wait_for_graph::{
    Blocker, BlockingOwner, KeyId, KeyState, NodeId, Passing, Permits, Question, Standing, StandsFor, WaitForGraph, NEW,
};
use crate::host::Keys;
use crate::key::RequestId;
use crate::queue::request::{OwnerId, Place, QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Count, Family, Share};

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

impl<'a, K: Keys> WaitForGraph<'a, '_, K> {
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
    pub fn stuck_without_new(&mut self) -> BTreeSet<OwnerId> {
        let reached = self.reached();
        self.nodes.all[NEW].needs = 0;
        self.nodes.freed.push(NEW);
        self.spread();
        self.stuck(&reached)
    }

    /// The stuck owners among these and all that they wait for.
    pub fn stuck(&mut self, owners: &[OwnerId]) -> BTreeSet<OwnerId> {
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

    fn explore(&mut self, node: NodeId) {
        let (queues, question) = (self.queues, self.question);
        let Question { new, is_queued, .. } = question;
        let id = self.nodes.owner_of(node);
        let is_new = node == NEW && is_queued;
        let mut requests = Vec::new();
        let mut add = |(id, queued): (RequestId, &'a QueuedRequest)| {
            if queued.place != new.place {
                requests.push(Standing { place: queued.place, claim: queued.claim, queued: Some((id, queued)) });
            }
        };
        match id {
            None => {}
            Some(id) if is_new && !question.blocks_others => {
                let here = self.new_keys.iter().filter_map(|key| self.states[*key].queue);
                here.flat_map(|(queue, _)| queues.waiting_in(queue, id)).for_each(&mut add);
            }
            Some(id) => queues.waiting(id).for_each(&mut add),
        }
        if is_new {
            requests.push(Standing { place: new.place, claim: new.request.claim, queued: None });
        }
        requests.sort_unstable_by_key(|request| request.place);
        let has_several = requests.len() > 1;
        // What the owner will hold once its requests are served.
        let mut will_hold: BTreeMap<KeyId, (Share, NodeId)> = BTreeMap::default();
        for request in &requests {
            let keys = self.keys_of(request);
            if self.gets_error(request, &keys) {
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
                self.nodes.reduce_needs(waiter);
            }
        }
        self.nodes.reduce_needs(node);
    }

    /// Whether the request is going to get an error, as it can never be served.
    fn gets_error(&self, request: &Standing<'_>, keys: &[KeyId]) -> bool {
        let gets_error = |key: &KeyId| {
            let state = &self.states[*key];
            state.is_another || request.queued.is_some() && self.never_fits(*key, request)
        };
        keys.iter().any(gets_error)
    }

    /// Whether the LIMIT of the new request, if it is another one, is too small for this request with what its owner
    /// holds already: it gets an error.
    fn never_fits(&self, key: KeyId, request: &Standing<'_>) -> bool {
        let Some((_, queued)) = request.queued.filter(|_| request.claim.family() == Family::Semaphore) else {
            return false;
        };
        let (count, state) = (request.claim.count(), &self.states[key]);
        let is_new_limit = state.queue.is_some_and(|(_, queue)| queue.limit != Some(state.limit));
        if !is_new_limit || !self.question.is_queued || !self.new_keys.contains(&key) {
            return count.number() > state.limit;
        }
        let node = self.nodes.by_owner.get(&queued.owner_id);
        let share = node.map(|node| state.held_by(*node)).unwrap_or_default();
        let wanted = match count {
            Count::Step(n) => share.holds.saturating_add(n),
            Count::Exactly(n) => n,
        };
        wanted > state.limit
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

    /// The owner waits on the key with this request, which has a node of its own if it is one of several.
    fn wait(&mut self, owner: NodeId, node: NodeId, request: &Standing<'a>, key: KeyId, share: Share) {
        let place = request.place;
        if self.states[key].permits.is_none() && self.is_open(key, place) {
            return;
        }
        match request.claim.family() {
            Family::Semaphore => self.wait_for_permits(node, place, key),
            _ => self.wait_for_blockers(owner, node, request, key, share),
        }
    }

    /// Owners that became free release everything.
    fn spread(&mut self) {
        while let Some(node) = self.nodes.freed.pop() {
            for (dependent, _) in std::mem::take(&mut self.nodes.all[node].dependents) {
                self.nodes.reduce_needs(dependent);
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

/// What a request to write or read, or for a mutex, waits for: holders, and the requests ahead of it.
impl<'a, K: Keys> WaitForGraph<'a, '_, K> {
    /// The node waits for the holders that exclude the request, and for such requests ahead of it.
    fn wait_for_blockers(&mut self, owner: NodeId, node: NodeId, request: &Standing<'a>, key: KeyId, share: Share) {
        let place = request.place;
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
            let (place, owner, is_read) = (None, BlockingOwner::Node(*node), share.holds == 0);
            Blocker { place, owner, is_read, is_passable: false }
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
        let owner = match ahead.queued {
            None => BlockingOwner::Node(NEW),
            Some((_, queued)) => BlockingOwner::Owner(queued.owner_id),
        };
        if let Some((id, _)) = ahead.queued.filter(|(_, queued)| queued.has_several_keys()) {
            let gets_error = self.gets_error.get(&id).copied().unwrap_or_else(|| {
                let keys = self.keys_of(ahead);
                self.gets_error(ahead, &keys)
            });
            self.gets_error.insert(id, gets_error);
            if gets_error {
                return None;
            }
        }
        let is_passable = ahead.queued.map_or(self.new_keys.len() > 1, |(_, queued)| queued.has_several_keys());
        Some(Blocker { place: Some(ahead.place), owner, is_read: ahead.claim.is_read(), is_passable })
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
            let owner = Some(blocker).filter(|blocker| chain.has(blocker)).map(|blocker| blocker.owner);
            let place = match owner.and_then(|owner| self.nodes.find(owner)) {
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
            if let Some(other) = self.nodes.find(blocker.owner).filter(|other| *other != owner) {
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

    fn is_only_one_of_new(&self, queued: &QueuedRequest) -> bool {
        self.only_one_of_new.is_some_and(|only| only.place == queued.place)
    }
}

/// How far a semaphore is served, as long as its permits are within LIMIT.
impl<'a, K: Keys> WaitForGraph<'a, '_, K> {
    /// The node waits until the request at this place of a semaphore is served.
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
                    self.nodes.reduce_needs(node);
                }
            }
            let served = permits.served;
            let Some(next) = self.standing(key, served).next() else { return };
            self.take_up(key, &next);
        }
    }

    /// Counts the permits that the next request asks for.
    fn take_up(&mut self, key: KeyId, next: &Standing<'a>) {
        let gets_error = next.queued.is_some() && (self.states[key].is_another || self.never_fits(key, next));
        let known = match next.queued {
            _ if gets_error => None,
            None => Some(NEW),
            Some((_, queued)) if queued.may_wait_elsewhere => self.nodes.reach(queued.owner_id),
            Some((_, queued)) => self.nodes.by_owner.get(&queued.owner_id).copied(),
        };
        let is_unknown = next.queued.is_some_and(|(_, queued)| {
            !gets_error
                && known.is_none()
                && !queued.may_wait_elsewhere
                && !self.question.free.contains(&queued.owner_id)
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
}
