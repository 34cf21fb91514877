//! The wait queues of one server: the requests that wait for each key, in order.
//!
//! A request is in the wait queue of each of its keys, at its position. The position is the same in all of them, so
//! that two multi-key requests have the same order everywhere. After its client has left (stopped waiting or
//! disconnected), a request has a reserved position for a while, which is skipped. This file maintains the order;
//! admission is decided in `engine`.

#[cfg(any(test, feature = "testing"))]
mod consistency;
mod of_owner;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

pub use self::of_owner::OfOwner;
use super::holdings::{Holdings, MayHold};
use super::lookups;
use super::owners::Owners;
use super::position::{QueuePosition, Rank};
use super::queue_table::QueueTable;
use super::request::{Arrival, NewRequest, Others, OwnerId, QueueId, QueuedRequest};
use super::timer_set::TimerSet;
use super::wait_queue::{OrderedRequests, Precedence};
use crate::id_map::IdMap;
use crate::key::{Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, LockType, Share};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::owner::Owner;
use crate::value::time::{Instant, Timestamp};

/// All wait queues of one server.
#[derive(Clone, Debug, Default)]
pub struct WaitQueues {
    table: QueueTable,
    requests: IdMap<RequestId, QueuedRequest>,
    owners: Owners,
    /// When waits and reserved positions time out.
    pub(crate) wait_timers: TimerSet<RequestId, Instant>,
    /// When leases of waited-for keys may expire.
    pub(crate) lease_timers: TimerSet<QueueId, Timestamp>,
    /// The requests with reserved positions, by when their clients left.
    detached: BTreeMap<u64, RequestId>,
    /// COALESCE requests that a release has completed but that have no reply yet. Each group has as its key the queue,
    /// and the last number assigned before the release, as a request ID. They are no longer in the queue, so a new
    /// request finds the key free at once.
    done: BTreeMap<(QueueId, RequestId), Done>,
    /// How many of them are waiters that need a reply, not reserved positions.
    done_waiters: usize,
    /// The queue whose completed requests get the next reply: round-robin, starting with that of the latest release.
    next_done: QueueId,
    /// Which owners may hold the keys.
    holdings: Holdings,
    /// How many of the waiters want multiple keys.
    multi_key: usize,
    last_number: u64,
}

impl Deref for WaitQueues {
    type Target = QueueTable;

    fn deref(&self) -> &QueueTable {
        &self.table
    }
}

/// The requests that one release has completed.
#[derive(Clone, Debug)]
struct Done {
    /// The fencing token of the released hold.
    fence: Fence,
    requests: OrderedRequests,
}

/// Queries.
impl WaitQueues {
    /// The number of waiters, without reserved positions.
    pub fn waiters(&self) -> usize {
        debug_assert!(self.detached.len() + self.done_waiters <= self.requests.len(), "each is a request");
        self.requests.len() - self.detached.len() - self.done_waiters
    }

    /// The number of reserved positions.
    pub fn reserved_positions(&self) -> usize {
        self.detached.len()
    }

    /// Whether any waiter wants multiple keys.
    pub fn has_multi_key_requests(&self) -> bool {
        self.multi_key > 0
    }

    /// A request that is queued or has a reserved position.
    pub fn request(&self, id: RequestId) -> Option<&QueuedRequest> {
        lookups::record();
        self.requests.get(&id)
    }

    /// Whether the request is queued or has a reserved position.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Whether the request is queued and its client waits.
    pub fn is_present(&self, id: RequestId) -> bool {
        self.request(id).is_some_and(QueuedRequest::is_present)
    }

