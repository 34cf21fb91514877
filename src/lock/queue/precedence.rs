//! Which requests a request must not overtake: the rule of hand-offs.
//!
//! First come, first served, per key. A reader does not overtake a writer that waits, though the lock would admit it:
//! readers that come again and again would starve the writer. One exception keeps requests for several keys from
//! blocking each other for ever: if such a request waits for an owner, that owner passes it.
//!
//! | the requests ahead in the queue        | an owner passes them           |
//! | -------------------------------------- | ------------------------------ |
//! | one is for this key only               | no                             |
//! | one belongs to the same owner          | no                             |
//! | all others are for several keys        | if the first one waits for it  |
//!
//! A request waits for the holders of its keys, for the owners of the requests ahead of it, and for every owner that
//! these owners wait for. So each request in a queue waits for all that the first one waits for, and checking the first
//! is enough. An owner that passes delays none of them: they wait for it anyway.
//!
//! Two owners may be able to break the same cycle, each by passing another request. An owner passes first if it is
//! waited for as a holder ([`Reach::Holders`]); others pass only if nothing else makes progress.

use super::holders::Holders;
use super::queues::WaitQueues;
use super::request::{OwnerId, Place, QueueId, QueuedRequest};
use super::wait_queue::WaitQueue;
use crate::host::Keys;
use crate::key::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// One search visits at most this many holders and requests, which takes some milliseconds. An owner behind more of
/// them does not pass until fewer requests are ahead of it.
const MOST_STEPS: usize = 40_000;

/// Whether no request stands ahead of this place.
pub fn is_head(queues: &WaitQueues, id: QueueId, place: Place) -> bool {
    queues.get(id).and_then(WaitQueue::head).is_none_or(|(first, _)| first >= place)
}

/// How far the search follows a request to the owners that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To the holders of its keys, and of the keys of the requests ahead of it.
    Holders,
    /// Also to the owners of the requests ahead of it, and on to all that these owners wait for.
    Everything,
}

/// Whether a request of the owner at `place` is first: no request ahead of it in the queue must be served before.
pub fn is_first<K: Keys>(
    queues: &WaitQueues,
    holders: &mut Holders<'_, K>,
    reach: Reach,
    owner: &[u8],
    id: QueueId,
    place: Place,
) -> bool {
    let Some(queue) = queues.get(id) else { return true };
    let Some((_, head)) = queue.present().next().filter(|(first, _)| *first < place) else { return true };
    let is_passable = |ahead: &QueuedRequest| ahead.has_several_keys() && ahead.owner.as_bytes() != owner;
    let mut ahead = queue.present().take_while(|(other, _)| *other < place).filter_map(|(_, id)| queues.request(id));
    queue.has_requests_for_several()
        && queues.request(head).is_some_and(is_passable)
        && Search::new(queues, holders, reach, Some(owner)).run(head).is_found
        && ahead.all(is_passable)
}

/// The requests of this request's owner, of all owners that this request waits for, and of all owners that its owner
/// waits for: if a request for several keys ahead of one of them waits for its owner, it may pass that request now.
pub fn requests_waited_for<K: Keys>(
    queues: &WaitQueues,
    holders: &mut Holders<'_, K>,
    request: RequestId,
) -> Vec<(Place, RequestId)> {
    let mut search = Search::new(queues, holders, Reach::Everything, None);
    queues.request(request).into_iter().for_each(|queued| search.reach_owner(queued.owner_id));
    let queued = search.run(request).owners.into_iter().flat_map(|owner| queues.waiting(owner));
    queued.map(|(id, queued)| (queued.place, id)).collect()
}

/// Follows a request to the owners that it waits for. Each request and each queue is visited once.
struct Search<'q, 'h, 'k, K> {
    queues: &'q WaitQueues,
    holders: &'h mut Holders<'k, K>,
    reach: Reach,
    /// The search ends when it finds this owner.
    wanted: Option<&'h [u8]>,
    is_found: bool,
    /// Owners found so far that wait themselves.
    owners: BTreeSet<OwnerId>,
    requests: BTreeSet<RequestId>,
    to_visit: Vec<RequestId>,
    visited: BTreeMap<QueueId, Visited>,
    steps: usize,
}

/// The visited part of a queue.
#[derive(Clone, Copy, Debug)]
struct Visited {
    /// The only holder of the key; `None` if it has no holder, or several, which were followed at once.
    only_holder: Option<OnlyHolder>,
    /// The requests ahead of this place have been visited.
    ahead_of: Place,
}

#[derive(Clone, Copy, Debug)]
struct OnlyHolder {
    owner: OwnerId,
    is_wanted: bool,
}

impl<'q, 'h, 'k, K: Keys> Search<'q, 'h, 'k, K> {
    fn new(queues: &'q WaitQueues, holders: &'h mut Holders<'k, K>, reach: Reach, wanted: Option<&'h [u8]>) -> Self {
        let (requests, owners, visited) = (BTreeSet::default(), BTreeSet::default(), BTreeMap::default());
        let (to_visit, is_found, steps) = (Vec::new(), false, 0);
        Search { queues, holders, reach, wanted, is_found, owners, requests, to_visit, visited, steps }
    }

