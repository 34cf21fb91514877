//! What a grant does to stored locks.

use super::lock_manager::LockManager;
use super::occurrence::{GrantChange, Waited};
use crate::host::{Content, Effect, Entry, Host, Keys};
use crate::key::{ClientId, KeyRef};
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Family, LockRequest};
use crate::value::fence::Fence;
use crate::value::lock::FirstGrant;
use crate::value::outcome::{Grant, KeyError};
use crate::value::time::{Deadline, Now};

/// How a request came to be granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedBy {
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// `None`: granted at once.
    pub waited: Option<Waited>,
}

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
            let grant = self.grant_one(host.now, key, &mut entry, request, by)?;
            self.note_new_holder(key, &mut entry);
            return Ok(OneOrMany::One(grant));
        }
        let fence = match common_fence(&mut host.keys, db, names, request) {
            Some(fence) => fence,
            None => self.next_fence(host.now)?,
        };
        let grants = names.iter().map(|name| {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            let grant = self.grant_key(host.now, key, &mut entry, request, fence, by)?;
            self.note_new_holder(key, &mut entry);
            Ok(grant)
        });
        let grants = grants.collect::<Result<_, KeyError>>()?;
        // The reply to a waiter confirms its grants once it is delivered.
        if by.waited.is_none() {
            self.deliveries.confirm(db, names, request.owner.as_bytes());
        }
        Ok(grants)
    }

    /// As `grant`, for one key that is open. The wait queue learns of the new holder by
    /// [`LockManager::note_new_holder`].
    pub(super) fn grant_one<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &LockRequest<'_>,
        by: GrantedBy,
    ) -> Result<Grant, KeyError> {
        let kept = match entry.content() {
            Content::Lock(lock) => lock.kept_fence(request.owner.as_bytes(), &request.claim),
            _ => None,
        };
        let fence = match kept {
            Some(fence) => fence,
            None => self.next_fence(now)?,
        };
        let grant = self.grant_key(now, key, entry, request, fence, by)?;
        if by.waited.is_none() {
            self.deliveries.confirm(key.db, &[key.name], request.owner.as_bytes());
        }
        Ok(grant)
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

    fn grant_key<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &LockRequest<'_>,
        fence: Fence,
        by: GrantedBy,
    ) -> Result<Grant, KeyError> {
        let owner = request.owner.as_bytes();
        let is_held = matches!(entry.content(), Content::Lock(lock) if lock.is_held_by(owner));
        let kept_until = is_held.then(|| entry.until());
        let before = held_family(entry);
        let fence_before = fence_under(entry);
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
                self.watch_holders(key, entry);
                if is_retry && deadline_before == Some(owners_deadline(entry, owner)) {
                    change = GrantChange::Nothing;
                }
                grant
            }
            Content::Foreign => return Err(KeyError::WrongType),
        };
        self.statistics.count_stored(before, held_family(entry));
        self.note_seen(key, fence_before, fence_under(entry));
        self.record_grant(key, request, grant, by.waited, change);
        match by.session {
            Some(client) => self.bind(now, client, key, request, fence),
            None => self.renew_after_a_third(now, key, owner, request.lease),
        }
        Ok(grant)
    }

    /// After a grant: the requests that wait for the key, if any, wait for its new holder.
    pub(super) fn note_new_holder<E: Entry>(&mut self, key: KeyRef<'_>, entry: &mut E) {
        if let (Some(queue), Content::Lock(lock)) = (self.queues.id_of(key), entry.content()) {
            self.queues.note_holders(queue, Some(lock));
        }
    }

    /// After a grant: the queue has seen the new value under the key, unless a value that came before it has not been
    /// taken in yet.
    fn note_seen(&mut self, key: KeyRef<'_>, before: Option<Fence>, after: Option<Fence>) {
        let Some(queue) = self.queues.id_of(key) else { return };
        if before.is_none() || self.queues.get(queue).is_some_and(|queue| queue.seen == before) {
            self.queues.set_seen(queue, after);
        }
    }

    #[inline]
    fn next_fence(&mut self, now: &Now) -> Result<Fence, KeyError> {
        self.fences.next(now.us()).ok_or(KeyError::NoFence)
    }
}

/// The fence that the owner has on every key already, if the grant is not a new one.
fn common_fence<K: Keys>(keys: &mut K, db: i32, names: &[&[u8]], request: &LockRequest<'_>) -> Option<Fence> {
    let mut fences = names.iter().map(|name| match keys.open(KeyRef { db, name }).content() {
        Content::Lock(lock) => lock.kept_fence(request.owner.as_bytes(), &request.claim),
        _ => None,
    });
    let first = fences.next()??;
    fences.all(|fence| fence == Some(first)).then_some(first)
}

/// The family of the lock that is held under the key.
pub(super) fn held_family<E: Entry>(entry: &mut E) -> Option<Family> {
    match entry.content() {
        Content::Lock(lock) => lock.held_family(),
        Content::Free | Content::Foreign => None,
    }
}

/// The latest fence of the lock under the key.
fn fence_under<E: Entry>(entry: &mut E) -> Option<Fence> {
    match entry.content() {
        Content::Lock(lock) => lock.fence(),
        Content::Free | Content::Foreign => None,
    }
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
