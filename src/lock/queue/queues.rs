//! The wait queues of one server: who waits for which key, in which order.
//!
//! A request stands in the wait queue of each of its keys, at the place that its arrival gave it; one number for all
//! queues, so that requests for several keys cannot cross. A request whose client is away for a moment keeps its place,
//! but is passed over. Requests and their order are all that is here: who is admitted is decided in `manager`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use super::owners::{Known, Owners};
use super::request::{Arrival, Others, OwnerId, Place, QueueId, QueuedRequest, Rank};
use super::wait_queue::{Standing, WaitQueue};
use super::waited_for::WaitedFor;
use crate::id_map::IdMap;
use crate::key::{Key, KeyRef, RequestId};
use crate::name_filter::NameFilter;
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, Family, LockRequest, Share};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// All wait queues of one server.
#[derive(Clone, Debug, Default)]
pub struct WaitQueues {
    // By id, so that a round of inspections goes on behind the one that it inspected last.
    queues: BTreeMap<QueueId, WaitQueue>,
    // The tables of a database stay when they are empty: databases are few, and a hand-off would make them anew each
    // time.
    by_key: IdMap<i32, BTreeMap<Rc<[u8]>, QueueId>>,
    names: NameFilter,
    requests: BTreeMap<RequestId, QueuedRequest>,
    owners: Owners,
    /// Kept places, the one gone longest first.
    away: BTreeMap<u64, RequestId>,
    /// Requests with COALESCE that a release has answered, and that are still to be told, by their queue and the last
    /// request before the release. They stand in no queue any more: a newcomer finds the key free at once.
    done: BTreeMap<(QueueId, RequestId), Done>,
    /// How many of them are waiters to be told, and no kept places.
    done_waiters: usize,
    waited_for: WaitedFor,
    /// How many keys held no lock when they were inspected last.
    unheld: usize,
    /// A lock may have come to one of these: so many rounds of inspections have to end before all holders are known.
    rounds_to_know: u8,
    /// How many of those who wait want several keys.
    several: usize,
    last_number: u64,
    /// How often a request or an owner was looked up: what a search costs.
    #[cfg(test)]
    pub(super) looked_up: std::cell::Cell<usize>,
}

/// The requests that one release has answered.
#[derive(Clone, Debug)]
struct Done {
    /// Of the hold that was released.
    fence: Fence,
    requests: Standing,
}

/// What is there.
impl WaitQueues {
    /// Nobody waits and nobody has a place.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// For how many keys somebody waits or has a place.
    #[inline]
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// How many requests wait; a kept place is no waiter.
    pub fn waiters(&self) -> usize {
        self.requests.len() - self.away.len() - self.done_waiters
    }

    /// How many places are kept.
    pub fn kept_places(&self) -> usize {
        self.away.len()
    }

    /// Whether some of the requests that wait want several keys.
    pub fn has_requests_for_several(&self) -> bool {
        self.several > 0
    }

    /// Whether an owner may pass a request for several keys, because that waits for it: false is certain. The owner
    /// waits itself, and has another request or holds what is waited for. Where there is none, no search has to find
    /// that out: with a thousand requests for 128 keys each takes milliseconds.
    pub fn may_any_pass(&self) -> bool {
        let is_known = self.rounds_to_know == 0 && !self.waited_for.has_opaque();
        self.has_requests_for_several() && (self.owners.are_entangled() || !is_known)
    }

    /// Whether a key of this name may have a wait queue: false is certain.
    #[inline]
    pub fn may_have(&self, name: &[u8]) -> bool {
        self.names.may_contain(name)
    }

    /// The id of a key's wait queue.
    #[inline]
    pub fn id_of(&self, key: KeyRef<'_>) -> Option<QueueId> {
        if !self.may_have(key.name) {
            return None;
        }
        self.find(key)
    }

    /// Out of line: most keys are nobody's concern.
    #[inline(never)]
    fn find(&self, key: KeyRef<'_>) -> Option<QueueId> {
        self.by_key.get(&key.db).and_then(|names| names.get(key.name)).copied()
    }

    /// The wait queue of a key.
    pub fn of_key(&self, key: KeyRef<'_>) -> Option<&WaitQueue> {
        self.get(self.id_of(key)?)
    }

    /// A wait queue that is still there.
    pub fn get(&self, id: QueueId) -> Option<&WaitQueue> {
        self.queues.get(&id)
    }

