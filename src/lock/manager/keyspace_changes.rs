//! Changes of keys outside the module's commands: DEL, expiry, eviction, EXPIRE, RENAME, FLUSHDB, SWAPDB and so on.
//!
//! They only put queues into `due`, for [`LockManager::drain`] to serve: nothing may be written where they are noticed.

use super::lock_manager::LockManager;
use super::occurrence::EndedBy;
use crate::key::KeyRef;
use crate::value::fence::Fence;
use crate::value::lock::SeveralEnds;
use crate::value::owner::Owner;
use crate::value::time::Now;

impl LockManager {
    /// A lock whose latest fence was `last` is gone from the key.
    pub fn key_removed(&mut self, key: KeyRef<'_>, last: Fence) {
        self.bindings.unbind_key(key, last);
        self.shared_leases.leave(key, last);
        self.queues.lock_may_have_moved();
        self.key_touched(key);
        self.queues.id_of(key).into_iter().for_each(|queue| self.queues.set_seen(queue, None));
    }

    /// The lock that has gone from the key was held, by this owner the last, and this is why it has gone, as far as the
    /// host knows. The host counts these ends.
    pub fn hold_removed(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence, by: EndedBy) {
        // Of a key that is waited for the end of its lease is known.
        let by = match self.queues.of_key(key).filter(|queue| queue.waiters() > 0).and(self.queues.id_of(key)) {
            None => by,
            Some(queue) => match self.lease_ends.of(queue) {
                Some(end) if end <= now.timestamp() => EndedBy::Expired,
                _ => EndedBy::Removed,
            },
        };
        self.tell_end(now, key, owner.as_bytes(), fence, by);
    }

    /// The same where it is certain that the lease had ended.
    pub fn hold_expired(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence) {
        self.tell_end(now, key, owner.as_bytes(), fence, EndedBy::Expired);
    }

    /// A lock with several holders came to be under the key.
    pub fn several_hold(&mut self, key: KeyRef<'_>, ends: SeveralEnds) {
        // Somebody may write: so may the timer.
        self.shared_leases.resume();
        self.shared_leases.watch(key, ends.fence, ends.first);
    }

    /// The primary has decided about the key, which the caller has open: as its lock is now, so it is meant to be.
    pub fn applied(&mut self, key: KeyRef<'_>, ends: Option<SeveralEnds>) {
        self.shared_leases.forget(key);
        if let Some(ends) = ends {
            self.shared_leases.watch(key, ends.fence, ends.first);
        }
    }

    /// Whether a lock is known to have several holders.
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

    /// Every key of the database is gone, or of all.
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

    /// Every key of the database, or of all, may have changed.
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

    /// The key k of database 0 is flushed away; whether those who wait for it have their turn then.
    #[test]
    fn what_happens_to_a_database_concerns_those_who_wait_there() {
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
    fn a_key_that_is_removed_is_bound_to_nothing_and_is_handed_over() {
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

    /// Readers a and b of the key k; a's lease is over after 100 ms.
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
    fn those_who_wait_in_swapped_databases_have_their_turn() {
        for (one, other) in [(0, 1), (1, 0)] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            fixture.server.keyspace.delete(&key());
            fixture.manager.dbs_swapped(one, other);
            fixture.drain();
            assert_eq!(fixture.holders(), "b");
        }
    }

    /// A replica has what the primary decided, and what clients did to it there is in that already.
    #[test]
    fn what_the_primary_decided_takes_the_place_of_what_was_known() {
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
