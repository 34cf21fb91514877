//! The wait queue of one key: its requests in the order of their positions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::RangeBounds;

use super::holdings::RecordedHolders;
use super::position::QueuePosition;
use super::request::OwnerId;
use crate::key::{Key, RequestId};
use crate::value::claim::LockType;
use crate::value::fence::Fence;
use crate::value::time::Timestamp;

/// The limit that leaves no room for another waiter, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterLimit {
    /// The limit of the server: lock.max-waiters.
    Server(usize),
    /// The limit of one of the keys: lock.max-waiters-per-key.
    Key(usize),
}

/// In the format of the setting: `lock.max-waiters 10000`.
impl fmt::Display for WaiterLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaiterLimit::Server(most) => write!(f, "lock.max-waiters {most}"),
            WaiterLimit::Key(most) => write!(f, "lock.max-waiters-per-key {most}"),
        }
    }
}

/// Whether other requests are ahead of the request that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// No request is ahead of it.
    First,
    /// Requests are ahead of it, so it is granted only what its owner already holds.
    Behind,
}

/// The wait queue of a key.
#[derive(Clone, Debug)]
pub struct WaitQueue {
    /// The key that is waited for.
    pub key: Key,
    /// The lock type that a free key keeps while it has waiters.
    pub lock_type: LockType,
    /// The LIMIT of the newest request; `None` unless it is a semaphore.
    pub limit: Option<u32>,
    /// The fencing token of the latest grant under the key when it was last inspected; `None` if the key was free or is
    /// unknown. A different token means a different value, stored by RENAME, RESTORE or a related command.
    pub seen: Option<Fence>,
    /// When the queue must be served because a lease may expire; `None` if no such time is known.
    pub lease_end: Option<Timestamp>,
    /// The holders of the key, if they are few and known.
    pub(super) holders: RecordedHolders,
    /// The multi-key requests of the owner that holds the key. If the owner loses it, they wait for one more key.
    pub(super) holder_requests: BTreeSet<RequestId>,
    /// The requests without COALESCE.
    pub(super) ordinary: OrderedRequests,
    /// The requests with COALESCE, kept separately because one release completes all of them.
    pub(super) coalescing: OrderedRequests,
    /// Requests of owners that became holders of the key while the requests waited, in the order of their positions.
    /// They are served before the head. A request that has left its queue since, or no longer reenters, is skipped.
    /// While any is listed, the queue is being served or is due.
    pub(super) reentering: BTreeMap<OwnerId, VecDeque<RequestId>>,
    /// How many of the waiters also want other keys.
    pub(super) multi_key: usize,
    /// How many of the waiters also want other keys, or have owners that may wait elsewhere.
    pub(super) with_other_waits: usize,
}

/// Requests in the order of their positions.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderedRequests {
    pub present: BTreeMap<QueuePosition, RequestId>,
    /// Reserved positions, by when their clients left.
    pub detached: BTreeSet<u64>,
}

impl OrderedRequests {
    pub fn is_empty(&self) -> bool {
        self.present.is_empty() && self.detached.is_empty()
    }

    pub fn insert(&mut self, position: QueuePosition, id: RequestId) {
        let before = self.present.insert(position, id);
        debug_assert!(before.is_none(), "two requests have the same position");
    }

    /// The position of a waiter is reserved from now on.
    pub fn reserve(&mut self, position: &QueuePosition, sequence: u64) {
        let waiter = self.present.remove(position);
        debug_assert!(waiter.is_some(), "only a waiter's position is reserved");
        let is_new = self.detached.insert(sequence);
        debug_assert!(is_new, "two clients left at once");
    }

    pub fn remove(&mut self, position: &QueuePosition, sequence: Option<u64>) {
        let was_listed = match sequence {
            Some(sequence) => self.detached.remove(&sequence),
            None => self.present.remove(position).is_some(),
        };
        debug_assert!(was_listed, "only a queued request is removed");
    }

