//! Work that is left for a later turn: taken out one item at a time, because a turn may end after each.
//!
//! An item that is put back, because the server refuses writes, comes after all others: nothing starves.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
