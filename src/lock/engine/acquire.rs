//! A request to acquire: granted, queued, or neither.

use super::grant::{first_of, GrantedBy};
use super::leave::{dismiss_all, end_request, reply};
use super::lock_manager::{LockError, LockManager};
use super::observer::Waited;
use super::open_key::OpenKey;
use super::pending_removals::Phase;
use super::step::Engine;
use super::verdict::{Verdict, OVER_LIMIT};
use crate::host::{Content, Effect, Entry, Keys, Park, WaitOutcome};
use crate::key::{ClientId, KeyRef, RequestId};
use crate::queue::deadlock::{self, Search};
use crate::queue::placement::{new_position, SearchBudget};
use crate::queue::position::Rank;
use crate::queue::request::{Arrival, NewRequest, OwnerId};
use crate::value::claim::{Claim, LockRequest};
use crate::value::outcome::{Admission, Grant};
use crate::value::time::{Now, Timestamp, WaitLimit};

/// A request to acquire one or more locks in one database.
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// The number of the database.
    pub db: i32,
    /// Distinct. More than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// The owner, the claim and the lease.
    pub request: LockRequest<'a>,
    /// `None` if the request does not wait.
    pub wait: Option<Wait>,
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
}

impl<'a> AcquireRequest<'a> {
    /// The request, without waiting if its client may not wait.
    fn if_client_may_wait(&self, client: &impl Park) -> AcquireRequest<'a> {
        AcquireRequest { wait: self.wait.filter(|_| client.may_wait()), ..*self }
    }

    /// The request with the position it would have in the queue. Only a request with BLOCK resumes the position of the
    /// request that it repeats.
    pub(super) fn queued(&self, manager: &LockManager, earlier: Earlier, rank: Rank) -> NewRequest<'a> {
        let replaces = earlier.retried.filter(|_| self.wait.is_some());
        manager.waits.new_request(self.db, self.names, self.request, earlier.owner_id, replaces, rank)
    }
}

/// What the queues know of the owner of a new request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    /// The owner, looked up once per request.
    pub owner_id: Option<OwnerId>,
    /// The queued request that this one repeats.
    pub retried: Option<RequestId>,
}

/// How a request waits, if its client may wait.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Counted from the time of the request.
    pub limit: WaitLimit,
    /// False for a token that the server generated, because no client can retry it.
    pub may_detach: bool,
    /// COALESCE: the release of the lock completes the request. Only in a request for one mutex.
    pub coalesces: bool,
    /// The absolute deadline of the lease, after which nothing is granted. `None` if the lease is a duration.
    pub lease_deadline: Option<Timestamp>,
}

/// The reply to a request to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner holds what the request asked for. With multiple keys this is the grant of the first; all share its
    /// fencing token.
    Granted(Grant),
    /// The request waits.
    Queued(RequestId),
    /// Another owner holds the lock, or other requests wait for it.
    NotGranted,
}

impl<K: Keys, C: Park> Engine<'_, '_, K, C> {
    /// Decides a request to acquire.
    ///
    /// # Errors
    /// The request is refused. Nothing was changed.
    pub fn acquire(&mut self, request: AcquireRequest<'_>) -> Result<Acquired, LockError> {
        debug_assert!(request.names.len() == 1 || request.request.claim == Claim::Mutex, "multiple keys are mutexes");
        let owner_id = self.manager.queues().owner_id(request.db, request.request.owner.as_bytes());
        let earlier = Earlier { owner_id, retried: self.find_retried(&request, owner_id) };
        let acquired = match request.names {
            [name] => self.acquire_one(&request, KeyRef { db: request.db, name }, earlier),
            _ => self.acquire_multiple(&request, earlier),
        };
        let LockManager { waits, observer, .. } = &mut *self.manager;
        match (&acquired, request.names.first()) {
            // Grants are counted where they are made.
            (Ok(Acquired::Granted(_) | Acquired::Queued(_)), _) | (Err(_), None) => {}
            (Ok(Acquired::NotGranted), _) => observer.statistics.not_granted += 1,
            (Err(error), Some(name)) => {
                let key = KeyRef { db: request.db, name };
                observer.refused(&waits.queues, key, &request.request.owner.to_owner(), error);
            }
        }
        acquired
    }

