//! Grants: an attempt to serve one waiter, and what a grant does to stored locks.

use super::deliveries::GrantInFlight;
use super::lock_manager::LockManager;
use super::observer::{GrantChange, Waited};
use crate::host::{Clients, Content, Delivery, Effect, Entry, Gate, Host, Keys, WaitOutcome};
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::request::{Others, QueueId};
use crate::value::claim::{Claim, Family, InvalidClaim, LockRequest};
use crate::value::fence::Fence;
use crate::value::lock::FirstGrant;
use crate::value::outcome::{Admission, Grant, KeyError};
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Instant, Now};

/// The outcome of an attempt to serve a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The request was granted.
    Granted,
    /// The request was answered without a grant.
    Dismissed,
    /// The request is not served now, and so is no request behind it: it has to wait, or its time is over and it will
    /// leave, or writes are refused, or a grace runs.
    Stuck,
}

/// The position of a request relative to the requests ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// No request is ahead of it.
    First,
    /// It is granted only what its owner holds already.
    Behind,
}

/// How a request came to be granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedBy {
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// The wait that the grant ends; `None`: the request did not wait.
    pub waited: Option<Waited>,
}

/// Attempts to serve a waiter: its request is granted, ended without a grant, or left waiting.
impl LockManager {
    /// Grants an open key to one of its waiters, if the lock admits it.
    #[allow(clippy::too_many_arguments)] // While a key is open, the host is borrowed in parts.
    pub(super) fn try_grant<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
        id: RequestId,
        precedence: Precedence,
    ) -> Attempt {
        let (Some(queued), Some(wait_queue)) = (self.queues.request(id), self.queues.get(queue)) else {
            return Attempt::Dismissed;
        };
        if self.is_over(id, queued.until, now) {
            return Attempt::Stuck;
        }
        let (owner, lease, session) = (queued.owner.clone(), queued.lease, queued.session);
        let name = wait_queue.key.clone();
        let waited = Waited { request: id, ms: now.instant().ms_since(queued.since) };
        let request = LockRequest { owner: owner.as_ref(), claim: queued.claim.under_limit(wait_queue.limit), lease };
        match self.admission(now, key, entry, &request) {
            Ok(Admission::AlreadyHeld) => {}
            Ok(Admission::Admit) if precedence == Precedence::First && !self.is_kept_by_grace(now, entry, &owner) => {}
            // The owner has gained permits meanwhile. Left at the head, the request would block the requests behind it.
            Ok(Admission::Wait) if precedence == Precedence::First && never_fits(entry, &request) => {
                return self.dismiss_as(clients, id, OVER_LIMIT);
            }
            Ok(Admission::Admit | Admission::Wait) => return Attempt::Stuck,
            Err(error) => return self.dismiss_as(clients, id, WaitOutcome::Impossible(error)),
        }
        if !clients.may_be_granted(id, &[key.name], waited.ms) {
            return self.dismiss_as(clients, id, WaitOutcome::NotPermitted);
        }
        match self.grant_one(now, key, entry, &request, GrantedBy { session, waited: Some(waited) }) {
            Err(error) => self.dismiss_as(clients, id, WaitOutcome::Impossible(error)),
            Ok(grant) => {
                let claim = request.claim;
                self.statistics.adopted_acquires += u64::from(claim == Claim::AdoptedMutex);
                if self.remove(id) == Others::Some {
                    self.gained(key, owner.as_bytes());
                }
                self.deliver(clients, waited, grant, || GrantInFlight {
                    request: id,
                    owner,
                    claim,
                    grants: OneOrMany::One((name, grant)),
                });
                Attempt::Granted
            }
        }
    }

    /// True if the client of the request waits no more, though the request is still queued: its wait has timed out, or
    /// it is among the endings. The queue is due again when the request leaves.
    fn is_over(&self, id: RequestId, until: Option<Instant>, now: &Now) -> bool {
        self.is_ending(id) || until.is_some_and(|until| until <= now.instant())
    }

    /// Grants all keys of a request for several keys, if all locks admit it.
    pub(super) fn try_grant_several<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        id: RequestId,
    ) -> Attempt {
        let Some(queued) = self.queues.request(id) else { return Attempt::Dismissed };
        let is_blocked_elsewhere = queued.blocked_on.is_some_and(|other| other != queue);
        if is_blocked_elsewhere || self.is_over(id, queued.until, host.now) {
            return Attempt::Stuck;
        }
        let queued = queued.clone();
        let (request, db) = (queued.request(), queued.db);
        let keys: Vec<Key> = self.queues.keys_of(&queued).cloned().collect();
        // Begin with the key that blocked the request: when many keys are released one after another, two are opened
        // each time.
        let blocked = queued.queues.iter().position(|other| *other == queue).unwrap_or_default();
        let mut admitting = Vec::new();
        for index in (blocked..keys.len()).chain(0..blocked) {
            let (key, other) = (keys[index].as_ref(), queued.queues[index]);
            match self.admission(host.now, key, &mut host.keys.open(key), &request) {
                Ok(Admission::AlreadyHeld) => {}
                Ok(Admission::Admit) => admitting.push(other),
                Ok(Admission::Wait) => return self.keep_waiting_behind(id, other),
                Err(error) => return self.dismiss_as(&mut host.clients, id, WaitOutcome::Impossible(error)),
            }
        }
        // The keys share a slot, but a migration moves each on its own.
        match keys.iter().map(|key| host.keys.gate(key.as_ref())).find(|gate| *gate != Gate::Open) {
            None | Some(Gate::Open) => {}
            Some(Gate::Closed) => {
                self.due.insert(queue);
                return Attempt::Stuck;
            }
            Some(Gate::Elsewhere) => return self.dismiss_as(&mut host.clients, id, WaitOutcome::TryAgain),
        }
        let is_behind = |other: &QueueId| !self.queues.is_first(*other, &queued.place);
        if let Some(other) = admitting.into_iter().find(is_behind) {
            return self.keep_waiting_behind(id, other);
        }
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        if self.grace.is_running(host.now) && !self.holds_all(host, db, &names, queued.owner.as_bytes()) {
            return Attempt::Stuck;
        }
        let waited = Waited { request: id, ms: host.now.instant().ms_since(queued.since) };
        if !host.clients.may_be_granted(id, &names, waited.ms) {
            return self.dismiss_as(&mut host.clients, id, WaitOutcome::NotPermitted);
        }
        match self.grant(host, db, &names, &request, GrantedBy { session: queued.session, waited: Some(waited) }) {
            Err(error) => self.dismiss_as(&mut host.clients, id, WaitOutcome::Impossible(error)),
            Ok(grants) => {
                self.remove(id);
                let other_queues =
                    queued.queues.iter().filter(|other| **other != queue && self.queues.get(**other).is_some());
                self.due.extend(other_queues.copied());
                keys.iter().for_each(|key| self.gained(key.as_ref(), queued.owner.as_bytes()));
                let first = first_of(&grants);
                let (owner, claim) = (queued.owner, queued.claim);
                self.deliver(&mut host.clients, waited, first, || {
                    let grants = keys.into_iter().zip(grants).collect();
                    GrantInFlight { request: id, owner, claim, grants }
                });
                Attempt::Granted
            }
        }
    }

    fn keep_waiting_behind(&mut self, id: RequestId, queue: QueueId) -> Attempt {
        self.queues.set_blocked_on(id, Some(queue));
        Attempt::Stuck
    }

    /// Replies to a waiter that it was granted the lock.
    fn deliver<C: Clients>(
        &mut self,
        clients: &mut C,
        waited: Waited,
        grant: Grant,
        delivery: impl FnOnce() -> GrantInFlight,
    ) {
        let Grant { fence, holds, slot, .. } = grant;
        let outcome = WaitOutcome::Granted { fence, holds, slot };
        self.wait_times.note(waited.ms);
        match self.answer_waiter(clients, waited.request, outcome) {
            Delivery::Done if self.deliveries.is_empty() => {}
            Delivery::Done => {
                let delivery = delivery();
                let names: Vec<&[u8]> = delivery.grants.iter().map(|(key, _)| &*key.name).collect();
                let db = delivery.grants.first().map_or(0, |(key, _)| key.db);
                self.deliveries.confirm(db, &names, delivery.owner.as_bytes());
            }
            Delivery::Pending => self.deliveries.sent(delivery()),
            Delivery::Failed => self.deliveries.not_sent(delivery()),
        }
    }

    /// Ends a request that is not to be granted: the value of the key, its slot or its client's permissions have
    /// changed.
    fn dismiss_as<C: Clients>(&mut self, clients: &mut C, id: RequestId, outcome: WaitOutcome) -> Attempt {
        self.dismiss(clients, id, outcome);
        Attempt::Dismissed
    }

    fn is_kept_by_grace<E: Entry>(&mut self, now: &Now, entry: &mut E, owner: &Owner) -> bool {
        let is_held = entry.content().lock().is_some_and(|lock| lock.is_held_by(owner.as_bytes()));
        !is_held && self.grace.is_running(now)
    }
}

