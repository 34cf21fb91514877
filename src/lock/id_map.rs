//! A map from the ids that the server and this module assign.

use std::array;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

/// An unordered map from ids to values. Clients cannot choose ids, so they cannot cause hash collisions.
///
/// With trees instead of hash tables, a hand-off among 48 clients takes 1,400 instructions more, of 35,300 (callgrind,
/// Redis 7.0.15). A hash table moves all of its values when it grows, which takes 2 to 5 ms for 7,168 requests. That is
/// why the values are spread over several tables, which grow one by one.
#[derive(Clone, Debug)]
pub struct IdMap<I, V> {
    parts: [HashMap<I, V, FxBuildHasher>; PARTS],
    len: usize,
}

const PARTS: usize = 16;

/// An empty part keeps capacity for this many values.
const KEPT_CAPACITY: usize = 28;

impl<I, V> Default for IdMap<I, V> {
    fn default() -> IdMap<I, V> {
        IdMap { parts: array::from_fn(|_| HashMap::default()), len: 0 }
    }
}

impl<I: Copy + Eq + Hash, V> IdMap<I, V> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of an id.
    pub fn get(&self, id: &I) -> Option<&V> {
        self.parts[part_of(id)].get(id)
    }

    /// The value of an id, mutable.
    pub fn get_mut(&mut self, id: &I) -> Option<&mut V> {
        self.parts[part_of(id)].get_mut(id)
    }

    /// Whether an id has a value.
    pub fn contains_key(&self, id: &I) -> bool {
        self.get(id).is_some()
    }

    /// Sets the value of an id. Returns the previous one.
    pub fn insert(&mut self, id: I, value: V) -> Option<V> {
        let before = self.parts[part_of(&id)].insert(id, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a value. A part that becomes empty frees the memory of many values.
    pub fn remove(&mut self, id: &I) -> Option<V> {
        let part = &mut self.parts[part_of(id)];
        let value = part.remove(id)?;
        self.len -= 1;
        if part.is_empty() && part.capacity() > KEPT_CAPACITY {
            part.shrink_to(KEPT_CAPACITY);
        }
        Some(value)
    }

    /// All ids and values.
    pub fn iter(&self) -> impl Iterator<Item = (&I, &V)> + '_ {
        self.parts.iter().flatten()
    }
}

/// Selects the part by hash bits that a table of up to a million values does not use.
fn part_of(id: &impl Hash) -> usize {
    (FxBuildHasher.hash_one(id) >> 20) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_the_value_that_was_set_last() {
        let mut map = IdMap::default();
        assert!(map.is_empty() && map.get(&1).is_none());
        for id in 0..1_000 {
            assert_eq!((map.insert(id, id), map.insert(id, id + 1)), (None, Some(id)));
        }
        *map.get_mut(&7).unwrap() = 0;
        assert_eq!((map.len(), map.get(&7), map.get(&8), map.contains_key(&1_000)), (1_000, Some(&0), Some(&9), false));
        let mut ids: Vec<_> = map.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..1_000).collect::<Vec<_>>());
        assert_eq!((map.remove(&7), map.remove(&7), map.len()), (Some(0), None, 999));
        (0..1_000).for_each(|id| _ = map.remove(&id));
        assert!(map.is_empty() && map.iter().next().is_none());
    }

    #[test]
    fn numbers_and_addresses_are_spread_over_the_parts() {
        for distance in [1, 16, 64, 4096] {
            let mut map = IdMap::default();
            (0..1_600_u64).for_each(|number| _ = map.insert(number * distance, ()));
            assert!(map.parts.iter().all(|part| (40..200).contains(&part.len())), "{distance}");
        }
    }

    #[test]
    fn an_empty_part_frees_the_memory_of_many_values() {
        let mut map = IdMap::default();
        (0..100_000_u64).for_each(|id| _ = map.insert(id, ()));
        (0..100_000).for_each(|id| _ = map.remove(&id));
        assert!(map.parts.iter().all(|part| (1..=KEPT_CAPACITY).contains(&part.capacity())));
    }
}
