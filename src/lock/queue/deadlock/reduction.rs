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
//! | first, for more than LIMIT with what its | never: it gets an error                                    |
//! | owner holds, but not the new request     |                                                            |
//! | for a key that has become something else | never: it gets an error                                    |
//!
//! A request for several keys is passed because it blocks no other for ever: an owner that it waits for passes it (see
//! [`crate::queue::precedence`]). It blocks others only after it is served, while its owner waits elsewhere.

use std::collections::BTreeSet;

use super::wait_for_graph::{KeyIndex, Request, RequestIndex, WaitForGraph, WaitedFor, MOST_STEPS, NEW};
use crate::host::Keys;
use crate::queue::request::OwnerId;
use crate::value::claim::{Claim, Share};

impl<K: Keys> WaitForGraph<'_, '_, K> {
    /// Serves all requests that can be served. Returns whether the new owner is free then, or may be: the reduction
    /// was given up.
    pub fn reduce(&mut self) -> bool {
        let mut keys: Vec<_> = (0..self.keys.len()).collect();
        // A request that is covered by what its owner holds need not be the first.
        for request in 0..self.requests.len() {
            if self.is_next(request) {
                self.grant(request, &mut keys);
            }
        }
        loop {
            while let Some(key) = keys.pop() {
                while let Some(request) = self.first(key) {
                    match () {
                        () if self.is_next(request) => self.grant(request, &mut keys),
                        () if self.blocks_for_ever(request, key) => keys.extend(self.end(request)),
                        () => break,
                    }
                }
            }
            match self.next_to_pass() {
                Some(request) => self.grant(request, &mut keys),
                None => return self.is_free(NEW) || self.steps > MOST_STEPS,
            }
        }
    }

    /// The owners that are not free.
    pub fn stuck(&self) -> BTreeSet<OwnerId> {
        let stuck = self.owners.iter().filter(|owner| owner.unserved > 0);
        stuck.filter_map(|owner| owner.id).collect()
    }

    /// The first request for a key that is not served.
    fn first(&self, key: KeyIndex) -> Option<RequestIndex> {
        self.keys[key].waiting.first_key_value().map(|(_, request)| *request)
    }

    /// Whether the request can be served now.
    fn is_next(&self, request: RequestIndex) -> bool {
        !self.requests[request].is_served && self.may_be_served(request, |_, _| false)
    }

    /// Whether the first request for a key gets an error. The new request is refused in place of it.
    fn blocks_for_ever(&self, request: RequestIndex, key: KeyIndex) -> bool {
        let asked = &self.requests[request];
        let held = self.share(key, asked.owner).holds;
        asked.place != self.question.new.place && asked.claim.never_fits(held, self.keys[key].limit)
    }

    /// Whether all of its keys admit the request, and it passes all requests ahead of it.
    fn may_be_served(&self, request: RequestIndex, passes: impl Fn(&Request, &Request) -> bool) -> bool {
        let asked = &self.requests[request];
        let shares = || asked.keys.iter().map(|key| (&self.keys[*key], self.share(*key, asked.owner)));
        let mut uncovered = shares().filter(|(_, share)| !share.covers(&asked.claim));
        let is_first = |key: &WaitedFor<'_>| {
            let mut ahead = key.waiting.range(..asked.place);
            ahead.all(|(_, ahead)| passes(asked, &self.requests[*ahead]))
        };
        uncovered.clone().all(|(key, share)| key.admits(share, &asked.claim)) && uncovered.all(|(key, _)| is_first(key))
    }

    /// The next request that passes requests for several keys, if no other can be served. Requests of holders pass
    /// first, as in a hand-off.
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

    /// The owner holds what the request asks for, and what this covers, until all its requests are served. Adds the
    /// keys that have changed.
    fn grant(&mut self, request: RequestIndex, changed: &mut Vec<KeyIndex>) {
        let mut to_grant = vec![request];
        while let Some(request) = to_grant.pop() {
            if self.requests[request].is_served {
                continue;
            }
            let Request { owner, claim, .. } = self.requests[request];
            if self.owners[owner].unserved > 1 {
                for key in self.requests[request].keys.clone() {
                    let share = self.share(key, owner).with(&claim);
                    self.give(key, owner, share);
                    let own = self.own.range((owner, key, 0)..(owner, key + 1, 0)).map(|(_, _, request)| *request);
                    to_grant.extend(own.filter(|other| *other != request && self.is_next(*other)));
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
