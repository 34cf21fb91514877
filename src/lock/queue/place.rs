//! The place of a request: decided once, when the request is queued (`placement.rs`).
//!
//! First come, first served, per key. A reader does not overtake a writer that waits, though the lock would admit it:
//! readers that come again and again would starve the writer. One exception keeps a request for several keys and a
//! holder of one of them from blocking each other for ever: the request of an owner that holds a key of a queued
//! request for several keys takes its place before it. That one waits for the owner anyway.
//!
//! | the request                                                   | its place                            |
//! | ------------------------------------------------------------- | ------------------------------------ |
//! | is queued already, also with a kept place                     | as before                            |
//! | of a reader that asks to write                                | ahead of all requests                |
//! | behind a request for several keys, one of which its owner has | before the first such one            |
//! | any other                                                     | behind all requests of the same rank |

use std::cmp::Ordering;
use std::rc::Rc;

/// A place before a request whose place is before another one, and so on, has at most so many levels: the last place
/// otherwise. Places are compared level by level.
const MOST_LEVELS: usize = 64;

/// The place of a request: the same in the wait queues of all its keys, so that two requests for several keys have
/// the same order in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank comes before the arrival in the order.
    pub rank: Rank,
    /// A running number.
    pub arrival: u64,
    /// For a place before a request for several keys: `arrival` is that request's. Then follow the numbers of the
    /// requests between the two, each before the one that it follows, and the request's own number.
    before: Option<Rc<[u64]>>,
}

/// Whether a request goes to the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// The request of a reader that wants to write: ahead of all others.
    Upgrade,
    /// In the order of arrival.
    Normal,
}

impl Rank {
    /// The rank of a request, by whether it is an upgrade.
    pub fn of_upgrade(is_upgrade: bool) -> Rank {
        if is_upgrade {
            Rank::Upgrade
        } else {
            Rank::Normal
        }
    }
}

impl Place {
    /// Before every request.
    pub(super) const FIRST: Place = Place::last(Rank::Upgrade, 0);

    /// Behind all requests of the rank that have a smaller number.
    pub(crate) const fn last(rank: Rank, arrival: u64) -> Place {
        Place { rank, arrival, before: None }
    }

    /// Just before this place: behind all places before it that have a smaller number.
    pub(super) fn before(&self, number: u64) -> Option<Place> {
        let path: Rc<[u64]> = self.path().iter().copied().chain([number]).collect();
        (path.len() <= MOST_LEVELS).then_some(Place { before: Some(path), ..*self })
    }

    fn path(&self) -> &[u64] {
        self.before.as_deref().unwrap_or_default()
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        let order = (self.rank, self.arrival).cmp(&(other.rank, other.arrival));
        order.then_with(|| {
            let (path, others) = (self.path(), other.path());
            let differing = path.iter().zip(others).find(|(one, other)| one != other);
            differing.map_or_else(|| others.len().cmp(&path.len()), |(one, other)| one.cmp(other))
        })
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place is behind those that were put before the same request earlier, wherever these come from.
    #[test]
    fn places_before_a_request_are_in_the_order_of_their_arrival() {
        let ten = Place::last(Rank::Normal, 10);
        let first = ten.before(11).unwrap();
        let second = ten.before(12).unwrap();
        let before_second = second.before(13).unwrap();
        let third = ten.before(14).unwrap();
        let all = [Place::last(Rank::Normal, 9), first, before_second, second, third, ten];
        assert!(all.is_sorted(), "{all:?}");
        assert!(Place::last(Rank::Upgrade, 99) < all[0]);
    }

    #[test]
    fn places_have_a_limited_number_of_levels() {
        let mut place = Place::last(Rank::Normal, 1);
        for number in 2..2 + MOST_LEVELS as u64 {
            place = place.before(number).unwrap();
        }
        assert_eq!(place.before(999), None);
    }
}