    /// The queued request that this one repeats. If its removal is pending, because its client has disconnected or
    /// LOCK.CANCEL has named it, it is removed first.
    pub(super) fn find_retried(&mut self, request: &AcquireRequest<'_>, owner: Option<OwnerId>) -> Option<RequestId> {
        let retried =
            self.manager.queues().of_owner(owner).find_retried(request.db, request.names, &request.request)?;
        let phase = self.manager.waits.phase(retried, self.host.now);
        if let Phase::Removing(_) = phase {
            end_request(self.manager, &mut self.host.clients, self.host.now, retried, phase);
        }
        Some(retried).filter(|id| self.manager.queues().request(*id).is_some())
    }

    /// Decides a request for one key. The key stays open until the end unless other keys have to be inspected.
    fn acquire_one(
        &mut self,
        request: &AcquireRequest<'_>,
        key: KeyRef<'_>,
        earlier: Earlier,
    ) -> Result<Acquired, LockError> {
        let AcquireRequest { request: lock_request, session, .. } = *request;
        let mut open = self.open(key);
        let admission = open.admission(&lock_request)?;
        if admission != Admission::Wait && open.queue.is_none() && open.manager.grace.is_none() {
            return open.grant_at_once(&lock_request, session).map(Acquired::Granted);
        }
        let request = &request.if_client_may_wait(open.clients);
        open.end_upgrades();
        // Decided without the search for a position.
        if admission == Admission::Wait && request.wait.is_none() {
            return Ok(Acquired::NotGranted);
        }
        let rank = Rank::of_upgrade(open.is_upgrade(&lock_request));
        let mut new = request.queued(open.manager, earlier, rank);
        if admission != Admission::Wait || open.manager.queues().has_multi_key_requests() {
            drop(open);
            self.find_position(&mut new, &mut SearchBudget::default());
            let verdict = self.verdict_of_new(&new, admission, request.wait.is_some())?;
            if verdict.grants() {
                self.refuse_deadlock_by_grant(verdict, &new)?;
                return self.grant_among_waiters(request, earlier.retried).map(Acquired::Granted);
            }
            open = self.reopen(key);
        }
        let Some(wait) = request.wait else { return Ok(Acquired::NotGranted) };
        if let Some(search) = check_before_queueing(open.manager, &new)? {
            drop(open);
            self.refuse_deadlock(search, &new)?;
            open = self.reopen(key);
        }
        let limit_before = open.limit_of_queue();
        let Some(id) = enqueue(open.manager, open.clients, open.now, new, wait, session) else {
            return Ok(Acquired::NotGranted);
        };
        // While the key is free, only its waiters know the LIMIT.
        let is_new_limit = open.apply_limit(lock_request.claim.limit())
            || limit_before.is_some() && limit_before != lock_request.claim.limit();
        // The queue may be new.
        open.queue = open.manager.queues().request(id).and_then(|queued| queued.queues.first().copied());
        open.record_lock_for_new_waiter();
        drop(open);
        if is_new_limit {
            self.apply_new_limit(key);
        }
        Ok(Acquired::Queued(id))
    }

    /// Decides a multi-key request: all keys are granted, or none.
    fn acquire_multiple(&mut self, request: &AcquireRequest<'_>, earlier: Earlier) -> Result<Acquired, LockError> {
        let request = &request.if_client_may_wait(&self.host.clients);
        let AcquireRequest { db, names, request: lock_request, wait, session } = *request;
        let admission = self.admission_to_all(db, names, &lock_request)?;
        if admission == Admission::Wait && wait.is_none() {
            return Ok(Acquired::NotGranted);
        }
        let mut new = request.queued(self.manager, earlier, Rank::Normal);
        self.find_position(&mut new, &mut SearchBudget::default());
        let verdict = self.verdict_of_new(&new, admission, wait.is_some())?;
        if verdict.grants() {
            self.refuse_deadlock_by_grant(verdict, &new)?;
            return self.grant_among_waiters(request, earlier.retried).map(Acquired::Granted);
        }
        let Some(wait) = wait else { return Ok(Acquired::NotGranted) };
        if let Some(search) = check_before_queueing(self.manager, &new)? {
            self.refuse_deadlock(search, &new)?;
        }
        let Some(id) = enqueue(self.manager, &mut self.host.clients, self.host.now, new, wait, session) else {
            return Ok(Acquired::NotGranted);
        };
        for name in names {
            let mut open = self.reopen(KeyRef { db, name });
            open.record_lock_for_new_waiter();
            open.record_if_held(id, lock_request.owner.as_bytes());
        }
        // A key that the owner lost while the position was reserved does not matter: the request did not rely on it.
        self.manager.waits.backlog.forget_displaced(id);
        Ok(Acquired::Queued(id))
    }

