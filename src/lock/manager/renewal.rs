//! Renewals: a lease starts again from now, on request or because a session's connection lives.

use super::lock_manager::LockManager;
use super::session_bindings::BindingId;
use crate::host::{Content, Effect, Entry, Host, Keys};
use crate::key::KeyRef;
use crate::value::claim::Family;
use crate::value::outcome::KeyError;
use crate::value::time::{Instant, Lease, Now};

/// A request to renew the leases of one or several locks of one database.
#[derive(Debug)]
pub struct RenewRequest<'a> {
    /// The number of the database.
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// The owner of the leases.
    pub owner: &'a [u8],
    /// The family of the locks.
    pub family: Family,
    /// `None`: the length last given.
    pub lease: Option<Lease>,
}

/// What became of a request to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// All of the leases start again.
    All,
    /// The owner does not hold all of the keys: nothing was changed.
    NotHeld,
}

impl LockManager {
    /// Starts the owner's lease again on all of the keys, or on none.
    pub fn renew<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &RenewRequest<'_>,
    ) -> Result<Renewed, KeyError> {
        let renewed = self.renew_all(host, request)?;
        if renewed == Renewed::All {
            request.names.iter().for_each(|name| self.record_renewal(KeyRef { db: request.db, name }, request.owner));
            self.confirm_grant(request.db, request.names, request.owner);
        }
        Ok(renewed)
    }

    fn renew_all<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &RenewRequest<'_>,
    ) -> Result<Renewed, KeyError> {
        let RenewRequest { db, names, .. } = *request;
        if let [name] = names {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            if !self.holds(host.now, key, &mut entry, request)? {
                return Ok(Renewed::NotHeld);
            }
            return Ok(self.renew_open(host.now, key, &mut entry, request.owner, request.lease));
        }
        let mut holds_all = true;
        for name in names {
            let key = KeyRef { db, name };
            holds_all &= self.holds(host.now, key, &mut host.keys.open(key), request)?;
        }
        if !holds_all {
            return Ok(Renewed::NotHeld);
        }
        for name in names {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            self.renew_open(host.now, key, &mut entry, request.owner, request.lease);
        }
        Ok(Renewed::All)
    }

    /// Starts the owner's lease on an open key again, with `lease` or its present length.
    pub(super) fn renew_open<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        owner: &[u8],
        lease: Option<Lease>,
    ) -> Renewed {
        let Content::Lock(lock) = entry.content() else { return Renewed::NotHeld };
        let Some(until) = lock.renew(owner, lease, now.timestamp()) else { return Renewed::NotHeld };
        let lease = lock.hold(owner, until).map(|hold| hold.lease);
        entry.update(Effect::Renew(owner), Some(until));
        self.statistics.renewals += 1;
        self.watch_holders(key, entry);
        if let Some(queue) = self.queues.id_of(key) {
            self.watch_open(entry, queue);
        }
        if let Some(lease) = lease {
            self.renew_after_a_third(now, key, owner, lease);
        }
        Renewed::All
    }

    /// Schedules the renewal of a bound hold after a third of its lease.
    pub(super) fn renew_after_a_third(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], lease: Lease) {
        if let Some(id) = self.bindings.binding_of(key, owner) {
            self.renew_at(id, third_of(now, lease));
        }
    }

    /// Schedules the renewal of a binding; `None`: its lease has no end.
    pub(super) fn renew_at(&mut self, id: BindingId, due: Option<Instant>) {
        self.bindings.renew_at(id, due);
        if let Some(due) = due {
            self.renewals.set_no_later(id.slot(), due);
        }
    }

    fn holds<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &RenewRequest<'_>,
    ) -> Result<bool, KeyError> {
        let lock = self.lock_of_family(now, key, entry, request.family)?;
        Ok(lock.is_some_and(|lock| lock.is_held_by(request.owner)))
    }
}

