//! A lock as bytes: in an RDB file, in a `DUMP`, nowhere else. What comes back may be anything.
//!
//! The form is serde's with postcard: variable-length integers, no pointers, no lengths that are trusted.

use serde::{Deserialize, Serialize};

use lock::claim::Kind;
use lock::fence::Fence;
use lock::members::Holder;
use lock::owner::Owner;
use lock::state::Lock;
use lock::time::{At, Deadline, Lease};

/// The version that the server keeps with each value. Raise it when the form changes, and read the old ones still.
pub const VERSION: i32 = 0;

#[derive(Serialize, Deserialize)]
enum StoredKind {
    Mutex,
    Reentrant,
    Rw,
    Semaphore,
}

#[derive(Serialize, Deserialize)]
struct StoredLock<'a> {
    kind: StoredKind,
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

/// The lock as bytes; `None` for one that nobody holds, which is never stored.
pub fn encode(lock: &Lock) -> Option<Vec<u8>> {
    let holds = lock.stored_holds();
    let stored = StoredLock {
        kind: match lock.kind()? {
            Kind::Mutex => StoredKind::Mutex,
            Kind::Reentrant => StoredKind::Reentrant,
            Kind::Rw => StoredKind::Rw,
            Kind::Semaphore => StoredKind::Semaphore,
        },
        limit: lock.limit(),
        fence: lock.fence()?.get(),
        holders: holds
            .iter()
            .map(|hold| StoredHolder {
                owner: hold.owner.as_bytes(),
                fence: hold.fence.get(),
                lease: hold.lease.as_ms(),
                until: hold.until.at().map_or(0, At::ms),
                holds: hold.holds,
                reads: hold.reads,
            })
            .collect(),
    };
    postcard::to_allocvec(&stored).ok()
}

/// The lock that these bytes are, if they are one to the last byte.
pub fn decode(bytes: &[u8]) -> Option<Lock> {
    let (stored, rest) = postcard::take_from_bytes::<StoredLock<'_>>(bytes).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let kind = match stored.kind {
        StoredKind::Mutex => Kind::Mutex,
        StoredKind::Reentrant => Kind::Reentrant,
        StoredKind::Rw => Kind::Rw,
        StoredKind::Semaphore => Kind::Semaphore,
    };
    let holders = stored.holders.iter().map(decode_holder).collect::<Option<Vec<_>>>()?;
    Lock::from_parts(kind, stored.limit, Fence::new(stored.fence)?, holders)
}

fn decode_holder(stored: &StoredHolder<'_>) -> Option<Holder> {
    Some(Holder {
        owner: Owner::new(stored.owner)?,
        fence: Fence::new(stored.fence)?,
        lease: Lease::from_ms(stored.lease)?,
        until: match stored.until {
            0 => Deadline::Never,
            ms if ms <= i64::MAX as u64 => Deadline::At(At::from_ms(ms)),
            _ => return None,
        },
        holds: stored.holds,
        reads: stored.reads,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::claim::{Ask, Claim, Count, Mode};
    use lock::state::First;
    use proptest::prelude::*;

    fn lock(claim: Claim, owners: u8) -> Lock {
        let now = At::from_ms(1_000);
        let ask = |n: u8| Ask { owner: Owner::new(&[n + 1; 40]).unwrap(), claim, lease: Lease::from_ms(500).unwrap() };
        let first = ask(0);
        let mut lock = First::new(first.as_ref(), Fence::new(10).unwrap(), now).unwrap().lock();
        for n in 1..owners {
            lock.admit(&ask(n), Fence::new(10 + u64::from(n)).unwrap(), now, Deadline::Never);
        }
        lock
    }

    #[test]
    fn every_family_comes_back_as_it_was() {
        let permits = Claim::Permits { limit: 90, count: Count::Step(3) };
        for lock in [
            lock(Claim::Mutex, 1),
            lock(Claim::Reentrant(Count::Exactly(7)), 1),
            lock(Claim::Rw(Mode::Read, Count::Step(2)), 30),
            lock(Claim::Rw(Mode::Write, Count::Step(1)), 1),
            lock(permits, 25),
        ] {
            let back = decode(&encode(&lock).unwrap()).unwrap();
            assert_eq!(format!("{:?}", back.stored_holds()), format!("{:?}", lock.stored_holds()));
            assert_eq!((back.kind(), back.limit(), back.fence()), (lock.kind(), lock.limit(), lock.fence()));
        }
        assert_eq!(encode(&Lock::Vacant), None);
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(lock) = decode(&bytes) {
                prop_assert!(!lock.is_vacant());
            }
        }

        #[test]
        fn no_change_of_a_good_one_brings_it_down(at in 0usize..2000, to in any::<u8>(), cut in 0usize..2000) {
            let mut bytes = encode(&lock(Claim::Permits { limit: 90, count: Count::Step(3) }, 25)).unwrap();
            let len = bytes.len();
            bytes[at % len] = to;
            bytes.truncate(len - cut % len);
            if let Some(lock) = decode(&bytes) {
                prop_assert!(!lock.is_vacant() && encode(&lock).is_some());
            }
        }
    }
}
