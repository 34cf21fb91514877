//! The holders of a shared lock, found by owner and by deadline without a linear search, however many they are.
//!
//! Up to `LINEAR_SEARCH_MAX` holders are searched linearly, which is faster than any index. With more, an index is
//! kept.
//!
//! A holder may have a slot, which is a number that no other holder has. A lock without slots has no table of slots.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::claim::{Origin, MAX_PERMITS};
use super::fence::Fence;
use super::owner::Owner;
use super::time::{Deadline, Lease, Timestamp};

/// One owner's hold of a lock.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The owner.
    pub owner: Owner,
    /// The fencing token of the latest grant to this owner that was not just a reentry.
    pub fence: Fence,
    /// The length of the lease, as last requested.
    pub lease: Lease,
    /// When the lease expires.
    pub until: Deadline,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
    /// The number of its one permit, if it has a slot.
    pub slot: Option<Slot>,
    /// Which commands granted it.
    pub origin: Origin,
}

/// A holder as stored: without its origin, which is always native, and without its slot, which would cost each holder
/// of each lock 8 bytes.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub owner: Owner,
    pub fence: Fence,
    pub lease: Lease,
    pub until: Deadline,
    pub holds: u32,
    pub reads: u32,
}

/// Up to this many holders, a linear search is cheaper than an index.
const LINEAR_SEARCH_MAX: usize = 16;

/// A vector of holders with at most this capacity never shrinks.
const SMALL: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    all: Vec<Record>,
    /// Present with more than `LINEAR_SEARCH_MAX` holders, or if any holder has a slot.
    index: Option<Box<Index>>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    by_owner: BTreeMap<Owner, usize>,
    by_until: BTreeSet<(Deadline, usize)>,
    slots: Option<Slots>,
}

