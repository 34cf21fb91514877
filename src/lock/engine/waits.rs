//! The waiting requests: their queues, and the pending work for them. No lock is opened and no client gets a reply
//! here.

use super::backlog::Backlog;
use super::limits::Limits;
use super::lock_error::LockError;
use super::pending_removals::{Leave, PendingRemoval, Phase};
use crate::host::{WaitOutcome, WriteCheck};
use crate::key::{KeyRef, RequestId};
use crate::queue::position::{QueuePosition, Rank};
use crate::queue::queues::WaitQueues;
use crate::queue::request::{NewRequest, Others, OwnerId, QueueId};
use crate::queue::wait_queue::{WaitQueue, WaiterLimit};
use crate::value::claim::LockRequest;
use crate::value::lock::Lock;
use crate::value::time::{Deadline, Now};

/// The waits of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    pub queues: WaitQueues,
    pub backlog: Backlog,
}

/// Arrivals.
impl Waits {
    /// The request as it would be queued: at the position of the request that it repeats, or behind all requests of its
    /// rank.
    pub fn new_request<'a>(
        &self,
        db: i32,
        names: &'a [&'a [u8]],
        request: LockRequest<'a>,
        owner_id: Option<OwnerId>,
        replaces: Option<RequestId>,
        rank: Rank,
    ) -> NewRequest<'a> {
        let position = self.retried_position(replaces, rank).unwrap_or_else(|| self.queues.last_position(rank));
        NewRequest { db, names, request, owner_id, position, replaces }
    }

    /// The position of the repeated request. If it was reserved for an upgrade, and the owner no longer reads, it
    /// becomes a normal position by arrival.
    pub fn retried_position(&self, retried: Option<RequestId>, rank: Rank) -> Option<QueuePosition> {
        match self.queues.request(retried?)? {
            queued if queued.is_present() || queued.position.rank == rank => Some(queued.position.clone()),
            queued if rank == Rank::Normal => Some(QueuePosition::last(rank, queued.position.arrival)),
            _ => None,
        }
    }

    /// Whether the position of the request depends on which owners hold the keys of others.
    pub fn needs_position(&self, new: &NewRequest<'_>) -> bool {
        self.queues.has_multi_key_requests() && self.retried_position(new.replaces, new.position.rank).is_none()
    }

    /// Refuses the request if the server or one of its keys has the maximum number of waiters. A retry that replaces a
    /// waiter is never refused.
    pub fn check_room(&self, limits: &Limits, new: &NewRequest<'_>) -> Result<(), LockError> {
        if new.replaces.is_some_and(|id| self.queues.is_present(id)) {
            return Ok(());
        }
        if self.queues.waiters() >= limits.max_waiters {
            return Err(LockError::MaxWaiters(WaiterLimit::Server(limits.max_waiters)));
        }
        let Some(limit) = limits.max_waiters_per_key else { return Ok(()) };
        if new.names.iter().any(|name| self.queues.waiters_of(new.key(name)) >= limit) {
            Err(LockError::MaxWaiters(WaiterLimit::Key(limit)))
        } else {
            Ok(())
        }
    }
}

/// Ends of waits.
impl Waits {
    /// The client of a queued request has stopped waiting. Returns how many reserved positions this has ended.
    pub fn leave(&mut self, now: &Now, id: RequestId, mode: Leave, limits: &Limits) -> u64 {
        let Some(request) = self.queues.request(id) else { return 0 };
        // Requests behind it may be admissible without it, for example readers behind a writer.
        self.backlog.queues.extend(request.queues.iter().copied());
        if mode == Leave::Abandon || !self.may_reserve_position(id, limits) {
            _ = self.remove(id);
            return 0;
        }
        self.queues.reserve_position(id, now.instant().plus_ms(limits.keep_place_ms));
        self.limit_reserved_positions(id, limits)
    }