    /// Grants keys that other requests may wait for, and serves their queues afterwards. Returns the grant of the first
    /// key.
    pub(super) fn grant_among_waiters(
        &mut self,
        request: &AcquireRequest<'_>,
        retried: Option<RequestId>,
    ) -> Result<Grant, LockError> {
        let AcquireRequest { db, names, request: lock_request, wait, session } = *request;
        // Without BLOCK, a queued request stays queued, but a reserved position ends because its client is back.
        let repeated = retried.and_then(|id| Some((id, self.manager.queues().request(id)?)));
        let repeated = repeated.filter(|(_, queued)| wait.is_some() || !queued.is_present());
        let waited =
            repeated.map(|(id, queued)| Waited { request: id, ms: self.host.now.instant().ms_since(queued.since) });
        let grants = self.grant(db, names, &lock_request, GrantedBy { session, waited })?;
        let owner = lock_request.owner.as_bytes();
        self.manager.deliveries.confirm(db, names, owner);
        self.manager.observer.count_grant(waited);
        let grant = first_of(&grants);
        if self.manager.queues().is_empty() {
            return Ok(grant);
        }
        if let Some(Waited { request: repeated, .. }) = waited {
            supersede(self.manager, &mut self.host.clients, repeated);
        }
        let queue_of = |manager: &LockManager, name| manager.queues().id_of(KeyRef { db, name });
        for name in names {
            let Some(queue) = queue_of(self.manager, name) else { continue };
            if let Some(owner) = self.manager.waits.waiting_owner(queue, owner) {
                self.reopen(KeyRef { db, name }).list_reentering(queue, owner);
            }
        }
        for name in names {
            let Some(queue) = queue_of(self.manager, name) else { continue };
            let limit = lock_request.claim.limit();
            if limit.is_some_and(|limit| self.manager.waits.queues.set_limit(queue, limit)) {
                self.apply_new_limit(KeyRef { db, name });
            } else {
                self.serve(queue);
            }
        }
        Ok(grant)
    }

    /// Dismisses the waiters that can never fit the new LIMIT of their queue, and serves the others.
    fn apply_new_limit(&mut self, key: KeyRef<'_>) {
        let Some(queue) = self.manager.queues().id_of(key) else { return };
        let never_fit = self.reopen(key).over_limit(queue);
        dismiss_all(self.manager, &mut self.host.clients, self.host.now, never_fit, OVER_LIMIT);
        self.serve(queue);
    }

    /// Finds the position of a new request among multi-key requests. A retry keeps its position.
    pub(super) fn find_position(&mut self, new: &mut NewRequest<'_>, budget: &mut SearchBudget) {
        if self.manager.waits.needs_position(new) {
            let mut holders = self.manager.holders(&mut self.host.keys, self.host.now);
            new.position = new_position(self.manager.queues(), &mut holders, new, budget);
        }
    }

    /// Refuses a request whose grant would deadlock another request of its owner.
    fn refuse_deadlock_by_grant(&mut self, verdict: Verdict, new: &NewRequest<'_>) -> Result<(), LockError> {
        match deadlock::search_before_grant(self.manager.queues(), new) {
            Some(search) if verdict == Verdict::Admits => self.refuse_deadlock(search, new),
            _ => Ok(()),
        }
    }

    /// Refuses a request that would deadlock.
    fn refuse_deadlock(&mut self, search: Search, new: &NewRequest<'_>) -> Result<(), LockError> {
        let mut holders = self.manager.holders(&mut self.host.keys, self.host.now);
        match search.find(self.manager.queues(), &mut holders, new) {
            Some(cycle) => Err(LockError::Deadlock(cycle)),
            None => Ok(()),
        }
    }
}

