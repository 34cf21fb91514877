//! What a request to write or read, or for a mutex, waits for: holders, and the requests ahead of it.

use super::nodes::{BlockingOwner, KeyId, NodeId, StandsFor, NEW};
use super::wait_for_graph::{Blocker, KeyState, Passing, Standing, WaitForGraph};
use crate::host::Keys;
use crate::queue::request::{Place, QueuedRequest};
use crate::value::claim::{Family, Share};

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
    /// The node waits for the holders that exclude the request, and for such requests ahead of it.
    pub fn wait_for_blockers(&mut self, owner: NodeId, node: NodeId, request: &Standing<'a>, key: KeyId, share: Share) {
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
            Some((_, queued)) if Some(queued.owner_id) == self.nodes.new_id => BlockingOwner::Node(NEW),
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
    pub fn let_one_pass(&mut self) -> bool {
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
