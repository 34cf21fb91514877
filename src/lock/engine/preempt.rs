//! Preemption: an owner takes mutexes from any holder. This is what `SET key token` means in an adopted command.
//!
//! A held mutex is broken and granted again in one step and one effect, so it is never free in between. A free one is
//! granted as usual: behind earlier requests, and not in a grace period. A native hold is never preempted, because its
//! client relies on it.

use super::acquire::{AcquireRequest, Earlier};
use super::grant::GrantedBy;
use super::lock_manager::{LockError, LockManager};
use super::observer::EndedBy;
use super::open_key::OpenKey;
use super::step::Engine;
use super::verdict::Verdict;
use crate::host::{Entry, Keys, Park};
use crate::key::KeyRef;
use crate::queue::placement::SearchBudget;
use crate::queue::position::Rank;
use crate::value::claim::{Claim, LockRequest, LockType, Origin};
use crate::value::fence::Fence;
use crate::value::outcome::{Admission, Grant, KeyError};
use crate::value::owner::{Owner, OwnerRef};
use crate::value::time::{Deadline, Lease, Now};

/// One mutex and its new owner.
#[derive(Clone, Copy, Debug)]
pub struct Preemption<'a> {
    /// The name of the key.
    pub name: &'a [u8],
    /// The new owner.
    pub owner: OwnerRef<'a>,
    /// `None` keeps the deadline of the lock; a free one gets none.
    pub lease: Option<Lease>,
}

/// The result of a preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preempted {
    /// Each owner holds its mutex. These are the fencing tokens of the grants; mutexes without one were already held by
    /// their owners.
    All(Vec<Fence>),
    /// A free key cannot be granted now. Nothing was changed.
    NotNow,
    /// A key is held natively by another owner. Nothing was changed.
    Protected,
}

/// The holder of a mutex or reentrant mutex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveHolder {
    /// Its owner.
    pub owner: Owner,
    /// The fence of its grant.
    pub fence: Fence,
    /// Which commands granted it.
    pub origin: Origin,
}

impl ExclusiveHolder {
    /// Whether adopted commands with this token are prevented from ending this hold.
    pub fn is_protected_from(&self, token: &[u8]) -> bool {
        self.origin == Origin::Native && self.owner.as_bytes() != token
    }
}

impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// The holder of a mutex or reentrant mutex; `None` if the key is free.
    ///
    /// # Errors
    /// The key holds something else, or requests for another lock type wait for it.
    pub fn exclusive_holder(
        &mut self,
        key: KeyRef<'_>,
        lock_type: LockType,
    ) -> Result<Option<ExclusiveHolder>, KeyError> {
        let mut open = self.open(key);
        let Some(lock) = open.lock_of_type(lock_type)? else { return Ok(None) };
        let origin = if lock.is_held_natively() { Origin::Native } else { Origin::Adopted };
        Ok(lock.latest_holder().map(|(owner, fence)| ExclusiveHolder { owner: owner.clone(), fence, origin }))
    }

    /// The holder of the latest grant, if the lock, of any type, is held natively.
    pub fn native_holder(&mut self, key: KeyRef<'_>) -> Option<Owner> {
        let mut open = self.open(key);
        let lock = open.entry.content().lock().filter(|lock| lock.is_held_natively())?;
        lock.latest_holder().map(|(owner, _)| owner.clone())
    }

    /// The holder of the latest grant, if the key holds a lock of any type.
    pub fn latest_holder(&mut self, key: KeyRef<'_>) -> Option<Owner> {
        let mut open = self.open(key);
        open.entry.content().lock()?.latest_holder().map(|(owner, _)| owner.clone())
    }

    /// Records that the holder of a key was protected from an adopted command.
    pub fn record_protected(&mut self, key: KeyRef<'_>, holder: &Owner) {
        let LockManager { waits, observer, .. } = &mut *self.manager;
        observer.protected(waits.queues.waiters_of(key), key, holder);
    }
}

