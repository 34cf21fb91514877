//! Rebuilds locks from a file or dump, which may contain anything, or from the effects that a primary replicates.
//!
//! Whatever the bytes are, the result is a lock that requests could have produced, and that can be stored again.
//! Nothing is decided here, and no clock is read.

use super::claim::{LockType, Origin};
use super::exclusive::Exclusive;
use super::fence::Fence;
use super::holders::Holder;
use super::lock::Lock;
use super::outcome::Hold;
use super::owner::OwnerRef;
use super::shared::Shared;
use super::time::{Deadline, Timestamp};

/// A lock type with its limit, as in files, effects and LOCK.INFO: 1 for a mutex, LIMIT for a semaphore, 0 for a
/// read/write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTypeAndLimit {
    /// The lock type.
    pub lock_type: LockType,
    /// How many holders or permits it admits; 0 means any number of readers.
    pub limit: u32,
}

impl LockTypeAndLimit {
    /// `None` if no lock of this type has that limit.
    pub fn new(lock_type: LockType, limit: u32) -> Option<LockTypeAndLimit> {
        let is_sound = match lock_type {
            LockType::Mutex | LockType::Reentrant => limit == 1,
            LockType::ReadWrite => limit == 0,
            LockType::Semaphore => limit > 0,
        };
        is_sound.then_some(LockTypeAndLimit { lock_type, limit })
    }

    /// From the fields of a lock or wait queue. `None` for a semaphore without a limit.
    pub fn of(lock_type: LockType, semaphore_limit: Option<u32>) -> Option<LockTypeAndLimit> {
        let limit = match lock_type {
            LockType::Mutex | LockType::Reentrant => 1,
            LockType::ReadWrite => 0,
            LockType::Semaphore => semaphore_limit?,
        };
        Some(LockTypeAndLimit { lock_type, limit })
    }

    fn semaphore_limit(self) -> Option<u32> {
        (self.lock_type == LockType::Semaphore).then_some(self.limit)
    }

    fn is_exclusive(self) -> bool {
        matches!(self.lock_type, LockType::Mutex | LockType::Reentrant)
    }

    /// Whether this hold is valid for the lock type. Commands cannot create an invalid one, but a file or dump can.
    pub fn allows(self, holder: &Holder) -> bool {
        match self.lock_type {
            LockType::ReadWrite | LockType::Semaphore if holder.origin == Origin::Adopted => false,
            LockType::Semaphore if holder.slot.is_some() => holder.holds == 1 && holder.reads == 0,
            _ if holder.slot.is_some() => false,
            LockType::Mutex => holder.holds == 1 && holder.reads == 0,
            // A count of 0: see `engine/counted_holds`.
            LockType::Reentrant => holder.reads == 0,
            LockType::Semaphore => holder.holds > 0 && holder.reads == 0,
            LockType::ReadWrite => holder.holds > 0 || holder.reads > 0,
        }
    }
}

/// An effect from the primary or a file.
#[derive(Debug)]
pub enum ReplicatedEffect<'a> {
    /// This owner's hold, which is valid for the lock type.
    Hold(LockTypeAndLimit, Holder),
    /// This owner's hold has ended.
    Drop(OwnerRef<'a>),
    /// All holders whose leases had expired by this time are removed.
    Ended(Timestamp),
    /// The semaphore's limit.
    Limit(u32),
    /// The holders expire no later than the key.
    Clamp,
    /// The fencing token of the latest grant.
    Fence(Fence),
}

/// What to do with the key after an effect has been applied to its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAfter {
    /// Nothing.
    Same,
    /// Set its new deadline.
    Until(Deadline),
    /// Remove it, because the lock has no holder left.
    Removed,
}

/// Files and dumps.
impl Lock {
    /// The lock type with its limit; `None` while vacant.
    pub fn lock_type_and_limit(&self) -> Option<LockTypeAndLimit> {
        self.lock_type().and_then(|lock_type| LockTypeAndLimit::of(lock_type, self.semaphore_limit()))
    }