    /// All requests that are queued or have reserved positions, in no particular order.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &QueuedRequest)> + '_ {
        self.requests.iter().map(|(id, request)| (*id, request)).filter(|(id, request)| !self.is_done(*id, request))
    }

    /// The fencing token of the released hold that has completed this request, if one has.
    pub fn done_by(&self, id: RequestId) -> Option<Fence> {
        if !self.has_done() {
            return None;
        }
        Some(self.done.get(&self.done_key(id, self.requests.get(&id)?)?)?.fence)
    }

    /// The next completed request without a reply. Successive calls rotate through the queues.
    pub fn next_done(&mut self) -> Option<RequestId> {
        let next = self.done.range((self.next_done, RequestId::FIRST)..).next();
        let ((queue, _), Done { requests, .. }) = next.or_else(|| self.done.first_key_value())?;
        self.next_done = QueueId(queue.0 + 1);
        let reserved = || self.detached.get(requests.detached.first()?);
        requests.present.first_key_value().map(|(_, id)| id).or_else(reserved).copied()
    }

    /// Whether any request that a release has completed has no reply yet.
    #[inline]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    fn is_done(&self, id: RequestId, request: &QueuedRequest) -> bool {
        self.has_done() && self.done_key(id, request).is_some()
    }

    /// The key in `done` of the release that has completed the request: with COALESCE, the first release after its
    /// arrival.
    fn done_key(&self, id: RequestId, request: &QueuedRequest) -> Option<(QueueId, RequestId)> {
        let queue = *request.queues.first().filter(|_| request.coalesces)?;
        let (key, _) = self.done.range((queue, id)..=(queue, RequestId::LAST)).next()?;
        Some(*key)
    }

    /// Every request in a queue: waiters first, then reserved positions.
    pub fn all_in(&self, id: QueueId) -> Vec<RequestId> {
        let Some(queue) = self.get(id) else { return Vec::new() };
        let mut all: Vec<_> = queue.present().map(|(_, id)| id).collect();
        let detached = queue.ordinary.detached.iter().chain(&queue.coalescing.detached);
        all.extend(detached.filter_map(|sequence| self.detached.get(sequence)));
        all
    }

    /// The keys that a request waits for, in the order of the request.
    pub fn keys_of<'a>(&'a self, request: &'a QueuedRequest) -> impl Iterator<Item = &'a Key> + 'a {
        request.queues.iter().filter_map(|id| self.get(*id)).map(|queue| &queue.key)
    }

    /// The position behind all present requests of the same rank.
    pub fn last_position(&self, rank: Rank) -> QueuePosition {
        QueuePosition::last(rank, self.last_number)
    }

    /// Whether the position is behind all requests of all queues.
    pub(super) fn is_last(&self, position: &QueuePosition) -> bool {
        *position == self.last_position(Rank::Normal)
    }

    /// The reserved position whose client left first.
    pub fn oldest_reserved(&self) -> Option<RequestId> {
        self.detached.first_key_value().map(|(_, id)| *id)
    }

    /// The reserved position in this queue whose client left first.
    pub fn oldest_reserved_in(&self, id: QueueId) -> Option<RequestId> {
        self.detached.get(&self.get(id)?.oldest_reserved()?).copied()
    }

    /// The id of an owner that has requests.
    pub fn owner_id(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        lookups::record();
        self.owners.id_of(db, owner)
    }

    /// The requests of an owner; `None` stands for an owner that is not in the table.
    pub fn of_owner(&self, id: Option<OwnerId>) -> OfOwner<'_> {
        OfOwner { queues: self, id }
    }

    /// The queues whose keys an owner may hold.
    pub(crate) fn may_hold(&self, db: i32, owner: &[u8]) -> MayHold<'_> {
        self.holdings.of(db, owner)
    }

    /// Whether any request may wait for this owner, which has this id. If not, no deadlock detection is needed. May be
    /// a false positive, never a false negative.
    pub fn may_be_waited_for(&self, db: i32, owner: &[u8], id: Option<OwnerId>) -> bool {
        let waits = |id| self.of_owner(Some(id)).waiting().next().is_some();
        self.of_owner(id).with_requests().is_some_and(waits) || !self.may_hold(db, owner).is_empty()
    }

    /// Whether no table has an entry left after all requests are gone.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_clean(&self) -> bool {
        let mut rest = self.clone();
        rest.owners.forget_unused();
        rest.table.is_clean()
            && rest.requests.is_empty()
            && rest.owners.is_empty()
            && rest.wait_timers.is_empty()
            && rest.lease_timers.is_empty()
            && rest.detached.is_empty()
            && rest.done.is_empty()
            && rest.done_waiters == 0
            && rest.holdings.is_clean()
    }
}

