//! Reduces a wait-for graph as the contract defines: an owner that waits for nothing releases all that it holds, which
//! serves other requests, and so on, until nothing changes. The remaining owners are stuck.
//!
//! An owner is free once all its requests are served, and holds nothing from then on. Its adopted requests need not be
//! served, because their waits are bounded. But they may be, and then their owner holds their keys until it is free.
//!
//! | a request                                 | is served                                                  |
//! | ----------------------------------------- | ---------------------------------------------------------- |
//! | covered by what its owner holds           | at once                                                    |
//! | for one key                               | once it is first there, and the other holders admit it     |
//! | for multiple keys                         | once that is true of all of them                           |
//! | first, but exceeding LIMIT together with  | never: it gets an error                                    |
//! | its owner's holds; not the new request    |                                                            |
//! | for a key that has another type now       | never: it gets an error                                    |

use super::wait_for_graph::{GraphRequest, KeyIndex, RequestIndex, WaitForGraph, WaitedFor, NEW};
use crate::host::Keys;
use crate::value::claim::{Claim, Share};

impl<K: Keys> WaitForGraph<'_, '_, K> {
    /// Serves all requests that can be served. Returns whether the new request may wait: it is served and, if it is
    /// ahead of others, so are all requests of its owner.
    pub fn reduce(&mut self) -> bool {
        let mut keys: Vec<_> = (0..self.keys.len()).collect();
        // A request that is covered by what its owner holds need not be the first.
        for request in 0..self.requests.len() {
            if self.is_next(request) {
                self.grant(request, &mut keys);
            }
        }
        while let Some(key) = keys.pop() {
            while let Some(request) = self.first(key) {
                if self.is_next(request) {
                    self.grant(request, &mut keys);
                } else if self.is_never_admitted(request, key) {
                    keys.extend(self.end(request));
                } else {
                    break;
                }
            }
        }
        let is_new = |request: &&GraphRequest| request.position == self.new.position && request.must_be_served();
        let is_served = self.requests.iter().filter(is_new).all(|request| request.is_served);
        is_served && (!self.is_ahead || self.is_free(NEW))
    }

    /// The first unserved request for a key.
    fn first(&self, key: KeyIndex) -> Option<RequestIndex> {
        self.keys[key].waiting.first_key_value().map(|(_, request)| *request)
    }

    /// Whether the request can be served now: every key that its owner does not hold admits it, and it is first there.
    fn is_next(&self, request: RequestIndex) -> bool {
        let asked = &self.requests[request];
        let shares = asked.keys.iter().map(|key| (*key, self.share(*key, asked.owner)));
        let mut uncovered = shares.filter(|(_, share)| !share.covers(&asked.claim));
        let is_next = |(key, share)| self.first(key) == Some(request) && self.keys[key].admits(share, &asked.claim);
        !asked.is_served && uncovered.all(is_next)
    }

    /// Whether the first request for a key gets an error. If it is the new one, that one is refused instead.
    fn is_never_admitted(&self, request: RequestIndex, key: KeyIndex) -> bool {
        let asked = &self.requests[request];
        let held = self.share(key, asked.owner).holds;
        asked.position != self.new.position && asked.claim.never_fits(held, self.keys[key].limit)
    }

    /// Gives the owner what the request asks for until all its requests are served, and serves the owner's requests
    /// that this covers. Adds the keys that have changed.
    fn grant(&mut self, request: RequestIndex, changed: &mut Vec<KeyIndex>) {
        let mut to_grant = vec![request];
        while let Some(request) = to_grant.pop() {
            if self.requests[request].is_served {
                continue;
            }
            let GraphRequest { owner, claim, .. } = self.requests[request];
            let is_last = self.owners[owner].unserved == usize::from(self.requests[request].must_be_served());
            if !is_last {
                for key in self.requests[request].keys.clone() {
                    let before = self.share(key, owner);
                    let share = before.with(&claim);
                    // The owner already held this, so its other requests have been served before.
                    if share == before {
                        continue;
                    }
                    self.give(key, owner, share);
                    let own = self.own.range((owner, key, 0)..(owner, key + 1, 0)).map(|(_, _, request)| *request);
                    to_grant.extend(own.filter(|other| *other != request && self.is_next(*other)));
                }
            }
            changed.extend(self.end(request));
        }
    }

    /// Removes a served request. Returns the keys that have changed.
    fn end(&mut self, request: RequestIndex) -> Vec<KeyIndex> {
        self.requests[request].is_served = true;
        let GraphRequest { owner, ref position, ref keys, .. } = self.requests[request];
        for key in keys {
            self.keys[*key].waiting.remove(position);
            self.own.remove(&(owner, *key, request));
        }
        let must_be_served = self.requests[request].must_be_served();
        let mut changed = if must_be_served { self.end_request(owner) } else { Vec::new() };
        changed.extend(&self.requests[request].keys);
        changed
    }
}

impl WaitedFor<'_> {
    /// Whether the other holders admit the claim of an owner with this share.
    pub fn admits(&self, share: Share, claim: &Claim) -> bool {
        let others = self.in_use - u64::from(share.holds);
        match claim {
            Claim::Permits { .. } | Claim::Slot { .. } => {
                others + u64::from(share.with(claim).holds) <= u64::from(self.limit)
            }
            claim if claim.is_read() => others == 0,
            _ => self.shares.len() == usize::from(share != Share::default()),
        }
    }
}