    /// Every hold as stored, oldest grant first, with its own deadline. The deadline of a mutex is its key's and is not
    /// stored here.
    pub fn stored_holds(&self) -> Vec<Hold<'_>> {
        let mut holds = self.holds(Deadline::Never);
        if let Lock::Shared(shared) = self {
            for hold in &mut holds {
                hold.until = shared.holders.get(hold.owner.as_bytes()).map_or(hold.until, |holder| holder.until);
            }
        }
        holds
    }

    /// The lock with these parts, if they are valid.
    pub fn from_parts(kind: LockTypeAndLimit, fence: Fence, mut holders: Vec<Holder>) -> Option<Lock> {
        if holders.is_empty() || !holders.iter().all(|holder| kind.allows(holder) && holder.fence <= fence) {
            return None;
        }
        if kind.is_exclusive() {
            let only = holders.pop().filter(|_| holders.is_empty())?;
            return (only.fence == fence).then(|| Lock::Exclusive(Exclusive::of_holder(kind.lock_type, only)));
        }
        let has_writer = || kind.lock_type == LockType::ReadWrite && holders.iter().any(|holder| holder.holds > 0);
        if holders.len() > 1 && has_writer() {
            return None;
        }
        let mut shared = Shared::new(kind.semaphore_limit(), fence);
        for holder in holders {
            let is_known = shared.holders.position(holder.owner.as_bytes()).is_some();
            if is_known || shared.holder_of_slot(&holder).is_some() {
                return None;
            }
            shared.put(holder);
        }
        Some(Lock::Shared(Box::new(shared)))
    }

    /// Sets the hold of this owner, whatever the lock was before. Other holders are removed from a mutex, from a
    /// read/write lock if one of them writes, and from the same slot. Returns false and changes nothing if the hold is
    /// not valid for the lock type.
    pub fn apply_hold(&mut self, kind: LockTypeAndLimit, holder: Holder) -> bool {
        if !kind.allows(&holder) {
            return false;
        }
        if kind.is_exclusive() {
            *self = Lock::Exclusive(Exclusive::of_holder(kind.lock_type, holder));
            return true;
        }
        if self.lock_type() != Some(kind.lock_type) {
            *self = Lock::Shared(Box::new(Shared::new(kind.semaphore_limit(), holder.fence)));
        }
        self.set_limit(kind.limit);
        if let Lock::Shared(shared) = self {
            if let Some(position) = shared.holders.position(holder.owner.as_bytes()) {
                shared.take_out(position);
            }
            // A primary never sends two writers or two holders of one slot, but a file may contain anything.
            if let Some(other) = shared.holder_of_slot(&holder) {
                shared.take_out(other);
            }
            let has_writer =
                |shared: &Shared| holder.holds > 0 || shared.holders.as_slice().iter().any(|other| other.holds > 0);
            while kind.lock_type == LockType::ReadWrite && !shared.holders.is_empty() && has_writer(shared) {
                shared.take_out(0);
            }
            shared.put(holder);
        }
        true
    }

    /// Raises the fencing token to that of the latest grant on the key, whose holder may have released since.
    fn raise_fence(&mut self, fence: Fence) {
        if let Lock::Shared(shared) = self {
            shared.fence = shared.fence.max(fence);
        }
    }
}

/// Effects.
impl Lock {
    /// Whether the effect changes which owners hold the lock, or how many times: WATCH sees that, but not a renewal.
    pub fn is_changed_by(&self, effect: &ReplicatedEffect<'_>) -> bool {
        match effect {
            ReplicatedEffect::Hold(_, holder) => {
                let before = self.hold(holder.owner.as_bytes(), Deadline::Never);
                let is_same =
                    |hold: Hold<'_>| (hold.fence, hold.holds, hold.reads) == (holder.fence, holder.holds, holder.reads);
                !before.is_some_and(is_same)
            }
            ReplicatedEffect::Drop(owner) => self.fence_of(owner.as_bytes()).is_some(),
            ReplicatedEffect::Ended(time) => self.has_expired_holders(*time),
            ReplicatedEffect::Limit(_) | ReplicatedEffect::Clamp | ReplicatedEffect::Fence(_) => false,
        }
    }