/// When a third of a lease that begins now is over.
pub(super) fn third_of(now: &Now, lease: Lease) -> Option<Instant> {
    lease.third_ms().map(|third_ms| now.instant().plus_ms(third_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::simulated::Told;
    use crate::key::{ClientId, Key};
    use crate::manager::fixture::{key, owner, Fixture};
    use crate::value::claim::{Claim, Count, InvalidClaim};
    use crate::value::time::{Deadline, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    fn renew(
        fixture: &mut Fixture,
        name: &str,
        names: &[&[u8]],
        family: Family,
        lease_ms: Option<i64>,
    ) -> Result<Renewed, KeyError> {
        let (owner, now) = (owner(name), fixture.server.now());
        let lease = lease_ms.and_then(Lease::from_ms);
        let request = RenewRequest { db: 0, names, owner: owner.as_bytes(), family, lease };
        fixture.manager.renew(&mut fixture.server.host(&now), &request)
    }

    /// The ends of the keys k and l, in milliseconds.
    fn ends(fixture: &Fixture) -> [Option<u64>; 2] {
        [b"k", b"l"].map(|name| {
            let (_, until) = fixture.stored_under(&Key::new(0, name))?;
            until.timestamp().map(Timestamp::ms)
        })
    }

    #[test]
    fn a_lease_starts_again_for_its_holder_only() {
        let wrong_family = |family| Err(KeyError::Invalid(InvalidClaim::WrongFamily(family)));
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(300).unwrap());
        fixture.effects();
        fixture.server.keyspace.now_ms += 100;
        assert_eq!(renew(&mut fixture, "b", &[b"k"], Family::Mutex, None), Ok(Renewed::NotHeld));
        assert_eq!(renew(&mut fixture, "a", &[b"free"], Family::Mutex, None), Ok(Renewed::NotHeld));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], Family::Semaphore, None), wrong_family(Family::Mutex));
        assert_eq!((ends(&fixture), fixture.effects()), ([Some(1_300), None], vec![]));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], Family::Mutex, None), Ok(Renewed::All));
        assert_eq!((ends(&fixture), fixture.effects()), ([Some(1_400), None], vec![Told::Renew(owner("a"))]));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], Family::Mutex, Some(50)), Ok(Renewed::All));
        assert_eq!(ends(&fixture), [Some(1_150), None]);
        // A free key keeps the family of its waiters.
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.delete(&key());
        assert_eq!(renew(&mut fixture, "a", &[b"k"], Family::Semaphore, None), wrong_family(Family::Mutex));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], Family::Mutex, None), Ok(Renewed::NotHeld));
    }

    #[test]
    fn several_leases_start_again_or_none() {
        let rows: [(&[&[u8]], _, _); 3] = [
            (&[b"k", b"l"], Renewed::All, [Some(2_000), Some(2_000)]),
            (&[b"m", b"k"], Renewed::NotHeld, [Some(1_300), Some(1_300)]),
            (&[b"k", b"m"], Renewed::NotHeld, [Some(1_300), Some(1_300)]),
        ];
        for (names, renewed, expected) in rows {
            let mut fixture = Fixture::default();
            fixture.acquire_all("a", &[b"k", b"l"], MUTEX, None, Lease::from_ms(300).unwrap());
            fixture.acquire_all("b", &[b"m"], MUTEX, None, Lease::Persist);
            assert_eq!(renew(&mut fixture, "a", names, Family::Mutex, Some(1_000)), Ok(renewed), "{names:?}");
            assert_eq!(ends(&fixture), expected, "{names:?}");
        }
    }

    #[test]
    fn a_waiter_is_granted_the_key_when_a_shortened_lease_ends() {
        for names in [&[b"k".as_slice()][..], &[b"k", b"l"]] {
            let mut fixture = Fixture::default();
            fixture.acquire_all("a", names, MUTEX, None, Lease::Persist);
            fixture.acquire_all("b", names, MUTEX, None, Lease::Persist);
            assert_eq!(fixture.next_timer(), None);
            assert_eq!(renew(&mut fixture, "a", names, Family::Mutex, Some(500)), Ok(Renewed::All));
            assert_eq!(fixture.next_timer(), Some(1_501));
            fixture.server.keyspace.now_ms = 1_501;
            fixture.tick();
            fixture.drain();
            assert_eq!(fixture.holders(), "b");
            assert_eq!(fixture.next_timer(), None, "no request waits");
        }
    }

    #[test]
    fn a_session_is_renewed_after_a_third_of_its_lease() {
        let semaphore = Claim::Permits { limit: 2, count: Count::Step(1) };
        for claim in [MUTEX, semaphore] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", claim, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            assert_eq!(fixture.next_timer(), Some(1_100));
            fixture.server.keyspace.now_ms = 1_100;
            fixture.tick();
            assert_eq!(ends(&fixture), [Some(1_400), None]);
            assert_eq!(fixture.next_timer(), Some(1_200), "it is still bound");
            // The client sets another length.
            assert_eq!(renew(&mut fixture, "a", &[b"k"], claim.family(), Some(900)), Ok(Renewed::All));
            assert_eq!(fixture.next_timer(), Some(1_400));
            assert_eq!(renew(&mut fixture, "a", &[b"k"], claim.family(), Some(-1)), Ok(Renewed::All));
            assert_eq!(fixture.next_timer(), None, "it has no end");
            assert_eq!(fixture.stored().1, Deadline::Never);
        }
    }
}
