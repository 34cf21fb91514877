//! Gives the memory of tables back that were large once. std's tables only grow by themselves.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// Smaller tables are left alone.
const SMALL: usize = 256;

/// A table of which an eighth is used is made a quarter as large: the work is paid for by the removals before it.
fn wanted(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SMALL && len < capacity / 8).then_some(len * 2)
}

/// To be called after a removal.
pub fn map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(capacity) = wanted(map.len(), map.capacity()) {
        map.shrink_to(capacity);
    }
}

/// To be called after a removal.
pub fn set<T: Eq + Hash, S: BuildHasher>(set: &mut HashSet<T, S>) {
    if let Some(capacity) = wanted(set.len(), set.capacity()) {
        set.shrink_to(capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