impl<K: Keys, C: Park> Engine<'_, '_, K, C> {
    /// Makes each owner the holder of its mutex, or changes nothing. A holder renews its lease, which may become
    /// shorter.
    ///
    /// # Errors
    /// A key holds something else.
    pub fn preempt_mutexes(&mut self, db: i32, preemptions: &[Preemption<'_>]) -> Result<Preempted, LockError> {
        let (mut free, mut held, mut protected, mut may_be_granted) = (Vec::new(), Vec::new(), None, true);
        // One budget for all keys, because a search for a position may take some milliseconds.
        let mut budget = SearchBudget::default();
        for preemption in preemptions {
            let key = KeyRef { db, name: preemption.name };
            match self.exclusive_holder(key, LockType::Mutex)? {
                Some(holder) if holder.is_protected_from(preemption.owner.as_bytes()) => {
                    protected = Some((key, holder.owner));
                }
                Some(_) => held.push(preemption),
                None => {
                    may_be_granted &= self.may_be_granted_now(&preemption.of_free(db), &mut budget)?;
                    free.push(preemption);
                }
            }
        }
        if let Some((key, holder)) = protected {
            self.record_protected(key, &holder);
            return Ok(Preempted::Protected);
        }
        if !may_be_granted {
            return Ok(Preempted::NotNow);
        }
        let mut grants = Vec::new();
        // Free keys first. Preempting a held key ends a hold, and an owner that has lost a key no longer goes before a
        // multi-key request for it, so the checks above would no longer apply.
        for preemption in free {
            grants.push(self.grant_free(&preemption.of_free(db))?.fence);
        }
        for preemption in held {
            grants.extend(self.preempt_held(db, preemption)?);
        }
        Ok(Preempted::All(grants))
    }

    /// Whether a free key may be granted to a request that does not wait.
    pub(super) fn may_be_granted_now(
        &mut self,
        request: &AcquireRequest<'_>,
        budget: &mut SearchBudget,
    ) -> Result<bool, LockError> {
        let owner_id = self.manager.queues().owner_id(request.db, request.request.owner.as_bytes());
        let mut new = request.queued(self.manager, Earlier { owner_id, retried: None }, Rank::Normal);
        self.find_position(&mut new, budget);
        let verdict = self.verdict_of_new(&new, Admission::Admit, true)?;
        Ok(verdict == Verdict::Admits)
    }

    /// Grants a free key to an adopted command, after [`Engine::may_be_granted_now`]. Checks nothing again, so that
    /// either all keys of a command are granted or none.
    pub(super) fn grant_free(&mut self, request: &AcquireRequest<'_>) -> Result<Grant, LockError> {
        let owner_id = self.manager.queues().owner_id(request.db, request.request.owner.as_bytes());
        let retried = self.find_retried(request, owner_id);
        let granted = LockRequest { claim: request.request.claim.adopted(), ..request.request };
        self.grant_among_waiters(&AcquireRequest { request: granted, ..*request }, retried)
    }

    /// Returns the fencing token, unless the owner already held the mutex.
    fn preempt_held(&mut self, db: i32, preemption: &Preemption<'_>) -> Result<Option<Fence>, LockError> {
        let Preemption { name, owner, lease } = *preemption;
        let mut open = self.reopen(KeyRef { db, name });
        let Some((lock, until)) = open.entry.lock_and_until() else {
            // Cannot happen: a key is removed only by a command or by expiry, and neither can happen during this call.
            drop(open);
            return Ok(Some(self.grant_free(&preemption.of_free(db))?.fence));
        };
        if lock.is_held_by(owner.as_bytes()) {
            if lease.is_some() {
                open.renew(owner.as_bytes(), lease);
                open.manager.observer.renewed(open.key, owner.as_bytes());
            }
            open.manager.deliveries.confirm(db, &[name], owner.as_bytes());
            return Ok(None);
        }
        let lease = lease.unwrap_or_else(|| remaining_lease(until, open.now));
        open.replace_holder(&LockRequest { owner, claim: Claim::AdoptedMutex, lease })
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Breaks the hold of a mutex and grants the mutex to the owner of the request, in one effect.
    fn replace_holder(&mut self, request: &LockRequest<'_>) -> Result<Option<Fence>, LockError> {
        // Before the hold is broken, because without a fencing token nothing is changed.
        let next = self.manager.next_fence(self.now)?;
        let Some(lock) = self.entry.content().lock() else { return Ok(None) };
        let Some((former, fence)) = lock.latest_holder().map(|(owner, fence)| (owner.clone(), fence)) else {
            return Ok(None);
        };
        self.manager.observer.statistics.count_stored(lock.held_lock_type(), None);
        lock.remove_holder(former.as_bytes());
        self.count_and_record_end(former.as_bytes(), fence, EndedBy::Broken);
        let (key, queue) = (self.key, self.queue);
        if let Some(queue) = queue {
            self.manager.waits.lost_key(queue, key.db, former.as_bytes());
        }
        self.manager.bindings.unbind(key, former.as_bytes());
        self.grant_with(next, request, GrantedBy { session: None, waited: None })?;
        self.manager.deliveries.confirm(key.db, &[key.name], request.owner.as_bytes());
        self.manager.observer.count_grant(None);
        let owner = queue.and_then(|queue| self.manager.waits.waiting_owner(queue, request.owner.as_bytes()));
        if let Some((queue, owner)) = queue.zip(owner) {
            self.list_reentering(queue, owner);
            self.manager.waits.backlog.queues.insert(queue);
        }
        Ok(Some(next))
    }
}

impl<'a> Preemption<'a> {
    /// The request for a key that is free.
    fn of_free(&'a self, db: i32) -> AcquireRequest<'a> {
        let lease = self.lease.unwrap_or(Lease::Persist);
        let request = LockRequest { owner: self.owner, claim: Claim::Mutex, lease };
        AcquireRequest { db, names: std::slice::from_ref(&self.name), request, wait: None, session: None }
    }
}

/// The remaining lease of a key with this deadline.
fn remaining_lease(until: Deadline, now: &Now) -> Lease {
    match until {
        Deadline::Never => Lease::Persist,
        // The last millisecond still belongs to the lease.
        Deadline::At(timestamp) => {
            let ms = timestamp.ms_since(now.timestamp()).max(1);
            i64::try_from(ms).ok().and_then(Lease::from_ms).unwrap_or(Lease::Persist)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture::{key, owner, Fixture};
    use crate::host::simulated::SentEffect;
    use crate::key::{ClientId, Key};

    const MUTEX: Claim = Claim::Mutex;
    const ADOPTED: Claim = Claim::AdoptedMutex;

    /// How many were granted; `None` if not now.
    fn take(fixture: &mut Fixture, pairs: &[(&[u8], &str)], lease: Option<Lease>) -> Result<Option<usize>, LockError> {
        let owners: Vec<Owner> = pairs.iter().map(|(_, name)| owner(name)).collect();
        let preemptions: Vec<_> = pairs
            .iter()
            .zip(&owners)
            .map(|((name, _), owner)| Preemption { name, owner: owner.as_ref(), lease })
            .collect();
        let now = fixture.server.now();
        let taken = fixture.manager.with_host(&mut fixture.server.host(&now)).preempt_mutexes(0, &preemptions)?;
        Ok(match taken {
            Preempted::All(fences) => Some(fences.len()),
            Preempted::NotNow | Preempted::Protected => None,
        })
    }

    #[test]
    fn another_owner_preempts_a_mutex_in_one_effect_with_a_new_fence() {
        let mut fixture = Fixture::of(&[("a", ADOPTED)]);
        let before = fixture.stored().0.fence();
        assert_eq!(take(&mut fixture, &[(b"k", "b")], Lease::from_ms(50)), Ok(Some(1)));
        assert_eq!(fixture.effects(), [SentEffect::Hold(owner("b"))]);
        assert_eq!(fixture.holders(), format!("{:?}", owner("b")));
        assert!(fixture.stored().0.fence() > before);
        let statistics = fixture.manager.observer.statistics;
        assert_eq!((statistics.broken, statistics.stored().0.iter().sum::<i64>()), (1, 1));
    }

    #[test]
    fn waiters_stay_in_the_queue_and_are_served_after_the_new_holder() {
        let mut fixture = Fixture::of(&[("a", ADOPTED), ("w", MUTEX)]);
        assert_eq!(take(&mut fixture, &[(b"k", "b")], None), Ok(Some(1)));
        assert_eq!(fixture.holders(), format!("{:?}", owner("b")));
        fixture.release("b", crate::value::claim::ReleaseAmount::Mutex).unwrap();
        assert_eq!(fixture.holders(), format!("{:?}", owner("w")));
    }

    #[test]
    fn a_holder_renews_its_lease_which_may_become_shorter() {
        let mut fixture = Fixture::of(&[("a", ADOPTED)]);
        let fence = fixture.stored().0.fence();
        assert_eq!(take(&mut fixture, &[(b"k", "a")], Lease::from_ms(50)), Ok(Some(0)));
        let until = fixture.stored().1;
        assert!(until < Deadline::Never && fixture.stored().0.fence() == fence);
        assert_eq!(take(&mut fixture, &[(b"k", "a")], None), Ok(Some(0)));
        assert_eq!(fixture.stored().1, until, "the deadline was kept");
        assert_eq!(take(&mut fixture, &[(b"k", "b")], None), Ok(Some(1)));
        assert_eq!(fixture.stored().1, until, "the new holder's too");
    }

    #[test]
    fn the_session_of_the_former_holder_ends_nothing() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", ADOPTED, Some(ClientId(7)), Lease::Persist);
        take(&mut fixture, &[(b"k", "b")], None).unwrap();
        fixture.manager.end_session(ClientId(7));
        fixture.drain();
        assert_eq!(fixture.holders(), format!("{:?}", owner("b")));
    }

    #[test]
    fn a_free_key_is_preempted_only_where_it_would_be_granted() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("w", MUTEX)]);
        fixture.server.keyspace.delete(&key());
        assert_eq!(take(&mut fixture, &[(b"k", "b")], None), Ok(None));
        assert_eq!(take(&mut fixture, &[(b"l", "b"), (b"k", "b")], None), Ok(None));
        assert!(fixture.server.keyspace.primary.is_empty(), "all or nothing");
        assert_eq!(take(&mut fixture, &[(b"l", "b"), (b"m", "c")], None), Ok(Some(2)));
    }

    /// An owner that holds one of its keys goes before a request for both, until it loses that key.
    #[test]
    fn a_free_key_is_granted_before_an_owner_loses_another_one() {
        for pairs in [[(&b"k"[..], "u"), (b"l", "t")], [(b"l", "t"), (b"k", "u")]] {
            let mut fixture = Fixture::of(&[("t", ADOPTED)]);
            fixture.acquire_all("z", &[b"k", b"l"], MUTEX, None, Lease::Persist);
            assert_eq!(take(&mut fixture, &pairs, None), Ok(Some(2)), "{pairs:?}");
            assert!(fixture.server.keyspace.primary.contains_key(&Key::new(0, b"l")), "{pairs:?}");
        }
    }

    #[test]
    fn a_native_hold_is_not_preempted_and_its_owner_renews_it() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("w", MUTEX)]);
        assert_eq!(take(&mut fixture, &[(b"l", "b"), (b"k", "b")], None), Ok(None));
        assert_eq!(fixture.effects(), [], "all or nothing");
        assert_eq!(fixture.manager.observer.statistics.adopted_protected, 1);
        assert_eq!(take(&mut fixture, &[(b"k", "a")], Lease::from_ms(50)), Ok(Some(0)));
        assert!(fixture.stored().0.is_held_natively(), "a renewal is no grant");
    }

    #[test]
    fn the_latest_grant_decides_whether_a_hold_is_native() {
        let mut fixture = Fixture::of(&[("a", ADOPTED)]);
        assert!(!fixture.stored().0.is_held_natively());
        fixture.acquire("a", MUTEX, None, Lease::Persist);
        assert_eq!(fixture.effects(), [SentEffect::Renew(owner("a"))]);
        assert!(fixture.stored().0.is_held_natively());
        let replica = &fixture.server.keyspace.replica.keys[&key()];
        assert!(matches!(replica, crate::host::simulated::Stored::Lock(lock, _) if lock.is_held_natively()));
        let mut fixture = Fixture::of(&[]);
        assert_eq!(take(&mut fixture, &[(b"k", "b")], None), Ok(Some(1)));
        assert!(!fixture.stored().0.is_held_natively());
    }

    #[test]
    fn nothing_is_preempted_in_a_grace() {
        let mut fixture = Fixture::default();
        let instant = fixture.server.now().instant();
        fixture.manager.begin_grace(instant, 500);
        assert_eq!(take(&mut fixture, &[(b"k", "b")], None), Ok(None));
    }

    #[test]
    fn a_lock_of_another_type_is_not_preempted() {
        let mut fixture = Fixture::of(&[("a", Claim::Reentrant(crate::value::claim::Count::Delta(1)))]);
        assert!(matches!(take(&mut fixture, &[(b"k", "b")], None), Err(LockError::Key(KeyError::Invalid(_)))));
        assert_eq!(fixture.effects(), []);
    }
}
