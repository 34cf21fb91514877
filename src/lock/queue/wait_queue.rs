//! The wait queue of one key: its requests in the order of their places.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::request::Place;
use crate::key::{Key, RequestId};
use crate::value::claim::{Claim, Family};
use crate::value::fence::Fence;

/// Which of the limits leaves no room for one more who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterLimit {
    /// Of the server: lock.max-waiters.
    Server,
    /// Of one of the keys: lock.max-waiters-per-key.
    Key,
}

/// The wait queue of a key.
#[derive(Clone, Debug)]
pub struct WaitQueue {
    /// The key that is waited for.
    pub key: Key,
    /// The family that a free key keeps while somebody waits.
    pub family: Family,
    /// The LIMIT of the newest request; `None` for what is no semaphore.
    pub limit: Option<u32>,
    /// The latest fence under the key when it was inspected last; `None`: it was free, or is not known. Another fence
    /// is another value: RENAME, RESTORE and the like have put it there.
    pub seen: Option<Fence>,
    pub(super) present: BTreeMap<Place, RequestId>,
    /// Kept places, by their departures.
    pub(super) away: BTreeSet<u64>,
    /// How many of those who wait want other keys too.
    pub(super) several: usize,
    /// How many of them may wait elsewhere, too.
    pub(super) elsewhere: usize,
}

impl WaitQueue {
    pub(super) fn new(key: Key, family: Family) -> WaitQueue {
        WaitQueue {
            key,
            family,
            limit: None,
            seen: None,
            present: BTreeMap::new(),
            away: BTreeSet::new(),
            several: 0,
            elsewhere: 0,
        }
    }

    /// The requests whose clients are there, first come first.
    pub fn present(&self) -> impl DoubleEndedIterator<Item = (Place, RequestId)> + '_ {
        self.present.iter().map(|(place, id)| (*place, *id))
    }

    /// The head: the request whose turn is next.
    pub fn first(&self) -> Option<RequestId> {
        self.present.first_key_value().map(|(_, id)| *id)
    }

    /// The request that came last, and where it stands.
    pub fn last(&self) -> Option<(Place, RequestId)> {
        self.present.last_key_value().map(|(place, id)| (*place, *id))
    }

    /// Where the head stands.
    #[inline]
    pub fn first_place(&self) -> Option<Place> {
        self.present.first_key_value().map(|(place, _)| *place)
    }

    /// The next one behind this place; without one the head.
    pub fn next_after(&self, place: Option<Place>) -> Option<(Place, RequestId)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.present.range((from, Bound::Unbounded)).next().map(|(place, id)| (*place, *id))
    }

    /// The requests from this place on.
    pub fn present_from(&self, place: Place) -> impl Iterator<Item = (Place, RequestId)> + '_ {
        self.present.range(place..).map(|(place, id)| (*place, *id))
    }

    /// The requests from one place on, up to another that is behind it.
    pub(super) fn present_between(&self, from: Place, to: Place) -> impl Iterator<Item = (Place, RequestId)> + '_ {
        self.present.range(from..to).map(|(place, id)| (*place, *id))
    }

    /// Whether anybody waits behind this place.
    pub fn is_anybody_behind(&self, place: Place) -> bool {
        self.present.last_key_value().is_some_and(|(last, _)| *last > place)
    }

    /// Whether some of those who wait want other keys too.
    pub fn has_requests_for_several(&self) -> bool {
        self.several > 0
    }

    /// How many wait; a kept place is no waiter.
    pub fn waiters(&self) -> usize {
        self.present.len()
    }

    /// How many places are kept.
    pub fn kept_places(&self) -> usize {
        self.away.len()
    }

    /// A queued claim as it counts now: under the LIMIT of the newest request.
    pub fn under_limit(&self, claim: Claim) -> Claim {
        claim.under_limit(self.limit)
    }

    /// Whether one is left, who waits or keeps a place.
    pub fn is_last(&self) -> bool {
        self.present.len() + self.away.len() == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty() && self.away.is_empty()
    }
}
