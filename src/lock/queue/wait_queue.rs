//! The wait queue of one key: its requests in the order of their places.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::RangeBounds;

use super::holdings::RecordedHolders;
use super::place::Place;
use super::request::OwnerId;
use crate::key::{Key, RequestId};
use crate::value::claim::Family;
use crate::value::fence::Fence;
use crate::value::time::Timestamp;

/// The limit that leaves no room for one more waiter, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterLimit {
    /// The server's: lock.max-waiters.
    Server(usize),
    /// That of one of the keys: lock.max-waiters-per-key.
    Key(usize),
}

/// As the setting is written: `lock.max-waiters 10000`.
impl fmt::Display for WaiterLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaiterLimit::Server(most) => write!(f, "lock.max-waiters {most}"),
            WaiterLimit::Key(most) => write!(f, "lock.max-waiters-per-key {most}"),
        }
    }
}

/// The position of a request relative to the requests ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// No request is ahead of it.
    First,
    /// It is granted only what its owner holds already.
    Behind,
}

/// The wait queue of a key.
#[derive(Clone, Debug)]
pub struct WaitQueue {
    /// The key that is waited for.
    pub key: Key,
    /// The family that a free key keeps while it has waiters.
    pub family: Family,
    /// The LIMIT of the newest request; `None` unless it is a semaphore.
    pub limit: Option<u32>,
    /// The latest fence under the key when it was last inspected; `None` if it was free or is not known. A different
    /// fence means a different value: RENAME, RESTORE or the like has stored it.
    pub seen: Option<Fence>,
    /// When the queue is to be served because a lease may have ended; `None`: at no time that is known.
    pub lease_end: Option<Timestamp>,
    /// The holders of the key, if they are few and known.
    pub(super) holders: RecordedHolders,
    /// The requests for several keys of the owner that holds the key: it waits for one key more when it loses this one.
    pub(super) counted_on: BTreeSet<RequestId>,
    /// The requests without COALESCE.
    pub(super) ordinary: OrderedRequests,
    /// The requests with COALESCE, separate because a release answers all of them at once.
    pub(super) coalescing: OrderedRequests,
    /// Requests of owners that came to hold the key while these waited, in the order of their places: they come before
    /// the head. A request that has left its queue since, or reenters no more, is skipped. While any is listed, the
    /// queue is being served or is due.
    pub(super) reentering: BTreeMap<OwnerId, VecDeque<RequestId>>,
    /// How many of the waiters want other keys too.
    pub(super) several: usize,
    /// How many of the waiters want other keys too, or have owners that may wait elsewhere.
    pub(super) elsewhere: usize,
}

/// Requests in the order of their places.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderedRequests {
    pub present: BTreeMap<Place, RequestId>,
    /// Kept places, by their departures.
    pub away: BTreeSet<u64>,
}

impl OrderedRequests {
    pub fn is_empty(&self) -> bool {
        self.present.is_empty() && self.away.is_empty()
    }

    pub fn remove(&mut self, place: &Place, departure: Option<u64>) {
        match departure {
            Some(departure) => _ = self.away.remove(&departure),
            None => _ = self.present.remove(place),
        }
    }

    fn range(&self, places: impl RangeBounds<Place>) -> impl Iterator<Item = (&Place, RequestId)> + '_ {
        self.present.range(places).map(|(place, id)| (place, *id))
    }

    fn first(&self) -> Option<(&Place, RequestId)> {
        self.present.first_key_value().map(|(place, id)| (place, *id))
    }

    fn last(&self) -> Option<(&Place, RequestId)> {
        self.present.last_key_value().map(|(place, id)| (place, *id))
    }
}

impl WaitQueue {
    pub(super) fn new(key: Key, family: Family) -> WaitQueue {
        WaitQueue {
            key,
            family,
            limit: None,
            seen: None,
            lease_end: None,
            holders: RecordedHolders::default(),
            counted_on: BTreeSet::new(),
            ordinary: OrderedRequests::default(),
            coalescing: OrderedRequests::default(),
            reentering: BTreeMap::new(),
            several: 0,
            elsewhere: 0,
        }
    }

    /// The same queue, which is empty, for other requests.
    pub(super) fn reopened(self, family: Family) -> WaitQueue {
        let WaitQueue { key, ordinary, coalescing, .. } = self;
        WaitQueue { ordinary, coalescing, ..WaitQueue::new(key, family) }
    }

    pub(super) fn requests_mut(&mut self, coalesces: bool) -> &mut OrderedRequests {
        if coalesces {
            &mut self.coalescing
        } else {
            &mut self.ordinary
        }
    }

    /// The waiting requests in the order of their places, without kept places.
    pub fn present(&self) -> impl Iterator<Item = (&Place, RequestId)> + '_ {
        self.range(..)
    }

    /// The waiting requests at these places, with and without COALESCE in one order.
    pub fn range(&self, places: impl RangeBounds<Place> + Clone) -> impl Iterator<Item = (&Place, RequestId)> + '_ {
        let mut ordinary = self.ordinary.range(places.clone()).peekable();
        let mut coalescing = self.coalescing.range(places).peekable();
        std::iter::from_fn(move || match (ordinary.peek(), coalescing.peek()) {
            (Some(one), Some(other)) if other < one => coalescing.next(),
            (None, _) => coalescing.next(),
            (Some(_), _) => ordinary.next(),
        })
    }

    /// The head of the queue, and its place.
    #[inline]
    pub fn head(&self) -> Option<(&Place, RequestId)> {
        self.ordinary.first().into_iter().chain(self.coalescing.first()).min()
    }

    /// The last request in the queue, and its place.
    pub fn last(&self) -> Option<(&Place, RequestId)> {
        self.ordinary.last().max(self.coalescing.last())
    }

    /// Whether no request waits ahead of this place.
    pub fn is_first(&self, place: &Place) -> bool {
        self.head().is_none_or(|(head, _)| head >= place)
    }

    /// Whether any request waits behind this place.
    pub fn has_requests_behind(&self, place: &Place) -> bool {
        self.last().is_some_and(|(last, _)| last > place)
    }

    /// Whether requests of owners that came to hold the key are to be served before the head.
    #[inline]
    pub fn has_reentering(&self) -> bool {
        !self.reentering.is_empty()
    }

    /// Whether some of the waiters want other keys too.
    pub fn has_requests_for_several(&self) -> bool {
        self.several > 0
    }

    /// The number of waiters; a kept place is no waiter.
    pub fn waiters(&self) -> usize {
        self.ordinary.present.len() + self.coalescing.present.len()
    }

    /// The number of kept places.
    pub fn kept_places(&self) -> usize {
        self.ordinary.away.len() + self.coalescing.away.len()
    }

    /// The departure of the request that has been away longest.
    pub(super) fn longest_away(&self) -> Option<u64> {
        self.ordinary.away.first().into_iter().chain(self.coalescing.away.first()).min().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.coalescing.is_empty()
    }
}
