//! Cluster slots: the slot of a key, and sets of slots.

use std::fmt;

/// The number of slots in a cluster.
const COUNT: usize = 16_384;

/// The slot of a key according to the cluster specification: the CRC16 (XMODEM) of the key's hash tag. Computed here,
/// because in Redis 7.0 only a command returns it, which `rename-command` can remove.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % COUNT as u16
}

/// The bytes between the first `{` and the next `}`, if not empty; otherwise the whole key.
fn hash_tag(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], searched| bytes.iter().position(|byte| *byte == searched);
    let tag = position(key, b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..position(rest, b'}')?)
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    /// The CRC of each byte value.
    const OF_BYTE: [u16; 256] = {
        let mut of_byte = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut sum, mut bit) = ((byte as u16) << 8, 0);
            while bit < 8 {
                sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
                bit += 1;
            }
            of_byte[byte] = sum;
            byte += 1;
        }
        of_byte
    };
    bytes.iter().fold(0, |sum, byte| {
        let [high, _] = sum.to_be_bytes();
        sum << 8 ^ OF_BYTE[usize::from(high ^ byte)]
    })
}

#[derive(Clone, PartialEq)]
pub struct ClusterSlots(Box<[u64; COUNT / 64]>);

impl ClusterSlots {
    pub fn none() -> ClusterSlots {
        ClusterSlots(Box::new([0; COUNT / 64]))
    }

    /// Adds a slot; ignores an invalid number.
    pub fn add(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    pub fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word & 1 << (slot % 64) != 0)
    }
}

impl fmt::Debug for ClusterSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots", self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of CLUSTER KEYSLOT.
    #[test]
    fn a_key_has_the_slot_of_its_hash_tag() {
        let rows: [(&[u8], u16); 12] = [
            (b"", 0),
            (b"123456789", 12_739),
            (b"k", 7_629),
            (b"{k}", 7_629),
            (b"a{k}b", 7_629),
            (b"{k}{other}", 7_629),
            (b"a}{k}", 7_629),
            (b"{}k", 2_865),
            (b"{}{k}", 6_809),
            (b"{k", 2_414),
            (b"{{k}}", 2_414),
            (b"\xff\x00", 1_023),
        ];
        for (key, slot) in rows {
            assert_eq!(slot_of(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_set_contains_exactly_the_added_slots() {
        let added = [0, 63, 64, 7_629, 16_383];
        let mut slots = ClusterSlots::none();
        added.into_iter().chain([16_384, u16::MAX]).for_each(|slot| slots.add(slot));
        let contained: Vec<u16> = (0..=u16::MAX).filter(|slot| slots.contains(*slot)).collect();
        assert_eq!(contained, added);
        assert_eq!(format!("{slots:?}"), "5 slots");
    }
}
