//! A walk over all wait queues, or over the queues of one database, that goes on over turns: after a flush, SWAPDB, or
//! the end of the grace. There may be a hundred thousand queues, so the event itself touches none of them.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;

/// The running walks: at most one for each database, and one for all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweeps {
    walks: BTreeMap<Option<i32>, Walk>,
}

/// A walk goes round in the order of the ids: an event that is repeated starves no queue.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// The queue that was visited last; `None`: the walk is at its beginning.
    last: Option<QueueId>,
    /// Where the walk ends once it has begun anew; `None`: at the last queue.
    ends: Option<QueueId>,
    has_begun_anew: bool,
}

impl Sweeps {
    /// From now on every queue of the database, or of all databases, is to be visited.
    pub fn begin(&mut self, db: Option<i32>) {
        let walk = self.walks.entry(db).or_insert(Walk { last: None, ends: None, has_begun_anew: false });
        (walk.ends, walk.has_begun_anew) = (walk.last, false);
    }

    /// True if no walk is running.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.walks.is_empty()
    }

    /// Ends all walks.
    pub fn clear(&mut self) {
        self.walks.clear();
    }

    /// Goes one queue further. `None`: the queue is of another database, the walk begins its second round, or it is
    /// over.
    pub fn step(&mut self, queues: &WaitQueues) -> Option<QueueId> {
        let mut first = self.walks.first_entry()?;
        let (db, walk) = (*first.key(), first.get_mut());
        let from = walk.last.map_or(Bound::Unbounded, Bound::Excluded);
        let is_within = |id: &QueueId| !walk.has_begun_anew || walk.ends.is_some_and(|ends| *id <= ends);
        match queues.next_from(from).filter(|(id, _)| is_within(id)) {
            Some((id, queue)) => {
                walk.last = Some(id);
                db.is_none_or(|db| db == queue.key.db).then_some(id)
            }
            None if walk.ends.is_some() && !walk.has_begun_anew => {
                (walk.last, walk.has_begun_anew) = (None, true);
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
    use crate::manager::fixture::Fixture;
    use crate::value::claim::Claim;
    use crate::value::time::Lease;

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

    fn visited(sweeps: &mut Sweeps, fixture: &Fixture, steps: usize) -> Vec<QueueId> {
        (0..steps).filter_map(|_| sweeps.step(fixture.manager.queues())).collect()
    }

    #[test]
    fn every_queue_of_the_database_is_visited_once() {
        let (fixture, ids) = queues();
        for (db, expected) in [(None, ids.clone()), (Some(0), ids), (Some(1), vec![])] {
            let mut sweeps = Sweeps::default();
            sweeps.begin(db);
            assert_eq!(visited(&mut sweeps, &fixture, 3), expected);
            assert_eq!((visited(&mut sweeps, &fixture, 1), sweeps.is_empty()), (vec![], true));
        }
    }

    #[test]
    fn a_repeated_event_makes_the_walk_go_on_and_begin_another_round() {
        let (fixture, ids) = queues();
        let mut sweeps = Sweeps::default();
        sweeps.begin(None);
        assert_eq!(visited(&mut sweeps, &fixture, 2), ids[..2]);
        sweeps.begin(None);
        assert_eq!(visited(&mut sweeps, &fixture, 9), [ids[2], ids[0], ids[1]]);
        assert!(sweeps.is_empty());
        // The event comes again before the first step, and then while the walk is in its second round.
        sweeps.begin(None);
        sweeps.begin(None);
        assert_eq!(visited(&mut sweeps, &fixture, 4), ids);
        sweeps.begin(None);
        assert_eq!(visited(&mut sweeps, &fixture, 1), ids[..1]);
        sweeps.begin(None);
        assert_eq!(visited(&mut sweeps, &fixture, 9), [ids[1], ids[2], ids[0]]);
        assert!(sweeps.is_empty());
    }
}
