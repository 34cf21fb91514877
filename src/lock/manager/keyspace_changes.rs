//! Changes of keys outside the module's commands: DEL, expiry, eviction, EXPIRE, RENAME, FLUSHDB, SWAPDB and so on.
//!
//! They only put queues into `due`, for [`LockManager::drain`] to serve: nothing may be written where they are noticed.

use super::lock_manager::{LockManager, Timer};
use crate::key::KeyRef;
use crate::value::fence::Fence;

impl LockManager {
    /// A lock whose latest fence was `last` is gone from the key.
    pub fn key_removed(&mut self, key: KeyRef<'_>, last: Fence) {
        for id in self.bindings.unbind_key(key, last) {
            self.timers.clear(Timer::RenewalDue(id));
        }
        self.key_touched(key);
    }

    /// Something happened to the key.
    pub fn key_touched(&mut self, key: KeyRef<'_>) {
        let queue = self.queues.id_of(key);
        self.due.extend(queue);
        self.changed.extend(queue);
    }

    /// Every key of the database, or of all, may have changed.
    pub fn db_changed(&mut self, db: Option<i32>) {
        for id in self.bindings.unbind_db(db) {
            self.timers.clear(Timer::RenewalDue(id));
        }
        let queues = self.queues.iter().filter(|(_, queue)| db.is_none_or(|db| db == queue.key.db));
        for (id, _) in queues {
            self.due.insert(id);
            self.changed.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::key::ClientId;
    use crate::manager::fixture::{key, Fixture};
    use crate::value::claim::Claim;
    use crate::value::time::Lease;

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
        let (removed, fence) = fixture.server.keyspace.removed.pop().unwrap();
        fixture.manager.key_removed(removed.as_ref(), fence);
        assert!(fixture.manager.bindings().is_empty());
        fixture.drain();
        assert_eq!(fixture.holders(), "b");
        assert_eq!(fixture.next_timer(), None, "nothing is to be renewed");
    }
}
