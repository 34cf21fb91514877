//! Which owners may hold keys that requests wait for. If an owner holds none, its requests need no deadlock detection
//! and no search for a position.
//!
//! The holders of such a key are recorded if they are few. A key with many holders must be opened to look them up. So
//! must a key that another command has changed, until it is recorded again. A record may include former holders until
//! the queue is served, but never omits a current one.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxSeededState;

use super::request::QueueId;
use super::small_set::SmallSet;
use crate::id_map::IdMap;
use crate::one_or_many::OneOrMany;
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// At most this many holders of a waited-for key are recorded. Smaller in tests, so that tests exceed it.
const FEW_HOLDERS: usize = if cfg!(test) { 2 } else { 16 };

/// The hash of a database and an owner ID. Two owners with the same hash only cost a needless search. The seed is
/// random, so that clients cannot choose colliding IDs.
type OwnerHash = u64;

#[derive(Clone)]
pub(super) struct Holdings {
    by_owner: IdMap<OwnerHash, SmallSet<QueueId>>,
    /// The queues whose keys must be opened to learn their holders.
    must_open: BTreeSet<QueueId>,
    /// How many waited-for keys held no lock at their last inspection.
    unheld: usize,
    /// How many inspection rounds must end before all holders are known, because a lock may have moved to a key that
    /// held none.
    scans_until_fresh: u8,
    /// All keys of a database may have changed, and the rescan that opens them has not ended.
    rescan_pending: bool,
    hashes: FxSeededState,
}

impl Default for Holdings {
    fn default() -> Holdings {
        Holdings {
            by_owner: IdMap::default(),
            must_open: BTreeSet::new(),
            unheld: 0,
            scans_until_fresh: 0,
            rescan_pending: false,
            hashes: FxSeededState::with_seed(RandomState::new().hash_one(()) as usize),
        }
    }
}

impl std::fmt::Debug for Holdings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Holdings { by_owner, must_open, unheld, scans_until_fresh, rescan_pending, hashes: _ } = self;
        let all = (by_owner, must_open, unheld, scans_until_fresh, rescan_pending);
        f.debug_tuple("Holdings").field(&all).finish()
    }
}

/// The recorded holders of a queue's key.
#[derive(Clone, Debug)]
pub(super) struct RecordedHolders(OneOrMany<OwnerHash>);

impl Default for RecordedHolders {
    fn default() -> RecordedHolders {
        RecordedHolders(OneOrMany::Many(Vec::new()))
    }
}

/// The queues whose keys an owner may hold. It certainly holds the key of no other queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayHold<'a> {
    recorded: Option<&'a SmallSet<QueueId>>,
    must_open: &'a BTreeSet<QueueId>,
    /// The owner may hold any key: after a RENAME or MOVE until the inspection rounds have ended, after a flush until
    /// all queues have been visited.
    is_any: bool,
}

/// Queries.
impl Holdings {
    /// The queues whose keys this owner may hold.
    pub fn of(&self, db: i32, owner: &[u8]) -> MayHold<'_> {
        let recorded = || self.by_owner.get(&self.hash(db, owner));
        MayHold {
            recorded: if self.by_owner.is_empty() { None } else { recorded() },
            must_open: &self.must_open,
            is_any: self.scans_until_fresh > 0 || self.rescan_pending,
        }
    }

    /// All keys of a database may have changed, and the rescan that opens them has not ended.
    pub fn rescan_pending(&self) -> bool {
        self.rescan_pending
    }

    fn hash(&self, db: i32, owner: &[u8]) -> OwnerHash {
        self.hashes.hash_one((db, owner))
    }

    /// Whether nothing is recorded and no holder is unknown.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_clean(&self) -> bool {
        self.by_owner.is_empty() && self.must_open.is_empty() && self.unheld == 0 && !self.rescan_pending
    }
}

#[cfg(any(test, feature = "testing"))]
impl Holdings {
    /// Panics unless the recorded holders of a queue's key are found by owner.
    pub fn check_recorded(&self, id: QueueId, recorded: &RecordedHolders) {
        let is_found = |owner| self.by_owner.get(owner).is_some_and(|queues| queues.contains(&id));
        assert!(recorded.0.iter().all(is_found), "{id:?} has {recorded:?}, {self:?}");
    }

    /// Panics unless only these queues are recorded. Each has its recorded holders and the fencing token that it has
    /// seen last.
    pub fn check_totals<'q>(&self, queues: impl Iterator<Item = (QueueId, &'q RecordedHolders, Option<Fence>)>) {
        let queues: Vec<_> = queues.collect();
        let by_queue: usize = queues.iter().map(|(_, recorded, _)| recorded.0.len()).sum();
        let by_owner: usize = self.by_owner.iter().map(|(_, queues)| queues.len()).sum();
        assert_eq!(by_owner, by_queue, "the recorded holders by owner and by queue");
        let is_open = |id: &QueueId| queues.iter().any(|(open, ..)| open == id);
        assert!(self.must_open.iter().all(is_open), "a closed queue must be opened: {self:?}");
        assert_eq!(self.unheld, queues.iter().filter(|(_, _, seen)| seen.is_none()).count(), "free keys");
    }
}

impl<'a> MayHold<'a> {
    /// Whether the owner certainly holds no waited-for key.
    pub fn is_empty(&self) -> bool {
        !self.is_any && self.recorded.is_none() && self.must_open.is_empty()
    }

