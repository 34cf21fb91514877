//! Finds the deadlock that a request would close: a cycle of owners that wait for each other, over any mix of families.
//!
//! The wait-for graph has owners as nodes. A request waits for the holders that it conflicts with and for the waiters
//! ahead of it. One blocker that never moves is enough to block it, except at a semaphore, where any holder's permits
//! may do: there it is blocked for ever only if all of its holders are.

use std::collections::{HashMap, HashSet};

pub use super::graph::Edge;
use super::graph::{Graph, Node, Who};
use super::precedence::goes_first;
use super::queues::WaitQueues;
use super::request::{Place, QueueId, QueuedRequest};
use crate::host::{Content, Entry, Keys};
use crate::key::{Key, KeyRef, RequestId};
use crate::value::claim::{Claim, Count, LockRequest};
use crate::value::outcome::{Admission, Blockers};
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Now};

/// A request that is about to queue.
pub struct NewRequest<'a> {
    /// The database of its keys.
    pub db: i32,
    /// Its keys.
    pub names: &'a [&'a [u8]],
    /// Who wants what.
    pub request: LockRequest<'a>,
    /// Where it would stand.
    pub place: Place,
}

impl<'a> NewRequest<'a> {
    fn key(&self, name: &'a [u8]) -> KeyRef<'a> {
        KeyRef { db: self.db, name }
    }
}

/// Whether the request may close a cycle, as far as can be told without an open key: false is certain, and the rule.
pub fn may_close_cycle(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let takes_more_permits = matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. });
    takes_more_permits
        || stands_ahead_of_others(queues, new)
        || queues.may_be_waited_for(new.db, new.request.owner.as_bytes(), |_| true)
}

/// The cycle that the request would close, beginning with its own owner; `None`: it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, keys: &mut K, now: &Now, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    if waits_for_itself(keys, new) {
        return Some(vec![Edge { owner: new.request.owner.to_owner(), key: new.names[0].into() }]);
    }
    let owner = new.request.owner.as_bytes();
    let may_be_waited_for = stands_ahead_of_others(queues, new)
        || queues.may_be_waited_for(new.db, owner, |key| keys.is_held_by(key.as_ref(), owner));
    if !may_be_waited_for {
        return None;
    }
    let (upto, passing) = (HashMap::new(), HashMap::new());
    let mut search = Search { queues, keys, now, new, graph: Graph::default(), upto, passing };
    search.explore();
    search.graph.cycle()
}

/// A request that comes back to its place makes those behind it wait for it again.
fn stands_ahead_of_others(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    new.names.iter().filter_map(|name| queues.of_key(new.key(name))).any(|queue| queue.is_anybody_behind(new.place))
}

/// More permits than are left when its own are counted: nobody else can end that.
fn waits_for_itself<K: Keys>(keys: &mut K, new: &NewRequest<'_>) -> bool {
    let Claim::Permits { limit, count: Count::Step(permits) } = new.request.claim else { return false };
    new.names.iter().any(|name| match keys.open(KeyRef { db: new.db, name }).content() {
        Content::Lock(lock) => lock
            .hold(new.request.owner.as_bytes(), Deadline::Never)
            .is_some_and(|hold| hold.holds.saturating_add(permits) > limit),
        _ => false,
    })
}

/// Builds the wait-for graph, as far as it can be reached from the new request.
struct Search<'a, K> {
    queues: &'a WaitQueues,
    keys: &'a mut K,
    now: &'a Now,
    new: &'a NewRequest<'a>,
    graph: Graph,
    /// For each request in a queue the node of all who stand there, up to and including it.
    upto: HashMap<(QueueId, Place), Node>,
    /// By queue the owners that may pass somebody there: the holders of what requests for several keys wait for.
    passing: HashMap<QueueId, HashSet<Owner>>,
}