/// What a grant does to stored locks.
impl LockManager {
    /// Grants an admissible request: all of its keys, with one fence.
    pub(super) fn grant<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        request: &LockRequest<'_>,
        by: GrantedBy,
    ) -> Result<OneOrMany<Grant>, KeyError> {
        if let [name] = names {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            return Ok(OneOrMany::One(self.grant_one(host.now, key, &mut entry, request, by)?));
        }
        let fence = match common_fence(&mut host.keys, db, names, request) {
            Some(fence) => fence,
            None => self.next_fence(host.now)?,
        };
        let grants = names.iter().map(|name| {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            self.grant_key(host.now, key, &mut entry, request, fence, by)
        });
        grants.collect()
    }

    /// As `grant`, for one key that is open.
    pub(super) fn grant_one<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &LockRequest<'_>,
        by: GrantedBy,
    ) -> Result<Grant, KeyError> {
        let fence = match kept_fence(entry, request) {
            Some(fence) => fence,
            None => self.next_fence(now)?,
        };
        self.grant_key(now, key, entry, request, fence, by)
    }

    /// The first grant on a free key without waiters: the whole work of an uncontended request.
    #[inline(always)]
    pub(super) fn create<E: Entry>(
        &mut self,
        now: &Now,
        entry: &mut E,
        request: &LockRequest<'_>,
    ) -> Result<Grant, KeyError> {
        let first = FirstGrant::new(*request, now.timestamp(), || self.next_fence(now))?;
        entry.create(&first);
        Ok(first.grant())
    }

    pub(super) fn grant_key<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &LockRequest<'_>,
        fence: Fence,
        by: GrantedBy,
    ) -> Result<Grant, KeyError> {
        let owner = request.owner.as_bytes();
        let is_held = entry.content().lock().is_some_and(|lock| lock.is_held_by(owner));
        let kept_until = is_held.then(|| entry.until());
        let (before, fence_before) = family_and_fence(entry);
        let is_observed = self.limits.observe.changes;
        let deadline_before = is_observed.then(|| owners_deadline(entry, owner));
        let mut change = GrantChange::Anything;
        let grant = match entry.content() {
            Content::Free => {
                let first = FirstGrant::new(*request, now.timestamp(), || Ok::<_, KeyError>(fence))?;
                entry.create(&first);
                first.grant()
            }
            Content::Lock(lock) => {
                let fence_before = lock.kept_fence(owner, &request.claim);
                let until = kept_until.unwrap_or_else(|| request.lease.from(now.timestamp()));
                let (grant, until) = lock.admit(request, fence, now.timestamp(), until)?;
                // A request sent again changes nothing but the deadline.
                let is_retry = fence_before == Some(fence) && grant.holds_before == grant.holds;
                let effect = if is_retry { Effect::Renew(owner) } else { Effect::Hold(owner) };
                entry.update(effect, Some(until));
                if is_retry && deadline_before == Some(owners_deadline(entry, owner)) {
                    change = GrantChange::Nothing;
                }
                grant
            }
            Content::Foreign => return Err(KeyError::WrongType),
        };
        let (after, fence_after) = family_and_fence(entry);
        self.statistics.count_stored(before, after);
        self.note_grant(key, entry, fence_before, fence_after, by.waited);
        self.record_grant(key, request, grant, by.waited, change);
        match by.session {
            Some(client) => self.bind(now, client, key, request, fence),
            None => self.renew_after_a_third(now, key, owner, request.lease),
        }
        Ok(grant)
    }

    /// After a grant: the queue has seen the new value under the key, unless a value that came before it has not been
    /// taken in yet, and its other requests wait for the new holder. This is noted before the granted request leaves:
    /// its owner stays in the table of owners (with 48 clients 1,100 instructions of a hand-off in place of 3,700).
    fn note_grant<E: Entry>(
        &mut self,
        key: KeyRef<'_>,
        entry: &mut E,
        before: Option<Fence>,
        after: Option<Fence>,
        waited: Option<Waited>,
    ) {
        let granted = waited.and_then(|waited| self.queues.request(waited.request));
        let (leaves, owner) = granted.map_or((0, None), |it| (usize::from(it.is_present()), Some(it.owner_id)));
        // The queue of a request for one key is known without its name.
        let queue = match granted.map(|granted| &*granted.queues) {
            Some([queue]) => Some(*queue),
            _ => self.queues.id_of(key),
        };
        let Some((id, queue)) = queue.and_then(|id| Some((id, self.queues.get(id)?))) else { return };
        let (has_seen, waiters) = (before.is_none() || queue.seen == before, queue.waiters());
        if has_seen {
            self.queues.set_seen(id, after);
        }
        if let Some(lock) = entry.content().lock().filter(|_| waiters > leaves) {
            self.note_holders(id, Some(lock), owner);
        }
    }

    #[inline]
    pub(super) fn next_fence(&mut self, now: &Now) -> Result<Fence, KeyError> {
        self.fences.next(now.us()).ok_or(KeyError::NoFence)
    }
}

