//! The wait queues of one server: the requests that wait for each key, in their order.
//!
//! A request is in the wait queue of each of its keys, at the place of its arrival. The place is the same in all of
//! them, so that two requests for several keys have one order everywhere. A request keeps its place for a while after
//! its client has left (stopped waiting or disconnected), but is passed over. This file keeps requests and their order;
//! admission is decided in `manager`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use super::lookups;
use super::owners::{OwnerEntry, Owners, WaitedFor};
use super::place::{Place, Rank};
use super::request::{Arrival, NewRequest, Others, OwnerId, QueueId, QueuedRequest};
use super::wait_queue::{OrderedRequests, WaitQueue};
use crate::key::{Key, KeyRef, RequestId};
use crate::name_filter::NameFilter;
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, Family, InvalidClaim, LockRequest, Share};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// All wait queues of one server.
#[derive(Clone, Debug, Default)]
pub struct WaitQueues {
    // By id, so that a round of inspections can continue behind the queue that it inspected last.
    queues: BTreeMap<QueueId, WaitQueue>,
    // The tables of a database are kept when empty: databases are few, and each hand-off would create them again.
    by_key: BTreeMap<i32, BTreeMap<Rc<[u8]>, QueueId>>,
    names: NameFilter,
    /// The queue that was emptied last, which no method but [`WaitQueues::enter`] finds. It and its names stay until
    /// another one is emptied, or none was in a round of inspections: two clients that hand a lock to each other would
    /// make them again each time.
    emptied: Option<QueueId>,
    /// Whether a queue was emptied since the last round of inspections ended.
    was_emptied: bool,
    requests: BTreeMap<RequestId, QueuedRequest>,
    owners: Owners,
    /// Kept places by departure, the longest away first.
    away: BTreeMap<u64, RequestId>,
    /// Requests with COALESCE that a release has answered but that have no reply yet, by their queue and the last
    /// number that was given before the release. They have left their queue, so a new request finds the key free at
    /// once.
    done: BTreeMap<(QueueId, RequestId), Done>,
    /// How many of them are waiters to reply to, not kept places.
    done_waiters: usize,
    /// The queue that is replied to next: one after the other, and that of the latest release first.
    next_done: QueueId,
    waited_for: WaitedFor,
    /// How many waited-for keys held no lock at their last inspection.
    unheld: usize,
    /// The inspection rounds that must end before all holders are known: a lock may have come to a key that held none.
    rounds_to_know: u8,
    /// All keys of a database may have changed, and the walk that opens them has not ended.
    is_walk_awaited: bool,
    /// How many of the waiters want several keys.
    several: usize,
    last_number: u64,
}

/// The requests that one release has answered.
#[derive(Clone, Debug)]
struct Done {
    /// The fence of the released hold.
    fence: Fence,
    requests: OrderedRequests,
}

/// The queues of the keys that an owner may hold; another waited-for key it does not hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct MayHold<'a> {
    listed: Option<&'a BTreeSet<QueueId>>,
    /// Their keys have to be opened to learn their holders.
    opaque: &'a BTreeSet<QueueId>,
    /// This is true of every key: after a RENAME or MOVE until a round of inspections has ended, after a flush until
    /// all queues have been visited.
    is_any: bool,
}

impl MayHold<'_> {
    /// The owner holds no waited-for key.
    pub fn is_empty(&self) -> bool {
        !self.is_any && self.opaque.is_empty() && self.listed.is_none_or(BTreeSet::is_empty)
    }

    /// The queues of all keys that the owner may hold, if their keys have to be opened to learn it; `None` if it is
    /// known to hold others, or may hold any.
    pub fn unknown(&self) -> Option<&BTreeSet<QueueId>> {
        (!self.is_any && self.listed.is_none_or(BTreeSet::is_empty)).then_some(self.opaque)
    }

    /// Whether the owner may hold the key of this queue.
    pub fn contains(&self, id: QueueId) -> bool {
        self.is_any || self.opaque.contains(&id) || self.listed.is_some_and(|listed| listed.contains(&id))
    }
}

