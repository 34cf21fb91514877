//! The slots of a semaphore: which numbers are free, and which holder has which number.
//!
//! A semaphore without slots has no such table.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::claim::MAX_PERMITS;

/// The number of a slot: 0 to 999,999, as no LIMIT is above 1,000,000. Stored plus one, so that `Option<Slot>` takes no
/// more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// The slot of the first holder.
    pub const FIRST: Slot = Slot(NonZeroU32::MIN);

    /// `None` if the number is above the largest possible slot.
    pub fn new(number: u32) -> Option<Slot> {
        NonZeroU32::new(number.saturating_add(1)).filter(|_| number < MAX_PERMITS).map(Slot)
    }

    /// The number, from 0.
    pub fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// The slots of a lock's holders.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// The runs of free numbers: from the first of each to its end (exclusive). At most one run more than there are
    /// holders, whatever their numbers are.
    free: BTreeMap<u32, u32>,
    /// By the position of the holder: only of those that have a slot, beside which there may be many that have none.
    by_position: BTreeMap<usize, Slot>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { free: BTreeMap::from([(0, MAX_PERMITS)]), by_position: BTreeMap::new() }
    }
}

impl Slots {
    /// Whether no holder has a slot.
    pub(super) fn is_unused(&self) -> bool {
        self.free.get(&0) == Some(&MAX_PERMITS)
    }

    /// The smallest number that no holder has.
    pub(super) fn smallest_free(&self) -> Option<Slot> {
        self.free.first_key_value().and_then(|(first, _)| Slot::new(*first))
    }

    /// The slot of the holder at `position`.
    pub(super) fn at(&self, position: usize) -> Option<Slot> {
        self.by_position.get(&position).copied()
    }

    /// The position of the holder of this slot. A linear search if it is taken, which is asked only by invalid files
    /// and dumps.
    pub(super) fn position(&self, slot: Slot) -> Option<usize> {
        self.free_run(slot.number())
            .is_none()
            .then(|| self.by_position.iter().find(|(_, other)| **other == slot).map(|(position, _)| *position))?
    }

    /// Gives the holder at `position` this slot, which must be free.
    pub(super) fn give(&mut self, position: usize, slot: Slot) {
        let number = slot.number();
        let (first, end) = self.free_run(number).expect("the slot is free");
        self.free.remove(&first);
        self.free.extend((first < number).then_some((first, number)));
        self.free.extend((number + 1 < end).then_some((number + 1, end)));
        self.by_position.insert(position, slot);
    }

    /// Removes the holder at `position`; the one at `last` moves there. Returns the slot that became free.
    pub(super) fn remove(&mut self, position: usize, last: usize) -> Option<Slot> {
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
    pub(super) fn heap_bytes(&self) -> usize {
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
}