/// The fence that the owner has on every key already, if the grant is not a new one.
fn common_fence<K: Keys>(keys: &mut K, db: i32, names: &[&[u8]], request: &LockRequest<'_>) -> Option<Fence> {
    let mut fences = names.iter().map(|name| kept_fence(&mut keys.open(KeyRef { db, name }), request));
    let first = fences.next()??;
    fences.all(|fence| fence == Some(first)).then_some(first)
}

/// The fence that the owner has on the key already, if the grant is not a new one.
fn kept_fence<E: Entry>(entry: &mut E, request: &LockRequest<'_>) -> Option<Fence> {
    entry.content().lock()?.kept_fence(request.owner.as_bytes(), &request.claim)
}

/// The outcome for a request that LIMIT can never admit.
pub(super) const OVER_LIMIT: WaitOutcome = WaitOutcome::Impossible(KeyError::Invalid(InvalidClaim::OverLimit));

/// True if the permits that the request asks for and those that its owner holds exceed LIMIT together.
fn never_fits<E: Entry>(entry: &mut E, request: &LockRequest<'_>) -> bool {
    let hold = entry.content().lock().and_then(|lock| lock.hold(request.owner.as_bytes(), Deadline::Never));
    let held = hold.map_or(0, |hold| hold.holds);
    request.claim.limit().is_some_and(|limit| request.claim.never_fits(held, limit))
}