    fn range(
        &self,
        positions: impl RangeBounds<QueuePosition>,
    ) -> impl Iterator<Item = (&QueuePosition, RequestId)> + '_ {
        self.present.range(positions).map(|(position, id)| (position, *id))
    }

    fn first(&self) -> Option<(&QueuePosition, RequestId)> {
        self.present.first_key_value().map(|(position, id)| (position, *id))
    }

    fn last(&self) -> Option<(&QueuePosition, RequestId)> {
        self.present.last_key_value().map(|(position, id)| (position, *id))
    }
}

impl WaitQueue {
    pub(super) fn new(key: Key, lock_type: LockType) -> WaitQueue {
        WaitQueue {
            key,
            lock_type,
            limit: None,
            seen: None,
            lease_end: None,
            holders: RecordedHolders::default(),
            holder_requests: BTreeSet::new(),
            ordinary: OrderedRequests::default(),
            coalescing: OrderedRequests::default(),
            reentering: BTreeMap::new(),
            multi_key: 0,
            with_other_waits: 0,
        }
    }

    /// This empty queue, reset for other requests.
    pub(super) fn reopened(self, lock_type: LockType) -> WaitQueue {
        let WaitQueue { key, ordinary, coalescing, .. } = self;
        WaitQueue { ordinary, coalescing, ..WaitQueue::new(key, lock_type) }
    }

    pub(super) fn requests_mut(&mut self, coalesces: bool) -> &mut OrderedRequests {
        if coalesces {
            &mut self.coalescing
        } else {
            &mut self.ordinary
        }
    }

    /// The waiting requests in the order of their positions, without reserved positions.
    pub fn present(&self) -> impl Iterator<Item = (&QueuePosition, RequestId)> + '_ {
        self.range(..)
    }

    /// The waiting requests at these positions, with and without COALESCE in one order.
    pub fn range(
        &self,
        positions: impl RangeBounds<QueuePosition> + Clone,
    ) -> impl Iterator<Item = (&QueuePosition, RequestId)> + '_ {
        let mut ordinary = self.ordinary.range(positions.clone()).peekable();
        let mut coalescing = self.coalescing.range(positions).peekable();
        std::iter::from_fn(move || match (ordinary.peek(), coalescing.peek()) {
            (Some(one), Some(other)) if other < one => coalescing.next(),
            (None, _) => coalescing.next(),
            (Some(_), _) => ordinary.next(),
        })
    }

    /// The head of the queue, with its position.
    #[inline]
    pub fn head(&self) -> Option<(&QueuePosition, RequestId)> {
        self.ordinary.first().into_iter().chain(self.coalescing.first()).min()
    }

    /// The last request in the queue, with its position.
    pub fn last(&self) -> Option<(&QueuePosition, RequestId)> {
        self.ordinary.last().max(self.coalescing.last())
    }

    /// Whether no request waits ahead of this position.
    pub fn is_first(&self, position: &QueuePosition) -> bool {
        self.head().is_none_or(|(head, _)| head >= position)
    }

    /// Whether any request waits behind this position.
    pub fn has_requests_behind(&self, position: &QueuePosition) -> bool {
        self.last().is_some_and(|(last, _)| last > position)
    }

    /// Whether requests of owners that became holders are to be served before the head.
    #[inline]
    pub fn has_reentering(&self) -> bool {
        !self.reentering.is_empty()
    }

    /// Whether any waiter also wants other keys.
    pub fn has_multi_key_requests(&self) -> bool {
        self.multi_key > 0
    }

    /// The number of waiters, without reserved positions.
    pub fn waiters(&self) -> usize {
        self.ordinary.present.len() + self.coalescing.present.len()
    }

    /// The number of reserved positions.
    pub fn reserved_positions(&self) -> usize {
        self.ordinary.detached.len() + self.coalescing.detached.len()
    }

    /// When the client of the oldest reserved position left.
    pub(super) fn oldest_reserved(&self) -> Option<u64> {
        self.ordinary.detached.first().into_iter().chain(self.coalescing.detached.first()).min().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.coalescing.is_empty()
    }
}
