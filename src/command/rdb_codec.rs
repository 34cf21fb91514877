//! A lock as bytes: in an RDB file, in a `DUMP`, nowhere else. What comes back may be anything.
//!
//! The form is serde's with postcard: variable-length integers, no pointers, no lengths that are trusted.

use serde::{Deserialize, Serialize};

use lock::value::claim::Family;
use lock::value::fence::Fence;
use lock::value::holders::Holder;
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use lock::value::rebuild::FamilyAndLimit;
use lock::value::time::{Deadline, Lease, Timestamp};

/// The version that the server keeps with each value. Raise it when the form changes, and read the old ones still.
pub const VERSION: i32 = 0;

#[derive(Serialize, Deserialize)]
enum StoredFamily {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore,
}

#[derive(Serialize, Deserialize)]
struct StoredLock<'a> {
    family: StoredFamily,
    limit: u32,
    fence: u64,
    #[serde(borrow)]
    holders: Vec<StoredHolder<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredHolder<'a> {
    owner: &'a [u8],
    fence: u64,
    /// ms, -1 for ever.
    lease: i64,
    /// ms since the epoch, 0 for never. A mutex has its deadline in the key's time to live, and 0 here.
    until: u64,
    holds: u32,
    reads: u32,
}

impl From<Family> for StoredFamily {
    fn from(family: Family) -> StoredFamily {
        match family {
            Family::Mutex => StoredFamily::Mutex,
            Family::Reentrant => StoredFamily::Reentrant,
            Family::ReadWrite => StoredFamily::ReadWrite,
            Family::Semaphore => StoredFamily::Semaphore,
        }
    }
}

impl From<StoredFamily> for Family {
    fn from(stored: StoredFamily) -> Family {
        match stored {
            StoredFamily::Mutex => Family::Mutex,
            StoredFamily::Reentrant => Family::Reentrant,
            StoredFamily::ReadWrite => Family::ReadWrite,
            StoredFamily::Semaphore => Family::Semaphore,
        }
    }
}

/// The lock as bytes; `None` for one that nobody holds, which is saved as none. Only a bug leaves such a lock, in the
/// middle of a hand-off, and it must not keep a server from loading everything else.
pub fn encode(lock: &Lock) -> Option<Vec<u8>> {
    let FamilyAndLimit { family, limit } = lock.family_and_limit().filter(|_| !lock.is_vacant())?;
    let holds = lock.stored_holds();
    let holders = holds.iter().map(|hold| StoredHolder {
        owner: hold.owner.as_bytes(),
        fence: hold.fence.get(),
        lease: hold.lease.as_ms(),
        until: hold.until.timestamp().map_or(0, Timestamp::ms),
        holds: hold.holds,
        reads: hold.reads,
    });
    let stored = StoredLock { family: family.into(), limit, fence: lock.fence()?.get(), holders: holders.collect() };
    postcard::to_allocvec(&stored).ok()
}

/// The lock that these bytes are, if they are one to the last byte. No bytes are a lock that nobody holds: its key is
/// removed in the next turn.
pub fn decode(bytes: &[u8]) -> Option<Lock> {
    if bytes.is_empty() {
        return Some(Lock::Vacant);
    }
    let (stored, rest) = postcard::take_from_bytes::<StoredLock<'_>>(bytes).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let kind = FamilyAndLimit::new(stored.family.into(), stored.limit)?;
    let holders = stored.holders.iter().map(decode_holder).collect::<Option<Vec<_>>>()?;
    Lock::from_parts(kind, Fence::new(stored.fence)?, holders)
}

fn decode_holder(stored: &StoredHolder<'_>) -> Option<Holder> {
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
    fn every_family_comes_back_as_it_was() {
        let permits = Claim::Permits { limit: 90, count: Count::Step(3) };
        for lock in [
            lock(Claim::Mutex, 1),
            lock(Claim::Reentrant(Count::Exactly(7)), 1),
            lock(Claim::ReadWrite(Mode::Read, Count::Step(2)), 30),
            lock(Claim::ReadWrite(Mode::Write, Count::Step(1)), 1),
            lock(permits, 25),
        ] {
            let back = decode(&encode(&lock).unwrap()).unwrap();
            assert_eq!(format!("{:?}", back.stored_holds()), format!("{:?}", lock.stored_holds()));
            assert_eq!((back.family_and_limit(), back.fence()), (lock.family_and_limit(), lock.fence()));
        }
    }

    /// A bug leaves them: what is saved of them has to be loaded with everything else.
    #[test]
    fn what_nobody_holds_any_more_is_saved_as_nothing_and_can_be_loaded() {
        let mut readers = lock(Claim::ReadWrite(Mode::Read, Count::Step(2)), 2);
        for owner in readers.owners().cloned().collect::<Vec<_>>() {
            readers.evict(owner.as_bytes());
        }
        for vacant in [Lock::Vacant, readers] {
            let saved = encode(&vacant).unwrap_or_default();
            assert!(decode(&saved).is_some_and(|lock| lock.is_vacant()), "{vacant:?}");
            assert!(vacant.ends_when_loaded().is_some(), "it is removed then");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(lock) = decode(&bytes) {
                prop_assert_eq!(lock.is_vacant(), bytes.is_empty());
            }
        }

        #[test]
        fn no_change_of_a_good_one_brings_it_down(position in 0usize..2000, to in any::<u8>(), cut in 0usize..2000) {
            let mut bytes = encode(&lock(Claim::Permits { limit: 90, count: Count::Step(3) }, 25)).unwrap();
            let len = bytes.len();
            bytes[position % len] = to;
            bytes.truncate(len - cut % len);
            if let Some(lock) = decode(&bytes) {
                prop_assert!(!lock.is_vacant() && encode(&lock).is_some());
            }
        }
    }
}