    /// Applies an effect. For a key that was free, a hold is applied to [`Lock::Vacant`]. The key expires at
    /// `key_until`.
    pub fn apply(&mut self, effect: ReplicatedEffect<'_>, key_until: Deadline) -> KeyAfter {
        match effect {
            ReplicatedEffect::Hold(kind, holder) => {
                let until = holder.until;
                self.apply_hold(kind, holder);
                KeyAfter::Until(self.last_deadline().unwrap_or(until))
            }
            ReplicatedEffect::Drop(owner) => {
                self.remove_holder(owner.as_bytes());
                self.key_after_ends()
            }
            ReplicatedEffect::Ended(time) => {
                self.remove_expired(time);
                self.key_after_ends()
            }
            ReplicatedEffect::Limit(limit) => {
                self.set_limit(limit);
                KeyAfter::Same
            }
            ReplicatedEffect::Clamp => {
                self.clamp(key_until);
                KeyAfter::Same
            }
            ReplicatedEffect::Fence(fence) => {
                self.raise_fence(fence);
                KeyAfter::Same
            }
        }
    }

    fn key_after_ends(&self) -> KeyAfter {
        if self.is_vacant() {
            KeyAfter::Removed
        } else {
            self.last_deadline().map_or(KeyAfter::Same, KeyAfter::Until)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::holders::Slot;
    use crate::value::owner::Owner;
    use crate::value::time::Lease;
    use proptest::prelude::*;

    fn lock_type() -> impl Strategy<Value = LockType> {
        prop_oneof![
            Just(LockType::Mutex),
            Just(LockType::Reentrant),
            Just(LockType::ReadWrite),
            Just(LockType::Semaphore)
        ]
    }

    fn holder() -> impl Strategy<Value = Holder> {
        let slot = prop_oneof![Just(None), (0..4u32).prop_map(Slot::new)];
        (0..4u8, 1..99u64, 0..3u32, 0..3u32, slot).prop_map(|(name, fence, holds, reads, slot)| Holder {
            owner: Owner::new(&[b'a' + name]).unwrap(),
            fence: Fence::new(fence).unwrap(),
            lease: Lease::Persist,
            until: Deadline::Never,
            holds,
            reads,
            slot,
            origin: Origin::Native,
        })
    }

    proptest! {
        /// Effects come from files too: whatever they are, the resulting lock can be stored and loaded again.
        #[test]
        fn any_effects_leave_a_lock_that_can_be_loaded(
            effects in prop::collection::vec((lock_type(), 0..3u32, holder(), any::<bool>()), 1..30)
        ) {
            let mut lock = Lock::Vacant;
            for (lock_type, limit, holder, drops) in effects {
                let owner = holder.owner.clone();
                lock.set_limit(limit);
                match LockTypeAndLimit::new(lock_type, limit) {
                    _ if drops => _ = lock.remove_holder(owner.as_bytes()),
                    Some(kind) => _ = lock.apply_hold(kind, holder),
                    None => {}
                }
                let stored = lock.stored_holds().into_iter().map(|hold| Holder {
                    owner: hold.owner.clone(),
                    fence: hold.fence,
                    lease: hold.lease,
                    until: hold.until,
                    holds: hold.holds,
                    reads: hold.reads,
                    slot: hold.slot,
                    origin: hold.origin,
                });
                let loaded = |kind| Lock::from_parts(kind, lock.fence().unwrap(), stored.collect());
                prop_assert!(lock.is_vacant() || lock.lock_type_and_limit().and_then(loaded).is_some(), "{:?}", lock);
            }
        }
    }

    fn held(name: &str, fence: u64, holds: u32, reads: u32) -> Holder {
        Holder {
            owner: Owner::new(name.as_bytes()).unwrap(),
            fence: Fence::new(fence).unwrap(),
            lease: Lease::Persist,
            until: Deadline::Never,
            holds,
            reads,
            slot: None,
            origin: Origin::Native,
        }
    }

    fn with_slot(number: u32, holder: Holder) -> Holder {
        Holder { slot: Slot::new(number), ..holder }
    }

    /// Rows: lock type, limit, latest fencing token, holders, and whether they make a valid lock.
    #[test]
    fn only_valid_parts_make_a_lock() {
        use LockType::*;
        let rows = [
            (Mutex, 1, 5, vec![held("a", 5, 1, 0)], true),
            (Mutex, 1, 5, vec![held("a", 4, 1, 0)], false),
            (Mutex, 1, 5, vec![held("a", 5, 2, 0)], false),
            (Mutex, 1, 5, vec![held("a", 5, 1, 1)], false),
            (Mutex, 1, 5, vec![held("a", 5, 1, 0), held("b", 5, 1, 0)], false),
            (Mutex, 1, 5, vec![], false),
            (Reentrant, 1, 5, vec![held("a", 5, 7, 0)], true),
            (Reentrant, 1, 5, vec![held("a", 5, 0, 0)], true),
            (Reentrant, 1, 5, vec![held("a", 5, 1, 1)], false),
            (ReadWrite, 0, 5, vec![held("a", 4, 0, 1), held("b", 3, 0, 2)], true),
            (ReadWrite, 0, 5, vec![held("a", 6, 0, 1)], false),
            (ReadWrite, 0, 5, vec![held("a", 5, 1, 1)], true),
            (ReadWrite, 0, 5, vec![held("a", 5, 0, 0)], false),
            (ReadWrite, 0, 5, vec![held("a", 5, 1, 0), held("b", 4, 0, 1)], false),
            (ReadWrite, 0, 5, vec![held("a", 5, 0, 1), held("a", 4, 0, 1)], false),
            (Semaphore, 2, 5, vec![held("a", 5, 1, 0), held("b", 4, 2, 0)], true),
            (Semaphore, 2, 5, vec![held("a", 5, 0, 0)], false),
            (Semaphore, 2, 5, vec![held("a", 5, 1, 1)], false),
            (Semaphore, 2, 5, vec![with_slot(0, held("a", 5, 1, 0)), with_slot(8, held("b", 4, 1, 0))], true),
            (Semaphore, 2, 5, vec![with_slot(1, held("a", 5, 1, 0)), with_slot(1, held("b", 4, 1, 0))], false),
            (Semaphore, 2, 5, vec![with_slot(0, held("a", 5, 2, 0))], false),
            (Mutex, 1, 5, vec![with_slot(0, held("a", 5, 1, 0))], false),
            (ReadWrite, 0, 5, vec![with_slot(0, held("a", 5, 1, 0))], false),
        ];
        for (lock_type, limit, fence, holders, is_lock) in rows {
            let row = format!("{lock_type:?} {holders:?}");
            let kind = LockTypeAndLimit::new(lock_type, limit).unwrap();
            let lock = Lock::from_parts(kind, Fence::new(fence).unwrap(), holders.clone());
            assert_eq!(lock.is_some(), is_lock, "{row}");
            let Some(lock) = lock else { continue };
            assert_eq!((lock.lock_type_and_limit(), lock.fence().map(Fence::get)), (Some(kind), Some(fence)), "{row}");
            assert_eq!(lock.stored_holds().len(), holders.len(), "{row}");
        }
    }

    #[test]
    fn every_lock_type_has_its_limits() {
        let rows = [(LockType::Mutex, 1), (LockType::Reentrant, 1), (LockType::ReadWrite, 0), (LockType::Semaphore, 7)];
        for (lock_type, limit) in rows {
            let kind = LockTypeAndLimit { lock_type, limit };
            assert_eq!(LockTypeAndLimit::new(lock_type, limit), Some(kind));
            assert_eq!(LockTypeAndLimit::of(lock_type, Some(7)), Some(kind));
            let other = if limit == 0 { 1 } else { 0 };
            assert_eq!(LockTypeAndLimit::new(lock_type, other), None, "{lock_type:?}");
        }
    }

    #[test]
    fn a_semaphore_has_a_limit() {
        assert_eq!(LockTypeAndLimit::of(LockType::Semaphore, None), None);
    }

    /// Applies one effect after another, and checks the holders after each.
    #[test]
    fn an_effect_sets_the_hold_of_one_owner() {
        let kind = |lock_type, limit| LockTypeAndLimit::new(lock_type, limit).unwrap();
        let (mutex, rw) = (kind(LockType::Mutex, 1), kind(LockType::ReadWrite, 0));
        let rows = [
            (mutex, held("a", 1, 1, 0), true, "a 1+0"),
            (mutex, held("b", 2, 2, 0), false, "a 1+0"),
            (mutex, held("b", 2, 1, 0), true, "b 1+0"),
            (rw, held("c", 3, 0, 1), true, "c 0+1"),
            (rw, held("d", 4, 0, 1), true, "c 0+1 d 0+1"),
            (rw, held("c", 3, 0, 2), true, "c 0+2 d 0+1"),
            (rw, held("e", 5, 1, 0), true, "e 1+0"),
            (rw, held("e", 5, 1, 1), true, "e 1+1"),
            (rw, held("f", 6, 0, 1), true, "f 0+1"),
            (kind(LockType::Semaphore, 2), held("g", 7, 2, 0), true, "g 2+0"),
            (kind(LockType::Semaphore, 3), held("h", 8, 1, 0), true, "g 2+0 h 1+0"),
            (kind(LockType::Semaphore, 3), with_slot(4, held("i", 8, 1, 0)), true, "g 2+0 h 1+0 i 1+0 #4"),
            (kind(LockType::Semaphore, 3), with_slot(4, held("h", 8, 1, 0)), true, "g 2+0 h 1+0 #4"),
            (kind(LockType::Semaphore, 3), with_slot(5, held("h", 8, 1, 0)), true, "g 2+0 h 1+0 #5"),
            (kind(LockType::Semaphore, 3), held("h", 8, 1, 0), true, "g 2+0 h 1+0"),
            (kind(LockType::Semaphore, 3), with_slot(5, held("h", 8, 2, 0)), false, "g 2+0 h 1+0"),
        ];
        let mut lock = Lock::Vacant;
        for (kind, holder, is_applied, holders) in rows {
            let row = format!("{holder:?}");
            assert_eq!(lock.apply_hold(kind, holder), is_applied, "{row}");
            let holds = lock.holds(Deadline::Never);
            let slot = |hold: &Hold<'_>| hold.slot.map_or(String::new(), |slot| format!(" #{}", slot.number()));
            let shown = holds.iter().map(|it| format!("{:?} {}+{}{}", it.owner, it.holds, it.reads, slot(it)));
            let shown: Vec<_> = shown.collect();
            assert_eq!(shown.join(" "), holders, "{row}");
            assert!(!is_applied || lock.lock_type_and_limit() == Some(kind), "{row}");
        }
        lock.raise_fence(Fence::new(3).unwrap());
        assert_eq!(lock.fence().map(Fence::get), Some(8));
        lock.raise_fence(Fence::new(30).unwrap());
        assert_eq!(lock.fence().map(Fence::get), Some(30));
    }

    #[test]
    fn the_stored_deadlines_are_those_of_the_holders() {
        let until = Deadline::At(Timestamp::from_ms(50));
        let kind = LockTypeAndLimit::new(LockType::ReadWrite, 0).unwrap();
        let reader = Holder { until, ..held("a", 1, 0, 1) };
        let lock = Lock::from_parts(kind, Fence::new(1).unwrap(), vec![reader]).unwrap();
        assert_eq!(lock.holds(Deadline::Never)[0].until, Deadline::Never, "the only holder ends with the key");
        assert_eq!(lock.stored_holds()[0].until, until);
    }

    fn ms(ms: u64) -> Deadline {
        Deadline::At(Timestamp::from_ms(ms))
    }

    fn hold<'a>(kind: LockTypeAndLimit, name: &str, fence: u64, until: u64) -> ReplicatedEffect<'a> {
        let (holds, reads) = if kind.lock_type == LockType::ReadWrite { (0, 1) } else { (1, 0) };
        ReplicatedEffect::Hold(
            kind,
            Holder {
                owner: Owner::new(name.as_bytes()).unwrap(),
                fence: Fence::new(fence).unwrap(),
                lease: Lease::Persist,
                until: ms(until),
                holds,
                reads,
                slot: None,
                origin: Origin::Native,
            },
        )
    }

    fn kind(lock_type: LockType, limit: u32) -> LockTypeAndLimit {
        LockTypeAndLimit::new(lock_type, limit).unwrap()
    }

    #[test]
    fn each_effect_returns_the_deadline_of_the_key_and_only_changes_of_holds_are_seen_by_watchers() {
        let (mutex, semaphore) = (kind(LockType::Mutex, 1), kind(LockType::Semaphore, 3));
        let drop = |name: &'static str| ReplicatedEffect::Drop(OwnerRef::new(name.as_bytes()).unwrap());
        let rows = [
            (hold(mutex, "a", 1, 40), true, KeyAfter::Until(ms(40)), "a 1 40"),
            (hold(mutex, "a", 1, 50), false, KeyAfter::Until(ms(50)), "a 1 50"),
            (drop("b"), false, KeyAfter::Same, "a 1 50"),
            (hold(mutex, "b", 2, 40), true, KeyAfter::Until(ms(40)), "b 2 40"),
            (drop("b"), true, KeyAfter::Removed, ""),
            (hold(semaphore, "a", 3, 90), true, KeyAfter::Until(ms(90)), "a 3 90"),
            (hold(semaphore, "b", 4, 60), true, KeyAfter::Until(ms(90)), "a 3 90, b 4 60"),
            (ReplicatedEffect::Clamp, false, KeyAfter::Same, "a 3 70, b 4 60"),
            (hold(semaphore, "c", 5, 50), true, KeyAfter::Until(ms(70)), "a 3 70, b 4 60, c 5 50"),
            (hold(semaphore, "d", 6, 40), true, KeyAfter::Until(ms(70)), "a 3 70, b 4 60, c 5 50, d 6 40"),
            (
                ReplicatedEffect::Ended(Timestamp::from_ms(40)),
                false,
                KeyAfter::Until(ms(70)),
                "a 3 70, b 4 60, c 5 50, d 6 40",
            ),
            (ReplicatedEffect::Ended(Timestamp::from_ms(51)), true, KeyAfter::Until(ms(70)), "a 3 70, b 4 60"),
            (ReplicatedEffect::Fence(Fence::new(9).unwrap()), false, KeyAfter::Same, "a 3 70, b 4 60"),
            (ReplicatedEffect::Limit(7), false, KeyAfter::Same, "a 3 70, b 4 60"),
            (drop("a"), true, KeyAfter::Until(ms(60)), "b 4 60"),
        ];
        let (mut lock, mut key_until) = (Lock::Vacant, Deadline::Never);
        for (effect, is_seen_by_watchers, after, holders) in rows {
            let row = format!("{effect:?}");
            if matches!(effect, ReplicatedEffect::Clamp) {
                // As EXPIRE has set it.
                key_until = ms(70);
            }
            assert_eq!(lock.is_changed_by(&effect), is_seen_by_watchers, "{row}");
            assert_eq!(lock.apply(effect, key_until), after, "{row}");
            if let KeyAfter::Until(until) = after {
                key_until = until;
            }
            let holds = lock.holds(key_until).into_iter();
            let shown = holds.map(|hold| {
                let name = String::from_utf8_lossy(hold.owner.as_bytes()).into_owned();
                format!("{name} {} {}", hold.fence.get(), hold.until.timestamp().map_or(0, Timestamp::ms))
            });
            assert_eq!(shown.collect::<Vec<_>>().join(", "), holders, "{row}");
        }
        assert_eq!((lock.fence().map(Fence::get), lock.semaphore_limit()), (Some(9), Some(7)));
    }
}
