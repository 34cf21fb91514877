//! A request to acquire: granted, queued, or neither.

use super::grant::{first_of, GrantedBy, OVER_LIMIT};
use super::lock_manager::{LockError, LockManager};
use super::observer::Waited;
use super::timer_set::Timer;
use crate::host::{Content, Effect, Entry, Host, Keys, Park, WaitOutcome};
use crate::key::{ClientId, KeyRef, RequestId};
use crate::queue::deadlock;
use crate::queue::place::{Place, Rank};
use crate::queue::placement::new_place;
use crate::queue::request::{Arrival, NewRequest, OwnerId, QueueId, QueuedRequest};
use crate::queue::wait_queue::{WaitQueue, WaiterLimit};
use crate::value::claim::LockRequest;
use crate::value::lock::Lock;
use crate::value::outcome::{Admission, Grant, KeyError};
use crate::value::owner::Owner;
use crate::value::time::{Now, WaitLimit};

/// A request to acquire one or several locks of one database.
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// The number of the database.
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// The owner, the claim and the lease.
    pub request: LockRequest<'a>,
    /// `None`: the request does not wait.
    pub wait: Option<Wait>,
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
}

impl<'a> AcquireRequest<'a> {
    /// The request; without waiting if its client may not wait.
    fn if_client_may_wait(&self, client: &impl Park) -> AcquireRequest<'a> {
        AcquireRequest { wait: self.wait.filter(|_| client.may_wait()), ..*self }
    }
}

/// How long a request waits if its client may wait, and whether its place may be kept.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Counted from the time of the request.
    pub limit: WaitLimit,
    /// False for a token that the server made: no client can retry it.
    pub may_come_back: bool,
    /// COALESCE: the release of the lock answers the request. Only in a request for one mutex.
    pub coalesces: bool,
}

/// The answer to a request to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner holds what the request asked for. Of several keys this is the grant of the first: they share the
    /// fence.
    Granted(Grant),
    /// The request waits.
    Queued(RequestId),
    /// The lock is held by another owner, or other requests wait for it.
    NotGranted,
}