/// Changes.
impl WaitQueues {
    /// Adds a request to the wait queues of its keys.
    pub fn enqueue(&mut self, arrival: Arrival<'_>) -> RequestId {
        let Arrival { new, since, until, session, may_detach, coalesces, lease_deadline } = arrival;
        let NewRequest { db, names, request, owner_id, position, .. } = new;
        let id = RequestId(self.number());
        let queues: OneOrMany<_> =
            names.iter().map(|name| self.queue_for(KeyRef { db, name }, request.claim.lock_type())).collect();
        debug_assert!(!coalesces || queues.len() == 1, "a release completes requests for its key alone");
        debug_assert_eq!(queues.iter().collect::<BTreeSet<_>>().len(), names.len(), "the keys are distinct");
        for queue in &queues {
            let queue = self.table.get_mut(*queue).expect("queue_for found or created it");
            queue.multi_key += usize::from(queues.len() > 1);
            queue.requests_mut(coalesces).insert(position.clone(), id);
            queue.limit = request.claim.limit().or(queue.limit);
        }
        self.multi_key += usize::from(queues.len() > 1);
        let listed_under = *queues.iter().min().expect("a request names at least one key");
        let owner = request.owner.to_owner();
        let (owner_id, listed) = self.owners.add_request(db, &owner, owner_id, listed_under, id);
        // The owner's second request: from now on, both are marked.
        let both: Vec<_> = if listed.len() == 2 { listed.iter().map(|(_, id)| id).collect() } else { Vec::new() };
        let is_only = listed.len() == 1;
        let queued = QueuedRequest {
            owner,
            claim: request.claim,
            lease: request.lease,
            db,
            queues,
            position,
            since,
            until,
            session,
            may_detach,
            coalesces,
            lease_deadline,
            owner_id,
            listed_under,
            may_have_other_waits: false,
            blocked_on: None,
            detached: None,
        };
        let has_multiple_keys = queued.has_multiple_keys();
        if let Some(until) = until {
            self.wait_timers.set(id, None, until);
        }
        let before = self.requests.insert(id, queued);
        debug_assert!(before.is_none(), "the id of a request is not reused");
        for id in both {
            self.mark_other_waits(id);
        }
        if !is_only || has_multiple_keys {
            self.mark_other_waits(id);
        }
        id
    }

    fn mark_other_waits(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if !std::mem::replace(&mut request.may_have_other_waits, true) && request.is_present() {
            for queue in &request.queues {
                if let Some(queue) = self.table.get_mut(*queue) {
                    queue.with_other_waits += 1;
                }
            }
        }
    }

    /// Removes a request, and the wait queues that become empty.
    pub fn remove(&mut self, id: RequestId) -> Option<(QueuedRequest, Others)> {
        let request = self.requests.remove(&id)?;
        let was_done = self.remove_done(id, &request);
        self.wait_timers.clear(id, request.until);
        match request.detached {
            Some(detached) => {
                let reserved = self.detached.remove(&detached);
                debug_assert_eq!(reserved, Some(id), "the reserved position is that of the request");
            }
            None => self.multi_key -= usize::from(request.has_multiple_keys()),
        }
        for queue_id in &request.queues {
            let Some(queue) = self.table.get_mut(*queue_id) else {
                debug_assert!(was_done, "a queued request keeps its queues open");
                continue;
            };
            if !was_done {
                queue.requests_mut(request.coalesces).remove(&request.position, request.detached);
            }
            if request.is_present() {
                queue.multi_key -= usize::from(request.has_multiple_keys());
                queue.holder_requests.remove(&id);
                queue.with_other_waits -= usize::from(request.may_have_other_waits);
            }
            if queue.is_empty() {
                self.close(*queue_id);
            }
        }
        let others = self.owners.remove_request(request.owner_id, request.listed_under, id);
        Some((request, others))
    }

