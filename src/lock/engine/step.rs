//! The lock manager together with the host of the current event-loop iteration.

use super::lock_manager::LockManager;
use super::open_key::OpenKey;
use crate::host::{Host, Keys};
use crate::key::KeyRef;
use crate::queue::request::QueueId;

/// The lock manager together with its host: keys to open, clients to reply to, the time. Its methods are in the file of
/// the operation (`acquire.rs`, `release.rs`, …).
#[derive(Debug)]
pub struct Engine<'t, 'h, K, C> {
    pub(super) manager: &'t mut LockManager,
    pub(super) host: &'t mut Host<'h, K, C>,
}

impl LockManager {
    /// Combines the lock manager with the host of the current event-loop iteration.
    #[inline]
    pub fn with_host<'t, 'h, K, C>(&'t mut self, host: &'t mut Host<'h, K, C>) -> Engine<'t, 'h, K, C> {
        Engine { manager: self, host }
    }
}

impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// Opens a key, and removes holds that have ended.
    #[inline]
    pub(super) fn open<'o>(&'o mut self, key: KeyRef<'o>) -> OpenKey<'o, K::Entry<'o>, C> {
        let mut open = self.reopen(key);
        open.remove_ended_holds();
        open
    }

    /// Opens a key from which ended holds were already removed in this command or drain step.
    #[inline]
    pub(super) fn reopen<'o>(&'o mut self, key: KeyRef<'o>) -> OpenKey<'o, K::Entry<'o>, C> {
        let queue = self.manager.waits.queues.id_of(key);
        self.open_of_queue(key, queue)
    }

    /// As `reopen`, for a key whose queue is known.
    #[inline]
    pub(super) fn open_of_queue<'o>(
        &'o mut self,
        key: KeyRef<'o>,
        queue: Option<QueueId>,
    ) -> OpenKey<'o, K::Entry<'o>, C> {
        let Host { keys, clients, now } = &mut *self.host;
        OpenKey { manager: self.manager, clients, now, key, queue, entry: keys.open(key) }
    }

    /// Whether the owner holds every key.
    pub(super) fn holds_all(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) -> bool {
        let mut holders = self.manager.holders(&mut self.host.keys, self.host.now);
        names.iter().all(|name| holders.is_held_by(KeyRef { db, name }, owner))
    }
}
