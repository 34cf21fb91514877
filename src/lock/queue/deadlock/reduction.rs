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

use super::nodes::{KeyId, NodeId, Question, StandsFor, NEW};
use super::wait_for_graph::{Standing, WaitForGraph};
use crate::host::Keys;
use crate::queue::request::{OwnerId, Place, QueueId};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Count, Family, Share};
use std::collections::{BTreeMap, BTreeSet};

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
        self.nodes.all[NEW].needs = 0;
        self.nodes.freed.push(NEW);
        self.spread();
        self.stuck(&[])
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
    pub fn gets_error(&self, request: &Standing<'_>, keys: &[KeyId]) -> bool {
        let gets_error = |key: &KeyId| {
            let state = &self.states[*key];
            state.is_another || request.queued.is_some() && self.never_fits(*key, request)
        };
        keys.iter().any(gets_error)
    }

    /// Whether the LIMIT of the new request is too small for this one, with what its owner holds already: it gets an
    /// error.
    pub fn never_fits(&self, key: KeyId, request: &Standing<'_>) -> bool {
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
    pub fn spread(&mut self) {
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