/// Queries.
impl WaitQueues {
    /// True if no key has a waiter, a kept place or an answered request without a reply.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of keys with waiters, kept places or answered requests without a reply.
    #[inline]
    pub fn len(&self) -> usize {
        self.queues.len() - usize::from(self.emptied.is_some())
    }

    /// The number of waiters; a kept place is no waiter.
    pub fn waiters(&self) -> usize {
        self.requests.len() - self.away.len() - self.done_waiters
    }

    /// The number of kept places.
    pub fn kept_places(&self) -> usize {
        self.away.len()
    }

    /// Whether some of the waiters want several keys.
    pub fn has_requests_for_several(&self) -> bool {
        self.several > 0
    }

    /// Whether all keys with changed holders are marked: false after a RENAME, a MOVE or a flush, for a while.
    fn are_changes_marked(&self) -> bool {
        self.rounds_to_know == 0 && !self.is_walk_awaited
    }

    /// Whether a key of this name may have a wait queue: false is certain.
    #[inline]
    pub fn may_have(&self, name: &[u8]) -> bool {
        self.names.may_contain(name)
    }

    /// Whether no request waits for any key, or has done so a moment ago.
    #[inline]
    pub fn are_unused(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether a request waits for the key, or has done so a moment ago: the key is probably held then.
    #[inline]
    pub fn was_waited_for(&self, key: KeyRef<'_>) -> bool {
        self.find_with_emptied(key).is_some()
    }

    /// The id of a key's wait queue.
    #[inline]
    pub fn id_of(&self, key: KeyRef<'_>) -> Option<QueueId> {
        if !self.may_have(key.name) {
            return None;
        }
        self.find(key)
    }

    #[inline]
    fn find(&self, key: KeyRef<'_>) -> Option<QueueId> {
        self.find_with_emptied(key).filter(|id| self.emptied != Some(*id))
    }

    /// Out of line: most keys have no wait queue.
    #[inline(never)]
    fn find_with_emptied(&self, key: KeyRef<'_>) -> Option<QueueId> {
        self.by_key.get(&key.db).and_then(|names| names.get(key.name)).copied()
    }

    /// The wait queue of a key.
    pub fn of_key(&self, key: KeyRef<'_>) -> Option<&WaitQueue> {
        self.get(self.id_of(key)?)
    }

    /// The wait queue, unless it is gone.
    pub fn get(&self, id: QueueId) -> Option<&WaitQueue> {
        self.queues.get(&id).filter(|_| self.emptied != Some(id))
    }

    fn get_mut(&mut self, id: QueueId) -> Option<&mut WaitQueue> {
        self.queues.get_mut(&id).filter(|_| self.emptied != Some(id))
    }

    /// All wait queues, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (QueueId, &WaitQueue)> + '_ {
        self.queues.iter().map(|(id, queue)| (*id, queue)).filter(|(id, _)| self.emptied != Some(*id))
    }

    /// The next queue in the order of the ids.
    pub fn next_from(&self, from: Bound<QueueId>) -> Option<(QueueId, &WaitQueue)> {
        let mut from = self.queues.range((from, Bound::Unbounded)).map(|(id, queue)| (*id, queue));
        from.find(|(id, _)| self.emptied != Some(*id))
    }

    /// A request that is queued or keeps its place.
    pub fn request(&self, id: RequestId) -> Option<&QueuedRequest> {
        lookups::note();
        self.requests.get(&id)
    }

    /// Whether the request is queued, and its client waits; a kept place is no waiter.
    pub fn is_present(&self, id: RequestId) -> bool {
        self.request(id).is_some_and(QueuedRequest::is_present)
    }