impl Holders {
    /// All holders, in no particular order.
    pub(super) fn as_slice(&self) -> &[Record] {
        &self.all
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The position of this owner's hold. Valid until the next change.
    pub(super) fn position(&self, owner: &[u8]) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_owner.get(owner).copied(),
            None => self.all.iter().position(|h| h.owner.as_bytes() == owner),
        }
    }

    pub(super) fn get(&self, owner: &[u8]) -> Option<&Record> {
        self.position(owner).and_then(|index| self.all.get(index))
    }

    /// The slot of the holder at `position`.
    pub(super) fn slot(&self, position: usize) -> Option<Slot> {
        self.slots().and_then(|slots| slots.at(position))
    }

    /// The position of the holder of this slot.
    pub(super) fn position_of_slot(&self, slot: Slot) -> Option<usize> {
        self.slots().and_then(|slots| slots.position(slot))
    }

    /// The smallest free slot.
    pub(super) fn free_slot(&self) -> Option<Slot> {
        self.slots().map_or(Some(Slot::FIRST), Slots::smallest_free)
    }

    fn slots(&self) -> Option<&Slots> {
        self.index.as_ref().and_then(|index| index.slots.as_ref())
    }

    /// Adds a holder. Its owner must not be present yet, and its slot must be free.
    pub(super) fn push(&mut self, holder: Holder) {
        debug_assert!(self.position(holder.owner.as_bytes()).is_none(), "an owner holds a lock once");
        let Holder { owner, fence, lease, until, holds, reads, slot, origin: _ } = holder;
        if self.index.is_none() && slot.is_some() {
            self.index = Some(Box::new(self.make_index()));
        }
        if let Some(index) = &mut self.index {
            let position = self.all.len();
            index.by_owner.insert(owner.clone(), position);
            index.by_until.insert((until, position));
            if let Some(slot) = slot {
                index.slots.get_or_insert_with(Slots::default).give(position, slot);
            }
        }
        self.all.push(Record { owner, fence, lease, until, holds, reads });
        if self.index.is_none() && self.all.len() > LINEAR_SEARCH_MAX {
            self.index = Some(Box::new(self.make_index()));
        }
    }

    /// Changes the holder at `position`, except its owner and slot.
    pub(super) fn change(&mut self, position: usize, change: impl FnOnce(&mut Record)) {
        let holder = &mut self.all[position];
        let before = holder.until;
        change(holder);
        if let Some(index) = &mut self.index {
            index.by_until.remove(&(before, position));
            index.by_until.insert((holder.until, position));
        }
    }

    /// Removes the holder at `position`. The last holder moves there.
    pub(super) fn remove(&mut self, position: usize) -> Holder {
        let last = self.all.len() - 1;
        let Record { owner, fence, lease, until, holds, reads } = self.all.swap_remove(position);
        self.shrink();
        let slots = self.index.as_mut().map(|index| &mut index.slots);
        let slot = slots.and_then(|slots| {
            let slot = slots.as_mut()?.remove(position, last);
            slots.take_if(|slots| slots.is_unused());
            slot
        });
        if self.all.len() <= LINEAR_SEARCH_MAX / 2 && self.slots().is_none() {
            self.index = None;
        }
        if let Some(index) = &mut self.index {
            let indexed = index.by_owner.remove(owner.as_bytes());
            debug_assert_eq!(indexed, Some(position), "each holder is indexed by its owner");
            let was_indexed = index.by_until.remove(&(until, position));
            debug_assert!(was_indexed, "each holder is indexed by its deadline");
            if let Some(moved) = self.all.get(position) {
                index.by_until.remove(&(moved.until, last));
                index.by_until.insert((moved.until, position));
                index.by_owner.insert(moved.owner.clone(), position);
            }
        }
        Holder { owner, fence, lease, until, holds, reads, slot, origin: Origin::Native }
    }

    /// Removes the holders whose leases have expired, and returns them in the order of their expiry.
    pub(super) fn remove_expired(&mut self, now: Timestamp) -> Vec<Holder> {
        let by_until = self.index.iter().flat_map(|index| &index.by_until);
        let ended = by_until.take_while(|(until, _)| until.has_passed(now)).count();
        let mut expired = Vec::new();
        if ended == 0 || ended < self.len() - ended {
            while let Some(first) = self.first_to_expire().filter(|first| self.all[*first].until.has_passed(now)) {
                expired.push(self.remove(first));
            }
            return expired;
        }
        // Removing a holder from the index takes 2,400 instructions. For 10,000 holders that expire together that is 8
        // ms, so the index is rebuilt for those that remain (callgrind, Redis 7.0.15).
        let Holders { all, index } = std::mem::take(self);
        let slots = index.as_ref().and_then(|index| index.slots.as_ref());
        for (position, Record { owner, fence, lease, until, holds, reads }) in all.into_iter().enumerate() {
            let slot = slots.and_then(|slots| slots.at(position));
            let holder = Holder { owner, fence, lease, until, holds, reads, slot, origin: Origin::Native };
            if until.has_passed(now) {
                expired.push(holder);
            } else {
                self.push(holder);
            }
        }
        expired.sort_by_key(|holder| holder.until);
        expired
    }

    /// Called after a removal, because std's vectors never shrink by themselves. The earlier removals have paid for the
    /// work.
    fn shrink(&mut self) {
        if self.all.capacity() > SMALL && self.all.len() < self.all.capacity() / 8 {
            self.all.shrink_to(self.all.len() * 2);
        }
    }

    /// The position of a holder with the earliest deadline.
    pub(super) fn first_to_expire(&self) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_until.first().map(|(_, position)| *position),
            None => (0..self.all.len()).min_by_key(|position| self.all[*position].until),
        }
    }

    /// The position of a holder with the latest deadline.
    pub(super) fn last_to_expire(&self) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_until.last().map(|(_, position)| *position),
            None => (0..self.all.len()).max_by_key(|position| self.all[*position].until),
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let owners: usize = match &self.index {
            // An estimate from the first holders: iterating over thousands would make MEMORY USAGE slow.
            Some(_) => {
                let first: usize = self.all.iter().take(LINEAR_SEARCH_MAX).map(|h| h.owner.heap_bytes()).sum();
                first * self.len() / self.len().clamp(1, LINEAR_SEARCH_MAX)
            }
            None => self.all.iter().map(|h| h.owner.heap_bytes()).sum(),
        };
        let index_entry = size_of::<(Owner, usize)>() + size_of::<(Deadline, usize)>() + 16;
        let index = if self.index.is_some() { self.len() * index_entry } else { 0 };
        let slots = self.slots().map_or(0, Slots::heap_bytes);
        self.all.capacity() * size_of::<Record>() + owners + index + slots
    }

    fn make_index(&self) -> Index {
        let positions = || self.all.iter().enumerate();
        Index {
            by_owner: positions().map(|(position, h)| (h.owner.clone(), position)).collect(),
            by_until: positions().map(|(position, h)| (h.until, position)).collect(),
            slots: None,
        }
    }
}

