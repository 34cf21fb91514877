//! RESTORE payloads built field by field: valid ones of this version, and invalid ones.
//!
//! An independent second implementation of `src/command/rdb_codec.rs`: postcard's variable-length integers inside the
//! string of a module's value, inside a DUMP with its footer.

use crc::{Crc, CRC_64_REDIS};

use super::{Client, Reply};

/// A DUMP of a module's value begins with one byte for the type, one for the length of what follows, and eight with the
/// module type's name in 54 bits and the format version in ten.
pub const HEADER: usize = 10;

/// A DUMP ends with two bytes of RDB version and eight bytes of checksum.
pub const FOOTER: usize = 10;
const CHECKSUM: usize = 8;

/// The bytes that the server writes before a module's string and after its last value.
const STRING: u8 = 5;
const END: u8 = 0;

/// The lock types by their stored number.
pub const KINDS: [&str; 4] = ["mutex", "reentrant", "rw", "semaphore"];

/// The stored number of a semaphore with slots.
pub const WITH_SLOTS: u64 = 4;

/// A stored lock. The fields are wider than in the module, so that values can be out of range.
#[derive(Clone, Debug)]
pub struct StoredLock {
    /// An index into [`KINDS`].
    pub kind: u64,
    pub limit: u64,
    pub fence: u64,
    pub holders: Vec<StoredHolder>,
}

#[derive(Clone, Debug)]
pub struct StoredHolder {
    pub owner: Vec<u8>,
    pub fence: u64,
    /// ms; -1: no expiry.
    pub lease: i64,
    /// ms since the epoch; 0: no expiry. Always 0 for a mutex, whose deadline is the key's TTL.
    pub until: u64,
    /// Exclusive or write holds, or permits.
    pub holds: u64,
    pub reads: u64,
}

impl StoredLock {
    /// A mutex that `owner` holds without expiry.
    pub fn mutex(owner: &str, fence: u64) -> StoredLock {
        let holder = StoredHolder { owner: owner.into(), fence, lease: -1, until: 0, holds: 1, reads: 0 };
        StoredLock { kind: 0, limit: 1, fence, holders: vec![holder] }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.kind, self.limit, self.fence, self.holders.len() as u64] {
            put_number(&mut bytes, number);
        }
        for holder in &self.holders {
            put_number(&mut bytes, holder.owner.len() as u64);
            bytes.extend(&holder.owner);
            put_number(&mut bytes, holder.fence);
            // Signed numbers are zigzag-encoded: 0, -1, 1, -2, …
            put_number(&mut bytes, (holder.lease.wrapping_shl(1) ^ (holder.lease >> 63)) as u64);
            for number in [holder.until, holder.holds, holder.reads] {
                put_number(&mut bytes, number);
            }
        }
        bytes
    }
}

/// What follows a semaphore with slots ([`WITH_SLOTS`]): the slot of each holder.
pub fn slots(numbers: &[Option<u64>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_number(&mut bytes, numbers.len() as u64);
    for number in numbers {
        put_number(&mut bytes, u64::from(number.is_some()));
        number.iter().for_each(|number| put_number(&mut bytes, *number));
    }
    bytes
}

/// Seven bits per byte, the lowest first; all but the last have the highest bit set.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// The bytes that a server puts around the string of a lock in a DUMP.
pub struct Envelope {
    header: Vec<u8>,
    rdb_version: Vec<u8>,
}

impl Envelope {
    /// Derives it from the DUMP of a lock, which it acquires and removes.
    #[track_caller]
    pub fn of(client: &mut Client) -> Envelope {
        client.run("LOCK.ACQUIRE envelope a").fence();
        let dump = client.run("DUMP envelope").bytes().to_vec();
        assert_eq!(client.run("DEL envelope"), Reply::Int(1));
        let footer = &dump[dump.len() - FOOTER..];
        Envelope { header: dump[..HEADER].to_vec(), rdb_version: footer[..FOOTER - CHECKSUM].to_vec() }
    }

    /// The payload of a lock stored as these bytes, which may be anything.
    pub fn seal(&self, stored: &[u8]) -> Vec<u8> {
        let mut payload = self.header.clone();
        payload.push(STRING);
        // The lengths of an RDB file: six, fourteen or thirty-two bits.
        match u32::try_from(stored.len()).expect("a short string") {
            short @ ..0x40 => payload.push(short.to_le_bytes()[0]),
            long @ ..0x4000 => payload.extend([0x40 | long.to_le_bytes()[1], long.to_le_bytes()[0]]),
            longest => {
                payload.push(0x80);
                payload.extend(longest.to_be_bytes());
            }
        }
        payload.extend(stored);
        payload.push(END);
        payload.extend(&self.rdb_version);
        payload.extend(crc64(&payload).to_le_bytes());
        payload
    }
}

/// The payload with another format version, and the version that it had.
pub fn with_format_version(mut payload: Vec<u8>, form: u8) -> (Vec<u8>, u8) {
    let own = std::mem::replace(&mut payload[HEADER - 1], form);
    (reseal(payload), own)
}

/// Recomputes the checksum of a payload; otherwise the server's own check would stop every mutation.
pub fn reseal(mut payload: Vec<u8>) -> Vec<u8> {
    payload.truncate(payload.len() - CHECKSUM);
    payload.extend(crc64(&payload).to_le_bytes());
    payload
}

/// The checksum of Redis: <https://github.com/redis/redis/blob/7.0/src/crc64.c>.
fn crc64(bytes: &[u8]) -> u64 {
    static REDIS: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);
    REDIS.checksum(bytes)
}