/// The family of the lock that is held under the key, and the latest fence of the lock.
fn family_and_fence<E: Entry>(entry: &mut E) -> (Option<Family>, Option<Fence>) {
    entry.content().lock().map_or((None, None), |lock| (lock.held_family(), lock.fence()))
}

/// When the owner's hold ends, if it has one.
fn owners_deadline<E: Entry>(entry: &mut E, owner: &[u8]) -> Option<Deadline> {
    let (lock, until) = entry.lock_and_until()?;
    lock.hold(owner, until).map(|hold| hold.until)
}

/// The grant of the first key of a request.
pub(super) fn first_of(grants: &[Grant]) -> Grant {
    *grants.first().expect("a request names at least one key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::simulated::Told;
    use crate::manager::acquire::Acquired;
    use crate::manager::fixture::{owner, Fixture};
    use crate::manager::lock_manager::LockError;
    use crate::value::claim::{Claim, Count, Mode};
    use crate::value::time::Lease;

    fn acquire(fixture: &mut Fixture, names: &[&[u8]], claim: Claim) -> Grant {
        match fixture.acquire_all("a", names, claim, None, Lease::Persist) {
            Acquired::Granted(grant) => grant,
            other => panic!("it is not granted: {other:?}"),
        }
    }

    /// Rows: the first and the second claim, whether both grants have the same fence, and the effect of the second on
    /// replicas.
    #[test]
    fn a_reentered_lock_keeps_its_fence() {
        let (hold, renewal) = (Told::Hold(owner("a")), Told::Renew(owner("a")));
        let read = Claim::ReadWrite(Mode::Read, Count::Step(1));
        let write = Claim::ReadWrite(Mode::Write, Count::Step(1));
        let rows = [
            (Claim::Mutex, Claim::Mutex, true, &renewal),
            (Claim::Reentrant(Count::Step(1)), Claim::Reentrant(Count::Step(1)), true, &hold),
            (Claim::Reentrant(Count::Exactly(2)), Claim::Reentrant(Count::Exactly(2)), true, &renewal),
            (read, read, true, &hold),
            (read, write, false, &hold),
        ];
        for (first, second, is_kept, sent) in rows {
            let row = format!("{first:?}, {second:?}");
            let mut fixture = Fixture::default();
            let before = acquire(&mut fixture, &[b"k"], first);
            fixture.effects();
            let after = acquire(&mut fixture, &[b"k"], second);
            assert_eq!(before.fence == after.fence, is_kept, "{row}");
            assert!(before.fence <= after.fence, "{row}");
            assert_eq!(fixture.effects(), std::slice::from_ref(sent), "{row}");
        }
    }

    /// The queue is not served in between: the owner of the grant had a request there too.
    #[test]
    fn a_new_holder_is_waited_for_before_the_queue_is_served() {
        let (read, write) =
            (Claim::ReadWrite(Mode::Read, Count::Step(1)), Claim::ReadWrite(Mode::Write, Count::Step(1)));
        let mut fixture = Fixture::of(&[("z", write), ("a", read), ("a", write), ("x", write)]);
        fixture.acquire_all("x", &[b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.server.keyspace.delete(&crate::manager::fixture::key());
        acquire(&mut fixture, &[b"k"], read);
        fixture.cancel("a").unwrap();
        let refused = fixture.try_acquire("a", &[b"l"], Claim::Mutex);
        assert!(matches!(refused, Err(LockError::Deadlock(_))), "x waits for a: {refused:?}");
    }

    #[test]
    fn several_keys_share_one_fence() {
        let mut fixture = Fixture::default();
        let both = acquire(&mut fixture, &[b"k", b"l"], Claim::Mutex);
        assert_eq!(acquire(&mut fixture, &[b"l", b"k"], Claim::Mutex).fence, both.fence, "a retry");
        let three = acquire(&mut fixture, &[b"k", b"l", b"m"], Claim::Mutex);
        assert!(three.fence > both.fence, "m is a new grant");
        for name in [b"k", b"l", b"m"] {
            assert_eq!(acquire(&mut fixture, &[name], Claim::Mutex).fence, three.fence);
        }
    }

    #[test]
    fn a_claim_that_can_never_be_granted_uses_no_fence_up() {
        let mut fixture = Fixture::default();
        let (owner, now) = (owner("a"), fixture.server.now());
        let claim = Claim::Permits { limit: 1, count: Count::Step(2) };
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let (mut host, key) = (fixture.server.host(&now), crate::manager::fixture::key());
        let refused = fixture.manager.create(&now, &mut host.keys.open(key.as_ref()), &request);
        assert!(refused.is_err());
        assert_eq!(fixture.manager.fences.last(), None);
    }
}
