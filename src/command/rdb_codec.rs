//! A lock as bytes, for RDB files and `DUMP`. The input of the decoder may be arbitrary bytes.
//!
//! The encoding is postcard via serde: variable-length integers, no pointers. No length in the input is trusted.
//!
//! A semaphore with slots is stored as a separate lock type with the slots at the end, so that other locks spend no
//! byte on them. The same goes for an adopted hold of a mutex or reentrant mutex.

use serde::{Deserialize, Serialize};

use lock::value::claim::{LockType, Origin};
use lock::value::fence::Fence;
use lock::value::holders::{Holder, Slot};
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use lock::value::rebuild::LockTypeAndLimit;
use lock::value::time::{Deadline, Lease, Timestamp};

/// The format version, which the server stores with each value and with the last fencing token. Increment it with every
/// format change.
pub const FORMAT_VERSION: i32 = 1;

/// The server log line about a value with another format version, which is not loaded.
pub fn other_version(version: i32) -> String {
    let own = FORMAT_VERSION;
    format!("redis-lock: cannot read a lock or fence stored in format {version}: this version reads format {own}")
}

#[derive(Serialize, Deserialize)]
enum StoredLockType {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore,
    /// The slots of the holders follow the lock, in the holders' order.
    SemaphoreWithSlots,
    /// Granted to a client that uses another lock library.
    AdoptedMutex,
    /// As [`StoredLockType::AdoptedMutex`].
    AdoptedReentrant,
}

/// The slot numbers of the holders; at least one holder has a slot.
type StoredSlots = Vec<Option<u32>>;

#[derive(Serialize, Deserialize)]
struct StoredLock<'a> {
    lock_type: StoredLockType,
    limit: u32,
    fence: u64,
    #[serde(borrow)]
    holders: Vec<StoredHolder<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredHolder<'a> {
    owner: &'a [u8],
    fence: u64,
    /// ms; -1: no expiry.
    lease: i64,
    /// ms since the epoch; 0: no expiry. A mutex has its deadline in the key's TTL, and 0 here.
    until: u64,
    holds: u32,
    reads: u32,
}

impl StoredLockType {
    fn of(lock_type: LockType, origin: Origin) -> StoredLockType {
        match (lock_type, origin) {
            (LockType::Mutex, Origin::Native) => StoredLockType::Mutex,
            (LockType::Mutex, Origin::Adopted) => StoredLockType::AdoptedMutex,
            (LockType::Reentrant, Origin::Native) => StoredLockType::Reentrant,
            (LockType::Reentrant, Origin::Adopted) => StoredLockType::AdoptedReentrant,
            (LockType::ReadWrite, _) => StoredLockType::ReadWrite,
            (LockType::Semaphore, _) => StoredLockType::Semaphore,
        }
    }

    fn lock_type(&self) -> LockType {
        match self {
            StoredLockType::Mutex | StoredLockType::AdoptedMutex => LockType::Mutex,
            StoredLockType::Reentrant | StoredLockType::AdoptedReentrant => LockType::Reentrant,
            StoredLockType::ReadWrite => LockType::ReadWrite,
            StoredLockType::Semaphore | StoredLockType::SemaphoreWithSlots => LockType::Semaphore,
        }
    }

    fn origin(&self) -> Origin {
        match self {
            StoredLockType::AdoptedMutex | StoredLockType::AdoptedReentrant => Origin::Adopted,
            _ => Origin::Native,
        }
    }
}

/// Encodes the lock; `None` for a lock without holders, which has no encoding. Only a bug can leave such a lock, in the
/// middle of a hand-off; it must not prevent the server from loading everything else.
pub fn encode(lock: &Lock) -> Option<Vec<u8>> {
    let LockTypeAndLimit { lock_type, limit } = lock.lock_type_and_limit().filter(|_| !lock.is_vacant())?;
    let holds = lock.stored_holds();
    let holders = holds.iter().map(|hold| StoredHolder {
        owner: hold.owner.as_bytes(),
        fence: hold.fence.get(),
        lease: hold.lease.as_ms(),
        until: hold.until.timestamp().map_or(0, Timestamp::ms),
        holds: hold.holds,
        reads: hold.reads,
    });
    let slots: StoredSlots = holds.iter().map(|hold| hold.slot.map(Slot::number)).collect();
    let has_slots = slots.iter().any(Option::is_some);
    let origin = holds.first().map_or(Origin::Native, |hold| hold.origin);
    let lock_type = if has_slots { StoredLockType::SemaphoreWithSlots } else { StoredLockType::of(lock_type, origin) };
    let stored = StoredLock { lock_type, limit, fence: lock.fence()?.get(), holders: holders.collect() };
    let bytes = postcard::to_allocvec(&stored).ok()?;
    if has_slots {
        postcard::to_extend(&slots, bytes).ok()
    } else {
        Some(bytes)
    }
}

