//! Grants: the attempt to serve one waiter, and what a grant changes in stored locks.

use super::deliveries::GrantInFlight;
use super::leave::{dismiss, reply};
use super::lock_manager::LockManager;
use super::observer::{GrantChange, Waited};
use super::open_key::OpenKey;
use super::pending_removals::Phase;
use super::step::Engine;
use super::verdict::{Verdict, VerdictOfAll};
use crate::host::{Clients, Content, Delivery, Effect, Entry, Keys, WaitOutcome};
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::request::{Others, QueueId};
use crate::queue::wait_queue::Precedence;
use crate::value::claim::{Claim, LockRequest, LockType, Share};
use crate::value::fence::Fence;
use crate::value::lock::FirstGrant;
use crate::value::outcome::{Grant, KeyError};
use crate::value::time::Deadline;

/// The result of an attempt to serve a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The request was granted.
    Granted,
    /// The request got a reply without a grant.
    Dismissed,
    /// The request was not granted, and stays in the queue: it has to wait, its removal is pending, or a grace period
    /// is running. Requests behind it are not served either.
    Stuck,
    /// Writes are refused for one of its keys, so the queue is due.
    Postponed,
}

/// The circumstances of a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedBy {
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// The wait that the grant ends; `None` if the request did not wait.
    pub waited: Option<Waited>,
}

