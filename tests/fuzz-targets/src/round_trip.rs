//! Locks of every type, as requests can create them: each is restored unchanged from its stored payload, and from its
//! effects in a rewritten append-only file.

use arbitrary::{Arbitrary, Result, Unstructured};
use command::effect::{self, encode_hold};
use command::rdb_codec;
use lock::testing::checks::check_lock;
use lock::testing::promotion::ReplicaUnderTest;
use lock::value::claim::{LockType, Origin};
use lock::value::fence::Fence;
use lock::value::holders::{Holder, Slot};
use lock::value::lock::Lock;
use lock::value::owner::{Owner, MAX_OWNER};
use lock::value::rebuild::LockTypeAndLimit;
use lock::value::time::{Deadline, Lease, Timestamp};

use crate::same::assert_same;

const LAST_FENCE: u64 = (1 << 53) - 1;

/// Enough for the index of holders to be created and dropped.
const MOST_HOLDERS: usize = 40;

/// Creates a lock from the bytes, stores it and loads it; panics if it changed.
pub fn round_trip(bytes: &[u8]) {
    let Ok(lock) = any_lock(&mut Unstructured::new(bytes)) else { return };
    check_lock(&lock);
    let stored = rdb_codec::encode(&lock).expect("it has a holder");
    assert_same(&lock, &rdb_codec::decode(&stored).expect("what was stored can be loaded"));
    assert_same(&lock, &from_effects(&lock));
}

fn any_lock(input: &mut Unstructured<'_>) -> Result<Lock> {
    let lock_type = *input.choose(&LockType::ALL)?;
    let has_multiple_holders = matches!(lock_type, LockType::ReadWrite | LockType::Semaphore);
    let number = if has_multiple_holders { input.int_in_range(1..=MOST_HOLDERS)? } else { 1 };
    let limit = match lock_type {
        LockType::Mutex | LockType::Reentrant => 1,
        LockType::ReadWrite => 0,
        LockType::Semaphore => input.int_in_range(1..=u32::MAX)?,
    };
    let kind = LockTypeAndLimit::new(lock_type, limit).expect("the limit fits the lock type");
    let holders = (0..number).map(|n| any_holder(input, lock_type, n, number)).collect::<Result<Vec<_>>>()?;
    let newest = holders.iter().map(|holder| holder.fence).max().expect("it has a holder");
    // The holder of the latest grant may have released the lock, unless it is the only holder.
    let fence = if has_multiple_holders { any_fence(input, newest.get())? } else { newest };
    Ok(Lock::from_parts(kind, fence, holders).expect("requests can make it"))
}

fn any_holder(input: &mut Unstructured<'_>, lock_type: LockType, number: usize, of: usize) -> Result<Holder> {
    let length = *input.choose(&[0, 1, 35, 36, 37, 38, 63, 64, MAX_OWNER - 1])?;
    let mut owner = vec![u8::try_from(number).expect("few holders")];
    owner.extend((0..length).map(|_| u8::arbitrary(input)).collect::<Result<Vec<_>>>()?);
    // Distinct fences, in any order.
    let slot = match lock_type {
        LockType::Semaphore if bool::arbitrary(input)? => Slot::new((number as u32) * 7 % 100 * 10_000),
        _ => None,
    };
    let (holds, reads) = match lock_type {
        _ if slot.is_some() => (1, 0),
        LockType::Mutex => (1, 0),
        LockType::Reentrant | LockType::Semaphore => (any_count(input)?, 0),
        LockType::ReadWrite if of > 1 => (0, any_count(input)?),
        LockType::ReadWrite => *input.choose(&[(1, 0), (0, 1), (3, 2), (u32::MAX, u32::MAX)])?,
    };
    Ok(Holder {
        owner: Owner::new(&owner).expect("an owner's name has this length"),
        fence: any_fence(input, 1)?,
        lease: if input.ratio(1, 4)? { Lease::Persist } else { any_lease(input)? },
        until: if input.ratio(1, 4)? {
            Deadline::Never
        } else {
            Deadline::At(Timestamp::from_ms(u64::arbitrary(input)?))
        },
        holds,
        reads,
        slot,
        origin: if lock_type.is_exclusive() && bool::arbitrary(input)? { Origin::Adopted } else { Origin::Native },
    })
}

fn any_count(input: &mut Unstructured<'_>) -> Result<u32> {
    input.int_in_range(1..=u32::MAX)
}

fn any_fence(input: &mut Unstructured<'_>, least: u64) -> Result<Fence> {
    Ok(Fence::new(input.int_in_range(least..=LAST_FENCE)?).expect("it is below 2^53"))
}

fn any_lease(input: &mut Unstructured<'_>) -> Result<Lease> {
    Ok(Lease::from_ms(input.int_in_range(1..=i64::MAX)?).expect("it is positive"))
}

/// Replays the lock's effects in a rewritten append-only file.
fn from_effects(lock: &Lock) -> Lock {
    let mut replica = ReplicaUnderTest::default();
    let mut receive = |words: &[&[u8]]| {
        replica.receive(b"k", effect::decode(words).expect("what is sent can be read"));
    };
    for hold in lock.stored_holds() {
        let sent = encode_hold(lock, &hold, <[u8]>::to_vec).expect("it is held");
        receive(&[&sent]);
    }
    if lock.is_shared() {
        let fence = lock.fence().expect("it is held").get().to_string();
        receive(&[b"FENCE", fence.as_bytes()]);
    }
    let (copy, _) = replica.lock(b"k").expect("a hold makes the lock");
    copy.clone()
}
