//! The stored payload, as in RESTORE and RDB files: any bytes decode to a lock or to an error. A decoded lock is
//! unchanged when it is stored again, and can be used.

use command::rdb_codec::{decode, encode};
use lock::testing::checks::check_lock;
use lock::value::claim::{Claim, Count, LockRequest, Mode};
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::outcome::Admission;
use lock::value::owner::{Owner, OwnerRef};
use lock::value::time::{Deadline, Lease, Timestamp};

use crate::same::assert_same;

const ONE: Count = Count::Delta(1);

/// For each lock type and mode.
const CLAIMS: [Claim; 6] = [
    Claim::Mutex,
    Claim::Reentrant(ONE),
    Claim::ReadWrite(Mode::Read, ONE),
    Claim::ReadWrite(Mode::Write, ONE),
    Claim::Permits { limit: 3, count: ONE },
    Claim::Slot { limit: 3 },
];

/// Many more holders would only take longer.
const FEW: usize = 50;

/// Decodes the bytes; panics if a property is violated.
pub fn payload(bytes: &[u8]) {
    let Some(lock) = decode(bytes) else { return };
    if lock.is_vacant() {
        assert!(bytes.is_empty(), "a lock without holders was encoded");
        return;
    }
    check_lock(&lock);
    let stored = encode(&lock).expect("it has a holder");
    let again = decode(&stored).expect("what was stored can be loaded");
    assert_same(&lock, &again);
    assert!(encode(&again).as_deref() == Some(&stored), "it is stored in another form each time");
    if lock.holders() <= FEW {
        use_lock(&lock);
    }
}

/// Uses the lock as a server does after loading it.
fn use_lock(lock: &Lock) {
    let owners: Vec<Owner> = lock.owners().cloned().collect();
    let ends = lock.stored_holds().into_iter().filter_map(|hold| hold.until.timestamp());
    let mut moments: Vec<Timestamp> =
        ends.chain([Timestamp::from_ms(0), Timestamp::from_ms(i64::MAX as u64)]).collect();
    moments.sort();
    assert!(lock.memory_bytes() >= size_of::<Lock>());
    for now in moments.iter().copied() {
        let until = lock.last_deadline().unwrap_or(Deadline::Never);
        let live = lock.live(until, |hold| !hold.until.has_passed(now)).map_or(0, |live| live.number);
        let mut remaining = lock.clone();
        remaining.clamp(until);
        let gone = remaining.remove_expired(now);
        assert_eq!(remaining.holders() + gone.len(), owners.len(), "who is gone has held it");
        assert!(live <= remaining.holders() || !lock.is_shared(), "{live} live, {} remaining", remaining.holders());
        if !remaining.is_vacant() {
            check_lock(&remaining);
        }
        for claim in CLAIMS {
            for owner in [&owners[0], &Owner::new(b"newcomer").expect("a short name")] {
                check_admission(&remaining, owner.as_ref(), claim, now);
            }
        }
    }
    let mut left = lock.clone();
    for owner in &owners {
        check_lock(&left);
        left.renew(owner.as_bytes(), None, moments[0]);
        check_lock(&left);
        left.remove_holder(owner.as_bytes());
    }
    assert!(left.is_vacant(), "no holder is left");
}

/// An admitted owner then holds the lock, together with all holders that its request does not exclude.
fn check_admission(lock: &Lock, owner: OwnerRef<'_>, claim: Claim, now: Timestamp) {
    let admission = lock.admission(owner.as_bytes(), &claim);
    let Ok(Admission::Admit | Admission::AlreadyHeld) = admission else { return };
    let mut lock = lock.clone();
    let newest = lock.fence().or(Fence::new(1)).expect("1 is a fence");
    let fence = lock.kept_fence(owner.as_bytes(), &claim).unwrap_or(newest);
    let request = LockRequest { owner, claim, lease: Lease::Persist };
    let (grant, _) = lock.admit(&request, fence, now, Deadline::Never).expect("what was found admissible is granted");
    assert!(lock.is_held_by(owner.as_bytes()) && grant.holds > 0);
    check_lock(&lock);
}
