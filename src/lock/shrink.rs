//! Gives the memory of tables back that were large once. std's tables only grow by themselves.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// Smaller tables are left alone.
const SMALL: usize = 256;

/// Shrinks a table that is less than an eighth full to a quarter: the removals before it have paid for the work.
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
