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
