//! The dependents of the new owner: the owners that wait for it, directly or through others. The new request can make
//! only them stuck. If no dependent holds a key of the request or waits for one, the request closes no deadlock, and
//! no graph is needed. With 10,000 readers of a lock that wait elsewhere, the graph of a writer would end at its
//! budget, after some milliseconds; the dependents of the writer are few.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::host::Keys;
use crate::queue::holders::Holders;
use crate::queue::queues::WaitQueues;
use crate::queue::request::{NewRequest, OwnerId, Place, QueueId};

/// The search gives up after so many requests, and after so many keys of one owner: the graph may be smaller then.
const MOST: usize = 16;

/// Whether no dependent can block the new request: true is certain. The request must not change what other requests
/// wait for, nor block itself.
pub(super) fn cannot_block<K: Keys>(queues: &WaitQueues, holders: &mut Holders<'_, K>, new: &NewRequest<'_>) -> bool {
    let Some(dependents) = Search::new(queues, holders, new).and_then(Search::finish) else { return false };
    let waits_here = |id: OwnerId| {
        let mut waiting = queues.waiting(id).flat_map(|(_, queued)| queued.queues.iter());
        waiting.any(|id| queues.get(*id).is_some_and(|queue| new.names.contains(&&*queue.key.name)))
    };
    let mut holds = |owner: &[u8]| new.names.iter().any(|name| holders.is_held_by(new.key(name), owner));
    let mut named = dependents.into_iter().filter_map(|id| Some((id, queues.owner(id)?.as_bytes())));
    !named.any(|(id, owner)| owner != new.owner() && (waits_here(id) || holds(owner)))
}

struct Search<'a, 'h, 'k, K> {
    queues: &'a WaitQueues,
    holders: &'h mut Holders<'k, K>,
    db: i32,
    /// The new owner and its dependents.
    found: BTreeSet<OwnerId>,
    /// By queue: its requests from this place on have been visited, or are in `to_visit`.
    listed: BTreeMap<QueueId, Place>,
    to_visit: Vec<(QueueId, Range<Place>)>,
}

impl<'a, 'h, 'k, K: Keys> Search<'a, 'h, 'k, K> {
    /// `None`, here and in the other functions: the search gives up.
    fn new(queues: &'a WaitQueues, holders: &'h mut Holders<'k, K>, new: &NewRequest<'_>) -> Option<Self> {
        let (found, listed) = (BTreeSet::new(), BTreeMap::new());
        let mut search = Search { queues, holders, db: new.db, found, listed, to_visit: Vec::new() };
        match queues.owner_id(new.db, new.owner()) {
            Some(id) => search.add(id)?,
            None => search.list_held(new.owner())?,
        }
        Some(search)
    }

    fn finish(mut self) -> Option<BTreeSet<OwnerId>> {
        for _ in 0..MOST {
            let Some((id, places)) = self.to_visit.pop() else { return Some(self.found) };
            let queue = self.queues.get(id);
            if let Some((place, request)) = queue.and_then(|queue| queue.range(places.clone()).next()) {
                self.to_visit.push((id, Place { arrival: place.arrival + 1, ..place }..places.end));
                if let Some(queued) = self.queues.request(request) {
                    self.add(queued.owner_id)?;
                }
            }
        }
        None
    }

    /// Adds the owner, and lists the requests that wait for it: for a key that it holds, or behind its own request.
    fn add(&mut self, id: OwnerId) -> Option<()> {
        if !self.found.insert(id) {
            return Some(());
        }
        let queues = self.queues;
        let held = queues.held_by(id).map(|queue| (queue, Place::FIRST));
        let behind = queues.waiting(id).flat_map(|(_, it)| it.queues.iter().map(|queue| (*queue, it.place)));
        for (listed, (queue, from)) in held.chain(behind).enumerate() {
            if listed == MOST {
                return None;
            }
            self.list(queue, from);
        }
        self.list_held(queues.owner(id)?.as_bytes())
    }

    /// Opens the keys without a list of their holders, and lists the requests for a key that the owner holds.
    fn list_held(&mut self, owner: &[u8]) -> Option<()> {
        let queues = self.queues;
        for (opened, id) in queues.held_by_any(self.db)?.enumerate() {
            let key = &queues.get(id)?.key;
            if opened == MOST {
                return None;
            }
            if self.holders.is_held_by(key.as_ref(), owner) {
                self.list(id, Place::FIRST);
            }
        }
        Some(())
    }

    /// Lists the requests of a queue from this place on.
    fn list(&mut self, id: QueueId, from: Place) {
        let listed = self.listed.entry(id).or_insert(Place::LAST);
        if from < *listed {
            self.to_visit.push((id, from..*listed));
            *listed = from;
        }
    }
}
