//! Collections of due work: single items, and rescans of all wait queues.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;

/// A set of work items. They are taken in order, starting after the item that was taken last and wrapping around, until
/// none is left.
#[derive(Clone, Debug)]
pub(super) struct DueSet<T> {
    all: BTreeSet<T>,
    last: Option<T>,
}

impl<T> Default for DueSet<T> {
    fn default() -> Self {
        DueSet { all: BTreeSet::new(), last: None }
    }
}

impl<T: Copy + Ord> DueSet<T> {
    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the item is in the set.
    pub fn contains(&self, item: T) -> bool {
        self.all.contains(&item)
    }

    /// Adds an item.
    pub fn insert(&mut self, item: T) {
        self.all.insert(item);
    }

    /// Removes an item.
    pub fn remove(&mut self, item: T) {
        self.all.remove(&item);
    }

    /// The items.
    #[cfg(any(test, feature = "testing"))]
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.all.iter().copied()
    }

    /// Removes and returns the next item.
    pub fn take_next(&mut self) -> Option<T> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.last.and_then(|last| self.all.range((Excluded(last), Unbounded)).next());
        let next = after.or_else(|| self.all.first()).copied()?;
        self.all.remove(&next);
        self.last = (!self.all.is_empty()).then_some(next);
        Some(next)
    }
}

impl<T: Copy + Ord> Extend<T> for DueSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.all.extend(items);
    }
}

/// Rescans of all wait queues, or of the queues of one database, after a flush, a SWAPDB or the end of the grace
/// period. A rescan continues over several iterations, because there may be a hundred thousand queues; the event itself
/// accesses none of them. There is at most one rescan for each database, and one for all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Rescans {
    rescans: BTreeMap<Option<i32>, Rescan>,
}

/// A rescan cycles through the queues in the order of their ids, so that a repeated event starves no queue.
#[derive(Clone, Copy, Debug)]
struct Rescan {
    /// The queue that was visited last; `None` at the beginning.
    last: Option<QueueId>,
    /// The last queue to visit after wrapping around; `None` if the rescan need not wrap around.
    end: Option<QueueId>,
    has_wrapped: bool,
}

impl Rescans {
    /// Starts or extends a rescan: every queue of the database, or of all databases, will be visited from now on.
    pub fn begin(&mut self, db: Option<i32>) {
        let rescan = self.rescans.entry(db).or_insert(Rescan { last: None, end: None, has_wrapped: false });
        (rescan.end, rescan.has_wrapped) = (rescan.last, false);
    }

    /// Whether no rescan is running.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rescans.is_empty()
    }

    /// Advances by one queue, and returns it. `None` if it is in another database than the rescan, or if this step only
    /// wraps around or ends the rescan.
    pub fn step(&mut self, queues: &WaitQueues) -> Option<QueueId> {
        let mut first = self.rescans.first_entry()?;
        let (db, rescan) = (*first.key(), first.get_mut());
        let from = rescan.last.map_or(Bound::Unbounded, Bound::Excluded);
        let is_within = |id: &QueueId| !rescan.has_wrapped || rescan.end.is_some_and(|end| *id <= end);
        match queues.next_from(from).filter(|(id, _)| is_within(id)) {
            Some((id, queue)) => {
                rescan.last = Some(id);
                db.is_none_or(|db| db == queue.key.db).then_some(id)
            }
            None if rescan.end.is_some() && !rescan.has_wrapped => {
                (rescan.last, rescan.has_wrapped) = (None, true);
                None
            }
            None => {
                first.remove();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture::Fixture;
    use crate::value::claim::Claim;
    use crate::value::time::Lease;

    #[test]
    fn an_item_that_is_put_back_comes_after_all_others() {
        let mut due = DueSet::default();
        due.extend([3, 1, 2]);
        due.extend([2, 4]);
        due.remove(4);
        let mut taken = Vec::new();
        for _ in 0..5 {
            let next = due.take_next().unwrap();
            taken.push(next);
            due.insert(next);
        }
        assert_eq!(taken, [1, 2, 3, 1, 2]);
        due.insert(9);
        assert_eq!((due.len(), due.contains(9), due.contains(4)), (4, true, false));
        assert_eq!(std::iter::from_fn(|| due.take_next()).collect::<Vec<_>>(), [3, 9, 1, 2]);
        assert!(due.is_empty());
        due.extend([7, 1]);
        assert_eq!(due.take_next(), Some(1), "the set was empty");
        due.remove(7);
        assert_eq!(due.take_next(), None);
    }

    /// Queues of the keys k, l and m in database 0.
    fn queues() -> (Fixture, Vec<QueueId>) {
        let mut fixture = Fixture::default();
        for owner in ["a", "b"] {
            for name in [b"k", b"l", b"m"] {
                fixture.acquire_all(owner, &[name], Claim::Mutex, None, Lease::Persist);
            }
        }
        let ids = fixture.manager.queues().iter().map(|(id, _)| id).collect();
        (fixture, ids)
    }

    fn visited(rescans: &mut Rescans, fixture: &Fixture, steps: usize) -> Vec<QueueId> {
        (0..steps).filter_map(|_| rescans.step(fixture.manager.queues())).collect()
    }

    #[test]
    fn every_queue_of_the_database_is_visited_once() {
        let (fixture, ids) = queues();
        for (db, expected) in [(None, ids.clone()), (Some(0), ids), (Some(1), vec![])] {
            let mut rescans = Rescans::default();
            rescans.begin(db);
            assert_eq!(visited(&mut rescans, &fixture, 3), expected);
            assert_eq!((visited(&mut rescans, &fixture, 1), rescans.is_empty()), (vec![], true));
        }
    }

    #[test]
    fn a_repeated_event_makes_the_rescan_continue_and_wrap_around() {
        let (fixture, ids) = queues();
        let mut rescans = Rescans::default();
        rescans.begin(None);
        assert_eq!(visited(&mut rescans, &fixture, 2), ids[..2]);
        rescans.begin(None);
        assert_eq!(visited(&mut rescans, &fixture, 9), [ids[2], ids[0], ids[1]]);
        assert!(rescans.is_empty());
        // The event is repeated before the first step, and again after the rescan has wrapped around.
        rescans.begin(None);
        rescans.begin(None);
        assert_eq!(visited(&mut rescans, &fixture, 4), ids);
        rescans.begin(None);
        assert_eq!(visited(&mut rescans, &fixture, 1), ids[..1]);
        rescans.begin(None);
        assert_eq!(visited(&mut rescans, &fixture, 9), [ids[1], ids[2], ids[0]]);
        assert!(rescans.is_empty());
    }
}
