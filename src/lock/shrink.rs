//! Gives memory back after a peak: std's tables and vectors never shrink by themselves.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// Tables up to this capacity are left alone.
const SMALL: usize = 256;

/// The new capacity for a table that is less than an eighth full: twice its length, at most a quarter of what it has.
/// The removals before it have paid for the work.
fn wanted(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SMALL && len < capacity / 8).then_some(len * 2)
}

/// To be called after a removal.
pub fn map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(capacity) = wanted(map.len(), map.capacity()) {
        map.shrink_to(capacity);
    }
}

/// As `map`, for a shard of a table; a capacity up to `small` is left alone.
pub fn shard<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>, small: usize) {
    if map.capacity() > small && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

/// To be called after a removal.
pub fn set<T: Eq + Hash, S: BuildHasher>(set: &mut HashSet<T, S>) {
    if let Some(capacity) = wanted(set.len(), set.capacity()) {
        set.shrink_to(capacity);
    }
}

/// To be called after a removal.
pub fn vec<T>(vec: &mut Vec<T>) {
    if let Some(capacity) = wanted(vec.len(), vec.capacity()) {
        vec.shrink_to(capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_less_than_an_eighth_full_shrinks_to_twice_its_length() {
        let rows = [
            (124, 1000, Some(248)),
            (125, 1000, None),
            (1000, 1000, None),
            (0, SMALL, None),
            (0, SMALL + 1, Some(0)),
            (SMALL, SMALL, None),
        ];
        for (len, capacity, expected) in rows {
            assert_eq!(wanted(len, capacity), expected, "{len} of {capacity}");
        }
    }

    #[test]
    fn an_empty_set_is_small_again() {
        let mut table: HashSet<u32> = (0..10_000).collect();
        for n in 0..10_000 {
            table.remove(&n);
            set(&mut table);
        }
        assert!(table.capacity() <= 2 * SMALL, "{}", table.capacity());
    }

    #[test]
    fn an_empty_table_is_small_again() {
        let mut table: HashMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        for n in 0..10_000 {
            table.remove(&n);
            map(&mut table);
        }
        assert!(table.capacity() <= 2 * SMALL, "{}", table.capacity());
    }
}
