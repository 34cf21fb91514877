//! Sets the number of holds of a reentrant mutex. Adopted clients use HINCRBY and HSET on a hash field that is named
//! after the owner and contains this number.
//!
//! With 0 holds the owner still has the lock, which it releases with a separate command. Until then no other owner may
//! acquire the lock.

use super::acquire::AcquireRequest;
use super::lock_manager::LockError;
use super::observer::EndedBy;
use super::step::Engine;
use crate::host::{Effect, Entry, Keys, Park};
use crate::key::KeyRef;
use crate::queue::placement::SearchBudget;
use crate::value::claim::{Claim, Count, InvalidClaim, LockRequest, LockType};
use crate::value::outcome::KeyError;
use crate::value::owner::OwnerRef;
use crate::value::time::Lease;

/// How to change the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountChange {
    /// Add this much, or subtract it if it is negative.
    By(i64),
    /// Set this number.
    To(u32),
}

impl CountChange {
    fn applied_to(self, holds: u32) -> Result<u32, InvalidClaim> {
        match self {
            CountChange::To(holds) => Ok(holds),
            CountChange::By(difference) => match i64::from(holds).saturating_add(difference) {
                ..0 => Err(InvalidClaim::HoldsFewer(holds)),
                changed => u32::try_from(changed).map_err(|_| InvalidClaim::TooManyHolds),
            },
        }
    }
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// How many times the owner holds it now, and held it before; `None` if it did not hold it before.
    Holds {
        /// Now.
        now: u32,
        /// Before.
        before: Option<u32>,
    },
    /// Another owner holds it.
    HeldByAnother,
    /// The key is free but cannot be granted now.
    NotNow,
}

impl<K: Keys, C: Park> Engine<'_, '_, K, C> {
    /// Changes how many times the owner holds a reentrant mutex. A free key is granted without an expiry.
    ///
    /// # Errors
    /// The key holds something else, or the new number would be invalid: below 0, or 0 on a free key.
    pub fn change_holds(
        &mut self,
        key: KeyRef<'_>,
        owner: OwnerRef<'_>,
        change: CountChange,
    ) -> Result<Counted, LockError> {
        let mut open = self.open(key);
        let Some(lock) = open.lock_of_type(LockType::Reentrant)? else {
            drop(open);
            return self.grant_free_with_holds(key, owner, change);
        };
        let Some(before) = lock.exclusive_holds(owner.as_bytes()) else { return Ok(Counted::HeldByAnother) };
        let now = change.applied_to(before).map_err(KeyError::from)?;
        lock.set_exclusive_holds(now);
        if now != before {
            open.entry.update(Effect::Hold(owner.as_bytes()), None);
        }
        open.manager.deliveries.confirm(key.db, &[key.name], owner.as_bytes());
        if now < before {
            open.manager.observer.partially_released(key, owner.as_bytes(), EndedBy::Released);
        } else {
            open.manager.observer.count_grant(None);
        }
        Ok(Counted::Holds { now, before: Some(before) })
    }