impl<E: Entry, C: Clients> OpenKey<'_, E, C> {
    /// Grants the key to a request of its queue, if the lock admits it. The request must be waiting.
    pub(super) fn try_grant(&mut self, queue: QueueId, id: RequestId, precedence: Precedence) -> Attempt {
        let queues = self.manager.queues();
        let (Some(queued), Some(waiting)) = (queues.request(id), queues.get(queue)) else { return Attempt::Dismissed };
        debug_assert!(queued.is_present() && !queued.has_multiple_keys(), "a waiter for this key alone");
        debug_assert!(queued.is_in(queue) && waiting.key.as_ref() == self.key, "the open key is that of the queue");
        let (owner, owner_id, session) = (queued.owner.clone(), queued.owner_id, queued.session);
        let (asked, lease) = (queued.lease, queued.lease_from(self.now.timestamp()));
        let name = waiting.key.clone();
        let waited = Waited { request: id, ms: self.now.instant().ms_since(queued.since) };
        let claim = queued.claim.under_limit(waiting.limit);
        let request = LockRequest { owner: owner.as_ref(), claim, lease: lease.unwrap_or(asked) };
        let verdict = match self.verdict(&request, precedence) {
            Ok(verdict) => verdict,
            Err(error) => return self.dismiss(id, WaitOutcome::Impossible(error)),
        };
        if !verdict.grants() {
            return Attempt::Stuck;
        }
        if lease.is_none() {
            return self.dismiss(id, WaitOutcome::TimedOut);
        }
        if !self.clients.may_be_granted(id, &[self.key.name], waited.ms) {
            return self.dismiss(id, WaitOutcome::NotPermitted);
        }
        let grant = match self.grant(&request, GrantedBy { session, waited: Some(waited) }) {
            Ok(grant) => grant,
            Err(error) => return self.dismiss(id, WaitOutcome::Impossible(error)),
        };
        let claim = request.claim;
        self.manager.observer.statistics.adopted_acquires += u64::from(claim == Claim::AdoptedMutex);
        // Only for a new holder: the other requests of an owner that held the key before are already listed.
        if self.manager.waits.remove(id) == Others::Some && verdict == Verdict::Admits {
            self.list_reentering(queue, owner_id);
        }
        deliver(self.manager, self.clients, waited, grant, || {
            let grants = OneOrMany::One((name, grant));
            GrantInFlight { request: id, owner, claim, grants }
        });
        Attempt::Granted
    }

    fn dismiss(&mut self, id: RequestId, outcome: WaitOutcome) -> Attempt {
        dismiss(self.manager, self.clients, id, outcome);
        Attempt::Dismissed
    }
}

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Grants all keys of a multi-key request, if all locks admit it.
    pub(super) fn try_grant_multi_key(&mut self, queue: QueueId, id: RequestId) -> Attempt {
        let Some(queued) = self.manager.queues().request(id) else { return Attempt::Dismissed };
        let is_blocked_elsewhere = queued.blocked_on.is_some_and(|other| other != queue);
        if is_blocked_elsewhere || self.manager.waits.phase(id, self.host.now) != Phase::Waiting {
            return Attempt::Stuck;
        }
        let queued = queued.clone();
        let keys: Vec<Key> = self.manager.queues().keys_of(&queued).cloned().collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        let waited = Waited { request: id, ms: self.host.now.instant().ms_since(queued.since) };
        let newly_held = match self.verdict_of_all(queue, &queued, &keys) {
            VerdictOfAll::Admits(newly_held) => newly_held,
            VerdictOfAll::Waits(blocking) => {
                self.manager.waits.queues.set_blocked_on(id, Some(blocking));
                return Attempt::Stuck;
            }
            VerdictOfAll::Withheld => return Attempt::Stuck,
            VerdictOfAll::WritesRefused => {
                self.manager.waits.backlog.queues.insert(queue);
                return Attempt::Postponed;
            }
            VerdictOfAll::Never(outcome) => return self.dismiss(id, outcome),
        };
        if !self.host.clients.may_be_granted(id, &names, waited.ms) {
            return self.dismiss(id, WaitOutcome::NotPermitted);
        }
        let by = GrantedBy { session: queued.session, waited: Some(waited) };
        let grants = match self.grant(queued.db, &names, &queued.request(), by) {
            Ok(grants) => grants,
            Err(error) => return self.dismiss(id, WaitOutcome::Impossible(error)),
        };
        let waits = &mut self.manager.waits;
        let others_of_owner = waits.remove(id);
        let others = queued.queues.iter().filter(|other| **other != queue && waits.queues.get(**other).is_some());
        waits.backlog.queues.extend(others.copied());
        if others_of_owner == Others::Some {
            // As for one key, only where the owner is a new holder. Only semaphores use the share, and these are
            // mutexes.
            let list = |queue: &QueueId| waits.queues.list_reentering(*queue, queued.owner_id, Share::default);
            newly_held.iter().for_each(list);
        }
        let (first, owner, claim) = (first_of(&grants), queued.owner, queued.claim);
        deliver(self.manager, &mut self.host.clients, waited, first, || {
            let grants = keys.into_iter().zip(grants).collect();
            GrantInFlight { request: id, owner, claim, grants }
        });
        Attempt::Granted
    }

    fn dismiss(&mut self, id: RequestId, outcome: WaitOutcome) -> Attempt {
        dismiss(self.manager, &mut self.host.clients, id, outcome);
        Attempt::Dismissed
    }
}

/// Replies to a waiter that has been granted the lock.
fn deliver<C: Clients>(
    manager: &mut LockManager,
    clients: &mut C,
    waited: Waited,
    grant: Grant,
    delivery: impl FnOnce() -> GrantInFlight,
) {
    debug_assert!(!manager.queues().contains(waited.request), "a request is queued or in flight, never both");
    let Grant { fence, holds, slot, .. } = grant;
    manager.observer.wait_times.record(waited.ms);
    match reply(manager, clients, waited.request, WaitOutcome::Granted { fence, holds, slot }) {
        Delivery::Done if manager.deliveries.is_empty() => {}
        Delivery::Done => manager.deliveries.delivered_at_once(&delivery()),
        Delivery::Pending(client) => manager.deliveries.sent(client, delivery()),
        Delivery::Failed => manager.deliveries.not_sent(delivery()),
    }
}

impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// Grants an admissible request: all of its keys, with one fencing token.
    pub(super) fn grant(
        &mut self,
        db: i32,
        names: &[&[u8]],
        request: &LockRequest<'_>,
        by: GrantedBy,
    ) -> Result<OneOrMany<Grant>, KeyError> {
        if let [name] = names {
            return Ok(OneOrMany::One(self.reopen(KeyRef { db, name }).grant(request, by)?));
        }
        let fence = match common_fence(&mut self.host.keys, db, names, request) {
            Some(fence) => fence,
            None => self.manager.next_fence(self.host.now)?,
        };
        names.iter().map(|name| self.reopen(KeyRef { db, name }).grant_with(fence, request, by)).collect()
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Grants an admissible request for this key.
    pub(super) fn grant(&mut self, request: &LockRequest<'_>, by: GrantedBy) -> Result<Grant, KeyError> {
        let fence = match kept_fence(&mut self.entry, request) {
            Some(fence) => fence,
            None => self.manager.next_fence(self.now)?,
        };
        self.grant_with(fence, request, by)
    }

    /// As `grant`, with a given fencing token.
    pub(super) fn grant_with(
        &mut self,
        fence: Fence,
        request: &LockRequest<'_>,
        by: GrantedBy,
    ) -> Result<Grant, KeyError> {
        let (before, fence_before) = lock_type_and_fence(&mut self.entry);
        let (grant, change) = self.store_grant(fence, request)?;
        let (after, fence_after) = lock_type_and_fence(&mut self.entry);
        debug_assert!(fence_before <= fence_after, "fencing tokens increase");
        debug_assert!(
            self.entry.content().lock().is_some_and(|lock| lock.is_held_by(request.owner.as_bytes())),
            "the lock is held by the owner that was granted it"
        );
        let LockManager { waits, observer, .. } = &mut *self.manager;
        observer.statistics.count_stored(before, after);
        observer.granted(&waits.queues, self.key, request, grant, by.waited, change);
        if let Some(id) = self.queue {
            // The queue has now seen the new value, unless another command had stored a value that the queue has not
            // seen: then `apply_unseen_value` must still run.
            if waits.queues.get(id).is_some_and(|queue| fence_before.is_none() || queue.seen == fence_before) {
                self.record_seen(fence_after);
            }
            self.record_lock(by.waited.map(|waited| waited.request));
        }
        match by.session {
            Some(client) => self.manager.bind(self.now, client, self.key, request, fence),
            None => self.manager.renew_after_a_third(self.now, self.key, request.owner.as_bytes(), request.lease),
        }
        Ok(grant)
    }

    /// Stores the grant. Returns it with what it has changed.
    fn store_grant(&mut self, fence: Fence, request: &LockRequest<'_>) -> Result<(Grant, GrantChange), KeyError> {
        let (owner, now) = (request.owner.as_bytes(), self.now.timestamp());
        let is_held = self.entry.content().lock().is_some_and(|lock| lock.is_held_by(owner));
        let kept_until = is_held.then(|| self.entry.until());
        let is_observed = self.manager.observer.settings.changes;
        let deadline_before = is_observed.then(|| owners_deadline(&mut self.entry, owner));
        match self.entry.content() {
            Content::Free => {
                let first = FirstGrant::new(*request, now, || Ok::<_, KeyError>(fence))?;
                self.entry.create(&first);
                Ok((first.grant(), GrantChange::Anything))
            }
            Content::Lock(lock) => {
                let fence_before = lock.kept_fence(owner, &request.claim);
                let until = kept_until.unwrap_or_else(|| request.lease.from(now));
                let (grant, until) = lock.admit(request, fence, now, until)?;
                // A repeated request changes nothing but the deadline.
                let is_retry = fence_before == Some(fence) && grant.holds_before == grant.holds;
                let effect = if is_retry { Effect::Renew(owner) } else { Effect::Hold(owner) };
                self.entry.update(effect, Some(until));
                let is_same = is_retry && deadline_before == Some(owners_deadline(&mut self.entry, owner));
                Ok((grant, if is_same { GrantChange::Nothing } else { GrantChange::Anything }))
            }
            Content::Foreign => Err(KeyError::WrongType),
        }
    }
}