/// The number of a slot: 0 to 999,999, as no LIMIT is above 1,000,000. Stored plus one, so that `Option<Slot>` takes no
/// more space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// The slot of the first holder.
    pub const FIRST: Slot = Slot(NonZeroU32::MIN);

    /// `None` if the number is above the largest possible slot.
    pub fn new(number: u32) -> Option<Slot> {
        NonZeroU32::new(number.saturating_add(1)).filter(|_| number < MAX_PERMITS).map(Slot)
    }

    /// The number, starting at 0.
    pub fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// The slots of a lock's holders.
#[derive(Clone, Debug)]
struct Slots {
    /// The ranges of free numbers, each from its first number to its end (exclusive). There is at most one range more
    /// than there are holders.
    free: BTreeMap<u32, u32>,
    /// By the position of the holder. Holders without a slot, of which there may be many, have no entry.
    by_position: BTreeMap<usize, Slot>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { free: BTreeMap::from([(0, MAX_PERMITS)]), by_position: BTreeMap::new() }
    }
}

impl Slots {
    /// Whether no holder has a slot.
    fn is_unused(&self) -> bool {
        self.free.get(&0) == Some(&MAX_PERMITS)
    }

    /// The smallest free number.
    fn smallest_free(&self) -> Option<Slot> {
        self.free.first_key_value().and_then(|(first, _)| Slot::new(*first))
    }

    /// The slot of the holder at `position`.
    fn at(&self, position: usize) -> Option<Slot> {
        self.by_position.get(&position).copied()
    }

    /// The position of the holder of this slot. A linear search if the slot is taken, which happens only with invalid
    /// files and dumps.
    fn position(&self, slot: Slot) -> Option<usize> {
        self.free_run(slot.number())
            .is_none()
            .then(|| self.by_position.iter().find(|(_, other)| **other == slot).map(|(position, _)| *position))?
    }

    /// Assigns this slot, which must be free, to the holder at `position`.
    fn give(&mut self, position: usize, slot: Slot) {
        let number = slot.number();
        let (first, end) = self.free_run(number).expect("the slot is free");
        self.free.remove(&first);
        self.free.extend((first < number).then_some((first, number)));
        self.free.extend((number + 1 < end).then_some((number + 1, end)));
        self.by_position.insert(position, slot);
    }

    /// Removes the holder at `position`. The holder at `last` moves there. Returns the slot that became free.
    fn remove(&mut self, position: usize, last: usize) -> Option<Slot> {
        let freed = self.by_position.remove(&position);
        if let Some(moved) = self.by_position.remove(&last) {
            self.by_position.insert(position, moved);
        }
        let number = freed?.number();
        let end = self.free.remove(&(number + 1)).unwrap_or(number + 1);
        let before = self.free.range(..number).next_back().filter(|(_, end)| **end == number);
        let first = before.map_or(number, |(first, _)| *first);
        self.free.insert(first, end);
        freed
    }

