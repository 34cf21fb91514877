//! The wait queues by id and by key.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use super::request::QueueId;
use super::wait_queue::WaitQueue;
use crate::key::KeyRef;
use crate::name_filter::NameFilter;
use crate::value::claim::{InvalidClaim, LockType};

/// The wait queues of one server. [`WaitQueues`](super::queues::WaitQueues) fills them.
#[derive(Clone, Debug, Default)]
pub struct QueueTable {
    // By id, so that an inspection round can continue after the queue that it inspected last.
    queues: BTreeMap<QueueId, WaitQueue>,
    // The maps of a database are kept when they become empty: there are few databases, and each hand-off would create
    // the maps again.
    by_key: BTreeMap<i32, BTreeMap<Rc<[u8]>, QueueId>>,
    names: NameFilter,
    /// The queue that was closed last, now empty, unless a queue for another key was opened since. The next request
    /// often waits for the same key, and recreating the name and the tables of a queue costs 350 of 32,300 instructions
    /// of a hand-off between two clients (callgrind, Redis 7.0.15).
    spare: Option<WaitQueue>,
}

/// Queries.
impl QueueTable {
    /// Whether no key has a waiter, a reserved position or a completed request without a reply.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The number of keys with waiters, reserved positions or completed requests without a reply.
    #[inline]
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether a key of this name may have a wait queue. May be a false positive, never a false negative.
    #[inline]
    pub fn may_have(&self, name: &[u8]) -> bool {
        self.names.may_contain(name)
    }

    /// The id of a key's wait queue.
    #[inline]
    pub fn id_of(&self, key: KeyRef<'_>) -> Option<QueueId> {
        if !self.may_have(key.name) {
            return None;
        }
        self.find(key)
    }

    /// Not inlined, because most keys have no wait queue.
    #[inline(never)]
    fn find(&self, key: KeyRef<'_>) -> Option<QueueId> {
        self.by_key.get(&key.db).and_then(|names| names.get(key.name)).copied()
    }

    /// The wait queue of a key.
    pub fn of_key(&self, key: KeyRef<'_>) -> Option<&WaitQueue> {
        self.get(self.id_of(key)?)
    }

    /// The wait queue, unless it was removed.
    pub fn get(&self, id: QueueId) -> Option<&WaitQueue> {
        self.queues.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: QueueId) -> Option<&mut WaitQueue> {
        self.queues.get_mut(&id)
    }

    /// All wait queues, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (QueueId, &WaitQueue)> + '_ {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    /// The next queue in id order.
    pub fn next_from(&self, from: Bound<QueueId>) -> Option<(QueueId, &WaitQueue)> {
        self.queues.range((from, Bound::Unbounded)).map(|(id, queue)| (*id, queue)).next()
    }

    /// The number of requests that wait for the key.
    pub fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        self.of_key(key).map_or(0, WaitQueue::waiters)
    }

    /// Checks the lock type of a request. While requests wait for it, a free key keeps the lock type of its queue.
    ///
    /// # Errors
    /// The queue has another lock type.
    pub fn check_lock_type(&self, key: KeyRef<'_>, lock_type: LockType) -> Result<(), InvalidClaim> {
        match self.of_key(key).filter(|queue| queue.waiters() > 0 && queue.lock_type != lock_type) {
            Some(queue) => Err(InvalidClaim::WrongLockType(queue.lock_type)),
            None => Ok(()),
        }
    }

    /// Whether no table has an entry left.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_clean(&self) -> bool {
        self.queues.is_empty() && self.names.is_empty() && self.by_key.values().all(BTreeMap::is_empty)
    }
}

/// Changes.
impl QueueTable {
    /// The queue of a key for a new request, and whether it was just created.
    pub(super) fn open(
        &mut self,
        key: KeyRef<'_>,
        lock_type: LockType,
        new_id: impl FnOnce() -> QueueId,
    ) -> (QueueId, bool) {
        let Some(id) = self.find(key) else {
            let id = new_id();
            let queue = match self.spare.take() {
                Some(spare) if spare.key.as_ref() == key => spare.reopened(lock_type),
                _ => WaitQueue::new(key.to_key(), lock_type),
            };
            self.by_key.entry(key.db).or_default().insert(queue.key.name.clone(), id);
            self.names.insert(key.name);
            let before = self.queues.insert(id, queue);
            debug_assert!(before.is_none(), "the id of a queue is not reused");
            return (id, true);
        };
        (id, false)
    }

    /// Removes a queue whose last request has left.
    pub(super) fn close(&mut self, id: QueueId) -> Option<WaitQueue> {
        let queue = self.queues.remove(&id)?;
        self.names.remove(&queue.key.name);
        let names = self.by_key.get_mut(&queue.key.db);
        let named = names.and_then(|names| names.remove(&queue.key.name));
        debug_assert_eq!(named, Some(id), "a key has one queue");
        Some(queue)
    }

    /// Keeps a closed queue, which nothing refers to any more, for reuse.
    pub(super) fn keep_spare(&mut self, closed: WaitQueue) {
        debug_assert!(closed.is_empty() && !closed.has_multi_key_requests(), "only an empty queue is closed");
        debug_assert!(closed.holder_requests.is_empty(), "no request counts on the key of a closed queue");
        self.spare = Some(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn a_table_with_an_entry_is_not_clean() {
        let mut names = NameFilter::default();
        names.insert(b"k");
        let by_key: BTreeMap<_, _> = [(0, BTreeMap::from([(b"k".as_slice().into(), QueueId(1))]))].into();
        let queues: BTreeMap<_, _> = [(QueueId(1), WaitQueue::new(Key::new(0, b"k"), LockType::Mutex))].into();
        assert!(QueueTable::default().is_clean());
        assert!(!QueueTable { names, ..QueueTable::default() }.is_clean());
        assert!(!QueueTable { by_key, ..QueueTable::default() }.is_clean());
        assert!(!QueueTable { queues, ..QueueTable::default() }.is_clean());
    }
}