/// The fencing token that the owner already has, the same on every key, if this is not a new grant.
fn common_fence<K: Keys>(keys: &mut K, db: i32, names: &[&[u8]], request: &LockRequest<'_>) -> Option<Fence> {
    let mut fences = names.iter().map(|name| kept_fence(&mut keys.open(KeyRef { db, name }), request));
    let first = fences.next()??;
    fences.all(|fence| fence == Some(first)).then_some(first)
}

/// The fencing token that the owner already has on the key, if this is not a new grant.
fn kept_fence<E: Entry>(entry: &mut E, request: &LockRequest<'_>) -> Option<Fence> {
    entry.content().lock()?.kept_fence(request.owner.as_bytes(), &request.claim)
}

/// The type of the lock that is held under the key, and its latest fencing token.
fn lock_type_and_fence<E: Entry>(entry: &mut E) -> (Option<LockType>, Option<Fence>) {
    entry.content().lock().map_or((None, None), |lock| (lock.held_lock_type(), lock.fence()))
}

/// When the owner's hold expires, if it has one.
fn owners_deadline<E: Entry>(entry: &mut E, owner: &[u8]) -> Option<Deadline> {
    let (lock, until) = entry.lock_and_until()?;
    lock.hold(owner, until).map(|hold| hold.until)
}

pub(super) fn first_of(grants: &[Grant]) -> Grant {
    *grants.first().expect("a request names at least one key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::acquire::Acquired;
    use crate::engine::fixture::{owner, Fixture};
    use crate::engine::lock_manager::LockError;
    use crate::host::simulated::SentEffect;
    use crate::value::claim::{Claim, Count, Mode};
    use crate::value::time::Lease;

    fn acquire(fixture: &mut Fixture, names: &[&[u8]], claim: Claim) -> Grant {
        match fixture.acquire_all("a", names, claim, None, Lease::Persist) {
            Acquired::Granted(grant) => grant,
            other => panic!("it is not granted: {other:?}"),
        }
    }

    /// Rows: the first and the second claim, whether both grants have the same fencing token, and the effect of the
    /// second on replicas.
    #[test]
    fn a_reentered_lock_keeps_its_fence() {
        let (hold, renewal) = (SentEffect::Hold(owner("a")), SentEffect::Renew(owner("a")));
        let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
        let write = Claim::ReadWrite(Mode::Write, Count::Delta(1));
        let rows = [
            (Claim::Mutex, Claim::Mutex, true, &renewal),
            (Claim::Reentrant(Count::Delta(1)), Claim::Reentrant(Count::Delta(1)), true, &hold),
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

    /// The owner of the grant has a request in the queue as well, and the queue is not served before the check.
    #[test]
    fn a_new_holder_is_waited_for_before_the_queue_is_served() {
        let (read, write) =
            (Claim::ReadWrite(Mode::Read, Count::Delta(1)), Claim::ReadWrite(Mode::Write, Count::Delta(1)));
        let mut fixture = Fixture::of(&[("z", write), ("a", read), ("a", write), ("x", write)]);
        fixture.acquire_all("x", &[b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.server.keyspace.delete(&crate::engine::fixture::key());
        acquire(&mut fixture, &[b"k"], read);
        fixture.cancel("a").unwrap();
        let refused = fixture.try_acquire("a", &[b"l"], Claim::Mutex);
        assert!(matches!(refused, Err(LockError::Deadlock(_))), "x waits for a: {refused:?}");
    }

    #[test]
    fn multiple_keys_share_one_fence() {
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
    fn a_claim_that_can_never_be_granted_consumes_no_fence() {
        let mut fixture = Fixture::default();
        let (owner, now) = (owner("a"), fixture.server.now());
        let claim = Claim::Permits { limit: 1, count: Count::Delta(2) };
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let (mut host, key) = (fixture.server.host(&now), crate::engine::fixture::key());
        let key = key.as_ref();
        let refused =
            fixture.manager.acquire_uncontended(&now, key, || host.keys.open(key), &request, None).ok().unwrap();
        assert!(refused.is_err());
        assert_eq!(fixture.manager.fences.last(), None);
    }
}