    /// The number of requests that wait for the key.
    pub fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        self.of_key(key).map_or(0, WaitQueue::waiters)
    }

    /// While requests wait for it, a free key keeps the family of its queue.
    ///
    /// # Errors
    /// The family is another one.
    pub fn check_family(&self, key: KeyRef<'_>, family: Family) -> Result<(), InvalidClaim> {
        match self.of_key(key).filter(|queue| queue.waiters() > 0 && queue.family != family) {
            Some(queue) => Err(InvalidClaim::WrongFamily(queue.family)),
            None => Ok(()),
        }
    }

    /// All requests that are queued or keep their places, in no particular order.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        self.requests.iter().map(|(id, request)| (*id, request)).filter(|(id, request)| !self.is_done(*id, request))
    }

    /// The fence of the released hold that has answered this request, if one has.
    pub fn done_by(&self, id: RequestId) -> Option<Fence> {
        Some(self.done.get(&self.done_key(id, self.requests.get(&id)?)?)?.fence)
    }

    /// The next request that a release has answered but that has no reply yet: of another queue each time.
    pub fn next_done(&mut self) -> Option<RequestId> {
        let next = self.done.range((self.next_done, RequestId::FIRST)..).next();
        let ((queue, _), Done { requests, .. }) = next.or_else(|| self.done.first_key_value())?;
        self.next_done = QueueId(queue.0 + 1);
        let kept = || self.away.get(requests.away.first()?);
        requests.present.first_key_value().map(|(_, id)| id).or_else(kept).copied()
    }

    /// Whether any request that a release has answered has no reply yet.
    #[inline]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    fn is_done(&self, id: RequestId, request: &QueuedRequest) -> bool {
        self.has_done() && self.done_key(id, request).is_some()
    }

    /// The release that has answered the request: the first after its arrival, if it has COALESCE.
    fn done_key(&self, id: RequestId, request: &QueuedRequest) -> Option<(QueueId, RequestId)> {
        let queue = *request.queues.first().filter(|_| request.coalesces)?;
        let (key, _) = self.done.range((queue, id)..=(queue, RequestId::LAST)).next()?;
        Some(*key)
    }

    /// Every request in a queue, waiters first, then kept places.
    pub fn all_in(&self, id: QueueId) -> Vec<RequestId> {
        let Some(queue) = self.get(id) else { return Vec::new() };
        let mut all: Vec<_> = queue.present().map(|(_, id)| id).collect();
        let away = queue.ordinary.away.iter().chain(&queue.coalescing.away);
        all.extend(away.filter_map(|departure| self.away.get(departure)));
        all
    }

    /// The keys that a request waits for, in the order of the request.
    pub fn keys_of<'a>(&'a self, request: &'a QueuedRequest) -> impl Iterator<Item = &'a Key> + 'a {
        request.queues.iter().filter_map(|id| self.get(*id)).map(|queue| &queue.key)
    }

    /// The queued requests of an owner, kept places included.
    pub fn requests_of(&self, db: i32, owner: &[u8]) -> impl Iterator<Item = RequestId> + '_ {
        let entry = self.owners.id_of(db, owner).and_then(|id| self.owners.get(id));
        let listed = entry.into_iter().flat_map(|entry| &entry.listed).map(|(_, id)| *id);
        listed.filter(|id| self.requests.get(id).is_some_and(|request| !self.is_done(*id, request)))
    }

    /// An owner that has requests in this database, queued or with a kept place.
    pub fn owner_with_requests(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        let id = self.owner_id(db, owner)?;
        self.owners.get(id).is_some_and(|entry| !entry.listed.is_empty()).then_some(id)
    }

    /// The waiting requests of an owner in a queue, in the order of their places.
    pub fn requests_in(&self, id: QueueId, owner: OwnerId, is_wanted: impl Fn(&Claim) -> bool) -> Vec<RequestId> {
        let wanted = self.all_waiting_in(id, owner).filter(|(_, request)| is_wanted(&request.claim));
        let mut wanted: Vec<_> = wanted.map(|(id, request)| (&request.place, id)).collect();
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, id)| id).collect()
    }

    /// The owner, if it has requests in this queue.
    pub fn owner_in(&self, id: QueueId, db: i32, owner: &[u8]) -> Option<OwnerId> {
        self.owner_id(db, owner).filter(|owner| self.all_waiting_in(id, *owner).next().is_some())
    }

    /// A request for several keys is listed under the first of its queues only.
    fn all_waiting_in(&self, id: QueueId, owner: OwnerId) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        let has_several = self.get(id).is_some_and(WaitQueue::has_requests_for_several);
        let first = if has_several { QueueId::FIRST } else { id };
        self.waiting_listed(first, id, owner).filter(move |(_, request)| request.stands_in(id))
    }

    /// The queued request that this one repeats: same owner, keys, mode and number. A request of a client that does not
    /// know the module repeats only a kept place.
    pub fn find_retried(
        &self,
        owner: Option<OwnerId>,
        db: i32,
        names: &[&[u8]],
        request: &LockRequest<'_>,
    ) -> Option<RequestId> {
        let listed = &self.owners.get(owner?)?.listed;
        // Most owners wait for nothing: no name of a key is looked up for them.
        if listed.is_empty() {
            return None;
        }
        let queues: OneOrMany<_> = names.iter().map(|name| self.id_of(KeyRef { db, name })).collect::<Option<_>>()?;
        let listed_under = *queues.iter().min()?;
        let is_retried = |id: &RequestId| {
            self.requests.get(id).is_some_and(|queued| {
                request.claim.is_retry_of(&queued.claim)
                    && (request.claim != Claim::AdoptedMutex || !queued.is_present())
                    && queued.queues.len() == names.len()
                    && !self.is_done(*id, queued)
                    && queues.iter().all(|queue| queued.stands_in(*queue))
            })
        };
        let range = (listed_under, RequestId::FIRST)..=(listed_under, RequestId::LAST);
        listed.range(range).map(|(_, id)| *id).find(is_retried)
    }

    /// The place behind all present requests of the same rank.
    pub fn last_place(&self, rank: Rank) -> Place {
        Place::last(rank, self.last_number)
    }

    /// Whether no request waits in the queue ahead of this place.
    pub fn is_first(&self, id: QueueId, place: &Place) -> bool {
        self.get(id).is_none_or(|queue| queue.is_first(place))
    }

    /// The request that has been away longest.
    pub fn longest_away(&self) -> Option<RequestId> {
        self.away.first_key_value().map(|(_, id)| *id)
    }

    /// The request that has been away longest among the kept places of this queue.
    pub fn longest_away_in(&self, id: QueueId) -> Option<RequestId> {
        self.away.get(&self.get(id)?.longest_away()?).copied()
    }

    /// Whether any request may wait for this owner: false is certain, and saves the deadlock search.
    pub fn may_be_waited_for(&self, owner: Option<OwnerId>) -> bool {
        owner.is_some_and(|owner| self.waiting(owner).next().is_some()) || !self.may_hold(owner).is_empty()
    }

    /// The queues of the keys that this owner may hold; `None`: an owner that is not in the table.
    pub(super) fn may_hold(&self, owner: Option<OwnerId>) -> MayHold<'_> {
        let entry = owner.and_then(|id| self.owners.get(id));
        let is_any = !self.are_changes_marked();
        MayHold { listed: entry.map(|entry| &entry.holds), opaque: self.waited_for.opaque(), is_any }
    }

    /// Whether an earlier request of this owner in the same queue covers the claim once it is served: then the later
    /// request waits for nothing else.
    pub(super) fn is_covered_by_earlier(
        &self,
        key: KeyRef<'_>,
        owner: Option<OwnerId>,
        place: &Place,
        claim: &Claim,
    ) -> bool {
        let known = owner.and_then(|owner| Some((self.id_of(key)?, owner)));
        let mut waiting = known.into_iter().flat_map(|(queue, owner)| self.waiting_in(queue, owner));
        let covers = |it: &QueuedRequest| !it.has_several_keys() && it.claim != Claim::AdoptedMutex;
        let earlier = waiting.find(|(_, it)| covers(it) && it.place < *place);
        earlier.is_some_and(|(_, earlier)| Share::default().with(&earlier.claim).covers(claim))
    }

    /// The id of an owner that waits, or is listed by name as the holder of a waited-for key.
    pub fn owner_id(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        lookups::note();
        self.owners.id_of(db, owner)
    }

    /// The name of an owner.
    pub fn owner(&self, id: OwnerId) -> Option<&Owner> {
        self.owners.get(id).map(|entry| &entry.owner)
    }

    /// The waiting requests of an owner, without kept places.
    pub fn waiting(&self, id: OwnerId) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        lookups::note();
        self.owners.get(id).into_iter().flat_map(|entry| self.present(entry))
    }

    /// The waiting requests of an owner that are listed under this queue: all of its requests for this key alone.
    pub(super) fn waiting_in(&self, queue: QueueId, id: OwnerId) -> impl Iterator<Item = (RequestId, &QueuedRequest)> {
        self.waiting_listed(queue, queue, id)
    }

    /// The waiting requests of an owner that are listed under these queues.
    fn waiting_listed(
        &self,
        from: QueueId,
        to: QueueId,
        id: OwnerId,
    ) -> impl Iterator<Item = (RequestId, &QueuedRequest)> {
        let range = (from, RequestId::FIRST)..=(to, RequestId::LAST);
        let listed = self.owners.get(id).into_iter().flat_map(move |entry| entry.listed.range(range.clone()));
        let queued = listed.filter_map(|(_, id)| Some((*id, self.requests.get(id)?)));
        queued.filter(|(id, request)| self.waits(*id, request))
    }

    fn present<'a>(&'a self, entry: &'a OwnerEntry) -> impl Iterator<Item = (RequestId, &'a QueuedRequest)> + 'a {
        let queued = entry.listed.iter().filter_map(|(_, id)| Some((*id, self.requests.get(id)?)));
        queued.filter(|(id, request)| self.waits(*id, request))
    }

    fn waits(&self, id: RequestId, request: &QueuedRequest) -> bool {
        request.is_present() && !self.is_done(id, request)
    }

    /// Whether no table has an entry left once all requests are gone.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_clean(&self) -> bool {
        let mut rest = self.clone();
        rest.forget_unused();
        rest.by_key.values().all(BTreeMap::is_empty)
            && rest.requests.is_empty()
            && rest.owners.is_empty()
            && rest.away.is_empty()
            && rest.done.is_empty()
            && rest.done_waiters == 0
            && rest.waited_for.is_empty()
            && rest.unheld == 0
            && !rest.is_walk_awaited
            && rest.names.is_empty()
    }
}

