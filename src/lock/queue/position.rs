//! The queue position of a request. It is decided once, when the request is queued (`placement.rs`).
//!
//! Each key is served first come, first served. A reader does not overtake a waiting writer, even if the lock would
//! admit it, because a steady stream of readers would starve the writer. One exception prevents a deadlock between a
//! multi-key request and a holder of one of its keys: if an owner holds a key of a queued multi-key request, its own
//! request goes before that request, which has to wait for the owner anyway.
//!
//! | the request                                                  | its position                         |
//! | ------------------------------------------------------------ | ------------------------------------ |
//! | is already queued, or has a reserved position                | as before                            |
//! | of a reader that asks to write (an upgrade)                  | ahead of all requests                |
//! | behind a multi-key request for a key that its owner holds    | before the first such request        |
//! | any other                                                    | behind all requests of the same rank |

use std::cmp::Ordering;
use std::rc::Rc;

/// How deep positions "before a request" may nest. A request that would be deeper gets the last position instead,
/// because positions are compared level by level.
const MAX_LEVELS: usize = 64;

/// The queue position of a request. It is the same in the queues of all its keys, so that two multi-key requests have
/// the same order in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Compared before the arrival.
    pub rank: Rank,
    /// A sequence number.
    pub arrival: u64,
    /// `Some` for a position before a multi-key request, whose number is then in `arrival`. That request may itself be
    /// before another one, and so on: `arrival` is the number of the outermost one, and the path has the numbers from
    /// the next one down to the request itself.
    before: Option<Rc<[u64]>>,
}

/// Whether a request goes to the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// A reader that asks to write: ahead of all others.
    Upgrade,
    /// In order of arrival.
    Normal,
}

impl Rank {
    /// The rank of a request that is, or is not, an upgrade.
    pub fn of_upgrade(is_upgrade: bool) -> Rank {
        if is_upgrade {
            Rank::Upgrade
        } else {
            Rank::Normal
        }
    }
}

impl QueuePosition {
    /// Before every request.
    pub(super) const FIRST: QueuePosition = QueuePosition::last(Rank::Upgrade, 0);

    /// Behind all requests of the rank with a smaller number.
    pub(crate) const fn last(rank: Rank, arrival: u64) -> QueuePosition {
        QueuePosition { rank, arrival, before: None }
    }

    /// The position just before this one. Several requests may be just before it; they are ordered by their numbers.
    pub(super) fn before(&self, number: u64) -> Option<QueuePosition> {
        let path: Rc<[u64]> = self.path().iter().copied().chain([number]).collect();
        (path.len() <= MAX_LEVELS).then_some(QueuePosition { before: Some(path), ..*self })
    }

    fn path(&self) -> &[u64] {
        self.before.as_deref().unwrap_or_default()
    }
}

impl Ord for QueuePosition {
    fn cmp(&self, other: &QueuePosition) -> Ordering {
        let order = (self.rank, self.arrival).cmp(&(other.rank, other.arrival));
        order.then_with(|| {
            let (path, others) = (self.path(), other.path());
            let differing = path.iter().zip(others).find(|(one, other)| one != other);
            differing.map_or_else(|| others.len().cmp(&path.len()), |(one, other)| one.cmp(other))
        })
    }
}

impl PartialOrd for QueuePosition {
    fn partial_cmp(&self, other: &QueuePosition) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A position is behind the positions that were assigned earlier before the same request, whatever keys those
    /// requests want.
    #[test]
    fn positions_before_a_request_are_in_the_order_of_their_arrival() {
        let ten = QueuePosition::last(Rank::Normal, 10);
        let first = ten.before(11).unwrap();
        let second = ten.before(12).unwrap();
        let before_second = second.before(13).unwrap();
        let third = ten.before(14).unwrap();
        let all = [QueuePosition::last(Rank::Normal, 9), first, before_second, second, third, ten];
        assert!(all.is_sorted(), "{all:?}");
        assert!(QueuePosition::last(Rank::Upgrade, 99) < all[0]);
    }

    #[test]
    fn positions_have_a_limited_number_of_levels() {
        let mut position = QueuePosition::last(Rank::Normal, 1);
        for number in 2..2 + MAX_LEVELS as u64 {
            position = position.before(number).unwrap();
        }
        assert_eq!(position.before(999), None);
    }
}