impl LockManager {
    /// Decides a request to acquire.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn acquire<K: Keys, C: Park>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: AcquireRequest<'_>,
    ) -> Result<Acquired, LockError> {
        let owner_id = self.queues.owner_id(request.db, request.request.owner.as_bytes());
        let mut retried = self.queues.find_retried(owner_id, request.db, request.names, &request.request);
        if let Some(same) = retried.filter(|same| self.is_ending(*same)) {
            // Its client has disconnected, or LOCK.CANCEL has named it.
            self.end_if_ending(&mut host.clients, host.now, same);
            retried = retried.filter(|same| self.queues.request(*same).is_some());
        }
        let answer = match request.names {
            [name] => self.acquire_one(host, &request, KeyRef { db: request.db, name }, owner_id, retried),
            _ => self.acquire_several(host, &request, owner_id, retried),
        };
        self.count_answer(&answer);
        self.record_refusal(&request, &answer);
        answer
    }

    /// Decides a request for one key, which stays open to the end unless other keys have to be inspected in between.
    fn acquire_one<K: Keys, C: Park>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &AcquireRequest<'_>,
        key: KeyRef<'_>,
        owner_id: Option<OwnerId>,
        retried: Option<RequestId>,
    ) -> Result<Acquired, LockError> {
        let AcquireRequest { request: lock_request, session, .. } = *request;
        let queue = self.queues.id_of(key);
        let is_quiet = self.grace.is_none() && queue.is_none();
        let mut entry = host.keys.open(key);
        let admission = self.admission(host.now, key, &mut entry, &lock_request)?;
        if admission != Admission::Wait && is_quiet {
            let grant =
                self.grant_one(host.now, key, &mut entry, &lock_request, GrantedBy { session, waited: None })?;
            self.deliveries.confirm(key.db, request.names, lock_request.owner.as_bytes());
            self.count_grant(None);
            return Ok(Acquired::Granted(grant));
        }
        let request = &request.if_client_may_wait(&host.clients);
        if let Some(queue) = queue {
            self.end_upgrades(&mut entry, queue);
        }
        // Known without a search for the place.
        if admission == Admission::Wait && request.wait.is_none() {
            return Ok(Acquired::NotGranted);
        }
        let mut new = self.new_request(request, owner_id, retried, rank_of(&mut entry, &lock_request));
        if admission != Admission::Wait || self.queues.has_requests_for_several() {
            drop(entry);
            self.find_place(host, &mut new);
            if self.admission_in_queue(host, request, &new, admission)? != Admission::Wait {
                return self.grant_among_waiters(host, request, retried);
            }
            entry = host.keys.open(key);
        }
        let Some(wait) = request.wait else { return Ok(Acquired::NotGranted) };
        self.check_room(request, retried)?;
        if deadlock::needs_search(&self.queues, &new) {
            drop(entry);
            self.refuse_deadlock(host, &new)?;
            entry = host.keys.open(key);
        }
        let limit_before = queue.and_then(|queue| self.queues.get(queue)?.limit);
        let Some(id) = self.enqueue(&mut host.clients, host.now, new, wait, session) else {
            return Ok(Acquired::NotGranted);
        };
        let Some(queue) = self.queues.request(id).and_then(|queued| queued.queues.first().copied()) else {
            return Ok(Acquired::Queued(id));
        };
        // While the key is free, only its waiters know the LIMIT.
        let is_new_limit = take_over_limit(&mut entry, lock_request.claim.limit())
            || limit_before.is_some() && limit_before != lock_request.claim.limit();
        if !self.is_watched(&mut entry, queue) {
            self.watch_open(&mut entry, queue);
            self.note_value(&mut entry, queue);
        }
        if is_new_limit {
            let never_fit = self.over_limit(host.now, &mut entry, queue);
            drop(entry);
            self.dismiss_all(&mut host.clients, host.now, never_fit, OVER_LIMIT);
            self.serve(host, queue);
        }
        Ok(Acquired::Queued(id))
    }

    /// Decides a request for several keys: all are granted, or none.
    fn acquire_several<K: Keys, C: Park>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &AcquireRequest<'_>,
        owner_id: Option<OwnerId>,
        retried: Option<RequestId>,
    ) -> Result<Acquired, LockError> {
        let request = &request.if_client_may_wait(&host.clients);
        let AcquireRequest { db, names, request: lock_request, wait, session } = *request;
        let admission = self.admission_to_all(host, db, names, &lock_request)?;
        if admission == Admission::Wait && wait.is_none() {
            return Ok(Acquired::NotGranted);
        }
        let mut new = self.new_request(request, owner_id, retried, Rank::Normal);
        self.find_place(host, &mut new);
        if self.admission_in_queue(host, request, &new, admission)? != Admission::Wait {
            return self.grant_among_waiters(host, request, retried);
        }
        let Some(wait) = wait else { return Ok(Acquired::NotGranted) };
        self.check_room(request, retried)?;
        if deadlock::needs_search(&self.queues, &new) {
            self.refuse_deadlock(host, &new)?;
        }
        let Some(id) = self.enqueue(&mut host.clients, host.now, new, wait, session) else {
            return Ok(Acquired::NotGranted);
        };
        let queues = self.queues.request(id).map(|queued| queued.queues.clone());
        for (queue, name) in queues.into_iter().flatten().zip(names) {
            let mut entry = host.keys.open(KeyRef { db, name });
            self.watch_open(&mut entry, queue);
            self.note_value(&mut entry, queue);
        }
        // What its owner lost while the request was away did not count on it.
        self.to_try.lost.retain(|(_, lost, _)| *lost != id);
        Ok(Acquired::Queued(id))
    }

    /// What the lock under the key answers to the claim, regardless of its wait queue.
    pub(super) fn admission<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &LockRequest<'_>,
    ) -> Result<Admission, KeyError> {
        self.settle(now, key, entry);
        match entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Lock(lock) => Ok(lock.admission(request.owner.as_bytes(), &request.claim)?),
            Content::Free => {
                self.check_family_of_queue(key, request.claim.family())?;
                Ok(Lock::Vacant.admission(request.owner.as_bytes(), &request.claim)?)
            }
        }
    }

    /// The admission by all locks together: one Wait makes it Wait; otherwise one Admit makes it a new grant.
    fn admission_to_all<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        request: &LockRequest<'_>,
    ) -> Result<Admission, KeyError> {
        let mut all = Admission::AlreadyHeld;
        for name in names {
            let key = KeyRef { db, name };
            match self.admission(host.now, key, &mut host.keys.open(key), request)? {
                Admission::Wait => all = Admission::Wait,
                Admission::Admit if all == Admission::AlreadyHeld => all = Admission::Admit,
                _ => {}
            }
        }
        Ok(all)
    }

    /// Turns Admit into Wait if an earlier request or the grace period comes first. In a grace, a request that does not
    /// wait gets an error.
    pub(super) fn admission_in_queue<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &AcquireRequest<'_>,
        new: &NewRequest<'_>,
        admission: Admission,
    ) -> Result<Admission, LockError> {
        if admission != Admission::Admit {
            return Ok(admission);
        }
        if !self.is_first(host, new) {
            return Ok(Admission::Wait);
        }
        if self.grace.is_running(host.now) && !self.holds_all(host, new.db, new.names, new.owner()) {
            return request.wait.map(|_| Admission::Wait).ok_or(LockError::Grace);
        }
        Ok(Admission::Admit)
    }

    /// True if no request is ahead on any key that the owner does not hold yet.
    fn is_first<K: Keys, C>(&self, host: &mut Host<'_, K, C>, new: &NewRequest<'_>) -> bool {
        let behind = new.names.iter().map(|name| new.key(name));
        let mut behind = behind.filter(|key| self.queues.of_key(*key).is_some_and(|queue| !queue.is_first(&new.place)));
        behind.all(|key| new.names.len() > 1 && self.holders(&mut host.keys, host.now).is_held_by(key, new.owner()))
    }

    /// True if the owner holds every key.
    pub(super) fn holds_all<K: Keys, C>(
        &self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        owner: &[u8],
    ) -> bool {
        let mut holders = self.holders(&mut host.keys, host.now);
        names.iter().all(|name| holders.is_held_by(KeyRef { db, name }, owner))
    }

    /// Grants the keys where other requests may wait for one of them, and serves their queues afterwards.
    fn grant_among_waiters<K: Keys, C: Park>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &AcquireRequest<'_>,
        retried: Option<RequestId>,
    ) -> Result<Acquired, LockError> {
        let AcquireRequest { db, names, request: lock_request, wait, session } = *request;
        // Without BLOCK a queued request stays queued, but a kept place ends: its client has come back.
        let same = retried.and_then(|id| Some((id, self.queues.request(id)?)));
        let same = same.filter(|(_, queued)| wait.is_some() || !queued.is_present());
        let waited = same.map(|(id, queued)| Waited { request: id, ms: host.now.instant().ms_since(queued.since) });
        let grants = self.grant(host, db, names, &lock_request, GrantedBy { session, waited })?;
        self.deliveries.confirm(db, names, lock_request.owner.as_bytes());
        self.count_grant(waited);
        let grant = first_of(&grants);
        if self.queues.is_empty() {
            return Ok(Acquired::Granted(grant));
        }
        if let Some(Waited { request: same, .. }) = waited {
            self.take_over(&mut host.clients, same);
        }
        names.iter().for_each(|name| self.gained(KeyRef { db, name }, lock_request.owner.as_bytes()));
        for name in names {
            let Some(queue) = self.queues.id_of(KeyRef { db, name }) else { continue };
            if lock_request.claim.limit().is_some_and(|limit| self.queues.set_limit(queue, limit)) {
                let never_fit = self.over_limit(host.now, &mut host.keys.open(KeyRef { db, name }), queue);
                self.dismiss_all(&mut host.clients, host.now, never_fit, OVER_LIMIT);
            }
            self.serve(host, queue);
        }
        Ok(Acquired::Granted(grant))
    }

    /// The request as it would be queued: at the place of the request that it repeats, or behind all of its rank.
    /// Without BLOCK it repeats none.
    pub(super) fn new_request<'a>(
        &self,
        request: &AcquireRequest<'a>,
        owner_id: Option<OwnerId>,
        retried: Option<RequestId>,
        rank: Rank,
    ) -> NewRequest<'a> {
        let AcquireRequest { db, names, request, wait, .. } = *request;
        let replaces = retried.filter(|_| wait.is_some());
        let place = self.kept_place(replaces, rank).unwrap_or_else(|| self.queues.last_place(rank));
        NewRequest { db, names, request, owner_id, place, replaces }
    }

    /// The place of the retried request. A place that was kept for an upgrade counts by its arrival if the owner no
    /// longer reads.
    fn kept_place(&self, retried: Option<RequestId>, rank: Rank) -> Option<Place> {
        match self.queues.request(retried?)? {
            queued if queued.is_present() || queued.place.rank == rank => Some(queued.place.clone()),
            queued if rank == Rank::Normal => Some(Place::last(rank, queued.place.arrival)),
            _ => None,
        }
    }

    /// Moves a request that repeats none to the place that it gets among requests for several keys.
    pub(super) fn find_place<K: Keys, C>(&self, host: &mut Host<'_, K, C>, new: &mut NewRequest<'_>) {
        if self.queues.has_requests_for_several() && self.kept_place(new.replaces, new.place.rank).is_none() {
            new.place = new_place(&self.queues, &mut self.holders(&mut host.keys, host.now), new);
        }
    }

    /// Refuses the request if the server or one of its keys has the maximum of waiters. A retry of a waiter needs no
    /// room.
    fn check_room(&self, request: &AcquireRequest<'_>, retried: Option<RequestId>) -> Result<(), LockError> {
        if retried.and_then(|id| self.queues.request(id)).is_some_and(QueuedRequest::is_present) {
            return Ok(());
        }
        if self.queues.waiters() >= self.limits.max_waiters {
            return Err(LockError::MaxWaiters(WaiterLimit::Server));
        }
        let Some(most) = self.limits.max_waiters_per_key else { return Ok(()) };
        let waiters = |name| self.queues.of_key(KeyRef { db: request.db, name }).map_or(0, WaitQueue::waiters);
        match request.names.iter().any(|name| waiters(name) >= most) {
            true => Err(LockError::MaxWaiters(WaiterLimit::Key)),
            false => Ok(()),
        }
    }

    /// Ends upgrades after their owners have stopped reading: from then on they wait in the order of their arrival, not
    /// at the head.
    pub(super) fn end_upgrades<E: Entry>(&mut self, entry: &mut E, queue: QueueId) {
        let Some(waiting) = self.queues.get(queue) else { return };
        if waiting.head().is_none_or(|(first, _)| first.rank == Rank::Normal) {
            return;
        }
        let upgrades = waiting.present().take_while(|(place, _)| place.rank == Rank::Upgrade);
        let is_over = |id: &RequestId| {
            let Some(queued) = self.queues.request(*id) else { return false };
            !entry.content().lock().is_some_and(|lock| lock.is_upgrade(queued.owner.as_bytes(), &queued.claim))
        };
        let over: Vec<_> = upgrades.map(|(_, id)| id).filter(is_over).collect();
        over.into_iter().for_each(|id| self.queues.end_upgrade(id));
    }

    /// Refuses a request that would wait for ever.
    fn refuse_deadlock<K: Keys, C>(&self, host: &mut Host<'_, K, C>, new: &NewRequest<'_>) -> Result<(), LockError> {
        match deadlock::find(&self.queues, &mut self.holders(&mut host.keys, host.now), new) {
            Some(cycle) => Err(LockError::Deadlock(cycle)),
            None => Ok(()),
        }
    }

    /// Queues the request; a retry replaces the request that it repeats. `None`: its client cannot wait.
    fn enqueue<C: Park>(
        &mut self,
        clients: &mut C,
        now: &Now,
        new: NewRequest<'_>,
        wait: Wait,
        session: Option<ClientId>,
    ) -> Option<RequestId> {
        let retried = new.replaces;
        let since = retried.and_then(|id| self.queues.request(id)).map_or(now.instant(), |queued| queued.since);
        if let Some(retried) = retried {
            self.take_over(clients, retried);
        }
        let until = wait.limit.until(now.instant());
        let id = self.queues.enter(Arrival {
            new,
            since,
            until,
            session,
            may_come_back: wait.may_come_back,
            coalesces: wait.coalesces,
        });
        if let Some(until) = until {
            self.timers.set(Timer::WaitEnds(id), until);
        }
        // Park the client before anything can answer the request.
        if !clients.park(id) {
            let queues = self.queues.request(id).map(|queued| queued.queues.clone());
            self.due.extend(queues.into_iter().flatten());
            self.remove(id);
            return None;
        }
        Some(id)
    }

    /// The same request was sent again: the wait goes on with the new one, and the earlier one ends. A client that
    /// waits for it on another connection is told.
    fn take_over<C: Park>(&mut self, clients: &mut C, earlier: RequestId) {
        let is_present = self.queues.request(earlier).is_some_and(QueuedRequest::is_present);
        if is_present && !clients.take_over(earlier) {
            self.answer_waiter(clients, earlier, WaitOutcome::Superseded);
        }
        self.remove(earlier);
    }

    /// True behind another waiter, if its queue has seen the value under the key: the end of the lease is watched and
    /// the holders are known since that waiter came. To read the end again takes 800 of 42,100 instructions of a
    /// hand-off among 48 clients (callgrind, Redis 7.0.15).
    fn is_watched<E: Entry>(&self, entry: &mut E, queue: QueueId) -> bool {
        let Some(lock) = entry.content().lock() else { return false };
        let is_seen = |queue: &WaitQueue| queue.waiters() > 1 && queue.seen.is_some() && queue.seen == lock.fence();
        self.queues.get(queue).is_some_and(is_seen)
    }

    /// The only waiter of a queue was decided by the value under the key: the queue has seen that value.
    fn note_value<E: Entry>(&mut self, entry: &mut E, queue: QueueId) {
        let Some(lock) = entry.content().lock() else { return };
        if self.queues.get(queue).is_some_and(|queue| queue.waiters() == 1) {
            self.queues.set_seen(queue, lock.fence());
        }
    }

    /// The waiters that can never fit the queue's limit, counting what their owners hold already.
    pub(super) fn over_limit<E: Entry>(&self, now: &Now, entry: &mut E, queue: QueueId) -> Vec<RequestId> {
        let Some((queue, limit)) = self.queues.get(queue).and_then(|queue| Some((queue, queue.limit?))) else {
            return Vec::new();
        };
        let key = queue.key.as_ref();
        let mut held = |owner: &Owner| {
            let lock = entry.content().lock().filter(|_| !self.has_ended(key, owner.as_bytes()));
            lock.and_then(|lock| lock.live_hold(owner.as_bytes(), now.timestamp())).map_or(0, |hold| hold.holds)
        };
        let mut never_fits = |id: &RequestId| {
            self.queues.request(*id).is_some_and(|queued| queued.claim.never_fits(held(&queued.owner), limit))
        };
        queue.present().map(|(_, id)| id).filter(|id| never_fits(id)).collect()
    }
}

/// The rank of a request for an open key.
fn rank_of<E: Entry>(entry: &mut E, request: &LockRequest<'_>) -> Rank {
    let owner = request.owner.as_bytes();
    Rank::of_upgrade(entry.content().lock().is_some_and(|lock| lock.is_upgrade(owner, &request.claim)))
}

/// Applies the LIMIT of a queued request to the lock at once: a larger one admits waiters, a smaller one refuses some.
/// True if the LIMIT has changed.
fn take_over_limit<E: Entry>(entry: &mut E, limit: Option<u32>) -> bool {
    let (Some(limit), Content::Lock(lock)) = (limit, entry.content()) else { return false };
    let is_new = lock.set_limit(limit);
    if is_new {
        entry.update(Effect::Limit, None);
    }
    is_new
}

#[cfg(test)]
mod tests;
