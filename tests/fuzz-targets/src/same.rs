//! When two locks are the same: lock type, limit, fence, and every hold with its deadline.

use lock::value::claim::Origin;
use lock::value::holders::Slot;
use lock::value::lock::Lock;
use lock::value::outcome::Hold;
use lock::value::time::{Deadline, Lease};

/// Panics if they differ. The deadline of a mutex is the key's and is not compared.
#[track_caller]
pub(crate) fn assert_same(lock: &Lock, other: &Lock) {
    assert_eq!((lock.lock_type_and_limit(), lock.fence()), (other.lock_type_and_limit(), other.fence()));
    assert_eq!(described(lock), described(other));
}

type Described<'a> = (&'a [u8], u64, Lease, Deadline, [u32; 2], Option<Slot>, Origin);

/// Sorted by owner, because the order of holds with the same fence is undefined.
fn described(lock: &Lock) -> Vec<Described<'_>> {
    let mut all: Vec<_> = lock.stored_holds().into_iter().map(describe).collect();
    all.sort_by_key(|(owner, ..)| *owner);
    all
}

fn describe(hold: Hold<'_>) -> Described<'_> {
    let counts = [hold.holds, hold.reads];
    (hold.owner.as_bytes(), hold.fence.get(), hold.lease, hold.until, counts, hold.slot, hold.origin)
}
