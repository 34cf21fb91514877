//! Renewals and sessions. A lease is renewed by a request, or by the server while the connection that the hold is bound
//! to is alive. The holds of a session end with its connection.

use super::lock_manager::LockManager;
use super::open_key::OpenKey;
use super::session_bindings::BindingId;
use super::step::Engine;
use super::timers::{SLOT_MOVED_RETRY_MS, WRITE_RETRY_MS};
use crate::host::{Content, Effect, Entry, Keys, WriteCheck};
use crate::key::{ClientId, KeyRef};
use crate::value::claim::{LockRequest, LockType};
use crate::value::fence::Fence;
use crate::value::outcome::KeyError;
use crate::value::time::{Instant, Lease, Now};

/// A request to renew the leases of one or more locks in one database.
#[derive(Debug)]
pub struct RenewRequest<'a> {
    /// The number of the database.
    pub db: i32,
    /// Distinct. More than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// The owner of the leases.
    pub owner: &'a [u8],
    /// The type of the locks.
    pub lock_type: LockType,
    /// `None` keeps the current length.
    pub lease: Option<Lease>,
}

/// The result of a request to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// All of the leases were renewed.
    All,
    /// The owner does not hold all of the keys. Nothing was changed.
    NotHeld,
}

impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// Renews the owner's lease on all of the keys, or on none.
    ///
    /// # Errors
    /// A key holds something else. Nothing was changed.
    pub fn renew(&mut self, request: &RenewRequest<'_>) -> Result<Renewed, KeyError> {
        let RenewRequest { db, names, owner, lock_type, lease } = *request;
        let mut holds_all = true;
        for name in names {
            let mut open = self.open(KeyRef { db, name });
            holds_all &= open.lock_of_type(lock_type)?.is_some_and(|lock| lock.is_held_by(owner));
            if holds_all && names.len() == 1 {
                open.renew(owner, lease);
            }
        }
        if !holds_all {
            return Ok(Renewed::NotHeld);
        }
        for name in names {
            let key = KeyRef { db, name };
            if names.len() > 1 {
                self.reopen(key).renew(owner, lease);
            }
            self.manager.observer.renewed(key, owner);
        }
        self.manager.deliveries.confirm(db, names, owner);
        Ok(Renewed::All)
    }

    /// Renews the lease of a binding if its connection is alive.
    pub(super) fn renew_session(&mut self, id: BindingId) {
        let bindings = &mut self.manager.bindings;
        let Some(binding) = bindings.get(id).filter(|binding| !bindings.is_ended(binding.client)).cloned() else {
            return;
        };
        let (key, now) = (binding.key.as_ref(), self.host.now.instant());
        match self.host.keys.write_check(key) {
            WriteCheck::Allowed => {}
            // The server refuses writes for every key, so do not try thousands of bindings one after another.
            WriteCheck::Refused => {
                bindings.renew_at(id, Some(now));
                return bindings.postpone_renewals(now.plus_ms(WRITE_RETRY_MS));
            }
            WriteCheck::SlotMoved => return bindings.renew_at(id, Some(now.plus_ms(SLOT_MOVED_RETRY_MS))),
        }
        if self.open(key).renew(binding.owner.as_bytes(), None) == Renewed::NotHeld {
            self.manager.bindings.unbind(key, binding.owner.as_bytes());
        }
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Renews the owner's lease, with `lease` or its current length.
    pub(super) fn renew(&mut self, owner: &[u8], lease: Option<Lease>) -> Renewed {
        let Content::Lock(lock) = self.entry.content() else { return Renewed::NotHeld };
        let Some(until) = lock.renew(owner, lease, self.now.timestamp()) else { return Renewed::NotHeld };
        let lease = lock.hold(owner, until).map(|hold| hold.lease);
        self.entry.update(Effect::Renew(owner), Some(until));
        self.manager.observer.statistics.renewals += 1;
        self.record_lock(None);
        if let Some(lease) = lease {
            self.manager.renew_after_a_third(self.now, self.key, owner, lease);
        }
        Renewed::All
    }
}

