//! Maps by ids that the module or the server assigns. Clients cannot choose ids that collide, so std's SipHash is not
//! needed: it would take a tenth of the instructions of a hand-off.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A table by number.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A set of numbers.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Spreads numbers over a table: consecutive ones, and addresses, which end in zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN);
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u64(number as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    /// The discriminant of an enum.
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    /// A table uses the lowest bits, which a multiplication mixes poorly, and the highest.
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(GOLDEN);
        mixed ^ (mixed >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    /// A perfect hash of 1,024 numbers fills about 63 % of 1,024 buckets.
    #[test]
    fn numbers_in_a_row_and_addresses_are_spread() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        for step in [1, 16, 64, 192, 4096, 1 << 20] {
            let hashes: Vec<u64> = (0..1024_u64).map(|n| hasher.hash_one(0x7f12_3400_0000 + n * step)).collect();
            let lowest: HashSet<u64> = hashes.iter().map(|hash| hash & 1023).collect();
            let highest: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(lowest.len() > 550, "{step}: {} of 1024 places", lowest.len());
            assert!(highest.len() > 100, "{step}: {} of 128 tags", highest.len());
        }
    }

    #[test]
    fn distinct_values_have_distinct_hashes() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let distinct = |hashes: Vec<u64>| hashes.into_iter().collect::<HashSet<_>>().len();
        assert_eq!(distinct((0..64).map(|n: i32| hasher.hash_one(n)).collect()), 64);
        assert_eq!(distinct((0..64).map(|n: usize| hasher.hash_one(n)).collect()), 64);
        assert_eq!(distinct((0..64).map(|n: isize| hasher.hash_one(n)).collect()), 64);
        assert_eq!(distinct((0..64).map(|n: u8| hasher.hash_one([n, 7])).collect()), 64);
        let pairs = (0..4096_u64).map(|n| hasher.hash_one((n / 64, n % 64)));
        assert_eq!(distinct(pairs.collect()), 4096, "the hash depends on every number written before");
    }
}