    /// All of them, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (QueueId, &WaitQueue)> + '_ {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    /// The next queue in the order of the ids.
    pub fn next_from(&self, from: Bound<QueueId>) -> Option<(QueueId, &WaitQueue)> {
        self.queues.range((from, Bound::Unbounded)).next().map(|(id, queue)| (*id, queue))
    }

    /// A request that is queued or keeps its place.
    pub fn request(&self, id: RequestId) -> Option<&QueuedRequest> {
        self.count_lookup();
        self.requests.get(&id)
    }

    /// All that are queued or keep their places, in no particular order.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        self.requests.iter().map(|(id, request)| (*id, request)).filter(|(id, request)| !self.is_done(*id, request))
    }

    /// The fence of the released hold that has answered this request, if one has.
    pub fn done_by(&self, id: RequestId) -> Option<Fence> {
        Some(self.done.get(&self.done_key(id, self.requests.get(&id)?)?)?.fence)
    }

    /// The next request that a release has answered and that is still to be told.
    pub fn next_done(&self) -> Option<RequestId> {
        let (_, Done { requests, .. }) = self.done.first_key_value()?;
        let kept = || self.away.get(requests.away.first()?);
        requests.present.first_key_value().map(|(_, id)| id).or_else(kept).copied()
    }

    /// Whether requests that a release has answered are still to be told.
    #[inline]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    fn is_done(&self, id: RequestId, request: &QueuedRequest) -> bool {
        self.has_done() && self.done_key(id, request).is_some()
    }

    /// A release answers all requests with COALESCE that were queued before it.
    fn done_key(&self, id: RequestId, request: &QueuedRequest) -> Option<(QueueId, RequestId)> {
        let queue = *request.queues.first().filter(|_| request.coalesces)?;
        let (key, _) = self.done.range((queue, id)..=(queue, RequestId::LAST)).next()?;
        Some(*key)
    }

    /// Every request in a queue, those that wait before the kept places.
    pub fn all_in(&self, id: QueueId) -> Vec<RequestId> {
        let Some(queue) = self.queues.get(&id) else { return Vec::new() };
        let mut all: Vec<_> = queue.present().map(|(_, id)| id).collect();
        let away = queue.ordinary.away.iter().chain(&queue.coalescing.away);
        all.extend(away.filter_map(|departure| self.away.get(departure)));
        all
    }

    /// The keys that a request waits for, in the order of the request.
    pub fn keys_of<'a>(&'a self, request: &'a QueuedRequest) -> impl Iterator<Item = &'a Key> + 'a {
        request.queues.iter().filter_map(|id| self.queues.get(id)).map(|queue| &queue.key)
    }

    /// The queued requests of an owner, whether their clients are there or away.
    pub fn requests_of(&self, db: i32, owner: &[u8]) -> impl Iterator<Item = RequestId> + '_ {
        let known = self.owners.id_of(db, owner).and_then(|id| self.owners.get(id));
        let listed = known.into_iter().flat_map(|known| &known.listed).map(|(_, id)| *id);
        listed.filter(|id| self.requests.get(id).is_some_and(|request| !self.is_done(*id, request)))
    }

    /// An owner that has requests in this database, queued or with a kept place.
    pub fn owner_with_requests(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        let id = self.owners.id_of(db, owner)?;
        self.owners.get(id).is_some_and(|known| !known.listed.is_empty()).then_some(id)
    }

    /// The waiting requests of an owner that may have to do with a queue, in the order of their places: the ones that
    /// stand there. Where requests for several keys wait it is all of them: such a request is listed under one of its
    /// queues, and may be passed at any.
    pub fn requests_around(&self, id: QueueId, owner: OwnerId, is_wanted: impl Fn(&Claim) -> bool) -> Vec<RequestId> {
        let known = self.owners.get(owner);
        let (from, to) = match self.has_requests_for_several() {
            true => (QueueId::FIRST, QueueId::LAST),
            false => (id, id),
        };
        let range = (from, RequestId::FIRST)..=(to, RequestId::LAST);
        let listed = known.into_iter().flat_map(|known| known.listed.range(range.clone())).map(|(_, id)| *id);
        let queued = listed.filter_map(|id| Some((id, self.requests.get(&id)?)));
        let waiting = queued.filter(|(id, request)| self.waits(*id, request) && is_wanted(&request.claim));
        let mut waiting: Vec<_> = waiting.map(|(id, request)| (request.place, id)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, id)| id).collect()
    }

    /// The queued request of which this one is a retry: same owner, keys, mode and number.
    pub fn find_retried(&self, db: i32, names: &[&[u8]], request: &LockRequest<'_>) -> Option<RequestId> {
        let id_of = |name: &&[u8]| self.id_of(KeyRef { db, name });
        let mut listed_under = id_of(names.first()?)?;
        for name in names {
            listed_under = listed_under.min(id_of(name)?);
        }
        let is_retried = |id: &RequestId| {
            self.requests.get(id).is_some_and(|queued| {
                request.claim.is_retry_of(&queued.claim)
                    && queued.queues.len() == names.len()
                    && !self.is_done(*id, queued)
                    && names.iter().filter_map(id_of).all(|queue| queued.stands_in(queue))
            })
        };
        let listed = &self.owners.get(self.owners.id_of(db, request.owner.as_bytes())?)?.listed;
        let range = (listed_under, RequestId::FIRST)..=(listed_under, RequestId::LAST);
        listed.range(range).map(|(_, id)| *id).find(is_retried)
    }

    /// A place behind everyone who is there now.
    pub fn last_place(&self, rank: Rank) -> Place {
        Place { rank, arrival: self.last_number }
    }

    /// The request that has been away longest.
    pub fn longest_away(&self) -> Option<RequestId> {
        self.away.first_key_value().map(|(_, id)| *id)
    }

    /// The request that has been away longest of those who have a place in this queue.
    pub fn longest_away_in(&self, id: QueueId) -> Option<RequestId> {
        self.away.get(&self.queues.get(&id)?.longest_away()?).copied()
    }

    /// Whether anybody may be waiting for this owner: false is certain, and spares the search for a deadlock. `holds`
    /// tells whether the owner holds a key that has to be opened to know; after a flush these may be thousands, and the
    /// search is cheaper then.
    pub fn may_be_waited_for(&self, db: i32, owner: &[u8], mut holds: impl FnMut(&Key) -> bool) -> bool {
        const MOST_OPENED: usize = 16;
        let known = self.owner_id(db, owner).and_then(|id| self.owners.get(id));
        known.is_some_and(|known| !known.holds.is_empty() || self.present(known).next().is_some())
            || self.rounds_to_know > 0
            || self.waited_for.opaque(db).nth(MOST_OPENED).is_some()
            || self.waited_for.opaque(db).filter_map(|id| self.queues.get(&id)).any(|queue| holds(&queue.key))
    }

    /// Whether an earlier request of this owner in the same queue, once it is served, lets it have all that it asks for
    /// there: then the later request waits for nothing else.
    pub(super) fn is_covered_by_earlier(&self, id: QueueId, owner: &[u8], place: Place, claim: &Claim) -> bool {
        let known = self.queues.get(&id).and_then(|queue| self.owners.get(self.owner_id(queue.key.db, owner)?));
        let range = (id, RequestId::FIRST)..=(id, RequestId::LAST);
        let mut listed = known.into_iter().flat_map(|known| known.listed.range(range.clone()));
        let earlier = listed.find_map(|(_, id)| {
            self.requests.get(id).filter(|it| self.waits(*id, it) && !it.has_several_keys() && it.place < place)
        });
        earlier.is_some_and(|earlier| Share::default().with(&earlier.claim).covers(claim))
    }

    /// The number of an owner that waits or may hold what is waited for, as far as it is entered by name.
    pub(super) fn owner_id(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        self.count_lookup();
        self.owners.id_of(db, owner)
    }

    /// The name of an owner.
    pub fn owner(&self, id: OwnerId) -> Option<&Owner> {
        self.owners.get(id).map(|known| &known.owner)
    }

    /// The requests of an owner whose clients are there.
    pub(super) fn waiting(&self, id: OwnerId) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        self.count_lookup();
        self.owners.get(id).into_iter().flat_map(|known| self.present(known))
    }

    /// How often a request or an owner was looked up.
    #[cfg(test)]
    pub(crate) fn looked_up(&self) -> usize {
        self.looked_up.get()
    }

    #[inline]
    fn count_lookup(&self) {
        #[cfg(test)]
        self.looked_up.set(self.looked_up.get() + 1);
    }

    fn present<'a>(&'a self, known: &'a Known) -> impl Iterator<Item = (RequestId, &'a QueuedRequest)> + 'a {
        let queued = known.listed.iter().filter_map(|(_, id)| Some((*id, self.requests.get(id)?)));
        queued.filter(|(id, request)| self.waits(*id, request))
    }

    fn waits(&self, id: RequestId, request: &QueuedRequest) -> bool {
        request.is_present() && !self.is_done(id, request)
    }

    /// Whether nothing is left of those who waited.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_clean(&self) -> bool {
        self.by_key.values().all(BTreeMap::is_empty)
            && self.requests.is_empty()
            && self.owners.is_empty()
            && self.away.is_empty()
            && self.done.is_empty()
            && self.done_waiters == 0
            && self.waited_for.is_empty()
            && self.unheld == 0
            && self.names.is_empty()
    }
}

