//! Changes of keys outside the module's commands: DEL, expiry, eviction, EXPIRE, RENAME, FLUSHDB, SWAPDB and so on.
//!
//! They only mark queues as due, for [`LockManager::drain`] to serve: nothing may be written where they are noticed.

use super::lock_manager::LockManager;
use super::occurrence::EndedBy;
use crate::key::KeyRef;
use crate::value::fence::Fence;
use crate::value::lock::SeveralEnds;
use crate::value::owner::Owner;
use crate::value::time::Now;

impl LockManager {
    /// A lock with the latest fence `last` is gone from the key.
    pub fn key_removed(&mut self, key: KeyRef<'_>, last: Fence) {
        self.bindings.unbind_key(key, last);
        self.shared_leases.leave(key, last);
        self.queues.lock_may_have_moved();
        self.key_touched(key);
        self.queues.id_of(key).into_iter().for_each(|queue| self.queues.set_seen(queue, None));
    }

    /// A held lock is gone from the key. `owner` is its holder, of several the one with the latest grant; `by` is the
    /// cause as far as the host knows it. The host counts these ends.
    pub fn hold_removed(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence, by: EndedBy) {
        // The end of the lease is known for a key that requests wait for.
        let by = match self.queues.of_key(key).filter(|queue| queue.waiters() > 0).and(self.queues.id_of(key)) {
            None => by,
            Some(queue) => match self.lease_ends.of(queue) {
                Some(end) if end <= now.timestamp() => EndedBy::Expired,
                _ => EndedBy::Removed,
            },
        };
        self.record_end(now, key, owner.as_bytes(), fence, by);
    }

    /// As `hold_removed`, if the lease has certainly ended.
    pub fn hold_expired(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence) {
        self.record_end(now, key, owner.as_bytes(), fence, EndedBy::Expired);
    }

    /// The key has got a lock with several holders.
    pub fn several_hold(&mut self, key: KeyRef<'_>, ends: SeveralEnds) {
        // A write is allowed here: the timer may write too.
        self.shared_leases.resume();
        self.shared_leases.watch(key, ends.fence, ends.first);
    }

    /// A decision of the primary was applied to the key, which the caller has open: its lock is as it should be.
    pub fn applied(&mut self, key: KeyRef<'_>, ends: Option<SeveralEnds>) {
        self.shared_leases.forget(key);
        if let Some(ends) = ends {
            self.shared_leases.watch(key, ends.fence, ends.first);
        }
    }

    /// True if a lock is known to have several holders.
    #[inline]
    pub fn knows_several_holders(&self) -> bool {
        !self.shared_leases.is_empty()
    }

    /// Something happened to the key.
    pub fn key_touched(&mut self, key: KeyRef<'_>) {
        if let Some(queue) = self.queues.id_of(key) {
            self.due.insert(queue);
            self.queues.holders_may_differ(queue);
        }
    }

    /// Every key of the database, or of all databases, is gone.
    pub fn db_flushed(&mut self, db: Option<i32>) {
        self.shared_leases.forget_db(db);
        self.db_changed(db);
    }

    /// Two databases have changed places.
    pub fn dbs_swapped(&mut self, one: i32, other: i32) {
        self.shared_leases.swap_dbs(one, other);
        self.db_changed(Some(one));
        self.db_changed(Some(other));
    }

    /// Every key of the database, or of all databases, may have changed.
    pub fn db_changed(&mut self, db: Option<i32>) {
        self.bindings.unbind_db(db);
        self.queues.holders_of_db_may_differ(db);
        self.sweeps.begin(db);
    }
}