impl LockManager {
    /// A connection has ended. Nothing is written here; [`Engine::drain`] ends its holds.
    pub fn end_session(&mut self, client: ClientId) {
        self.bindings.end(client);
    }

    /// Binds the hold that was just granted to this connection, and to no other.
    pub(super) fn bind(
        &mut self,
        now: &Now,
        client: ClientId,
        key: KeyRef<'_>,
        request: &LockRequest<'_>,
        fence: Fence,
    ) {
        self.bindings.bind(client, key, request.owner, fence, after_a_third(now, request.lease));
    }

    /// Schedules the renewal of a bound hold after a third of its lease.
    pub(super) fn renew_after_a_third(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], lease: Lease) {
        if let Some(id) = self.bindings.binding_of(key, owner) {
            self.bindings.renew_at(id, after_a_third(now, lease));
        }
    }
}

/// When a third of a lease that starts now has elapsed.
fn after_a_third(now: &Now, lease: Lease) -> Option<Instant> {
    lease.third_ms().map(|third_ms| now.instant().plus_ms(third_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::acquire::Acquired;
    use crate::engine::fixture::{key, owner, Fixture};
    use crate::host::simulated::SentEffect;
    use crate::key::{ClientId, Key};
    use crate::value::claim::{Claim, Count, InvalidClaim, Mode, ReleaseAmount};
    use crate::value::outcome::Released;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    fn renew(
        fixture: &mut Fixture,
        name: &str,
        names: &[&[u8]],
        lock_type: LockType,
        lease_ms: Option<i64>,
    ) -> Result<Renewed, KeyError> {
        let (owner, now) = (owner(name), fixture.server.now());
        let lease = lease_ms.and_then(Lease::from_ms);
        let request = RenewRequest { db: 0, names, owner: owner.as_bytes(), lock_type, lease };
        fixture.manager.with_host(&mut fixture.server.host(&now)).renew(&request)
    }

    /// When the keys k and l expire, in milliseconds.
    fn ends(fixture: &Fixture) -> [Option<u64>; 2] {
        [b"k", b"l"].map(|name| {
            let (_, until) = fixture.stored_under(&Key::new(0, name))?;
            until.timestamp().map(Timestamp::ms)
        })
    }

    #[test]
    fn a_lease_is_renewed_for_its_holder_only() {
        let wrong_lock_type = |lock_type| Err(KeyError::Invalid(InvalidClaim::WrongLockType(lock_type)));
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(300).unwrap());
        fixture.effects();
        fixture.server.keyspace.now_ms += 100;
        assert_eq!(renew(&mut fixture, "b", &[b"k"], LockType::Mutex, None), Ok(Renewed::NotHeld));
        assert_eq!(renew(&mut fixture, "a", &[b"free"], LockType::Mutex, None), Ok(Renewed::NotHeld));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], LockType::Semaphore, None), wrong_lock_type(LockType::Mutex));
        assert_eq!((ends(&fixture), fixture.effects()), ([Some(1_300), None], vec![]));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], LockType::Mutex, None), Ok(Renewed::All));
        assert_eq!((ends(&fixture), fixture.effects()), ([Some(1_400), None], vec![SentEffect::Renew(owner("a"))]));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], LockType::Mutex, Some(50)), Ok(Renewed::All));
        assert_eq!(ends(&fixture), [Some(1_150), None]);
        // A free key keeps the lock type of its waiters.
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.delete(&key());
        assert_eq!(renew(&mut fixture, "a", &[b"k"], LockType::Semaphore, None), wrong_lock_type(LockType::Mutex));
        assert_eq!(renew(&mut fixture, "a", &[b"k"], LockType::Mutex, None), Ok(Renewed::NotHeld));
    }

    #[test]
    fn all_leases_are_renewed_or_none() {
        let rows: [(&[&[u8]], _, _); 3] = [
            (&[b"k", b"l"], Renewed::All, [Some(2_000), Some(2_000)]),
            (&[b"m", b"k"], Renewed::NotHeld, [Some(1_300), Some(1_300)]),
            (&[b"k", b"m"], Renewed::NotHeld, [Some(1_300), Some(1_300)]),
        ];
        for (names, renewed, expected) in rows {
            let mut fixture = Fixture::default();
            fixture.acquire_all("a", &[b"k", b"l"], MUTEX, None, Lease::from_ms(300).unwrap());
            fixture.acquire_all("b", &[b"m"], MUTEX, None, Lease::Persist);
            assert_eq!(renew(&mut fixture, "a", names, LockType::Mutex, Some(1_000)), Ok(renewed), "{names:?}");
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
            assert_eq!(renew(&mut fixture, "a", names, LockType::Mutex, Some(500)), Ok(Renewed::All));
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
        let semaphore = Claim::Permits { limit: 2, count: Count::Delta(1) };
        for claim in [MUTEX, semaphore] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", claim, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            assert_eq!(fixture.next_timer(), Some(1_100));
            fixture.server.keyspace.now_ms = 1_100;
            fixture.tick();
            assert_eq!(ends(&fixture), [Some(1_400), None]);
            assert_eq!(fixture.next_timer(), Some(1_200), "it is still bound");
            // The client sets another length.
            assert_eq!(renew(&mut fixture, "a", &[b"k"], claim.lock_type(), Some(900)), Ok(Renewed::All));
            assert_eq!(fixture.next_timer(), Some(1_400));
            assert_eq!(renew(&mut fixture, "a", &[b"k"], claim.lock_type(), Some(-1)), Ok(Renewed::All));
            assert_eq!(fixture.next_timer(), None, "it has no end");
            assert_eq!(fixture.stored().1, Deadline::Never);
        }
    }

    const CLIENT: ClientId = ClientId(7);

    /// The key k is held by a and bound to the client, for 300 ms from 1,000 on.
    fn bound() -> Fixture {
        let mut fixture = Fixture::default();
        fixture.acquire("a", Claim::Mutex, Some(CLIENT), Lease::from_ms(300).unwrap());
        fixture.effects();
        fixture
    }

    #[test]
    fn the_end_of_a_connection_ends_its_holds() {
        let mut fixture = bound();
        fixture.acquire_all("a", &[b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.manager.end_session(ClientId(8));
        assert!(!fixture.manager.has_due(), "no hold is bound to client 8");
        fixture.manager.end_session(CLIENT);
        assert!(fixture.manager.has_due());
        fixture.drain();
        assert_eq!(fixture.holders(), "");
        assert_eq!(fixture.server.keyspace.primary.len(), 1, "the unbound hold stays");
        assert!(!fixture.manager.has_due() && fixture.manager.bindings().is_empty());
        assert_eq!(fixture.next_timer(), None);
    }

    /// The session by which a holds k has ended, and b waits for k, so a may wait for b.
    #[test]
    fn an_ended_session_completes_no_deadlock_before_it_is_removed() {
        let mut fixture = bound();
        fixture.acquire_all("b", &[b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.acquire("b", Claim::Mutex, None, Lease::Persist);
        assert!(fixture.try_acquire("a", &[b"l"], Claim::Mutex).is_err(), "they wait for each other");
        fixture.manager.end_session(CLIENT);
        assert!(matches!(fixture.try_acquire("a", &[b"l"], Claim::Mutex), Ok(Acquired::Queued(_))));
        fixture.drain();
        assert_eq!(fixture.holders(), "b");
    }

    /// The request of b waits for k and l; a asks for l, which is free now.
    #[test]
    fn an_ended_session_lets_its_owner_overtake_no_request_before_it_is_removed() {
        for (ends, is_granted) in [(false, true), (true, false)] {
            let mut fixture = bound();
            fixture.acquire_all("d", &[b"l"], Claim::Mutex, None, Lease::Persist);
            fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
            fixture.server.keyspace.delete(&Key::new(0, b"l"));
            fixture.manager.key_changed(Key::new(0, b"l").as_ref());
            if ends {
                fixture.manager.end_session(CLIENT);
            }
            let acquired = fixture.acquire_all("a", &[b"l"], Claim::Mutex, None, Lease::Persist);
            assert_eq!(matches!(acquired, Acquired::Granted(_)), is_granted, "{acquired:?}");
        }
    }

    #[test]
    fn refused_writes_delay_the_renewal_and_the_end() {
        let mut fixture = bound();
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        fixture.server.keyspace.now_ms = 1_100;
        fixture.tick();
        assert_eq!(fixture.effects(), []);
        assert_eq!(fixture.next_timer(), Some(1_100 + WRITE_RETRY_MS));
        fixture.manager.end_session(CLIENT);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("a".into(), true));
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("".into(), false));
    }

    #[test]
    fn the_holds_of_a_connection_end_in_the_order_of_their_grants_although_refused_writes_delay_them() {
        let mut fixture = Fixture::default();
        let names: [&[u8]; 3] = [b"m", b"k", b"l"];
        for name in names {
            fixture.acquire_all("a", &[name], MUTEX, Some(CLIENT), Lease::Persist);
        }
        fixture.manager.end_session(CLIENT);
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        fixture.drain();
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.server.keyspace.modified = Some(Vec::new());
        fixture.drain();
        assert_eq!(fixture.server.keyspace.modified, Some(names.map(|name| Key::new(0, name)).to_vec()));
    }

    #[test]
    fn only_the_holds_of_a_connection_that_has_ended_have_ended() {
        let mut fixture = Fixture::default();
        let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
        for (name, session) in [("a", Some(CLIENT)), ("b", Some(ClientId(8))), ("c", None)] {
            fixture.acquire(name, read, session, Lease::Persist);
        }
        for expected in [[false, false, false], [true, false, false]] {
            let found = [b"a", b"b", b"c"].map(|owner| fixture.manager.has_ended(key().as_ref(), owner));
            assert_eq!(found, expected);
            fixture.manager.end_session(CLIENT);
        }
    }

    #[test]
    fn a_key_that_moves_is_unbound() {
        let mut fixture = bound();
        fixture.server.keyspace.write_check = WriteCheck::SlotMoved;
        fixture.manager.end_session(CLIENT);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.bindings().is_empty()), ("a".into(), true));
        assert!(!fixture.manager.has_due());
    }

    #[test]
    fn a_hold_that_has_ended_is_not_renewed() {
        let mut fixture = bound();
        fixture.server.keyspace.delete(&key());
        fixture.server.keyspace.now_ms = 1_100;
        fixture.tick();
        assert!(
            fixture.manager.bindings().is_empty()
                && !fixture.effects().iter().any(|effect| matches!(effect, SentEffect::Renew(_)))
        );
        // Nor is the hold of a connection that has ended.
        let mut fixture = bound();
        fixture.manager.end_session(CLIENT);
        fixture.server.keyspace.now_ms = 1_100;
        fixture.tick();
        assert_eq!(fixture.effects(), []);
    }

    #[test]
    fn the_timer_of_an_ended_binding_renews_nothing_early_and_the_next_one_is_in_time() {
        let mut fixture = bound();
        fixture.server.keyspace.now_ms = 1_050;
        assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::Gone));
        fixture.acquire("b", Claim::Mutex, Some(CLIENT), Lease::from_ms(600).unwrap());
        fixture.effects();
        for (now_ms, expected) in [(1_100, vec![]), (1_249, vec![]), (1_250, vec![SentEffect::Renew(owner("b"))])] {
            fixture.server.keyspace.now_ms = now_ms;
            fixture.tick();
            assert_eq!(fixture.effects(), expected, "{now_ms}");
        }
    }

    #[test]
    fn a_hold_is_bound_to_the_connection_that_asked_last_and_renewed_once() {
        let mut fixture = bound();
        fixture.server.keyspace.now_ms = 1_050;
        fixture.acquire("a", Claim::Mutex, Some(ClientId(8)), Lease::from_ms(300).unwrap());
        assert_eq!(fixture.next_timer(), Some(1_150), "the earlier timer is gone");
        fixture.manager.end_session(CLIENT);
        assert!(!fixture.manager.has_due());
        assert_eq!(fixture.manager.bindings().client_of(key().as_ref(), owner("a").as_bytes()), Some(ClientId(8)));
    }
}