/// What changes.
impl WaitQueues {
    /// Puts a request into the wait queues of its keys.
    pub fn enter(&mut self, arrival: Arrival<'_>) -> RequestId {
        let Arrival { request, db, names, place, since, until, session, may_come_back, coalesces } = arrival;
        let id = RequestId(self.number());
        let queues: OneOrMany<_> =
            names.iter().map(|name| self.queue_for(KeyRef { db, name }, request.claim.family())).collect();
        for queue in &queues {
            let queue = self.queues.get_mut(queue).expect("queue_for made it");
            queue.several += usize::from(queues.len() > 1);
            queue.standing_mut(coalesces).present.insert(place, id);
            queue.limit = request.claim.limit().or(queue.limit);
        }
        self.several += usize::from(queues.len() > 1);
        let listed_under = *queues.iter().min().expect("a request names at least one key");
        let owner = request.owner.to_owner();
        let owner_id = self.owners.enlist(db, &owner, listed_under, id);
        let queued = QueuedRequest {
            owner,
            claim: request.claim,
            lease: request.lease,
            db,
            queues,
            place,
            since,
            until,
            session,
            may_come_back,
            coalesces,
            owner_id,
            listed_under,
            may_wait_elsewhere: false,
            blocked_on: None,
            away: None,
        };
        self.requests.insert(id, queued);
        let listed = self.owners.get(owner_id).map(|known| &known.listed);
        match listed.map_or(0, BTreeSet::len) {
            // The request that was its owner's only one is not any more.
            2 => {
                let both: Vec<_> = listed.into_iter().flatten().map(|(_, id)| *id).collect();
                both.into_iter().for_each(|id| self.waits_elsewhere(id));
            }
            1 => {}
            _ => self.waits_elsewhere(id),
        }
        id
    }