/// Refuses the request if the maximum number of waiters is reached. Otherwise returns the deadlock search that must run
/// before the request is queued, if one is needed.
fn check_before_queueing(manager: &LockManager, new: &NewRequest<'_>) -> Result<Option<Search>, LockError> {
    manager.waits.check_room(&manager.limits, new)?;
    Ok(deadlock::search_for(manager.queues(), new))
}

/// Queues the request. A retry replaces the request that it repeats. `None` if its client cannot wait.
fn enqueue<C: Park>(
    manager: &mut LockManager,
    clients: &mut C,
    now: &Now,
    new: NewRequest<'_>,
    wait: Wait,
    session: Option<ClientId>,
) -> Option<RequestId> {
    let retried = new.replaces;
    let since = retried.and_then(|id| manager.queues().request(id)).map_or(now.instant(), |queued| queued.since);
    if let Some(retried) = retried {
        supersede(manager, clients, retried);
    }
    let until = wait.limit.until(now.instant());
    let Wait { may_detach, coalesces, lease_deadline, .. } = wait;
    let id =
        manager.waits.queues.enqueue(Arrival { new, since, until, session, may_detach, coalesces, lease_deadline });
    // Block the client before anything can reply to the request.
    if !clients.park(id) {
        let queues = manager.queues().request(id).map(|queued| queued.queues.clone());
        manager.waits.backlog.queues.extend(queues.into_iter().flatten());
        manager.waits.remove(id);
        return None;
    }
    Some(id)
}

/// The same request was sent again, so the new one continues the wait and the earlier one ends. A client that waits for
/// it on another connection gets `Superseded`.
fn supersede<C: Park>(manager: &mut LockManager, clients: &mut C, earlier: RequestId) {
    if manager.queues().is_present(earlier) && !clients.detach_own(earlier) {
        reply(manager, clients, earlier, WaitOutcome::Superseded);
    }
    manager.waits.remove(earlier);
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Grants a key that no request waits for.
    fn grant_at_once(&mut self, request: &LockRequest<'_>, session: Option<ClientId>) -> Result<Grant, LockError> {
        let grant = self.grant(request, GrantedBy { session, waited: None })?;
        self.manager.deliveries.confirm(self.key.db, &[self.key.name], request.owner.as_bytes());
        self.manager.observer.count_grant(None);
        Ok(grant)
    }

    fn limit_of_queue(&self) -> Option<u32> {
        self.queue.and_then(|id| self.manager.queues().get(id)).and_then(|queue| queue.limit)
    }

    /// Applies the LIMIT of a queued request to the lock at once: a larger one admits waiters, a smaller one refuses
    /// some. Returns whether the LIMIT has changed.
    fn apply_limit(&mut self, limit: Option<u32>) -> bool {
        let (Some(limit), Content::Lock(lock)) = (limit, self.entry.content()) else { return false };
        let is_new = lock.set_limit(limit);
        if is_new {
            self.entry.update(Effect::Limit, None);
        }
        is_new
    }

    /// Records for a multi-key request that its owner already holds this key, if so. If the owner loses the key, the
    /// request waits for one more.
    fn record_if_held(&mut self, request: RequestId, owner: &[u8]) {
        let is_held = self.entry.content().lock().is_some_and(|lock| lock.is_held_by(owner));
        if let Some(queue) = self.queue.filter(|_| is_held) {
            self.manager.waits.queues.add_holder_request(request, queue);
        }
    }

    /// Records the lock that a new waiter waits for. If it is the only waiter, the queue has now seen the value under
    /// the key, because the request was decided by it.
    fn record_lock_for_new_waiter(&mut self) {
        let Some(queue) = self.queue.and_then(|id| self.manager.waits.queues.get(id)) else { return };
        let fence = self.entry.content().lock().and_then(|lock| lock.fence());
        debug_assert!(queue.waiters() > 0, "the new waiter is queued");
        // Behind another waiter of a queue that has seen the value, the lease expiry is already watched and the holders
        // are known. Reading the expiry again would take 800 of 42,100 instructions of a hand-off among 48 clients
        // (callgrind, Redis 7.0.15).
        let is_only = queue.waiters() == 1;
        if !is_only && queue.seen.is_some() && queue.seen == fence {
            return;
        }
        self.record_lock(None);
        if is_only && fence.is_some() {
            self.record_seen(fence);
        }
    }
}

#[cfg(test)]
mod tests;