    /// Whether the position of the request is reserved when its client leaves.
    pub fn may_reserve_position(&self, id: RequestId, limits: &Limits) -> bool {
        let may_detach = self.queues.request(id).is_some_and(|request| request.may_detach);
        may_detach && limits.keep_place_ms > 0 && !matches!(self.ended(id), Some(Phase::Done(_)))
    }

    /// Ends the oldest reserved positions of each key of the request, then of the server, until there are no more than
    /// the maximum number of waiters. Other keys need no check, because only the position of this request is new.
    /// Returns how many it has ended.
    fn limit_reserved_positions(&mut self, id: RequestId, limits: &Limits) -> u64 {
        let mut ended = 0;
        let queues = self.queues.request(id).map(|request| request.queues.clone());
        for queue in queues.into_iter().flatten() {
            while let Some(oldest) = self.oldest_above_limit(queue, limits) {
                ended += 1;
                self.remove(oldest);
            }
        }
        while self.queues.reserved_positions() > limits.max_waiters {
            let Some(oldest) = self.queues.oldest_reserved() else { break };
            ended += 1;
            self.remove(oldest);
        }
        ended
    }

    /// The oldest reserved position of a key that has more of them than the limit.
    fn oldest_above_limit(&self, queue: QueueId, limits: &Limits) -> Option<RequestId> {
        let (limit, reserved) = (limits.max_waiters_per_key?, self.queues.get(queue)?.reserved_positions());
        (reserved > limit).then(|| self.queues.oldest_reserved_in(queue))?
    }

    /// Removes a request from its queues.
    pub fn remove(&mut self, id: RequestId) -> Others {
        let Some((request, others)) = self.queues.remove(id) else { return Others::None };
        self.backlog.pending_removals.remove(id);
        for queue in request.queues {
            if self.queues.get(queue).is_none() {
                self.backlog.queues.remove(queue);
            }
        }
        others
    }

    /// The phase of a request. This is the only place that decides it. The phase is not stored in the request, because
    /// one release completes ten thousand requests at once, and because time passes.
    #[inline]
    pub fn phase(&self, id: RequestId, now: &Now) -> Phase {
        match (self.queues.request(id), self.ended(id)) {
            (None, _) => Phase::Gone,
            (Some(_), Some(ended)) => ended,
            (Some(queued), None) if queued.until.is_some_and(|until| until <= now.instant()) => Phase::TimedOut,
            (Some(queued), None) if queued.is_present() => Phase::Waiting,
            (Some(_), None) => Phase::Detached,
        }
    }

    /// The phase of a request that is no longer a waiter, if that does not depend on the time. A later event-loop
    /// iteration replies and removes it from its queues.
    #[inline]
    fn ended(&self, id: RequestId) -> Option<Phase> {
        let done = self.queues.done_by(id).map(Phase::Done);
        done.or_else(|| self.backlog.pending_removals.get(id).map(Phase::Removing))
    }

    /// Whether the request is no longer a waiter, although it is still in its queues.
    pub fn is_being_removed(&self, id: RequestId) -> bool {
        self.ended(id).is_some()
    }

    /// The number of requests that wait for the key and whose removal is not pending. While any removal is pending,
    /// this visits all requests of the queue.
    pub fn waiters_for(&self, key: KeyRef<'_>) -> usize {
        let Some(queue) = self.queues.of_key(key) else { return 0 };
        if self.backlog.pending_removals.is_empty() {
            queue.waiters()
        } else {
            queue.present().filter(|(_, id)| !self.is_being_removed(*id)).count()
        }
    }

    /// Marks the requests of one queue for removal, unless that has already happened.
    pub fn end_all(&mut self, ids: Vec<RequestId>, outcome: WaitOutcome) {
        if ids.first().is_some_and(|first| self.backlog.pending_removals.get(*first).is_none()) {
            self.backlog.pending_removals.extend(ids, PendingRemoval::Reply(outcome));
        }
    }

