//! A key that is open: what can be decided without another key.

use super::lock_manager::LockManager;
use crate::host::{Content, Effect, Entry};
use crate::key::{KeyRef, RequestId};
use crate::queue::request::QueueId;
use crate::value::claim::{Family, InvalidClaim, LockRequest};
use crate::value::lock::Lock;
use crate::value::outcome::{Admission, KeyError};
use crate::value::time::Now;

/// A key that is open. No other key can be opened before it is closed: this has all else that a decision needs. Its
/// other methods stand in files named after what happens.
pub(super) struct OpenKey<'o, E, C> {
    pub manager: &'o mut LockManager,
    pub clients: &'o mut C,
    pub now: &'o Now,
    pub key: KeyRef<'o>,
    /// The wait queue of the key when it was opened; it may be gone since.
    pub queue: Option<QueueId>,
    pub entry: E,
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// The lock under the key; `None` if the key is free.
    ///
    /// # Errors
    /// The key holds a value of another type, or a lock of another family. While requests wait for it, a free key keeps
    /// the family of its queue.
    pub fn lock_of_family(&mut self, family: Family) -> Result<Option<&mut Lock>, KeyError> {
        match self.entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Free => Ok(self.manager.waits.queues.check_family(self.key, family).map(|()| None)?),
            Content::Lock(lock) => match lock.family() {
                Some(other) if other != family => Err(InvalidClaim::WrongFamily(other).into()),
                _ => Ok(Some(lock)),
            },
        }
    }

    /// What the lock under the key answers to the claim, regardless of its wait queue.
    pub fn admission(&mut self, request: &LockRequest<'_>) -> Result<Admission, KeyError> {
        match self.entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Lock(lock) => Ok(lock.admission(request.owner.as_bytes(), &request.claim)?),
            Content::Free => {
                self.manager.waits.queues.check_family(self.key, request.claim.family())?;
                Ok(Lock::Vacant.admission(request.owner.as_bytes(), &request.claim)?)
            }
        }
    }

    /// True if the request is that of a reader to write.
    pub fn is_upgrade(&mut self, request: &LockRequest<'_>) -> bool {
        let lock = self.entry.content().lock();
        lock.is_some_and(|lock| lock.is_upgrade(request.owner.as_bytes(), &request.claim))
    }

    /// The waiters that can never fit the queue's limit, counting what their owners hold already.
    pub fn over_limit(&mut self, queue: QueueId) -> Vec<RequestId> {
        let queues = &self.manager.waits.queues;
        let Some((queue, limit)) = queues.get(queue).and_then(|queue| Some((queue, queue.limit?))) else {
            return Vec::new();
        };
        let mut never_fits = |id: &RequestId| {
            let Some(queued) = queues.request(*id) else { return false };
            let owner = queued.owner.as_bytes();
            let lock = self.entry.content().lock().filter(|_| !self.manager.has_ended(self.key, owner));
            let hold = lock.and_then(|lock| lock.live_hold(owner, self.now.timestamp()));
            queued.claim.never_fits(hold.map_or(0, |hold| hold.holds), limit)
        };
        queue.present().map(|(_, id)| id).filter(|id| never_fits(id)).collect()
    }

    /// Notes the lock under the key for the requests that wait for it; none waits when the request `leaving` has left.
    pub fn note_lock(&mut self, leaving: Option<RequestId>) {
        let Some(queue) = self.queue else { return };
        let waits = &mut self.manager.waits;
        let leaving = leaving.and_then(|id| waits.queues.request(id));
        let (leaves, owner) = leaving.map_or((0, None), |it| (usize::from(it.is_present()), Some(it.owner_id)));
        if waits.queues.get(queue).is_some_and(|queue| queue.waiters() > leaves) {
            let under = self.entry.lock_and_until();
            waits.note_lock(queue, under.map(|(lock, until)| (&*lock, until)), owner);
        }
    }

    /// Stores a change, with the key's new deadline: that of the last of several holders.
    pub fn update(&mut self, effect: Effect<'_>) {
        update(&mut self.entry, effect);
    }

    pub fn is_vacant(&mut self) -> bool {
        self.entry.content().lock().is_some_and(|lock| lock.is_vacant())
    }

    /// A lock exists only while an owner holds it.
    pub fn remove_if_vacant(&mut self) {
        if self.is_vacant() {
            self.entry.remove();
        }
    }
}

/// Stores a change, with the key's new deadline: that of the last of several holders.
pub(super) fn update<E: Entry>(entry: &mut E, effect: Effect<'_>) {
    let Content::Lock(lock) = entry.content() else { return };
    let last = lock.last_deadline();
    entry.update(effect, last);
}
