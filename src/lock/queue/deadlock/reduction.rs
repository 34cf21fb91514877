//! Reduces a wait-for graph, as the contract says: an owner that waits for nothing releases all that it holds, which
//! serves other requests, and so on, until nothing changes. The owners that are left are stuck.
//!
//! An owner is free once all its requests are served, and holds nothing from then on.
//!
//! | a request                                | is served                                                  |
//! | ---------------------------------------- | ---------------------------------------------------------- |
//! | covered by what its owner holds          | at once                                                    |
//! | for one key                              | once it is first there, and the other holders admit it     |
//! | for several keys                         | once that is true of all of them                           |
//! | behind requests for several keys only    | as if these were not there, if nothing else can be served  |
//! | for a key that has become something else | never: it gets an error                                    |
//!
//! A request for several keys is passed because it blocks no other for ever: an owner that it waits for passes it (see
//! [`crate::queue::precedence`]). It blocks others only after it is served, while its owner waits elsewhere.

use std::collections::BTreeSet;

use super::wait_for_graph::{KeyIndex, Question, Request, RequestIndex, WaitForGraph, WaitedFor, MOST_STEPS, NEW};
use crate::host::Keys;
use crate::queue::request::{OwnerId, Place, QueuedRequest};
use crate::value::claim::{Claim, Share};

impl<K: Keys> WaitForGraph<'_, '_, K> {
    /// Serves all requests that can be served. Returns whether the new owner is free then, or may be: the reduction
    /// was given up.
    pub fn reduce(&mut self) -> bool {
        let mut keys: Vec<_> = (0..self.keys.len()).collect();
        let covered: Vec<_> = (0..self.requests.len()).filter(|request| self.is_covered(*request)).collect();
        covered.into_iter().for_each(|request| self.grant(request, &mut keys));
        loop {
            while let Some(key) = keys.pop() {
                while let Some(request) = self.first(key).filter(|request| self.may_be_served(*request, |_, _| false)) {
                    self.grant(request, &mut keys);
                }
            }
            match self.next_to_pass() {
                Some(request) => self.grant(request, &mut keys),
                None => return self.is_free(NEW) || self.steps > MOST_STEPS,
            }
        }
    }

    /// The owners that are not free, in the graph or not.
    pub fn stuck(&mut self) -> BTreeSet<OwnerId> {
        let unserved = self.owners.iter().filter(|owner| owner.unserved > 0);
        let mut stuck: BTreeSet<_> = unserved.filter_map(|owner| owner.id).collect();
        for key in 0..self.keys.len() {
            let WaitedFor { queue, reached, .. } = self.keys[key];
            let first = self.keys[key].waiting.first_key_value().map_or(reached, |(place, _)| *place);
            self.serve_others(key, first);
            let from = self.keys[key].passed;
            let behind = queue.into_iter().flat_map(|(_, queue)| queue.range(from..from.max(reached)));
            let owners = behind.filter_map(|(_, id)| Some(self.queues.request(id)?.owner_id));
            stuck.extend(owners.filter(|id| !self.has(*id)));
        }
        stuck
    }

    /// The first request for a key that is not served.
    fn first(&self, key: KeyIndex) -> Option<RequestIndex> {
        self.keys[key].waiting.first_key_value().map(|(_, request)| *request)
    }

    fn is_covered(&self, request: RequestIndex) -> bool {
        let Request { owner, claim, keys, is_served, .. } = &self.requests[request];
        !is_served && keys.iter().all(|key| self.share(*key, *owner).covers(claim))
    }

    /// Whether all of its keys admit the request, and it passes all requests ahead of it.
    fn may_be_served(&mut self, request: RequestIndex, passes: impl Fn(&Request, &Request) -> bool) -> bool {
        let Request { owner, claim, place, .. } = self.requests[request];
        (0..self.requests[request].keys.len()).all(|index| {
            let asked = &self.requests[request];
            let key = asked.keys[index];
            let share = self.share(key, owner);
            let mut ahead = self.keys[key].waiting.range(..place);
            share.covers(&claim)
                || ahead.all(|(_, ahead)| passes(asked, &self.requests[*ahead]))
                    && self.serve_others(key, place)
                    && self.keys[key].admits(share, &claim)
        })
    }