/// Decodes a lock; `None` unless the bytes are exactly one lock. Empty bytes decode to a lock without holders, whose
/// key every command treats as free.
pub fn decode(bytes: &[u8]) -> Option<Lock> {
    if bytes.is_empty() {
        return Some(Lock::Vacant);
    }
    let (stored, mut rest) = postcard::take_from_bytes::<StoredLock<'_>>(bytes).ok()?;
    let mut slots: StoredSlots = vec![None; stored.holders.len()];
    if let StoredLockType::SemaphoreWithSlots = stored.lock_type {
        (slots, rest) = postcard::take_from_bytes(rest).ok()?;
        if slots.len() != stored.holders.len() || slots.iter().all(Option::is_none) {
            return None;
        }
    }
    if !rest.is_empty() {
        return None;
    }
    let (kind, origin) =
        (LockTypeAndLimit::new(stored.lock_type.lock_type(), stored.limit)?, stored.lock_type.origin());
    let holders = stored.holders.iter().zip(slots).map(|(holder, slot)| decode_holder(holder, slot, origin));
    let holders = holders.collect::<Option<Vec<_>>>()?;
    Lock::from_parts(kind, Fence::new(stored.fence)?, holders)
}

fn decode_holder(stored: &StoredHolder<'_>, slot: Option<u32>, origin: Origin) -> Option<Holder> {
    Some(Holder {
        owner: Owner::new(stored.owner)?,
        fence: Fence::new(stored.fence)?,
        lease: Lease::from_ms(stored.lease)?,
        until: match stored.until {
            0 => Deadline::Never,
            ms if ms <= i64::MAX as u64 => Deadline::At(Timestamp::from_ms(ms)),
            _ => return None,
        },
        holds: stored.holds,
        reads: stored.reads,
        slot: match slot {
            Some(number) => Some(Slot::new(number)?),
            None => None,
        },
        origin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::value::claim::{Claim, Count, InvalidClaim, LockRequest, Mode};
    use lock::value::lock::FirstGrant;
    use proptest::prelude::*;

    fn lock(claim: Claim, owners: u8) -> Lock {
        let now = Timestamp::from_ms(1_000);
        let owner = |n: u8| Owner::new(&[n + 1; 40]).unwrap();
        let fence = |n: u8| Fence::new(10 + u64::from(n)).unwrap();
        let request = |owner: &Owner, admit: &mut dyn FnMut(LockRequest<'_>)| {
            admit(LockRequest { owner: owner.as_ref(), claim, lease: Lease::from_ms(500).unwrap() });
        };
        let mut lock = Lock::Vacant;
        request(&owner(0), &mut |first| {
            lock = FirstGrant::new(first, now, || Ok::<_, InvalidClaim>(fence(0))).unwrap().lock()
        });
        for n in 1..owners {
            request(&owner(n), &mut |next| _ = lock.admit(&next, fence(n), now, Deadline::Never).unwrap());
        }
        lock
    }

    #[test]
    fn every_lock_type_is_restored_unchanged() {
        let permits = Claim::Permits { limit: 90, count: Count::Delta(3) };
        for lock in [
            lock(Claim::Mutex, 1),
            lock(Claim::AdoptedMutex, 1),
            lock(Claim::Reentrant(Count::Exactly(7)), 1),
            lock(Claim::AdoptedReentrant(Count::Exactly(7)), 1),
            lock(Claim::ReadWrite(Mode::Read, Count::Delta(2)), 30),
            lock(Claim::ReadWrite(Mode::Write, Count::Delta(1)), 1),
            lock(permits, 25),
            lock(Claim::Slot { limit: 90 }, 25),
            with_and_without_slots(),
        ] {
            let back = decode(&encode(&lock).unwrap()).unwrap();
            assert_eq!(format!("{:?}", back.stored_holds()), format!("{:?}", lock.stored_holds()));
            assert_eq!((back.lock_type_and_limit(), back.fence()), (lock.lock_type_and_limit(), lock.fence()));
        }
    }

    /// Files of 1.0.0 contain these bytes. They must be read and written unchanged as long as the format version is 1.
    #[test]
    fn stored_format_version_1_is_unchanged() {
        assert_eq!(FORMAT_VERSION, 1);
        for hex in [
            // Type, limit, fencing token, number of holders; for each: owner, fencing token, lease, deadline, holds,
            // reads.
            "00 01 0a 01  01 61 0a e8 07 00 01 00",
            "01 01 0a 01  01 61 0a e8 07 00 07 00",
            "02 00 0b 02  01 61 0a e8 07 dc 0b 00 02  01 62 0b 01 00 00 01",
            "02 00 0a 01  01 61 0a e8 07 dc 0b 01 02",
            "03 05 0a 01  01 61 0a e8 07 dc 0b 03 00",
            // Slots: the first holder has number 0, the second none.
            "04 05 0b 02  01 61 0a e8 07 dc 0b 01 00  01 62 0b e8 07 dc 0b 02 00  02 01 00 00",
            // Adopted holds.
            "05 01 0a 01  01 61 0a e8 07 00 01 00",
            "06 01 0a 01  01 61 0a e8 07 00 07 00",
        ] {
            let bytes = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
            let bytes: Vec<u8> = bytes.collect();
            let lock = decode(&bytes).unwrap_or_else(|| panic!("{hex} is no lock"));
            assert_eq!(encode(&lock).as_deref(), Some(&bytes[..]), "{hex}");
        }
    }

    /// Two holders with slots and, between them, one with permits.
    fn with_and_without_slots() -> Lock {
        let mut semaphore = lock(Claim::Slot { limit: 9 }, 2);
        let claim = Claim::Permits { limit: 9, count: Count::Delta(3) };
        let (owner, now) = (Owner::new(b"permits").unwrap(), Timestamp::from_ms(1_000));
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        semaphore.admit(&request, Fence::new(10).unwrap(), now, Deadline::Never).unwrap();
        semaphore
    }

    /// Decodes the bytes of [`with_and_without_slots`] with these slots instead.
    fn with_slots_stored(slots: &[Option<u32>]) -> Option<Lock> {
        let slots_of = |slots: &[Option<u32>]| postcard::to_allocvec(slots).unwrap();
        let semaphore = with_and_without_slots();
        let holds = semaphore.stored_holds();
        let as_they_are: Vec<_> = holds.iter().map(|hold| hold.slot.map(Slot::number)).collect();
        let bytes = encode(&semaphore).unwrap();
        let before = bytes.strip_suffix(&slots_of(&as_they_are)[..]).expect("the slots are the last");
        decode(&[before, &slots_of(slots)].concat())
    }

    #[test]
    fn a_deadline_that_the_server_cannot_store_is_rejected() {
        let decoded = |until| {
            let stored = StoredHolder { owner: b"a", fence: 1, lease: 500, until, holds: 1, reads: 0 };
            decode_holder(&stored, None, Origin::Native)
        };
        assert!(decoded(i64::MAX as u64).is_some());
        assert!(decoded(i64::MAX as u64 + 1).is_none());
    }

    #[test]
    fn impossible_slots_are_rejected() {
        assert!(with_slots_stored(&[Some(0), None, Some(1)]).is_some());
        assert!(with_slots_stored(&[Some(999_999), None, None]).is_some(), "LIMIT may have been larger");
        for bad in [
            &[Some(0), None, Some(0)][..],
            &[None, None, None],
            &[Some(0), None],
            &[Some(0), None, Some(1), None],
            &[Some(1_000_000), None, None],
            &[Some(u32::MAX), None, None],
            &[None, Some(2), None],
            &[],
        ] {
            assert!(with_slots_stored(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_semaphore_with_slots_stores_them() {
        let permits = Claim::Permits { limit: 90, count: Count::Delta(3) };
        assert_eq!(encode(&lock(permits, 25)).unwrap()[0], StoredLockType::Semaphore as u8);
        let mut semaphore = with_and_without_slots();
        assert_eq!(encode(&semaphore).unwrap()[0], StoredLockType::SemaphoreWithSlots as u8);
        let owners: Vec<_> = semaphore.owners().filter(|owner| owner.as_bytes() != b"permits").cloned().collect();
        owners.iter().for_each(|owner| _ = semaphore.remove_holder(owner.as_bytes()));
        assert_eq!(encode(&semaphore).unwrap()[0], StoredLockType::Semaphore as u8, "the slots are gone");
    }

    /// Only a bug can leave such a lock; the file that contains it must still load.
    #[test]
    fn a_lock_without_holders_is_saved_as_empty_and_can_be_loaded() {
        let mut readers = lock(Claim::ReadWrite(Mode::Read, Count::Delta(2)), 2);
        for owner in readers.owners().cloned().collect::<Vec<_>>() {
            readers.remove_holder(owner.as_bytes());
        }
        for vacant in [Lock::Vacant, readers] {
            let saved = encode(&vacant).unwrap_or_default();
            assert!(decode(&saved).is_some_and(|lock| lock.is_vacant()), "{vacant:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_crash_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(lock) = decode(&bytes) {
                prop_assert_eq!(lock.is_vacant(), bytes.is_empty());
            }
        }

        #[test]
        fn mutations_of_a_valid_input_do_not_crash_it(
            has_slots in any::<bool>(), position in 0usize..2000, to in any::<u8>(), cut in 0usize..2000,
        ) {
            let permits = Claim::Permits { limit: 90, count: Count::Delta(3) };
            let claim = if has_slots { Claim::Slot { limit: 90 } } else { permits };
            let mut bytes = encode(&lock(claim, 25)).unwrap();
            let len = bytes.len();
            bytes[position % len] = to;
            bytes.truncate(len - cut % len);
            if let Some(lock) = decode(&bytes) {
                prop_assert!(!lock.is_vacant() && encode(&lock).is_some());
            }
        }
    }
}