/// Changes.
impl WaitQueues {
    /// Puts a request into the wait queues of its keys.
    pub fn enter(&mut self, arrival: Arrival<'_>) -> RequestId {
        let Arrival { new, since, until, session, may_come_back, coalesces } = arrival;
        let NewRequest { db, names, request, owner_id, place, .. } = new;
        let id = RequestId(self.number());
        let queues: OneOrMany<_> =
            names.iter().map(|name| self.queue_for(KeyRef { db, name }, request.claim.family())).collect();
        for queue in &queues {
            let queue = self.queues.get_mut(queue).expect("queue_for found or made it");
            queue.several += usize::from(queues.len() > 1);
            queue.requests_mut(coalesces).present.insert(place.clone(), id);
            queue.limit = request.claim.limit().or(queue.limit);
        }
        self.several += usize::from(queues.len() > 1);
        let listed_under = *queues.iter().min().expect("a request names at least one key");
        let owner = request.owner.to_owner();
        let owner_id = self.owners.enlist(db, &owner, owner_id, listed_under, id);
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
        let has_several_keys = queued.has_several_keys();
        self.requests.insert(id, queued);
        let listed = self.owners.get(owner_id).map(|entry| &entry.listed);
        match listed.map_or(0, BTreeSet::len) {
            // The owner had one request, now it has two: both are marked.
            2 => {
                let both: Vec<_> = listed.into_iter().flatten().map(|(_, id)| *id).collect();
                both.into_iter().for_each(|id| self.waits_elsewhere(id));
            }
            1 if !has_several_keys => {}
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

    /// Removes a request for good, with the wait queues that this leaves empty.
    pub fn leave(&mut self, id: RequestId) -> Option<(QueuedRequest, Others)> {
        let request = self.requests.remove(&id)?;
        self.leave_done(id, &request);
        match request.away {
            Some(away) => _ = self.away.remove(&away),
            None => self.several -= usize::from(request.has_several_keys()),
        }
        for queue_id in &request.queues {
            let Some(queue) = self.queues.get_mut(queue_id) else { continue };
            queue.requests_mut(request.coalesces).remove(&request.place, request.away);
            if request.is_present() {
                queue.several -= usize::from(request.has_several_keys());
                queue.elsewhere -= usize::from(request.may_wait_elsewhere);
            }
            if queue.is_empty() && self.emptied != Some(*queue_id) {
                self.close(*queue_id);
            }
        }
        let others = self.owners.unlist(request.owner_id, request.listed_under, id);
        Some((request, others))
    }

    /// The key is released: takes all requests with COALESCE out of its queue at once, however many they are. They are
    /// replied to one by one ([`WaitQueues::next_done`]); the first of them to leave removes the queue if it is empty.
    pub fn end_coalescing(&mut self, id: QueueId, fence: Fence) {
        let Some(queue) = self.get_mut(id).filter(|queue| !queue.coalescing.is_empty()) else { return };
        let requests = std::mem::take(&mut queue.coalescing);
        self.done_waiters += requests.present.len();
        self.done.insert((id, RequestId(self.last_number)), Done { fence, requests });
        self.next_done = id;
    }

    fn leave_done(&mut self, id: RequestId, request: &QueuedRequest) {
        let Some(key) = self.done_key(id, request) else { return };
        let Some(Done { requests, .. }) = self.done.get_mut(&key) else { return };
        requests.remove(&request.place, request.away);
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
                let standing = queue.requests_mut(request.coalesces);
                standing.present.remove(&request.place);
                standing.away.insert(departure);
                queue.several -= usize::from(request.has_several_keys());
                queue.elsewhere -= usize::from(request.may_wait_elsewhere);
            }
        }
    }