    /// Completes all COALESCE requests of a released key: takes them out of the queue in constant time. They get their
    /// replies one by one ([`WaitQueues::next_done`]). Removing the first of them also closes the queue if it is empty.
    pub fn complete_coalescing(&mut self, id: QueueId, fence: Fence) {
        let Some(queue) = self.table.get_mut(id).filter(|queue| !queue.coalescing.is_empty()) else { return };
        let requests = std::mem::take(&mut queue.coalescing);
        self.done_waiters += requests.present.len();
        let before = self.done.insert((id, RequestId(self.last_number)), Done { fence, requests });
        debug_assert!(before.is_none(), "each of these requests has arrived after the last release");
        self.next_done = id;
    }

    /// Removes the request from those that a release has completed. Returns whether it was one of them.
    fn remove_done(&mut self, id: RequestId, request: &QueuedRequest) -> bool {
        let Some(key) = self.done_key(id, request) else { return false };
        let Some(Done { requests, .. }) = self.done.get_mut(&key) else { return false };
        requests.remove(&request.position, request.detached);
        self.done_waiters -= usize::from(request.is_present());
        if requests.is_empty() {
            self.done.remove(&key);
        }
        true
    }

    /// The client has left, so the position of the request is reserved until this time.
    pub fn reserve_position(&mut self, id: RequestId, until: Instant) {
        let sequence = self.number();
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        request.detached = Some(sequence);
        self.wait_timers.set(id, request.until.replace(until), until);
        self.detached.insert(sequence, id);
        self.multi_key -= usize::from(request.has_multiple_keys());
        for queue in &request.queues {
            if let Some(queue) = self.table.get_mut(*queue) {
                queue.requests_mut(request.coalesces).reserve(&request.position, sequence);
                queue.multi_key -= usize::from(request.has_multiple_keys());
                queue.holder_requests.remove(&id);
                queue.with_other_waits -= usize::from(request.may_have_other_waits);
            }
        }
    }

    /// The owner of an upgrade no longer reads, so moves its request from the head to the position by its arrival.
    pub fn end_upgrade(&mut self, id: RequestId) {
        if let Some(arrival) = self.requests.get(&id).map(|request| request.position.arrival) {
            self.move_to(id, QueuePosition::last(Rank::Normal, arrival));
        }
    }

    /// Moves a waiter to another position in all of its queues.
    pub fn move_to(&mut self, id: RequestId, position: QueuePosition) {
        // Consumes the number, so that no later request gets the same position.
        self.number();
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        let before = std::mem::replace(&mut request.position, position);
        for queue in &request.queues {
            if let Some(queue) = self.table.get_mut(*queue) {
                let requests = queue.requests_mut(request.coalesces);
                requests.remove(&before, None);
                requests.insert(request.position.clone(), id);
            }
        }
    }

    /// Records the holders of a queue's key; `None` means that there is no lock. Must be called right after each grant,
    /// because a record may never omit a holder. After the end of a hold it may be called later. Returns the waiting
    /// multi-key requests of a holder that has lost the key.
    pub fn record_holders(&mut self, id: QueueId, lock: Option<&Lock>) -> Vec<RequestId> {
        let Some(queue) = self.table.get_mut(id) else { return Vec::new() };
        let has_changed = self.holdings.record(id, &mut queue.holders, queue.key.db, lock);
        if has_changed && queue.has_multi_key_requests() {
            self.set_holder_requests(id, lock.and_then(Lock::exclusive_owner))
        } else {
            Vec::new()
        }
    }

    /// Sets `holder_requests` for the current holder of a queue's key. Returns those of the former holder.
    fn set_holder_requests(&mut self, id: QueueId, holder: Option<&Owner>) -> Vec<RequestId> {
        let Some(db) = self.get(id).map(|queue| queue.key.db) else { return Vec::new() };
        let holder = holder.and_then(|holder| self.owner_id(db, holder.as_bytes()));
        let waiting = self.of_owner(holder).all_waiting_in(id).filter(|(_, request)| request.has_multiple_keys());
        let now: BTreeSet<_> = waiting.map(|(request, _)| request).collect();
        let Some(queue) = self.table.get_mut(id) else { return Vec::new() };
        let before = std::mem::replace(&mut queue.holder_requests, now);
        before.difference(&queue.holder_requests).copied().collect()
    }