    /// Bytes on the heap, approximately.
    fn heap_bytes(&self) -> usize {
        self.by_position.len() * size_of::<(usize, Slot)>() + self.free.len() * size_of::<(u32, u32)>()
    }

    fn free_run(&self, number: u32) -> Option<(u32, u32)> {
        let (first, end) = self.free.range(..=number).next_back()?;
        (number < *end).then_some((*first, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holder(name: u8, until: u64) -> Holder {
        Holder {
            owner: Owner::new(&[name]).unwrap(),
            fence: Fence::new(1).unwrap(),
            lease: Lease::Persist,
            until: Deadline::At(Timestamp::from_ms(until)),
            holds: 1,
            reads: 0,
            slot: None,
            origin: Origin::Native,
        }
    }

    proptest! {
        /// For each holder: the deadline, and whether it has a slot.
        #[test]
        fn ended_holders_are_removed_whether_few_or_most_have_ended(
            untils in prop::collection::vec((1u64..100, any::<bool>()), 1..60),
            now in 0u64..110,
        ) {
            let now = Timestamp::from_ms(now);
            let mut holders = Holders::default();
            for (name, (until, has_slot)) in untils.iter().enumerate() {
                let slot = has_slot.then(|| holders.free_slot()).flatten();
                holders.push(Holder { slot, ..holder(name as u8, *until) });
            }
            let slot_of = |holders: &Holders, name: &[u8]| holders.slot(holders.position(name).unwrap());
            let slots: Vec<_> = (0..untils.len()).map(|name| slot_of(&holders, &[name as u8])).collect();
            let expired = holders.remove_expired(now);
            prop_assert!(expired.is_sorted_by_key(|holder| holder.until));
            prop_assert_eq!(expired.len() + holders.len(), untils.len());
            for (name, (until, _)) in untils.iter().enumerate() {
                let bytes = &[name as u8][..];
                let is_over = Deadline::At(Timestamp::from_ms(*until)).has_passed(now);
                let found = expired.iter().find(|holder| holder.owner.as_bytes() == bytes);
                prop_assert_eq!(found.map(|holder| holder.slot), is_over.then_some(slots[name]));
                prop_assert_eq!(holders.position(bytes).is_none(), is_over);
                if !is_over {
                    prop_assert_eq!(slot_of(&holders, bytes), slots[name]);
                }
            }
            let taken: Vec<_> = (0..holders.len()).filter_map(|position| holders.slot(position)).collect();
            let free = (0..).filter_map(Slot::new).find(|slot| !taken.contains(slot));
            prop_assert_eq!(holders.free_slot(), free);
            let first = holders.first_to_expire().map(|position| holders.as_slice()[position].until);
            prop_assert_eq!(first, holders.as_slice().iter().map(|holder| holder.until).min());
        }

        #[test]
        fn the_index_agrees_with_a_scan(steps in prop::collection::vec((0u8..60, 1u64..1000, 0u8..3), 1..400)) {
            let mut holders = Holders::default();
            for (name, until, what) in steps {
                match (holders.position(&[name]), what) {
                    (None, _) => holders.push(holder(name, until)),
                    (Some(position), 0) => {
                        holders.change(position, |h| h.until = Deadline::At(Timestamp::from_ms(until)))
                    }
                    (Some(position), _) => drop(holders.remove(position)),
                }
                let all = holders.as_slice();
                for (position, h) in all.iter().enumerate() {
                    prop_assert_eq!(holders.position(h.owner.as_bytes()), Some(position));
                }
                let untils = || all.iter().map(|h| h.until);
                prop_assert_eq!(holders.first_to_expire().map(|position| all[position].until), untils().min());
                prop_assert_eq!(holders.last_to_expire().map(|position| all[position].until), untils().max());
            }
        }
    }

    /// The value that MEMORY USAGE reports.
    #[test]
    fn memory_grows_with_holders_long_names_and_the_index() {
        let mut holders = Holders::default();
        assert_eq!((holders.heap_bytes(), holders.len(), holders.is_empty()), (0, 0, true));
        holders.push(holder(0, 1));
        assert_eq!(holders.heap_bytes(), holders.all.capacity() * size_of::<Record>());
        for name in 1..=16 {
            let owner = Owner::new(&[name; 100]).unwrap();
            holders.push(Holder { owner, ..holder(name, 1) });
            let names = 100 * usize::from(name);
            if name < 16 {
                assert_eq!(holders.heap_bytes(), holders.all.capacity() * size_of::<Record>() + names);
            }
        }
        let entry = size_of::<(Owner, usize)>() + size_of::<(Deadline, usize)>() + 16;
        // 15 of the first 16 names are long.
        let estimate = holders.all.capacity() * size_of::<Record>() + 1500 * 17 / 16 + 17 * entry;
        assert_eq!((holders.heap_bytes(), holders.len()), (estimate, 17));
    }

    #[test]
    fn memory_is_freed_when_holders_are_removed() {
        let mut holders = Holders::default();
        let owner = |n: u16| Owner::new(&n.to_be_bytes()).unwrap();
        (0..10_000).for_each(|n| holders.push(Holder { owner: owner(n), ..holder(0, 1) }));
        while holders.len() > 100 {
            holders.remove(holders.len() - 1);
        }
        assert!(holders.all.capacity() <= 800, "{}", holders.all.capacity());
        while !holders.is_empty() {
            holders.remove(0);
        }
        assert!((1..=2 * SMALL).contains(&holders.all.capacity()), "{}", holders.all.capacity());
    }

    #[test]
    fn a_table_of_slots_exists_only_while_a_holder_has_a_slot() {
        assert_eq!(size_of::<Record>(), 72, "a holder without a slot pays nothing for one");
        let mut holders = Holders::default();
        holders.push(holder(0, 1));
        holders.push(Holder { slot: holders.free_slot(), ..holder(1, 1) });
        assert_eq!((holders.slot(0), holders.slot(1)), (None, Some(Slot::FIRST)));
        assert_eq!(holders.remove(0).slot, None);
        assert_eq!((holders.slot(0), holders.position_of_slot(Slot::FIRST)), (Some(Slot::FIRST), Some(0)));
        holders.push(holder(2, 1));
        assert_eq!(holders.remove(0).slot, Some(Slot::FIRST));
        assert!(holders.index.is_none());
        assert_eq!(holders.free_slot(), Some(Slot::FIRST));
        (3..30).for_each(|name| holders.push(holder(name, 1)));
        assert!(holders.index.as_ref().is_some_and(|index| index.slots.is_none()));
        let many = (0..1_000u16).map(|n| Holder { owner: Owner::new(&n.to_be_bytes()).unwrap(), ..holder(0, 1) });
        many.for_each(|holder| holders.push(holder));
        holders.push(Holder { slot: holders.free_slot(), ..holder(30, 1) });
        let bytes = holders.slots().map(Slots::heap_bytes);
        assert!(bytes.is_some_and(|bytes| bytes < 100), "one slot among many holders costs no table of all: {bytes:?}");
    }

    #[test]
    fn the_owners_of_few_holders_with_slots_are_all_counted() {
        let mut holders = Holders::default();
        for name in 1..=4 {
            let owner = Owner::new(&[name; 1_000]).unwrap();
            holders.push(Holder { owner, slot: holders.free_slot(), ..holder(name, 1) });
        }
        assert!(holders.heap_bytes() > 4_000);
    }

    #[test]
    fn an_index_is_kept_for_many_only() {
        let mut holders = Holders::default();
        (0..16).for_each(|name| holders.push(holder(name, 1)));
        assert!(holders.index.is_none());
        holders.push(holder(16, 1));
        assert!(holders.index.is_some());
        while holders.len() > 9 {
            holders.remove(0);
        }
        assert!(holders.index.is_some(), "the index is kept until half of WALK holders are left");
        holders.remove(0);
        assert!(holders.index.is_none());
    }

    #[test]
    fn a_slot_is_below_the_largest_limit() {
        assert_eq!(Slot::new(0), Some(Slot::FIRST));
        assert_eq!(Slot::new(999_999).map(Slot::number), Some(999_999));
        assert_eq!((Slot::new(1_000_000), Slot::new(u32::MAX)), (None, None));
        assert_eq!(size_of::<Option<Slot>>(), size_of::<u32>());
    }

    proptest! {
        /// Holders are added with a slot (the smallest free one, or any free one) or without, and removed.
        #[test]
        fn the_free_runs_agree_with_a_scan(steps in prop::collection::vec((0u8..4, 0usize..40, 0u32..40), 1..200)) {
            let mut slots = Slots::default();
            let mut holders: Vec<Option<u32>> = Vec::new();
            for (what, position, number) in steps {
                let is_free = |number: u32, holders: &[Option<u32>]| !holders.contains(&Some(number));
                let smallest = (0..).find(|number| is_free(*number, &holders)).unwrap();
                prop_assert_eq!(slots.smallest_free().map(Slot::number), Some(smallest));
                let number = if what == 0 { smallest } else { number };
                match what {
                    0 | 1 if is_free(number, &holders) => {
                        slots.give(holders.len(), Slot::new(number).unwrap());
                        holders.push(Some(number));
                    }
                    2 => holders.push(None),
                    _ if position < holders.len() => {
                        let last = holders.len() - 1;
                        prop_assert_eq!(slots.remove(position, last).map(Slot::number), holders[position]);
                        holders.swap_remove(position);
                    }
                    _ => {}
                }
                for (position, number) in holders.iter().enumerate() {
                    prop_assert_eq!(slots.at(position).map(Slot::number), *number);
                }
                for number in 0..41 {
                    let holder = holders.iter().position(|other| *other == Some(number));
                    prop_assert_eq!(slots.position(Slot::new(number).unwrap()), holder);
                }
                prop_assert_eq!(slots.is_unused(), holders.iter().all(Option::is_none));
                prop_assert!(slots.free.len() <= holders.len() + 1);
            }
        }
    }

    /// The vector is reallocated when more than seven of eight elements are free, and keeps room for as many holders
    /// again.
    #[test]
    fn memory_is_freed_in_few_steps_with_room_for_as_many_again() {
        let mut holders = Holders::default();
        (0..10_000u16)
            .for_each(|n| holders.push(Holder { owner: Owner::new(&n.to_be_bytes()).unwrap(), ..holder(0, 1) }));
        while !holders.is_empty() {
            let before = holders.all.capacity();
            holders.remove(holders.len() - 1);
            let expected = if before > SMALL && holders.len() < before / 8 { holders.len() * 2 } else { before };
            assert_eq!(holders.all.capacity(), expected, "with {} holders", holders.len());
        }
    }

    #[test]
    fn the_memory_of_slots_is_counted_by_slots_and_runs_of_free_ones() {
        let mut holders = Holders::default();
        for name in 0..9 {
            holders.push(Holder { slot: holders.free_slot(), ..holder(name, 1) });
        }
        [6, 3, 1].into_iter().for_each(|position| drop(holders.remove(position)));
        let before = holders.heap_bytes();
        let slots = holders.slots().unwrap();
        let (used, runs) = (slots.by_position.len(), slots.free.len());
        assert_eq!((used, runs > 1), (6, true));
        let bytes = used * size_of::<(usize, Slot)>() + runs * size_of::<(u32, u32)>();
        assert_eq!(slots.heap_bytes(), bytes);
        let entry = size_of::<(Owner, usize)>() + size_of::<(Deadline, usize)>() + 16;
        assert_eq!(before, holders.all.capacity() * size_of::<Record>() + used * entry + bytes);
    }
}