    /// Moves a waiter from the head, its place as an upgrade, to the place of its arrival.
    pub fn end_upgrade(&mut self, id: RequestId) {
        let arrival = self.requests.get(&id).map(|request| request.place.arrival);
        arrival.into_iter().for_each(|arrival| self.move_to(id, Place::last(Rank::Normal, arrival)));
    }

    /// Moves a waiter to another place in all of its queues.
    pub fn move_to(&mut self, id: RequestId, place: Place) {
        // No request that comes later gets the same place.
        self.number();
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        let before = std::mem::replace(&mut request.place, place);
        for queue in &request.queues {
            if let Some(queue) = self.queues.get_mut(queue) {
                let present = &mut queue.requests_mut(request.coalesces).present;
                present.remove(&before);
                present.insert(request.place.clone(), id);
            }
        }
    }

    /// Records the holders of a queue's key; `None` if there is no lock. Call it after each grant; after the end of a
    /// hold it may be called later. `owner`: the owner of a queued request that was just granted the key, whose name is
    /// not looked up then. Returns the waiting requests for several keys of a holder that has lost the key.
    pub fn note_holders(&mut self, id: QueueId, lock: Option<&Lock>, owner: Option<OwnerId>) -> Vec<RequestId> {
        let Some(queue) = self.get(id) else { return Vec::new() };
        let (db, has_several) = (queue.key.db, queue.has_requests_for_several());
        let former = self.waited_for.note(&mut self.owners, id, db, lock, owner).filter(|_| has_several);
        let waiting = former.into_iter().flat_map(|former| self.all_waiting_in(id, former));
        waiting.filter(|(_, request)| request.has_several_keys()).map(|(request, _)| request).collect()
    }

