//! An open key: what can be decided without another key.

use super::lock_manager::LockManager;
use crate::host::{Content, Effect, Entry};
use crate::key::{KeyRef, RequestId};
use crate::queue::position::Rank;
use crate::queue::request::{OwnerId, QueueId};
use crate::value::claim::{InvalidClaim, LockRequest, LockType};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// An open key, with everything else that a decision needs. It borrows the lock manager, so no other key can be open at
/// the same time. Its other methods are in the file of the operation (`grant.rs`, `release.rs`, …).
pub(super) struct OpenKey<'o, E, C> {
    pub manager: &'o mut LockManager,
    pub clients: &'o mut C,
    pub now: &'o Now,
    pub key: KeyRef<'o>,
    /// The wait queue of the key when it was opened. It may have been removed since.
    pub queue: Option<QueueId>,
    pub entry: E,
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// The lock under the key; `None` if the key is free.
    ///
    /// # Errors
    /// The key holds a value of another type, or a lock of another lock type. While requests wait for it, a
    /// free key keeps the lock type of its queue.
    pub fn lock_of_type(&mut self, lock_type: LockType) -> Result<Option<&mut Lock>, KeyError> {
        match self.entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Free => Ok(self.manager.waits.queues.check_lock_type(self.key, lock_type).map(|()| None)?),
            Content::Lock(lock) => match lock.lock_type() {
                Some(other) if other != lock_type => Err(InvalidClaim::WrongLockType(other).into()),
                _ => Ok(Some(lock)),
            },
        }
    }

    /// Whether the request is an upgrade: its owner reads, and asks to write.
    pub fn is_upgrade(&mut self, request: &LockRequest<'_>) -> bool {
        let lock = self.entry.content().lock();
        lock.is_some_and(|lock| lock.is_upgrade(request.owner.as_bytes(), &request.claim))
    }

    /// Records the lock under the key, if requests wait for it. `leaving` is about to be removed from the queue and
    /// does not count as a waiter.
    pub fn record_lock(&mut self, leaving: Option<RequestId>) {
        let Some(queue) = self.queue else { return };
        let waits = &mut self.manager.waits;
        let leaves = usize::from(leaving.is_some_and(|id| waits.queues.is_present(id)));
        if waits.queues.get(queue).is_some_and(|queue| queue.waiters() > leaves) {
            let stored = self.entry.lock_and_until();
            waits.record_lock(queue, stored.map(|(lock, until)| (&*lock, until)));
        }
    }

    /// Ends upgrades whose owners no longer read. From then on they wait by arrival, not at the head.
    pub fn end_upgrades(&mut self) {
        let queues = &self.manager.waits.queues;
        let Some(waiting) = self.queue.and_then(|queue| queues.get(queue)) else { return };
        if waiting.head().is_none_or(|(first, _)| first.rank == Rank::Normal) {
            return;
        }
        let upgrades = waiting.present().take_while(|(position, _)| position.rank == Rank::Upgrade);
        let has_ended = |id: &RequestId| {
            let Some(queued) = queues.request(*id) else { return false };
            let lock = self.entry.content().lock();
            !lock.is_some_and(|lock| lock.is_upgrade(queued.owner.as_bytes(), &queued.claim))
        };
        let ended: Vec<_> = upgrades.map(|(_, id)| id).filter(has_ended).collect();
        for id in ended {
            self.manager.waits.queues.end_upgrade(id);
        }
    }

    /// An owner has become a holder of the key, so its other requests for the key are served before the head.
    pub fn list_reentering(&mut self, queue: QueueId, owner: OwnerId) {
        // The owner may have become the writer. Its other upgrades are then listed by arrival.
        self.end_upgrades();
        let queues = &mut self.manager.waits.queues;
        let Some(name) = queues.of_owner(Some(owner)).name().cloned() else { return };
        let stored = self.entry.lock_and_until();
        let hold = stored.and_then(|(lock, until)| Some(lock.hold(name.as_bytes(), until)?.share()));
        queues.list_reentering(queue, owner, || hold.unwrap_or_default());
    }

    /// Stores a change, and sets the deadline of the key to that of the holder that expires last.
    pub fn update(&mut self, effect: Effect<'_>) {
        update(&mut self.entry, effect);
    }

    pub fn is_vacant(&mut self) -> bool {
        self.entry.content().lock().is_some_and(|lock| lock.is_vacant())
    }

    /// A lock exists only while an owner holds it.
    pub fn remove_if_vacant(&mut self) {
        if self.is_vacant() {
            self.remove();
        }
    }

    /// Removes the lock. The queue has then seen a free key, so a lock that another command stores before the queue is
    /// served is recognized as a new one.
    pub fn remove(&mut self) {
        self.entry.remove();
        self.record_seen(None);
    }

    /// The queue has seen the value under the key, whose latest fencing token this is.
    pub fn record_seen(&mut self, fence: Option<Fence>) {
        if let Some(queue) = self.queue {
            self.manager.waits.queues.set_seen(queue, fence);
        }
    }
}

/// Stores a change, and sets the deadline of the key to that of the holder that expires last.
pub(super) fn update<E: Entry>(entry: &mut E, effect: Effect<'_>) {
    let Content::Lock(lock) = entry.content() else { return };
    let last = lock.last_deadline();
    entry.update(effect, last);
}