    fn run(mut self, from: RequestId) -> Self {
        self.reach(from);
        while let Some(queued) = self.to_visit.pop().and_then(|id| self.queues.request(id)) {
            for queue in &queued.queues {
                self.visit(*queue, queued);
                if self.is_found || self.steps > MOST_STEPS {
                    return self;
                }
            }
        }
        self
    }

    fn reach(&mut self, request: RequestId) {
        self.steps += 1;
        if self.requests.insert(request) {
            self.to_visit.push(request);
        }
    }

    /// Visits the holders of the key, and the requests ahead of this one. A request for several keys does not wait for
    /// a mutex that its owner holds.
    fn visit(&mut self, id: QueueId, queued: &QueuedRequest) {
        let queues = self.queues;
        let Some(queue) = queues.get(id) else { return };
        let visited = self.visited.get(&id).copied();
        let Visited { only_holder, ahead_of } = visited.unwrap_or_else(|| {
            let only_holder = self.visit_holders(queue);
            Visited { only_holder, ahead_of: Place::FIRST }
        });
        let is_held = only_holder.is_some_and(|holder| holder.owner == queued.owner_id && queued.has_several_keys());
        let ahead_of = if is_held { ahead_of } else { self.visit_ahead(queue, ahead_of, queued.place) };
        self.visited.insert(id, Visited { only_holder, ahead_of });
        if let Some(holder) = only_holder.filter(|_| !is_held) {
            self.is_found |= holder.is_wanted;
            self.reach_owner(holder.owner);
        }
    }

    fn visit_ahead(&mut self, queue: &WaitQueue, from: Place, to: Place) -> Place {
        let to = from.max(to);
        for (_, id) in queue.range(from..to) {
            if self.steps > MOST_STEPS {
                break;
            }
            self.reach(id);
            let Some(ahead) = self.queues.request(id).filter(|_| self.reach == Reach::Everything) else { continue };
            self.is_found |= self.wanted == Some(ahead.owner.as_bytes());
            self.reach_owner(ahead.owner_id);
        }
        to
    }

    fn visit_holders(&mut self, queue: &WaitQueue) -> Option<OnlyHolder> {
        let (queues, key, wanted) = (self.queues, queue.key.as_ref(), self.wanted);
        let (mut number, mut has_wanted, mut known) = (0, false, Vec::new());
        _ = self.holders.visit(key, |hold| {
            number += 1;
            has_wanted |= wanted == Some(hold.owner.as_bytes());
            known.extend(queues.owner_id(key.db, hold.owner.as_bytes()));
        });
        self.steps += number;
        if let ([only], 1) = (&known[..], number) {
            return Some(OnlyHolder { owner: *only, is_wanted: has_wanted });
        }
        self.is_found |= has_wanted;
        known.into_iter().for_each(|owner| self.reach_owner(owner));
        None
    }

    /// Follows the requests of an owner, if it has any.
    fn reach_owner(&mut self, owner: OwnerId) {
        let queues = self.queues;
        if self.reach == Reach::Everything && queues.waiting(owner).next().is_some() && self.owners.insert(owner) {
            queues.waiting(owner).for_each(|(request, _)| self.reach(request));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{key, Fixture};
    use super::super::request::Rank;
    use super::*;
    use crate::value::claim::Claim;

    /// The table above, for a request of `a` for the key k.
    #[test]
    fn only_an_owner_that_is_waited_for_passes_a_request_for_several_keys() {
        let rows = [
            ("b", "k", "kl", true),
            ("b", "kl", "", true),
            ("b", "kl", "k", false),
            ("b", "kl", "l", false),
            ("b", "lk", "m", true),
            ("a", "kl", "l", true),
        ];
        for (ahead, waits_for, held, goes_first_expected) in rows {
            let row = format!("{ahead} waits for {waits_for}, a holds {held}");
            let mut fixture = Fixture::default();
            fixture.hold("a", held, Claim::Mutex);
            let id = fixture.wait(ahead, waits_for, Claim::Mutex);
            let Fixture { mut server, queues, ended, .. } = fixture;
            let now = server.now().timestamp();
            let keys = &mut &mut server.keyspace;
            let holders = &mut Holders::new(keys, &ended, now);
            let request = queues.request(id).unwrap();
            let queue = queues.id_of(key("k").as_ref()).unwrap();
            let behind = queues.new_place(Rank::Normal);
            assert_eq!(is_first(&queues, holders, Reach::Holders, b"a", queue, behind), !goes_first_expected, "{row}");
            assert!(
                is_first(&queues, holders, Reach::Holders, b"a", queue, request.place),
                "{row}: no request is ahead of the first place"
            );
        }
    }
}
