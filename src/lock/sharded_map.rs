//! Tables that may have thousands of entries, in shards: a table that grows moves all of its entries in one step, and
//! with fifty thousand requests that would hold the server for milliseconds. A shard moves few.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use crate::id_map::IdHasher;
use crate::name_map::NameSecret;
use crate::shrink;

/// A table by number.
pub type ShardedIdMap<K, V> = ShardedMap<K, V, BuildHasherDefault<IdHasher>>;

/// A table by name.
pub type ShardedNameMap<K, V> = ShardedMap<K, V, NameSecret>;

/// A table that has one shard while its entries are few, and many when they are many.
#[derive(Clone, Debug)]
pub struct ShardedMap<K, V, S> {
    few: HashMap<K, V, S>,
    /// Empty, or [`SHARDS`] of them: then `few` is empty.
    many: Vec<HashMap<K, V, S>>,
    len: usize,
}

/// A power of two.
const SHARDS: usize = 128;

/// More entries than this are spread over the shards: what a table holds that is not to grow once more. Few in tests,
/// so that there are more.
const MOST_IN_ONE: usize = if cfg!(test) { 3 } else { 896 };

/// Fewer than this are put together again.
const FEW: usize = MOST_IN_ONE / 8 + 1;

/// A shard with room for no more than this is left alone.
const SMALL_SHARD: usize = 28;

impl<K, V, S: Default> Default for ShardedMap<K, V, S> {
    fn default() -> Self {
        ShardedMap { few: HashMap::default(), many: Vec::new(), len: 0 }
    }
}

/// What is there.
impl<K: Eq + Hash, V, S: BuildHasher + Clone> ShardedMap<K, V, S> {
    /// How many entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For how many there is memory.
    pub fn capacity(&self) -> usize {
        self.few.capacity() + self.many.iter().map(HashMap::capacity).sum::<usize>()
    }

    /// What the key has.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.shard(key).get(key)
    }

    /// The same, with the key as it is stored.
    pub fn get_key_value<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.shard(key).get_key_value(key)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.few.iter().chain(self.many.iter().flatten())
    }

    #[inline]
    fn shard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> &HashMap<K, V, S>
    where
        K: Borrow<Q>,
    {
        match self.many.is_empty() {
            true => &self.few,
            false => &self.many[self.shard_of(key)],
        }
    }

    /// By bits of the hash that the table of a shard does not look at.
    fn shard_of<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        (self.few.hasher().hash_one(key) >> 40) as usize % SHARDS
    }
}

/// What changes.
impl<K: Eq + Hash, V, S: BuildHasher + Clone> ShardedMap<K, V, S> {
    /// What the key has, to be changed.
    #[inline]
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.shard_mut(key).get_mut(key)
    }

    /// The key has this from now on; what it had.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.many.is_empty() && self.few.len() >= MOST_IN_ONE {
            self.split();
        }
        let before = self.shard_mut(&key).insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes the entry out. The memory of a rush is given back.
    #[inline]
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if self.many.is_empty() {
            let removed = self.few.remove(key)?;
            self.len -= 1;
            return Some(removed);
        }
        self.remove_from_shard(key)
    }

    #[inline(never)]
    fn remove_from_shard<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let shard = self.shard_mut(key);
        let removed = shard.remove(key)?;
        shrink::shard(shard, SMALL_SHARD);
        self.len -= 1;
        if self.len < FEW {
            self.few.extend(std::mem::take(&mut self.many).into_iter().flatten());
        }
        Some(removed)
    }

    #[cold]
    fn split(&mut self) {
        self.many = (0..SHARDS).map(|_| self.empty()).collect();
        let few = self.empty();
        for (key, value) in std::mem::replace(&mut self.few, few) {
            self.shard_mut(&key).insert(key, value);
        }
    }

    /// With the same secret: all shards hash alike.
    fn empty(&self) -> HashMap<K, V, S> {
        HashMap::with_hasher(self.few.hasher().clone())
    }

    #[inline]
    fn shard_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> &mut HashMap<K, V, S>
    where
        K: Borrow<Q>,
    {
        match self.many.is_empty() {
            true => &mut self.few,
            false => {
                let shard = self.shard_of(key);
                &mut self.many[shard]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap as Model;

    #[test]
    fn it_is_a_table_however_many_entries_it_has() {
        let mut map = ShardedIdMap::default();
        let mut model = Model::new();
        for round in 0..3_u64 {
            for n in 0..2_000_u64 {
                assert_eq!(map.insert(n, n + round), model.insert(n, n + round));
                assert_eq!((map.len(), map.is_empty()), (model.len(), false));
            }
            for n in (0..2_500).rev() {
                assert_eq!(map.get_mut(&n).map(|value| *value), model.get(&n).copied());
                assert_eq!(map.remove(&n), model.remove(&n), "{n}");
                assert_eq!(map.len(), model.len());
                if n % 250 == 0 {
                    let mut all: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
                    all.sort_unstable();
                    let mut expected: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
                    expected.sort_unstable();
                    assert_eq!(all, expected);
                    assert!(all.iter().all(|(key, value)| map.get_key_value(key) == Some((key, value))));
                }
            }
            assert!(map.is_empty() && map.many.is_empty());
        }
    }

    /// What a single step moves is what the table in which it happens had room for.
    #[test]
    fn no_step_moves_more_than_a_shard() {
        const MANY: u64 = 50_000;
        let mut map = ShardedNameMap::default();
        let capacities = |map: &ShardedNameMap<String, u64>| -> Vec<usize> {
            std::iter::once(&map.few).chain(&map.many).map(HashMap::capacity).collect()
        };
        let mut before = capacities(&map);
        for step in 0..2 * MANY {
            match step < MANY {
                true => _ = map.insert(step.to_string(), step),
                false => _ = map.remove((step - MANY).to_string().as_str()),
            }
            let after = capacities(&map);
            if before.len() == after.len() {
                // A removal may cost a table the room for one entry, where its place is not used again. That moves
                // none.
                let is_resized =
                    |(before, after): &(&usize, &usize)| before.abs_diff(**after) > **before.min(after) / 2;
                let grown = before.iter().zip(&after).filter(is_resized);
                let moved: usize = grown.map(|(before, after)| before.min(after)).sum();
                assert!(moved <= MANY as usize / SHARDS * 2, "step {step} moves {moved}");
            }
            before = after;
        }
        assert!(map.is_empty() && map.capacity() < 10, "the memory is given back: {}", map.capacity());
    }
}