    /// The queues whose keys must be opened to find out whether the owner holds any. `None` if the owner is recorded as
    /// a holder of another key, or may hold any key.
    pub fn keys_to_open(&self) -> Option<&'a BTreeSet<QueueId>> {
        (!self.is_any && self.recorded.is_none()).then_some(self.must_open)
    }

    /// Whether the owner may hold the key of this queue.
    pub fn contains(&self, id: QueueId) -> bool {
        self.is_any || self.must_open.contains(&id) || self.recorded.is_some_and(|recorded| recorded.contains(&id))
    }
}

/// Changes.
impl Holdings {
    /// Records the current holders of a queue's key; `None` means that it has no lock. Returns whether they differ from
    /// the recorded ones.
    pub fn record(&mut self, id: QueueId, recorded: &mut RecordedHolders, db: i32, lock: Option<&Lock>) -> bool {
        let is_few = lock.is_none_or(|lock| lock.holders() <= FEW_HOLDERS);
        if is_few {
            self.must_open.remove(&id);
        } else {
            self.must_open.insert(id);
        }
        let hash = |owner: &Owner| self.hash(db, owner.as_bytes());
        let now: OneOrMany<_> = match lock.and_then(Lock::exclusive_owner) {
            Some(owner) => OneOrMany::One(hash(owner)),
            None => lock.filter(|_| is_few).into_iter().flat_map(Lock::owners).map(hash).collect(),
        };
        if now == recorded.0 {
            return false;
        }
        let before = std::mem::replace(&mut recorded.0, now);
        for owner in recorded.0.iter().filter(|owner| !before.contains(owner)) {
            match self.by_owner.get_mut(owner) {
                Some(queues) => queues.insert(id),
                None => _ = self.by_owner.insert(*owner, SmallSet::of(id)),
            }
        }
        for owner in before.iter().filter(|owner| !recorded.0.contains(owner)) {
            self.remove(*owner, id);
        }
        true
    }

    fn remove(&mut self, owner: OwnerHash, id: QueueId) {
        let Some(queues) = self.by_owner.get_mut(&owner) else { return };
        debug_assert!(queues.contains(&id), "a recorded holder has the queue in its set");
        queues.remove(&id);
        if queues.is_empty() {
            self.by_owner.remove(&owner);
        }
    }

    /// A queue was created. It has not seen a lock under its key yet.
    pub fn add(&mut self) {
        self.unheld += 1;
    }

    /// The queue was removed. `seen` is the fencing token that it had seen last.
    pub fn forget(&mut self, id: QueueId, recorded: RecordedHolders, seen: Option<Fence>, is_last: bool) {
        for owner in &recorded.0 {
            self.remove(*owner, id);
        }
        self.must_open.remove(&id);
        self.unheld -= usize::from(seen.is_none());
        self.rescan_pending &= !is_last;
        debug_assert!(
            !is_last || self.by_owner.is_empty() && self.must_open.is_empty() && self.unheld == 0,
            "without a queue nothing is recorded"
        );
    }

    /// The queue has seen another fencing token under its key.
    pub fn seen_replaced(&mut self, before: Option<Fence>, now: Option<Fence>) {
        self.unheld -= usize::from(before.is_none());
        self.unheld += usize::from(now.is_none());
    }

    /// Another command has changed the key of this queue, so its holders are unknown until it is opened.
    pub fn mark_unknown(&mut self, id: QueueId) {
        self.must_open.insert(id);
    }

    /// A lock may have moved to a key that held none.
    pub fn mark_unheld_unknown(&mut self) {
        if self.unheld > 0 {
            // Two, because one round may be in progress.
            self.scans_until_fresh = 2;
        }
    }

    /// An inspection round has visited every key.
    pub fn end_round(&mut self) {
        self.scans_until_fresh = self.scans_until_fresh.saturating_sub(1);
    }

    /// All holders are unknown until a rescan of the queues has ended.
    pub fn mark_all_unknown(&mut self) {
        self.rescan_pending = true;
    }

    /// The rescan of the queues has ended.
    pub fn end_rescan(&mut self) {
        self.rescan_pending = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;
    use crate::value::claim::{Claim, Count};

    const PERMIT: Claim = Claim::Permits { limit: 9, count: Count::Delta(1) };

    #[test]
    fn the_holders_of_a_key_are_recorded_if_they_are_few() {
        for number in 1..=FEW_HOLDERS + 1 {
            let mut fixture = Fixture::default();
            (0..number).for_each(|number| _ = fixture.hold(&format!("holder {number}"), "s", PERMIT));
            fixture.wait("b", "s", PERMIT);
            assert_eq!(fixture.may_be_waited_for("anybody"), number > FEW_HOLDERS, "{number}");
            assert!(fixture.may_be_waited_for("holder 0"), "{number}");
        }
    }

    /// One field at a time has an entry.
    #[test]
    fn holdings_with_an_entry_are_not_clean() {
        let by_owner = || {
            let mut by_owner = IdMap::default();
            by_owner.insert(1, SmallSet::of(QueueId(1)));
            by_owner
        };
        let empty = Holdings::default;
        assert!(empty().is_clean());
        assert!(!Holdings { by_owner: by_owner(), ..empty() }.is_clean());
        assert!(!Holdings { must_open: [QueueId(1)].into(), ..empty() }.is_clean());
        assert!(!Holdings { unheld: 1, ..empty() }.is_clean());
        assert!(!Holdings { rescan_pending: true, ..empty() }.is_clean());
    }
}