    fn grant_free_with_holds(
        &mut self,
        key: KeyRef<'_>,
        owner: OwnerRef<'_>,
        change: CountChange,
    ) -> Result<Counted, LockError> {
        let holds = match change.applied_to(0).map_err(KeyError::from)? {
            0 => return Err(KeyError::Invalid(InvalidClaim::HoldsFewer(0)).into()),
            holds => holds,
        };
        let claim = Claim::Reentrant(Count::Exactly(holds));
        let request = LockRequest { owner, claim, lease: Lease::Persist };
        let request = AcquireRequest { db: key.db, names: &[key.name], request, wait: None, session: None };
        if !self.may_be_granted_now(&request, &mut SearchBudget::default())? {
            return Ok(Counted::NotNow);
        }
        let grant = self.grant_free(&request)?;
        Ok(Counted::Holds { now: grant.holds, before: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture::{key, owner, Fixture};
    use crate::host::simulated::SentEffect;
    use crate::value::claim::ReleaseAmount;
    use crate::value::outcome::{KeyError, Released};

    const TWICE: Claim = Claim::Reentrant(Count::Delta(2));

    fn change(fixture: &mut Fixture, name: &str, change: CountChange) -> Result<Counted, LockError> {
        let (owner, now) = (owner(name), fixture.server.now());
        fixture.manager.with_host(&mut fixture.server.host(&now)).change_holds(key().as_ref(), owner.as_ref(), change)
    }

    #[test]
    fn a_free_key_is_granted_and_its_owner_counts() {
        let mut fixture = Fixture::of(&[]);
        assert_eq!(change(&mut fixture, "a", CountChange::By(1)), Ok(Counted::Holds { now: 1, before: None }));
        let fence = fixture.stored().0.fence();
        assert_eq!(change(&mut fixture, "a", CountChange::By(2)), Ok(Counted::Holds { now: 3, before: Some(1) }));
        assert_eq!(change(&mut fixture, "a", CountChange::To(2)), Ok(Counted::Holds { now: 2, before: Some(3) }));
        assert_eq!(fixture.stored().0.fence(), fence);
        assert_eq!(fixture.effects(), vec![SentEffect::Hold(owner("a")); 3]);
        assert_eq!(change(&mut fixture, "b", CountChange::By(1)), Ok(Counted::HeldByAnother));
        assert_eq!(fixture.effects(), []);
    }

    #[test]
    fn a_count_of_0_holds_until_it_is_released() {
        let mut fixture = Fixture::of(&[("a", TWICE), ("b", TWICE)]);
        assert_eq!(change(&mut fixture, "a", CountChange::By(-2)), Ok(Counted::Holds { now: 0, before: Some(2) }));
        assert_eq!(fixture.holders(), format!("{:?}", owner("a")));
        assert_eq!(change(&mut fixture, "b", CountChange::By(1)), Ok(Counted::HeldByAnother));
        let below = change(&mut fixture, "a", CountChange::By(-1));
        assert_eq!(below, Err(KeyError::Invalid(InvalidClaim::HoldsFewer(0)).into()));
        assert_eq!(fixture.release("a", ReleaseAmount::Reentrant(Count::Delta(1))), Ok(Released::Gone));
        assert_eq!(fixture.holders(), format!("{:?}", owner("b")), "the waiter");
    }

    #[test]
    fn a_waited_for_key_is_not_preempted() {
        let mut fixture = Fixture::of(&[("a", TWICE), ("b", TWICE)]);
        fixture.server.keyspace.delete(&key());
        assert_eq!(change(&mut fixture, "c", CountChange::By(1)), Ok(Counted::NotNow));
    }

    #[test]
    fn more_or_as_many_holds_count_as_a_grant_and_fewer_as_a_release() {
        let mut fixture = Fixture::of(&[("a", TWICE)]);
        let mut counts = |to: u32| {
            change(&mut fixture, "a", CountChange::To(to)).unwrap();
            let statistics = fixture.manager.observer.statistics;
            (statistics.grants_immediate(), statistics.releases())
        };
        let (grants, releases) = counts(2);
        assert_eq!(counts(2), (grants + 1, releases));
        assert_eq!(counts(3), (grants + 2, releases));
        assert_eq!(counts(1), (grants + 2, releases + 1));
    }

    #[test]
    fn a_number_of_holds_that_is_too_large_or_below_0_is_refused() {
        let mut fixture = Fixture::of(&[("a", TWICE)]);
        for (by, expected) in [(i64::MAX, InvalidClaim::TooManyHolds), (i64::MIN, InvalidClaim::HoldsFewer(2))] {
            let changed = change(&mut fixture, "a", CountChange::By(by));
            assert_eq!(changed, Err(KeyError::Invalid(expected).into()));
        }
        assert_eq!(fixture.effects(), []);
    }
}