#[cfg(test)]
mod tests {
    use crate::host::simulated::KeyEvent;
    use crate::key::{ClientId, KeyRef};
    use crate::manager::fixture::{key, Fixture};
    use crate::value::claim::{Claim, Count, Mode};
    use crate::value::lock::SeveralEnds;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    /// Rows: the database that is flushed, and whether b, which waits for the key k of database 0, is granted it.
    #[test]
    fn a_flush_serves_the_waiters_of_its_database_only() {
        for (db, is_granted) in [(None, true), (Some(0), true), (Some(1), false)] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::from_ms(3_000).unwrap());
            fixture.acquire("b", MUTEX, None, Lease::Persist);
            fixture.server.keyspace.delete(&key());
            fixture.manager.db_changed(db);
            assert_eq!(fixture.manager.bindings().is_empty(), is_granted, "{db:?}");
            fixture.drain();
            assert_eq!(fixture.holders(), if is_granted { "b" } else { "" }, "{db:?}");
            assert_eq!(fixture.next_timer().is_none(), is_granted, "{db:?}: nothing is to be renewed");
        }
    }

    #[test]
    fn a_removed_key_loses_its_binding_and_is_handed_over() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::from_ms(3_000).unwrap());
        assert_eq!(fixture.manager.bindings().client_of(key().as_ref(), b"a"), Some(ClientId(7)));
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.delete(&key());
        let event = fixture.server.keyspace.events.pop();
        let Some(KeyEvent::Removed(removed, fence)) = event else { panic!("{event:?}") };
        fixture.manager.key_removed(removed.as_ref(), fence);
        assert!(fixture.manager.bindings().is_empty());
        fixture.drain();
        assert_eq!(fixture.holders(), "b");
        assert_eq!(fixture.next_timer(), None, "nothing is to be renewed");
    }

    /// The key k has the readers a and b; the lease of a ends after 100 ms.
    fn two_readers() -> Fixture {
        let mut fixture = Fixture::default();
        for (name, lease_ms) in [("a", 100), ("b", 900)] {
            let read = Claim::ReadWrite(Mode::Read, Count::Step(1));
            fixture.acquire(name, read, None, Lease::from_ms(lease_ms).unwrap());
        }
        fixture
    }

    #[test]
    fn locks_with_several_holders_are_known_until_their_database_is_flushed() {
        let (k, other) = (key(), KeyRef { db: 1, name: b"k" });
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        assert!(!fixture.manager.knows_several_holders() && !fixture.manager.shared_leases.contains(k.as_ref()));
        fixture = two_readers();
        assert!(fixture.manager.knows_several_holders() && fixture.manager.shared_leases.contains(k.as_ref()));
        assert_eq!(fixture.next_timer(), Some(1_101));
        fixture.manager.dbs_swapped(0, 1);
        assert!(fixture.manager.shared_leases.contains(other) && !fixture.manager.shared_leases.contains(k.as_ref()));
        fixture.manager.db_flushed(Some(0));
        assert!(fixture.manager.knows_several_holders());
        fixture.manager.db_flushed(Some(1));
        assert!(!fixture.manager.knows_several_holders());
        assert_eq!(fixture.next_timer(), None);
    }

    #[test]
    fn waiters_in_swapped_databases_are_served() {
        for (one, other) in [(0, 1), (1, 0)] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            fixture.server.keyspace.delete(&key());
            fixture.manager.dbs_swapped(one, other);
            fixture.drain();
            assert_eq!(fixture.holders(), "b");
        }
    }

    /// The decision of the primary includes all that clients did to the key there before.
    #[test]
    fn a_decision_of_the_primary_replaces_the_known_deadline() {
        let k = key();
        let mut fixture = two_readers();
        let at = |ms| Deadline::At(Timestamp::from_ms(ms));
        let fence = fixture.stored().0.fence().unwrap();
        let ends = SeveralEnds { fence, first: at(1_400) };
        fixture.manager.applied(k.as_ref(), Some(ends));
        assert_eq!(fixture.next_timer(), Some(1_401));
        fixture.manager.applied(k.as_ref(), None);
        assert!(!fixture.manager.knows_several_holders());
    }
}