    /// The key of a queue was changed by another command: its holders are unknown until it is opened.
    pub fn holders_may_differ(&mut self, id: QueueId) {
        if self.get(id).is_some() {
            self.waited_for.becomes_opaque(id);
        }
    }

    /// All keys of a database may have changed. A walk over the queues follows, which marks each before it opens the
    /// key: marked here, 126,000 of them take 20 ms.
    pub fn await_walk(&mut self) {
        self.is_walk_awaited = !self.is_empty();
    }

    /// The walk over the queues has ended.
    pub fn end_walk(&mut self) {
        self.is_walk_awaited = false;
    }

    /// Records which of its queues blocks the request; `None` if unknown.
    pub fn set_blocked_on(&mut self, id: RequestId, queue: Option<QueueId>) {
        self.requests.get_mut(&id).into_iter().for_each(|request| request.blocked_on = queue);
    }

    /// Records the latest fence under the key of a queue, at its inspection.
    pub fn set_seen(&mut self, id: QueueId, fence: Option<Fence>) {
        let Some(queue) = self.get_mut(id) else { return };
        let before = std::mem::replace(&mut queue.seen, fence);
        self.unheld -= usize::from(before.is_none());
        self.unheld += usize::from(fence.is_none());
    }

    /// A command of the server has removed a lock from its key without reporting where it went: RENAME and MOVE may
    /// have stored it under a waited-for key that held none.
    pub fn lock_may_have_moved(&mut self) {
        if self.unheld > 0 {
            // Two, because one round may be under way.
            self.rounds_to_know = 2;
        }
    }

