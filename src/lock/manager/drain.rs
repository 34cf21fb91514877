//! The drain of all work that is left for a later turn, because no write is allowed where it was noticed or because the
//! turn was over. It is taken out one item at a time, because a turn may end after each. An item that is put back,
//! because the server refuses writes, comes after all others: nothing starves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

use super::lock_manager::LockManager;
use super::release::End;
use crate::host::{Clients, Gate, Host, Keys};
use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;

/// A set of work items. They are taken in their order, beginning after the item that was taken last, round and round
/// until none is left.
#[derive(Clone, Debug)]
pub(super) struct Due<T> {
    all: BTreeSet<T>,
    last: Option<T>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due { all: BTreeSet::new(), last: None }
    }
}

impl<T: Copy + Ord> Due<T> {
    /// True if there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if the item is in the set.
    pub fn contains(&self, one: T) -> bool {
        self.all.contains(&one)
    }

    /// True if an item of the range is in the set.
    pub fn contains_any(&self, range: RangeInclusive<T>) -> bool {
        self.all.range(range).next().is_some()
    }

    /// Adds an item.
    pub fn insert(&mut self, one: T) {
        self.all.insert(one);
    }

    /// Removes an item.
    pub fn remove(&mut self, one: T) {
        self.all.remove(&one);
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// Takes the next item out.
    pub fn take_next(&mut self) -> Option<T> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.last.and_then(|last| self.all.range((Excluded(last), Unbounded)).next());
        let next = after.or_else(|| self.all.first()).copied()?;
        self.all.remove(&next);
        self.last = (!self.all.is_empty()).then_some(next);
        Some(next)
    }
}

impl<T: Copy + Ord> Extend<T> for Due<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, few: I) {
        self.all.extend(few);
    }
}

/// Walks over all wait queues, or over the queues of one database, that go on over turns: after a flush, SWAPDB, or the
/// end of the grace. There may be a hundred thousand queues, so the event itself touches none of them. At most one walk
/// runs for each database, and one for all databases.
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

impl LockManager {
    /// True if [`LockManager::drain`] has something to do.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
            || !self.sweeps.is_empty()
            || !self.to_try.is_empty()
            || !self.ended.is_empty()
            || !self.endings.is_empty()
            || self.queues.has_done()
            || self.deliveries.has_lost()
    }

    /// Does the work that is due, as far as the turn goes: one item of each kind in rotation, so that no kind waits
    /// behind thousands of another. The rest, and all work that a closed gate blocks, stays due.
    pub fn drain<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) {
        // Queues that become due meanwhile are served in the next turn.
        let mut queues = self.due.len();
        let mut is_closed = false;
        loop {
            let mut gates = Vec::new();
            let has_ended = self.end_next_request(&mut host.clients, host.now) | self.end_next_done(&mut host.clients);
            if !is_closed {
                gates.extend(self.take_back(host));
                gates.extend(self.end_next_hold(host));
                if let Some(left) = queues.checked_sub(1) {
                    queues = left;
                    gates.extend(self.due.take_next().map(|queue| self.serve(host, queue)));
                }
                gates.extend(self.try_one_again(host));
                gates.extend(self.sweep_next(host));
                if gates.is_empty() && !has_ended && self.due.is_empty() {
                    gates.extend(self.let_an_owner_pass(host));
                }
            }
            // A closed gate is closed for every key.
            is_closed |= gates.contains(&Gate::Closed);
            if !has_ended && (is_closed || gates.is_empty()) || host.now.is_turn_over() {
                return;
            }
        }
    }

    /// Serves the next queue of a walk. `None`: no walk is running.
    fn sweep_next<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        if self.sweeps.is_empty() {
            return None;
        }
        match self.sweeps.step(&self.queues) {
            Some(queue) => Some(self.serve(host, queue)),
            None => Some(Gate::Open),
        }
    }

    /// Takes back the next grant that was not received, and serves the next waiter. `None`: there is none. While the
    /// gate is closed, the grant stays.
    fn take_back<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        let (number, delivery) = self.deliveries.take_lost()?;
        let gates: Vec<_> = delivery.grants.iter().map(|(key, _)| host.keys.gate(key.as_ref())).collect();
        if gates.contains(&Gate::Closed) {
            self.deliveries.put_back(number, delivery);
            return Some(Gate::Closed);
        }
        self.statistics.undelivered_grants += 1;
        let (owner, claim) = (delivery.owner.as_bytes(), &delivery.claim);
        for ((key, grant), gate) in delivery.grants.iter().zip(gates) {
            // In a slot that has moved to another node the hold ends with its lease.
            if gate == Gate::Elsewhere {
                continue;
            }
            // A key that no longer holds such a lock has ended the hold itself.
            _ = self.end_hold(host, key.as_ref(), End::Undelivered { owner, claim, grant });
        }
        Some(Gate::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::fixture::{key, Fixture};
    use crate::value::claim::{Claim, Portion};
    use crate::value::time::Lease;

    #[test]
    fn an_item_that_is_put_back_comes_after_all_others() {
        let mut due = Due::default();
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
        due.clear();
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

    const MUTEX: Claim = Claim::Mutex;

    #[test]
    fn a_grant_to_an_unknown_client_is_taken_back() {
        for names in [&[b"k".as_slice()][..], &[b"k", b"l"]] {
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.acquire_all("b", names, MUTEX, None, Lease::Persist);
            fixture.server.inbox.is_deserted = true;
            fixture.release("a", Portion::Mutex).unwrap();
            assert!(fixture.manager.has_due() && fixture.manager.has_waiters_or_sessions(), "{names:?}");
            fixture.drain();
            assert!(fixture.server.keyspace.primary.is_empty(), "{names:?}");
            assert!(!fixture.manager.has_due() && !fixture.manager.has_waiters_or_sessions(), "{names:?}");
        }
    }

    #[test]
    fn a_lost_grant_is_taken_back_when_the_gate_opens() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", Portion::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.answers[0];
        fixture.server.keyspace.gate = Gate::Closed;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), true));
        fixture.server.keyspace.gate = Gate::Open;
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("".into(), false));
        assert!(!fixture.server.keyspace.primary.contains_key(&key()));
    }

    #[test]
    fn a_lost_grant_is_not_tried_for_ever_after_its_slot_has_left() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", Portion::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.answers[0];
        fixture.server.keyspace.gate = Gate::Elsewhere;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), false));
    }
}