    fn waits_elsewhere(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if !std::mem::replace(&mut request.may_wait_elsewhere, true) && request.is_present() {
            for queue in &request.queues {
                self.queues.get_mut(queue).into_iter().for_each(|queue| queue.elsewhere += 1);
            }
        }
    }

    /// Takes a request out for good, and the wait queues that are empty then.
    pub fn leave(&mut self, id: RequestId) -> Option<(QueuedRequest, Others)> {
        let request = self.requests.remove(&id)?;
        self.leave_done(id, &request);
        match request.away {
            Some(away) => _ = self.away.remove(&away),
            None => self.several -= usize::from(request.has_several_keys()),
        }
        for queue_id in &request.queues {
            let Some(queue) = self.queues.get_mut(queue_id) else { continue };
            queue.standing_mut(request.coalesces).remove(request.place, request.away);
            if request.is_present() {
                queue.several -= usize::from(request.has_several_keys());
                queue.elsewhere -= usize::from(request.may_wait_elsewhere);
            }
            if queue.is_empty() {
                self.close(*queue_id);
            }
        }
        let others = self.owners.unlist(request.owner_id, request.listed_under, id);
        Some((request, others))
    }

    /// The key is released: takes all requests with COALESCE out of its queue, however many they are. They are to be
    /// told one by one ([`WaitQueues::next_done`]); the first that leaves takes the queue along if no other is there.
    pub fn end_coalescing(&mut self, id: QueueId, fence: Fence) {
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| !queue.coalescing.is_empty()) else { return };
        let requests = std::mem::take(&mut queue.coalescing);
        self.done_waiters += requests.present.len();
        self.done.insert((id, RequestId(self.last_number)), Done { fence, requests });
    }

    fn leave_done(&mut self, id: RequestId, request: &QueuedRequest) {
        let Some(key) = self.done_key(id, request) else { return };
        let Some(Done { requests, .. }) = self.done.get_mut(&key) else { return };
        requests.remove(request.place, request.away);
        self.done_waiters -= usize::from(request.is_present());
        if requests.is_empty() {
            self.done.remove(&key);
        }
    }

    /// The client is away: the request keeps its place, but is passed over.
    pub fn keep_place(&mut self, id: RequestId) {
        let departure = self.number();
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        request.away = Some(departure);
        self.away.insert(departure, id);
        self.several -= usize::from(request.has_several_keys());
        for queue in &request.queues {
            if let Some(queue) = self.queues.get_mut(queue) {
                let standing = queue.standing_mut(request.coalesces);
                standing.present.remove(&request.place);
                standing.away.insert(departure);
                queue.several -= usize::from(request.has_several_keys());
                queue.elsewhere -= usize::from(request.may_wait_elsewhere);
            }
        }
    }

    /// Moves a waiter from the head, where it stood as an upgrade, to the place of its arrival.
    pub fn end_upgrade(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        let (before, after) = (request.place, Place { rank: Rank::Normal, ..request.place });
        request.place = after;
        for queue in &request.queues {
            if let Some(queue) = self.queues.get_mut(queue) {
                // An upgrade of a read/write lock has no COALESCE.
                queue.ordinary.present.remove(&before);
                queue.ordinary.present.insert(after, id);
            }
        }
    }

    /// Notes who holds the key of a queue; `None`: nobody. To be called after each grant, and may be called later when
    /// somebody holds it no more.
    pub fn note_holders(&mut self, id: QueueId, lock: Option<&Lock>) {
        if let Some(queue) = self.queues.get(&id) {
            self.waited_for.note(&mut self.owners, id, queue.key.db, lock);
        }
    }

    /// Something has happened to the key of a queue: nobody knows who holds it before it is opened.
    pub fn holders_may_differ(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get(&id) {
            self.waited_for.becomes_opaque(id, queue.key.db);
        }
    }

    /// The same of all queues of a database, or of all. Each costs an entry in a table of numbers.
    pub fn holders_of_db_may_differ(&mut self, db: Option<i32>) {
        for (id, queue) in self.queues.iter().filter(|(_, queue)| db.is_none_or(|db| db == queue.key.db)) {
            self.waited_for.becomes_opaque(*id, queue.key.db);
        }
    }

    /// Notes in which of its queues the request has to wait; `None`: it is not known.
    pub fn set_blocked_on(&mut self, id: RequestId, queue: Option<QueueId>) {
        self.requests.get_mut(&id).into_iter().for_each(|request| request.blocked_on = queue);
    }

    /// Notes the latest fence under the key of a queue, as it was inspected now.
    pub fn set_seen(&mut self, id: QueueId, fence: Option<Fence>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        self.unheld -= usize::from(queue.seen.is_none());
        queue.seen = fence;
        self.unheld += usize::from(queue.seen.is_none());
    }

    /// A lock has left its key by a command of the server's own, which does not tell where it goes: RENAME and MOVE may
    /// bring it to a waited-for key that held none.
    pub fn lock_may_have_moved(&mut self) {
        if self.unheld > 0 {
            // One round may be on.
            self.rounds_to_know = 2;
        }
    }

    /// A round of inspections has come to every key.
    pub fn end_round(&mut self) {
        self.rounds_to_know = self.rounds_to_know.saturating_sub(1);
    }

    /// Sets the limit that counts for a semaphore's queue; whether it is another one.
    pub fn set_limit(&mut self, id: QueueId, limit: u32) -> bool {
        let queue = self.queues.get_mut(&id);
        queue.is_some_and(|queue| queue.limit.replace(limit) != Some(limit))
    }

    fn queue_for(&mut self, key: KeyRef<'_>, family: Family) -> QueueId {
        if let Some(id) = self.id_of(key) {
            let queue = self.queues.get_mut(&id).expect("by_key names queues that exist");
            // Only kept places are left: the family is the newcomer's.
            if queue.waiters() == 0 && queue.family != family {
                queue.family = family;
                queue.limit = None;
            }
            return id;
        }
        let (id, key) = (QueueId(self.number()), key.to_key());
        self.by_key.entry(key.db).or_default().insert(key.name.clone(), id);
        self.names.insert(&key.name);
        self.queues.insert(id, WaitQueue::new(key, family));
        self.unheld += 1;
        id
    }

    fn close(&mut self, id: QueueId) {
        let Some(queue) = self.queues.remove(&id) else { return };
        self.unheld -= usize::from(queue.seen.is_none());
        self.waited_for.forget(&mut self.owners, id);
        self.names.remove(&queue.key.name);
        if let Some(names) = self.by_key.get_mut(&queue.key.db) {
            names.remove(&queue.key.name);
        }
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

#[cfg(test)]
mod tests;