    /// A round of inspections has visited every key.
    pub fn end_round(&mut self) {
        self.rounds_to_know = self.rounds_to_know.saturating_sub(1);
        if !std::mem::take(&mut self.was_emptied) {
            self.forget_unused();
        }
    }

    /// Removes what was kept for the next requests: the queue that was emptied last, and unused owners.
    fn forget_unused(&mut self) {
        if let Some(id) = self.emptied.take() {
            self.remove_queue(id);
        }
        self.owners.forget_unused();
    }

    /// Sets the limit of a semaphore's queue. Returns whether it changed. A queue of another family, with kept places
    /// only, has none: requests for its family may follow.
    pub fn set_limit(&mut self, id: QueueId, limit: u32) -> bool {
        let queue = self.get_mut(id).filter(|queue| queue.family == Family::Semaphore);
        queue.is_some_and(|queue| queue.limit.replace(limit) != Some(limit))
    }

    fn queue_for(&mut self, key: KeyRef<'_>, family: Family) -> QueueId {
        if let Some(id) = self.find_with_emptied(key) {
            let queue = self.queues.get_mut(&id).expect("by_key names queues that exist");
            if self.emptied == Some(id) {
                return self.reopen(id, family);
            }
            // Only kept places are left: the new request decides the family.
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

    /// A request comes to the emptied queue. It gets a new id: queues that are due together are served in the order of
    /// their ids, and the id may be known from before.
    fn reopen(&mut self, emptied: QueueId, family: Family) -> QueueId {
        self.emptied = None;
        let id = QueueId(self.number());
        let WaitQueue { key, .. } = self.queues.remove(&emptied).expect("the emptied queue exists");
        let named = self.by_key.get_mut(&key.db).and_then(|names| names.get_mut(&key.name));
        named.into_iter().for_each(|named| *named = id);
        self.queues.insert(id, WaitQueue::new(key, family));
        self.unheld += 1;
        id
    }

    /// The last request has left the queue.
    fn close(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(&id) else { return };
        self.unheld -= usize::from(queue.seen.is_none());
        self.waited_for.forget(&mut self.owners, id);
        self.was_emptied = true;
        if let Some(former) = self.emptied.replace(id) {
            self.remove_queue(former);
        }
        self.is_walk_awaited &= !self.is_empty();
    }

    fn remove_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queues.remove(&id) else { return };
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
