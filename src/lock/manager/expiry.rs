//! What ends by itself: leases of a shared lock, and the holds of connections that ended. Whoever opens such a key
//! takes them out first. The lease of a mutex is the time to live of its key: the server ends it.

use super::lock_manager::LockManager;
use super::release::{is_vacant, update};
use crate::host::{Content, Effect, Entry};
use crate::key::KeyRef;
use crate::value::outcome::Released;
use crate::value::time::Now;

impl LockManager {
    /// Takes out of the lock what has ended. Replicas are told of each holder that goes, or of the key when it was the
    /// last. Waiters are served by the drain, not here: the caller has the key open.
    pub(super) fn settle<E: Entry>(&mut self, now: &Now, key: KeyRef<'_>, entry: &mut E) {
        let is_shared = matches!(entry.content(), Content::Lock(lock) if lock.is_shared());
        if !is_shared && self.ended.is_empty() {
            return;
        }
        let until = entry.until();
        let Content::Lock(lock) = entry.content() else { return };
        if lock.clamp(until) {
            entry.update(Effect::Clamp, None);
        }
        let Content::Lock(lock) = entry.content() else { return };
        let mut gone = lock.settle(now.timestamp());
        if !self.ended.is_empty() {
            for (owner, client) in self.bindings.owners_of(key) {
                if self.ended.contains(&client) && lock.evict(owner.as_bytes()) == Released::Gone {
                    gone.push(owner);
                }
            }
        }
        if gone.is_empty() {
            return;
        }
        for owner in &gone {
            self.unbind(key, owner.as_bytes());
        }
        match is_vacant(entry) {
            true => entry.remove(),
            false => gone.iter().for_each(|owner| update(entry, Effect::Drop(owner.as_bytes()))),
        }
        self.due.extend(self.queues.id_of(key));
    }
}