    /// If nothing else can be served: the first request that passes requests for several keys. Those of holders come
    /// before others, as in a hand-off.
    fn next_to_pass(&mut self) -> Option<RequestIndex> {
        if !self.requests.iter().any(|request| request.keys.len() > 1) || self.steps > MOST_STEPS {
            return None;
        }
        let unserved = self.requests.iter().enumerate().filter(|(_, request)| !request.is_served);
        let rank = |request: &Request| (self.owners[request.owner].holds.is_empty(), request.place);
        let mut unserved: Vec<_> = unserved.map(|(index, request)| (rank(request), index)).collect();
        unserved.sort_unstable();
        self.steps += unserved.len();
        let passes = |asked: &Request, ahead: &Request| ahead.keys.len() > 1 && ahead.owner != asked.owner;
        unserved.into_iter().map(|(_, request)| request).find(|request| self.may_be_served(*request, passes))
    }

    /// Serves the requests up to a place whose owners are not in the graph: each releases the key at once. Returns
    /// whether all could be served.
    fn serve_others(&mut self, key: KeyIndex, to: Place) -> bool {
        let Question { new, free, .. } = self.question;
        let state = &self.keys[key];
        if state.passed >= to {
            return true;
        }
        let is_other = |queued: &QueuedRequest| {
            let is_simple = !queued.may_wait_elsewhere && !queued.has_several_keys();
            is_simple && queued.place != new.place && !free.contains(&queued.owner_id) && !self.has(queued.owner_id)
        };
        let blocks = |queued: &QueuedRequest| {
            let fits = queued.claim.limit().is_none() || queued.claim.count().number() <= state.limit;
            fits && !state.admits(Share::default(), &queued.claim) && is_other(queued)
        };
        let mut visited = 0;
        // Without holders, each of them is served.
        let queue = state.queue.filter(|_| !state.shares.is_empty());
        let mut ahead = queue.into_iter().flat_map(|(_, queue)| queue.range(state.passed..to));
        let blocked = ahead.find(|(_, id)| {
            visited += 1;
            self.queues.request(*id).is_some_and(blocks)
        });
        self.steps += visited;
        self.keys[key].passed = blocked.map_or(to, |(place, _)| place);
        blocked.is_none()
    }

    /// The owner holds what the request asks for, and what this covers, until all its requests are served. Adds the
    /// keys that have changed.
    fn grant(&mut self, request: RequestIndex, changed: &mut Vec<KeyIndex>) {
        let mut to_grant = vec![request];
        while let Some(request) = to_grant.pop().filter(|request| !self.requests[*request].is_served) {
            let Request { owner, claim, .. } = self.requests[request];
            if self.owners[owner].unserved > 1 {
                for key in self.requests[request].keys.clone() {
                    let share = self.share(key, owner).with(&claim);
                    self.give(key, owner, share);
                    let own = self.own.range((owner, key, 0)..(owner, key + 1, 0)).map(|(_, _, request)| *request);
                    to_grant.extend(own.filter(|other| *other != request && self.is_covered(*other)));
                }
            }
            changed.extend(self.end(request));
        }
    }

    /// The request waits no more. Returns the keys that have changed.
    fn end(&mut self, request: RequestIndex) -> Vec<KeyIndex> {
        let Request { owner, place, .. } = self.requests[request];
        self.requests[request].is_served = true;
        for key in &self.requests[request].keys {
            self.keys[*key].waiting.remove(&place);
            self.own.remove(&(owner, *key, request));
        }
        let mut changed = self.end_request(owner);
        changed.extend(&self.requests[request].keys);
        changed
    }
}

impl WaitedFor<'_> {
    /// Whether the other holders admit the claim of an owner with this share.
    fn admits(&self, share: Share, claim: &Claim) -> bool {
        let others = self.out - u64::from(share.holds);
        match claim {
            Claim::Permits { .. } | Claim::Slot { .. } => {
                others + u64::from(share.with(claim).holds) <= u64::from(self.limit)
            }
            claim if claim.is_read() => others == 0,
            _ => self.shares.len() == usize::from(share != Share::default()),
        }
    }
}