    /// Adds a multi-key request whose owner holds the key of this queue.
    pub fn add_holder_request(&mut self, request: RequestId, id: QueueId) {
        if let Some(queue) = self.table.get_mut(id) {
            debug_assert!(
                self.requests.get(&request).is_some_and(|request| request.has_multiple_keys() && request.is_in(id)),
                "only a multi-key request of this queue counts on its key"
            );
            queue.holder_requests.insert(request);
        }
    }

    /// Another command has changed the key of a queue, so its holders are unknown until it is opened.
    pub fn mark_holders_unknown(&mut self, id: QueueId) {
        if self.get(id).is_some() {
            self.holdings.mark_unknown(id);
        }
    }

    /// All keys of a database may have changed, so all holders are unknown until a rescan has visited the queues.
    /// Marking each of 126,000 queues here would take 20 ms, so the rescan does that.
    pub fn set_rescan_pending(&mut self) {
        if !self.is_empty() {
            self.holdings.mark_all_unknown();
        }
    }

    /// Whether the key of a queue may hold a different lock although its fencing token is the one that was seen. While
    /// a rescan is pending, a lock of a shared type may be a copy stored by RESTORE, with other holders and another
    /// LIMIT. A mutex with the same token has the same holder.
    pub fn may_be_a_copy(&self, id: QueueId) -> bool {
        self.holdings.rescan_pending() && self.get(id).is_some_and(|queue| !queue.lock_type.is_exclusive())
    }

    /// The rescan of the queues has ended.
    pub fn end_rescan(&mut self) {
        self.holdings.end_rescan();
    }

    /// An owner has become a holder of a queue's key, so its waiting requests there may reenter, at any position. For a
    /// semaphore, only requests that its share covers are listed; for other locks, admission decides.
    pub fn list_reentering(&mut self, id: QueueId, owner: OwnerId, held: impl FnOnce() -> Share) {
        let Some(queue) = self.get(id) else { return };
        let held = (queue.lock_type == LockType::Semaphore).then(held);
        let may_reenter = |claim: &Claim| held.is_none_or(|held| held.covers(claim));
        let requests = self.of_owner(Some(owner)).requests_in(id, may_reenter);
        if let Some(queue) = self.table.get_mut(id).filter(|_| !requests.is_empty()) {
            queue.reentering.insert(owner, requests.into());
        }
    }

    /// Puts a request back at the front of its owner's list.
    pub fn put_back_reentering(&mut self, id: QueueId, request: RequestId) {
        let Some(owner) = self.requests.get(&request).map(|queued| queued.owner_id) else { return };
        if let Some(queue) = self.table.get_mut(id) {
            queue.reentering.entry(owner).or_default().push_front(request);
        }
    }

    /// The owner no longer holds the key of the queue, so none of its requests reenters.
    pub fn end_reentering(&mut self, id: QueueId, owner: OwnerId) {
        if let Some(queue) = self.table.get_mut(id) {
            queue.reentering.remove(&owner);
        }
    }

    /// No request waits in the queue any more, so none reenters.
    pub fn end_all_reentering(&mut self, id: QueueId) {
        if let Some(queue) = self.table.get_mut(id) {
            queue.reentering.clear();
        }
    }

    /// The request to serve next: the next one that may reenter, which is removed from its list, or else the head.
    pub fn next_to_serve(&mut self, id: QueueId) -> Option<(RequestId, Precedence)> {
        let queue = self.table.get_mut(id)?;
        if let Some(mut first) = queue.reentering.first_entry() {
            let next = first.get_mut().pop_front().expect("no list is empty");
            if first.get().is_empty() {
                first.remove();
            }
            let is_head = queue.head().is_some_and(|(_, head)| head == next);
            // The owner may have been granted the key that blocked this multi-key request together with this key.
            self.set_blocked_on(next, None);
            return Some((next, if is_head { Precedence::First } else { Precedence::Behind }));
        }
        queue.head().map(|(_, request)| (request, Precedence::First))
    }