impl<K: Keys> Search<'_, K> {
    fn explore(&mut self) {
        let new = self.new;
        self.graph.owner(&new.request.owner.to_owner());
        for name in new.names {
            self.add_request(&Key::new(new.db, name), &new.request, new.place);
        }
        let mut next = 0;
        while next < self.graph.nodes.len() {
            if let Who::Owner(owner) = self.graph.nodes[next].clone() {
                self.add_requests_of(&owner);
            }
            next += 1;
        }
    }

    fn add_requests_of(&mut self, owner: &Owner) {
        for id in self.queues.requests_of(self.new.db, owner.as_bytes()) {
            // The new request takes the place over of the one that it is a retry of.
            let is_meant = |request: &&QueuedRequest| request.is_present() && request.place != self.new.place;
            let queued = self.queues.request(id).filter(is_meant);
            for queue in queued.iter().flat_map(|queued| &queued.queues).filter_map(|id| self.queues.get(*id)) {
                let Some(queued) = queued else { continue };
                let request = LockRequest { claim: queue.under_limit(queued.claim), ..queued.request() };
                self.add_request(&queue.key, &request, queued.place);
            }
        }
    }

    /// Adds what the request waits for on one of its keys.
    fn add_request(&mut self, key: &Key, request: &LockRequest<'_>, place: Place) {
        let owner = request.owner.as_bytes();
        let waiter = self.graph.owner(&request.owner.to_owner());
        if let Content::Lock(lock) = self.keys.open(key.as_ref()).content() {
            if lock.admission(owner, &request.claim) == Ok(Admission::AlreadyHeld) {
                // It waits for its other keys.
                return;
            }
            match lock.blockers(owner, &request.claim, self.now.timestamp()) {
                Blockers::Each(holders) => {
                    for holder in holders {
                        let holder = self.graph.owner(holder);
                        self.graph.add_edge(waiter, &key.name, &[holder]);
                    }
                }
                Blockers::Together(holders) => {
                    let holders: Vec<_> = holders.into_iter().map(|holder| self.graph.owner(holder)).collect();
                    self.graph.add_edge(waiter, &key.name, &holders);
                }
            }
        }
        if let Some(queue) = self.queues.id_of(key.as_ref()) {
            self.add_those_ahead(queue, key, waiter, request, place);
        }
    }

    /// Adds the waiters ahead that have to be served first. Mostly that is everyone up to the nearest, which is one
    /// node of the queue. Who passes some, or stands there twice, is in need of one edge for each.
    fn add_those_ahead(&mut self, queue: QueueId, key: &Key, waiter: Node, request: &LockRequest<'_>, place: Place) {
        let owner = request.owner.as_bytes();
        let has_exceptions = self.may_pass_somebody(queue, owner, place) || self.stands_ahead(queue, owner, place);
        let mut before = place;
        while let Some((ahead, who)) = self.next_ahead(queue, before) {
            before = ahead;
            // Readers do not wait for each other.
            if request.claim.is_read() && who.claim.is_read() || who.owner.as_bytes() == owner {
                continue;
            }
            if !has_exceptions {
                let all = self.node_up_to(queue, key, ahead);
                return self.graph.add_edge(waiter, &key.name, &[all]);
            }
            let is_passed = who.wants_several && self.waits_for_owner(&who, owner);
            if !is_passed {
                let ahead = self.graph.owner(&who.owner);
                self.graph.add_edge(waiter, &key.name, &[ahead]);
            }
        }
    }

    /// The node of all who stand in the queue, up to and including this place: it is stuck when one of them is.
    fn node_up_to(&mut self, queue: QueueId, key: &Key, place: Place) -> Node {
        let mut next = Some(place);
        let mut behind: Option<Node> = None;
        let mut nearest = None;
        while let Some(place) = next {
            let known = self.upto.get(&(queue, place)).copied();
            let node = known.unwrap_or_else(|| self.graph.add_node(Who::UpTo));
            nearest.get_or_insert(node);
            if let Some(behind) = behind {
                self.graph.add_edge(behind, &key.name, &[node]);
            }
            if known.is_some() {
                break;
            }
            self.upto.insert((queue, place), node);
            let here = match self.at(queue, place) {
                Some(who) => self.graph.owner(&who.owner),
                None => break,
            };
            self.graph.add_edge(node, &key.name, &[here]);
            behind = Some(node);
            next = self.next_ahead(queue, place).map(|(ahead, _)| ahead);
        }
        nearest.expect("it begins with a place")
    }

    /// The nearest request ahead of a place; the new one as if it stood there already.
    fn next_ahead(&self, queue: QueueId, place: Place) -> Option<(Place, Waiter)> {
        let ahead = self.queues.get(queue)?.ahead_of(place).next();
        let ahead = ahead.and_then(|id| Some((self.queues.request(id)?.place, id)));
        let new = self.new_place_in(queue).filter(|new| *new < place);
        match (ahead, new) {
            (Some((ahead, id)), new) if new.is_none_or(|new| new <= ahead) => Some((ahead, self.queued(id)?)),
            (_, new) => new.map(|new| (new, self.new_waiter())),
        }
    }

    fn at(&self, queue: QueueId, place: Place) -> Option<Waiter> {
        let id = self.queues.get(queue)?.at(place);
        match id {
            Some(id) => self.queued(id),
            None => Some(self.new_waiter()),
        }
    }

    fn new_place_in(&self, queue: QueueId) -> Option<Place> {
        let key = &self.queues.get(queue)?.key;
        (key.db == self.new.db && self.new.names.contains(&&*key.name)).then_some(self.new.place)
    }

    fn queued(&self, id: RequestId) -> Option<Waiter> {
        let queued = self.queues.request(id)?;
        let wants_several = queued.has_several_keys();
        Some(Waiter { id: Some(id), owner: queued.owner.clone(), claim: queued.claim, wants_several })
    }

    fn new_waiter(&self) -> Waiter {
        let LockRequest { owner, claim, .. } = self.new.request;
        Waiter { id: None, owner: owner.to_owner(), claim, wants_several: self.new.names.len() > 1 }
    }

    /// Whether the owner has a request here that stands ahead of this place.
    fn stands_ahead(&self, queue: QueueId, owner: &[u8], place: Place) -> bool {
        let is_new = self.new.request.owner.as_bytes() == owner;
        let new_is_ahead = is_new && self.new_place_in(queue).is_some_and(|new| new < place);
        let mut own = self.queues.requests_of(self.new.db, owner).filter_map(|id| self.queues.request(id));
        new_is_ahead || own.any(|own| own.is_present() && own.stands_in(queue) && own.place < place)
    }

    /// Whether a request for several keys waits for this owner: it holds one of them, or will hold it before.
    fn waits_for_owner(&mut self, several: &Waiter, owner: &[u8]) -> bool {
        let (queues, place) = match several.id.and_then(|id| self.queues.request(id)) {
            Some(queued) => (queued.queues.clone(), queued.place),
            None => {
                (self.new.names.iter().filter_map(|n| self.queues.id_of(self.new.key(n))).collect(), self.new.place)
            }
        };
        if queues.iter().any(|queue| self.stands_ahead(*queue, owner, place)) {
            return true;
        }
        match several.id.and_then(|id| self.queues.request(id)) {
            Some(queued) => !goes_first(self.queues, self.keys, queued, owner),
            None => self.new.names.iter().any(|name| self.keys.is_held_by(self.new.key(name), owner)),
        }
    }

    /// Whether the owner may pass somebody in the queue, where it stands at this place: false is certain.
    fn may_pass_somebody(&mut self, queue: QueueId, owner: &[u8], place: Place) -> bool {
        let new_is_here = self.new.names.len() > 1 && self.new_place_in(queue).is_some();
        let Some(waiting) = self.queues.get(queue) else { return false };
        if !waiting.has_requests_for_several() && !new_is_here {
            return false;
        }
        let mut own = self.queues.requests_of(self.new.db, owner).filter_map(|id| self.queues.request(id));
        let is_new = self.new.request.owner.as_bytes() == owner && self.new.place != place;
        if is_new || own.any(|own| own.is_present() && own.place != place) {
            return true;
        }
        if !self.passing.contains_key(&queue) {
            let several = waiting.present().filter_map(|(_, id)| self.queues.request(id));
            let wanted = several.filter(|request| request.has_several_keys()).flat_map(|r| self.queues.keys_of(r));
            let mut wanted: Vec<Key> = wanted.cloned().collect();
            if new_is_here {
                wanted.extend(self.new.names.iter().map(|name| self.new.key(name).to_key()));
            }
            let mut holders = HashSet::new();
            for key in wanted {
                if let Content::Lock(lock) = self.keys.open(key.as_ref()).content() {
                    holders.extend(lock.exclusive_owner().cloned());
                }
            }
            self.passing.insert(queue, holders);
        }
        self.passing[&queue].contains(owner)
    }
}

/// Who stands at a place in a queue.
struct Waiter {
    /// `None`: it is the new request.
    id: Option<RequestId>,
    owner: Owner,
    claim: Claim,
    wants_several: bool,
}

#[cfg(test)]
mod tests;