    /// Ends the waiting requests of a queue.
    pub fn end_waiters(&mut self, queue: QueueId, outcome: WaitOutcome) {
        self.end_all(
            self.queues.get(queue).into_iter().flat_map(WaitQueue::present).map(|(_, id)| id).collect(),
            outcome,
        );
    }
}

/// Changes of keys that requests wait for.
impl Waits {
    /// Records the lock under the key of a queue, `None` if there is none: its holders, and the first lease expiry,
    /// when the queue must be served. Called after each grant, and for each key that was opened to serve its queue.
    /// Multi-key requests of an owner that has lost the key are to be reevaluated.
    pub fn record_lock(&mut self, queue: QueueId, stored: Option<(&Lock, Deadline)>) {
        debug_assert!(stored.is_none_or(|(lock, _)| !lock.is_vacant()), "a vacant lock is removed, not recorded");
        if stored.is_none() {
            self.queues.set_seen(queue, None);
        }
        for id in self.queues.record_holders(queue, stored.map(|(lock, _)| lock)) {
            if let Some(queued) = self.queues.request(id) {
                self.backlog.displace(queued.position.clone(), id, queue);
            }
        }
        if let Some(end) = stored.and_then(|(lock, until)| lock.first_deadline(until).timestamp()) {
            self.queues.watch_lease(queue, end.plus_ms(1));
        }
    }

    /// The id of the owner if it has waiting requests in the queue, which may reenter once the owner holds the key.
    pub fn waiting_owner(&self, queue: QueueId, owner: &[u8]) -> Option<OwnerId> {
        let owner = self.queues.owner_id(self.queues.get(queue)?.key.db, owner)?;
        self.queues.of_owner(Some(owner)).all_waiting_in(queue).next().is_some().then_some(owner)
    }

    /// An owner has lost the key of this queue.
    pub fn lost_key(&mut self, queue: QueueId, db: i32, owner: &[u8]) {
        if self.queues.get(queue).is_some_and(WaitQueue::has_reentering) {
            let owner = self.queues.owner_id(db, owner);
            if let Some(owner) = owner {
                self.queues.end_reentering(queue, owner);
            }
        }
    }

    /// The key may have changed, so its wait queue, if it has one, is due.
    pub fn key_changed(&mut self, key: KeyRef<'_>) {
        if let Some(queue) = self.queues.id_of(key) {
            self.backlog.queues.insert(queue);
            self.queues.mark_holders_unknown(queue);
        }
    }

    /// A lock was removed from the key. Another one that is stored there later is a new value for its queue.
    pub fn key_removed(&mut self, key: KeyRef<'_>) {
        self.key_changed(key);
        if let Some(queue) = self.queues.id_of(key) {
            self.queues.set_seen(queue, None);
        }
    }

    /// A rescan has reached the queue. Its holders are unknown until its key is opened, which may be much later while
    /// writes are refused.
    pub fn begin_visit(&mut self, queue: QueueId) {
        self.queues.mark_holders_unknown(queue);
        if self.queues.may_be_a_copy(queue) {
            self.queues.set_seen(queue, None);
        }
    }

    /// Every key of the database, or of all databases, may have changed.
    pub fn db_changed(&mut self, db: Option<i32>) {
        self.queues.set_rescan_pending();
        self.backlog.rescans.begin(db);
    }

    /// The time slice is spent: if any request still waits, the next iteration continues with the queue.
    pub fn keep_due(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some_and(|queue| queue.waiters() > 0) {
            self.backlog.queues.insert(queue);
        }
    }

    /// Handles a queue whose write check failed: it is served later, or its requests end with
    /// [`WaitOutcome::TryAgain`].
    pub fn postpone(&mut self, queue: QueueId, write_check: WriteCheck) {
        match write_check {
            WriteCheck::Allowed => {}
            WriteCheck::Refused => self.backlog.queues.insert(queue),
            WriteCheck::SlotMoved => self.end_all(self.queues.all_in(queue), WaitOutcome::TryAgain),
        }
    }
}