    /// Records which of its queues blocks the request; `None` if that is not known.
    pub fn set_blocked_on(&mut self, id: RequestId, queue: Option<QueueId>) {
        if let Some(request) = self.requests.get_mut(&id) {
            debug_assert!(queue.is_none_or(|queue| request.is_in(queue)), "a request is blocked by one of its queues");
            request.blocked_on = queue;
        }
    }

    /// Records the fencing token that was found under a queue's key.
    pub fn set_seen(&mut self, id: QueueId, fence: Option<Fence>) {
        let Some(queue) = self.table.get_mut(id) else { return };
        let before = std::mem::replace(&mut queue.seen, fence);
        self.holdings.seen_replaced(before, fence);
    }

    /// Sets the timer of the queue to this time, when a lease may expire, unless it fires earlier. A timer that fires
    /// too early only causes another inspection, which is cheaper than moving the timer with each lease.
    pub fn watch_lease(&mut self, id: QueueId, end: Timestamp) {
        let queue = self.table.get_mut(id).filter(|queue| queue.lease_end.is_none_or(|watched| end < watched));
        if let Some(queue) = queue {
            self.lease_timers.set(id, queue.lease_end.replace(end), end);
        }
    }

    /// Removes and returns a request whose wait or reserved position has timed out.
    pub fn take_timed_out(&mut self, now: Instant) -> Option<RequestId> {
        let id = self.wait_timers.pop_due(now)?;
        debug_assert!(
            self.requests.get(&id).and_then(|request| request.until).is_some_and(|until| until <= now),
            "the timer is that of a request that has timed out"
        );
        Some(id)
    }

    /// Whether the host must rearm its timer: since the last call, a timer was set that fires before all others.
    #[inline]
    pub fn take_needs_rearm(&mut self) -> bool {
        // No short-circuit, because both flags must be cleared.
        self.wait_timers.take_needs_rearm() | self.lease_timers.take_needs_rearm()
    }

    /// Removes and returns a queue that must be served because a lease may have expired.
    pub fn take_due_lease(&mut self, now: Timestamp) -> Option<QueueId> {
        let id = self.lease_timers.pop_due(now)?;
        debug_assert!(
            self.get(id).and_then(|queue| queue.lease_end).is_some_and(|end| end <= now),
            "the timer is that of an open queue"
        );
        if let Some(queue) = self.table.get_mut(id) {
            queue.lease_end = None;
        }
        Some(id)
    }

    /// A command of the server has removed a lock from its key without reporting where it went: RENAME and MOVE may
    /// have stored it under a waited-for key that held none.
    pub fn lock_may_have_moved(&mut self) {
        self.holdings.mark_unheld_unknown();
    }

    /// An inspection round has visited every key.
    pub fn end_round(&mut self) {
        self.holdings.end_round();
    }

    /// Sets the limit of a semaphore's queue. Returns whether it changed. Does nothing for a queue of another lock
    /// type, which may have only reserved positions left, because requests of that type may follow.
    pub fn set_limit(&mut self, id: QueueId, limit: u32) -> bool {
        let queue = self.table.get_mut(id).filter(|queue| queue.lock_type == LockType::Semaphore);
        queue.is_some_and(|queue| queue.limit.replace(limit) != Some(limit))
    }

    fn queue_for(&mut self, key: KeyRef<'_>, lock_type: LockType) -> QueueId {
        let last = &mut self.last_number;
        let new_id = || {
            *last += 1;
            QueueId(*last)
        };
        let (id, is_new) = self.table.open(key, lock_type, new_id);
        if is_new {
            self.holdings.add();
            return id;
        }
        let queue = self.table.get_mut(id).expect("the table has opened it");
        // Only reserved positions are left, so the new request decides the lock type.
        if queue.waiters() == 0 && queue.lock_type != lock_type {
            queue.lock_type = lock_type;
            queue.limit = None;
        }
        id
    }

    /// Closes a queue whose last request has left.
    fn close(&mut self, id: QueueId) {
        let Some(mut queue) = self.table.close(id) else { return };
        let is_last = self.is_empty();
        self.holdings.forget(id, std::mem::take(&mut queue.holders), queue.seen, is_last);
        self.lease_timers.clear(id, queue.lease_end);
        self.table.keep_spare(queue);
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

#[cfg(test)]
mod tests;
