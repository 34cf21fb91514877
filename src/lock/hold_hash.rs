//! Hashes of keys and owners, which clients choose.
//!
//! With a known hash a client could choose thousands of names that collide. So the hash is keyed with a secret, as
//! std's SipHash is. This one takes one multiplication per 16 bytes and folds the upper and lower half of the product,
//! as the maps of Go do. With SipHash an acquire/release pair with SESSION takes 5 % more instructions, a hand-off 2 %.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use crate::key::KeyRef;

/// The secret key of the hash, different for each index.
#[derive(Clone, Debug)]
pub struct NameSecret {
    start: u64,
    factor: u64,
}

impl Default for NameSecret {
    fn default() -> NameSecret {
        let random = RandomState::new();
        NameSecret { start: random.hash_one(0), factor: random.hash_one(1) }
    }
}

impl BuildHasher for NameSecret {
    type Hasher = NameHasher;

    #[inline]
    fn build_hasher(&self) -> NameHasher {
        NameHasher { hash: self.start, factor: self.factor }
    }
}

impl NameSecret {
    /// Hashes a key, and the hold of `owner` on it.
    #[inline]
    pub fn hash_hold(&self, key: KeyRef<'_>, owner: &[u8]) -> HoldHash {
        let mut hasher = self.build_hasher();
        key.db.hash(&mut hasher);
        key.name.hash(&mut hasher);
        let key = hasher.finish();
        owner.hash(&mut hasher);
        HoldHash { key, hold: hasher.finish() }
    }
}

/// The hash of a key, and of an owner's hold on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldHash {
    /// The hash of the key alone.
    pub key: u64,
    /// The hash of key and owner.
    pub hold: u64,
}

/// Hashes names. Everything written before is part of the hash, and so are the lengths that slices write.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    hash: u64,
    factor: u64,
}

impl NameHasher {
    #[inline]
    fn add(&mut self, one: u64, other: u64) {
        let product = u128::from(one ^ self.factor) * u128::from(other ^ self.hash);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }
}

/// The number in these eight or four bytes.
macro_rules! number {
    ($kind:ty, $bytes:expr) => {
        u64::from(<$kind>::from_le_bytes($bytes.try_into().expect("a slice of as many bytes")))
    };
}

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(16);
        for chunk in &mut chunks {
            self.add(number!(u64, chunk[..8]), number!(u64, chunk[8..]));
        }
        let rest = chunks.remainder();
        let len = rest.len();
        // The halves overlap. Two remainders of one length are equal if both halves are.
        match len {
            0 => {}
            8.. => self.add(number!(u64, rest[..8]), number!(u64, rest[len - 8..])),
            4.. => self.add(number!(u32, rest[..4]), number!(u32, rest[len - 4..])),
            _ => self.add(u64::from(rest[0]) << 8 | u64::from(rest[len / 2]), u64::from(rest[len - 1])),
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.add(0, number);
    }

    #[inline]
    fn write_i32(&mut self, number: i32) {
        self.write_u64(number as u64);
    }

    /// The length of a slice, before its bytes. It is mixed at once: otherwise it could cancel out a byte that differs.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let product = u128::from(self.hash) * u128::from(self.factor | 1);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A perfect hash of 4,096 names fills about 63 % of as many buckets.
    #[test]
    fn names_are_spread() {
        let secret = NameSecret::default();
        let shapes: [fn(u32) -> String; 4] = [
            |n| n.to_string(),
            |n| format!("{n:036}"),
            |n| format!("{n:<17}"),
            |n| format!("jobs:{n:08x}:lock-of-the-same-tail"),
        ];
        for shape in shapes {
            let hashes: Vec<u64> = (0..4096).map(|n| secret.hash_one(shape(n).as_bytes())).collect();
            let lowest: HashSet<u64> = hashes.iter().map(|hash| hash & 4095).collect();
            let highest: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(lowest.len() > 2_300, "{}: {} places", shape(1), lowest.len());
            assert!(highest.len() > 100, "{}: {} of 128 upper ends", shape(1), highest.len());
        }
    }

    #[test]
    fn names_that_differ_in_one_byte_or_in_length_have_distinct_hashes() {
        let secret = NameSecret::default();
        let mut names: Vec<Vec<u8>> = (0..=70).map(|len| vec![0; len]).collect();
        for len in 1..=40 {
            for position in 0..len {
                let mut name = vec![0; len];
                name[position] = 1;
                names.push(name);
            }
        }
        let hashes: HashSet<u64> = names.iter().map(|name| secret.hash_one(name.as_slice())).collect();
        assert_eq!(hashes.len(), names.len());
        assert_ne!(secret.hash_one(b"k".as_slice()), NameSecret::default().hash_one(b"k".as_slice()), "it is a secret");
    }

    #[test]
    fn a_hold_is_database_name_and_owner() {
        let secret = NameSecret::default();
        let hash = |db, name: &[u8], owner: &[u8]| secret.hash_hold(KeyRef { db, name }, owner);
        let hold = hash(0, b"kl", b"m");
        assert_eq!(hold, hash(0, b"kl", b"m"));
        assert_eq!(hold.key, hash(0, b"kl", b"n").key);
        for other in [hash(1, b"kl", b"m"), hash(0, b"km", b"m"), hash(0, b"kl", b"n"), hash(0, b"k", b"lm")] {
            assert_ne!(hold.hold, other.hold);
        }
    }
}
