//! A set of a cluster's slots.

use std::fmt;

/// So many slots has a cluster.
const COUNT: usize = 16_384;

/// A set of slots.
#[derive(Clone)]
pub struct Slots(Box<[u64; COUNT / 64]>);

impl Slots {
    /// The empty set.
    pub fn none() -> Slots {
        Slots(Box::new([0; COUNT / 64]))
    }

    /// Adds a slot; a number that no slot has is left out.
    pub fn add(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Whether the slot is among them.
    pub fn contains(&self, slot: i64) -> bool {
        let word = usize::try_from(slot.div_euclid(64)).ok().and_then(|index| self.0.get(index));
        word.is_some_and(|word| word & 1 << slot.rem_euclid(64) != 0)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots", self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_slots_that_were_added_and_no_others() {
        let added = [0, 63, 64, 7_629, 16_383];
        let mut slots = Slots::none();
        added.into_iter().chain([16_384, u16::MAX]).for_each(|slot| slots.add(slot));
        let contained: Vec<i64> = (-100..100_000).filter(|slot| slots.contains(*slot)).collect();
        assert_eq!(contained, added.map(i64::from));
        assert_eq!(format!("{slots:?}"), "5 slots");
    }
}
