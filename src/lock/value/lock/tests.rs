use super::*;
use crate::value::claim::Count;
use crate::value::claim::Count::{Delta, Exactly};
use crate::value::rebuild::LockTypeAndLimit;
use InvalidClaim::*;

const MUTEX: Claim = Claim::Mutex;

fn reentrant(count: Count) -> Claim {
    Claim::Reentrant(count)
}

fn read(count: Count) -> Claim {
    Claim::ReadWrite(Mode::Read, count)
}

fn write(count: Count) -> Claim {
    Claim::ReadWrite(Mode::Write, count)
}

fn permits(limit: u32, count: Count) -> Claim {
    Claim::Permits { limit, count }
}

fn slot(limit: u32) -> Claim {
    Claim::Slot { limit }
}

fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn until(ms: u64) -> Deadline {
    Deadline::At(timestamp(ms))
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

/// Grants one claim after another at time 1, each with its lease. The first gets fencing token 1, the second 2, and so
/// on.
fn lock_with_leases(grants: &[(&str, Claim, i64)]) -> Lock {
    let mut lock = Lock::Vacant;
    for (number, (owner, claim, lease_ms)) in grants.iter().enumerate() {
        let admission = lock.admission(owner.as_bytes(), claim);
        assert!(matches!(admission, Ok(Admission::Admit | Admission::AlreadyHeld)), "{owner} {claim:?}: {admission:?}");
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let lease = Lease::from_ms(*lease_ms).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim: *claim, lease };
        let fence = lock.kept_fence(owner.as_bytes(), claim).unwrap_or(fence(number as u64 + 1));
        lock.admit(&request, fence, timestamp(1), Deadline::Never).unwrap();
    }
    lock
}

fn lock(grants: &[(&str, Claim)]) -> Lock {
    let grants: Vec<_> = grants.iter().map(|(owner, claim)| (*owner, *claim, -1)).collect();
    lock_with_leases(&grants)
}

/// Owner, fence, holds, reads.
fn shown(lock: &Lock) -> Vec<(String, u64, u32, u32)> {
    let holds = lock.holds(Deadline::Never);
    holds.iter().map(|hold| (format!("{:?}", hold.owner), hold.fence.get(), hold.holds, hold.reads)).collect()
}

/// The state table: earlier grants, the requesting owner, its claim, and the admission.
#[test]
fn admission_follows_the_state_table() {
    use Admission::*;
    let reads = |owners: &[&'static str]| owners.iter().map(|owner| (*owner, read(Delta(1)))).collect::<Vec<_>>();
    let one_permit = |limit| vec![("a", permits(limit, Delta(1)))];
    type Row = (Vec<(&'static str, Claim)>, &'static str, Claim, Result<Admission, InvalidClaim>);
    let rows: Vec<Row> = vec![
        // Mutex.
        (vec![], "a", MUTEX, Ok(Admit)),
        (vec![("a", MUTEX)], "a", MUTEX, Ok(AlreadyHeld)),
        (vec![("a", MUTEX)], "b", MUTEX, Ok(Wait)),
        (vec![("a", MUTEX)], "a", reentrant(Delta(1)), Err(WrongLockType(LockType::Mutex))),
        (vec![("a", MUTEX)], "b", read(Delta(1)), Err(WrongLockType(LockType::Mutex))),
        // Reentrant mutex.
        (vec![], "a", reentrant(Delta(1)), Ok(Admit)),
        (vec![("a", reentrant(Delta(2)))], "a", reentrant(Delta(1)), Ok(AlreadyHeld)),
        (vec![("a", reentrant(Delta(2)))], "a", reentrant(Exactly(2)), Ok(AlreadyHeld)),
        (vec![("a", reentrant(Delta(2)))], "a", reentrant(Exactly(1)), Err(HoldsMore(2))),
        (vec![("a", reentrant(Delta(2)))], "a", reentrant(Delta(u32::MAX)), Err(TooManyHolds)),
        (vec![("a", reentrant(Delta(2)))], "b", reentrant(Exactly(1)), Ok(Wait)),
        (vec![("a", reentrant(Delta(2)))], "a", MUTEX, Err(WrongLockType(LockType::Reentrant))),
        // Read/write lock: to read.
        (vec![], "a", read(Delta(1)), Ok(Admit)),
        (reads(&["a"]), "a", read(Delta(1)), Ok(AlreadyHeld)),
        (reads(&["a"]), "b", read(Delta(1)), Ok(Admit)),
        (reads(&["a", "b", "c"]), "d", read(Delta(1)), Ok(Admit)),
        (vec![("a", write(Delta(1)))], "a", read(Delta(1)), Ok(AlreadyHeld)),
        (vec![("a", write(Delta(1)))], "b", read(Delta(1)), Ok(Wait)),
        (vec![("a", write(Delta(1))), ("a", read(Delta(1)))], "b", read(Delta(1)), Ok(Wait)),
        (vec![("a", read(Delta(2)))], "a", read(Exactly(1)), Err(HoldsMore(2))),
        // Read/write lock: to write.
        (vec![], "a", write(Delta(1)), Ok(Admit)),
        (vec![("a", write(Delta(1)))], "a", write(Delta(1)), Ok(AlreadyHeld)),
        (vec![("a", write(Delta(1)))], "b", write(Delta(1)), Ok(Wait)),
        (reads(&["a"]), "a", write(Delta(1)), Ok(Admit)),
        (reads(&["a"]), "b", write(Delta(1)), Ok(Wait)),
        (reads(&["a", "b"]), "a", write(Delta(1)), Ok(Wait)),
        (reads(&["a", "b"]), "b", write(Delta(1)), Ok(Wait)),
        (reads(&["a", "b", "c"]), "c", write(Delta(1)), Ok(Wait)),
        (reads(&["a"]), "b", permits(1, Delta(1)), Err(WrongLockType(LockType::ReadWrite))),
        // Semaphore.
        (vec![], "a", permits(2, Delta(2)), Ok(Admit)),
        (vec![], "a", permits(2, Delta(3)), Err(OverLimit)),
        (one_permit(2), "b", permits(2, Delta(1)), Ok(Admit)),
        (one_permit(2), "b", permits(2, Delta(2)), Ok(Wait)),
        (one_permit(2), "b", permits(3, Delta(2)), Ok(Admit)),
        (one_permit(2), "b", permits(1, Delta(1)), Ok(Wait)),
        (one_permit(2), "a", permits(2, Delta(1)), Ok(Admit)),
        (one_permit(2), "a", permits(2, Exactly(1)), Ok(AlreadyHeld)),
        (one_permit(2), "a", permits(2, Exactly(2)), Ok(Admit)),
        (one_permit(2), "a", permits(2, Delta(2)), Ok(Wait)),
        (vec![("a", permits(2, Delta(2)))], "a", permits(2, Exactly(1)), Err(HoldsMore(2))),
        (vec![("a", permits(2, Delta(1))), ("b", permits(2, Delta(1)))], "c", permits(2, Delta(1)), Ok(Wait)),
        (vec![("a", permits(2, Delta(1))), ("b", permits(2, Delta(1)))], "a", permits(2, Delta(1)), Ok(Wait)),
        (one_permit(2), "b", read(Delta(1)), Err(WrongLockType(LockType::Semaphore))),
        // Semaphore, with a slot.
        (vec![], "a", slot(1), Ok(Admit)),
        (vec![("a", slot(2))], "a", slot(1), Ok(AlreadyHeld)),
        (vec![("a", slot(2))], "b", slot(2), Ok(Admit)),
        (vec![("a", slot(2))], "b", slot(1), Ok(Wait)),
        (vec![("a", slot(2))], "b", permits(2, Delta(1)), Ok(Admit)),
        (vec![("a", slot(2))], "b", permits(2, Delta(2)), Ok(Wait)),
        (vec![("a", slot(2))], "a", permits(2, Delta(1)), Err(HoldsSlot)),
        (vec![("a", slot(2))], "a", permits(2, Exactly(1)), Err(HoldsSlot)),
        (one_permit(2), "b", slot(2), Ok(Admit)),
        (one_permit(2), "b", slot(1), Ok(Wait)),
        (one_permit(2), "a", slot(2), Err(HoldsPermits)),
        (vec![("a", write(Delta(1)))], "a", slot(2), Err(WrongLockType(LockType::ReadWrite))),
    ];
    for (grants, owner, claim, admission) in rows {
        let lock = lock(&grants);
        let row = format!("{grants:?}, {owner} asks for {claim:?}");
        assert_eq!(lock.admission(owner.as_bytes(), &claim), admission, "{row}");
    }
}

#[test]
fn a_hold_whose_lease_has_expired_is_not_live() {
    let readers = lock_with_leases(&[("a", read(Delta(1)), 10), ("b", read(Delta(1)), 20)]);
    let live = |now| {
        let live = readers.live_holds(timestamp(now)).map(|hold| format!("{:?}", hold.owner));
        (live.collect::<Vec<_>>().join(" "), readers.live_hold(b"a", timestamp(now)).is_some())
    };
    assert_eq!((live(11), live(12), live(22)), (("a b".into(), true), ("b".into(), false), ("".into(), false)));
    // EXPIRE may have changed the deadline of the key, and with it the deadline of its only holder.
    let writer = lock_with_leases(&[("a", write(Delta(1)), 10)]);
    assert_eq!(writer.live_holds(timestamp(99)).count(), 1);
}

#[test]
fn only_new_holders_and_upgrades_get_a_new_fence() {
    let rows = [
        (vec![("a", MUTEX)], "a", MUTEX, Some(1)),
        (vec![("a", MUTEX)], "b", MUTEX, None),
        (vec![("a", reentrant(Delta(1)))], "a", reentrant(Delta(1)), Some(1)),
        (vec![("a", read(Delta(1)))], "a", read(Delta(1)), Some(1)),
        (vec![("a", read(Delta(1)))], "a", write(Delta(1)), None),
        (vec![("a", write(Delta(1))), ("a", read(Delta(1)))], "a", write(Delta(1)), Some(1)),
        (vec![("a", permits(2, Delta(1)))], "a", permits(2, Delta(1)), Some(1)),
        (vec![("a", permits(2, Delta(1)))], "b", permits(2, Delta(1)), None),
    ];
    for (grants, owner, claim, kept) in rows {
        let lock = lock(&grants);
        let fence = lock.kept_fence(owner.as_bytes(), &claim).map(Fence::get);
        assert_eq!(fence, kept, "{grants:?}, {owner} asks for {claim:?}");
        let is_upgrade = lock.is_held_by(owner.as_bytes()) && kept.is_none();
        assert_eq!(lock.is_upgrade(owner.as_bytes(), &claim), is_upgrade, "{grants:?}, {owner} asks for {claim:?}");
    }
}

#[test]
fn a_grant_never_ends_a_lease_earlier() {
    for claim in [MUTEX, reentrant(Delta(1)), write(Delta(1)), permits(9, Delta(1))] {
        for (lease_ms, end) in [(10, 101), (500, 501)] {
            let mut lock = lock_with_leases(&[("a", claim, 100)]);
            let owner = Owner::new(b"a").unwrap();
            let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::from_ms(lease_ms).unwrap() };
            let (_, key_until) = lock.admit(&request, fence(1), timestamp(1), until(101)).unwrap();
            assert_eq!(key_until, until(end), "{claim:?} for {lease_ms} ms");
            assert_eq!(lock.hold(b"a", key_until).unwrap().lease, request.lease, "{claim:?} for {lease_ms} ms");
        }
    }
}

/// Rows: earlier grants, the claim granted to `a`, and the result of revoking that grant.
#[test]
fn revoking_a_grant_restores_the_earlier_holds() {
    let rows = [
        (vec![], MUTEX, Released::Gone),
        (vec![("a", MUTEX)], MUTEX, Released::Same(1)),
        (vec![], reentrant(Delta(2)), Released::Gone),
        (vec![("a", reentrant(Delta(1)))], reentrant(Delta(2)), Released::Fewer(1)),
        (vec![("a", reentrant(Delta(2)))], reentrant(Exactly(2)), Released::Same(2)),
        (vec![("b", read(Delta(1)))], read(Delta(1)), Released::Gone),
        (vec![("a", read(Delta(1)))], read(Delta(1)), Released::Fewer(1)),
        (vec![("a", write(Delta(1)))], read(Delta(1)), Released::Fewer(0)),
        (vec![("b", permits(3, Delta(1)))], permits(3, Delta(2)), Released::Gone),
        (vec![("a", permits(3, Delta(1)))], permits(3, Delta(2)), Released::Fewer(1)),
        (vec![("b", slot(3))], slot(3), Released::Gone),
        (vec![("b", slot(3)), ("a", slot(3))], slot(3), Released::Same(1)),
    ];
    for (grants, claim, released) in rows {
        let mut lock = lock(&grants);
        let before = shown(&lock);
        let owner = Owner::new(b"a").unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let fence = lock.kept_fence(b"a", &claim).unwrap_or(fence(9));
        let (grant, _) = lock.admit(&request, fence, timestamp(1), Deadline::Never).unwrap();
        let mut later = lock.clone();
        assert_eq!(lock.revoke(b"a", &claim, &grant), Ok(released), "{grants:?}, {claim:?}");
        assert_eq!(shown(&lock), before, "{grants:?}, {claim:?}");
        // A grant is not revoked after a later change: another number of holds, or another grant.
        if claim != MUTEX {
            let more = Grant { holds: grant.holds + 1, ..grant };
            assert_eq!(later.revoke(b"a", &claim, &more), Ok(Released::NotHeld), "{grants:?}, {claim:?}");
        }
        let other = Grant { fence: Fence::new(fence.get() + 1).unwrap(), ..grant };
        assert_eq!(later.revoke(b"a", &claim, &other), Ok(Released::NotHeld), "{grants:?}, {claim:?}");
        assert_eq!(later.revoke(b"z", &claim, &grant), Ok(Released::NotHeld), "{grants:?}, {claim:?}");
    }
}

/// Steps by owner (a letter; `-` removes the hold, `+` asks for a permit without a slot), and the slots of the holders
/// afterwards.
#[test]
fn a_slot_is_the_smallest_free_number_and_is_kept() {
    let rows = [
        ("a b c", "a0 b1 c2"),
        ("a b -a c", "b1 c0"),
        ("a b c -b -a d e", "c2 d0 e1"),
        ("a b -a b", "b1"),
        ("x+ a b", "x a0 b1"),
        ("a x+ -a b", "x b0"),
        ("a b -a -b c", "c0"),
        ("a b -a x+ -b c", "x c0"),
    ];
    for (steps, slots) in rows {
        let mut lock = Lock::Vacant;
        for (number, step) in steps.split(' ').enumerate() {
            let (name, claim) = (step.trim_matches(['-', '+']), slot(9));
            if step.starts_with('-') {
                lock.remove_holder(name.as_bytes());
                continue;
            }
            let claim = if step.ends_with('+') { permits(9, Delta(1)) } else { claim };
            let owner = Owner::new(name.as_bytes()).unwrap();
            let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
            let fence = lock.kept_fence(name.as_bytes(), &claim).unwrap_or(fence(number as u64 + 1));
            let (grant, _) = lock.admit(&request, fence, timestamp(1), Deadline::Never).unwrap();
            let held = lock.hold(name.as_bytes(), Deadline::Never).unwrap();
            assert_eq!((grant.slot, grant.holds), (held.slot, held.holds), "{steps}");
        }
        let shown = |hold: Hold<'_>| match hold.slot {
            Some(slot) => format!("{:?}{}", hold.owner, slot.number()),
            None => format!("{:?}", hold.owner),
        };
        let mut held: Vec<_> = lock.holds(Deadline::Never).into_iter().map(shown).collect();
        let mut expected: Vec<_> = slots.split(' ').collect();
        held.sort();
        expected.sort();
        assert_eq!(held, expected, "{steps}");
    }
}

#[test]
fn a_release_removes_the_named_amount() {
    let rows = [
        (vec![("a", MUTEX)], "a", ReleaseAmount::Mutex, Ok(Released::Gone)),
        (vec![("a", MUTEX)], "b", ReleaseAmount::Mutex, Ok(Released::NotHeld)),
        (vec![("a", MUTEX)], "a", ReleaseAmount::Reentrant(Delta(1)), Err(WrongLockType(LockType::Mutex))),
        (vec![("a", reentrant(Delta(3)))], "a", ReleaseAmount::Reentrant(Delta(1)), Ok(Released::Fewer(2))),
        (vec![("a", reentrant(Delta(3)))], "a", ReleaseAmount::Reentrant(Exactly(3)), Ok(Released::Same(3))),
        (vec![("a", reentrant(Delta(3)))], "a", ReleaseAmount::Reentrant(Exactly(0)), Ok(Released::Gone)),
        (vec![("a", reentrant(Delta(3)))], "a", ReleaseAmount::Reentrant(Delta(4)), Err(HoldsFewer(3))),
        (vec![("a", read(Delta(1)))], "a", ReleaseAmount::ReadWrite(Mode::Write, Delta(1)), Ok(Released::NotHeld)),
        (vec![("a", read(Delta(1)))], "a", ReleaseAmount::ReadWrite(Mode::Read, Delta(1)), Ok(Released::Gone)),
        (
            vec![("a", write(Delta(1))), ("a", read(Delta(1)))],
            "a",
            ReleaseAmount::ReadWrite(Mode::Write, Delta(1)),
            Ok(Released::Fewer(0)),
        ),
        (vec![("a", permits(3, Delta(2)))], "a", ReleaseAmount::Permits(Delta(1)), Ok(Released::Fewer(1))),
        (vec![("a", permits(3, Delta(2)))], "a", ReleaseAmount::Mutex, Err(WrongLockType(LockType::Semaphore))),
    ];
    for (grants, owner, amount, released) in rows {
        let mut lock = lock(&grants);
        assert_eq!(lock.release(owner.as_bytes(), &amount), released, "{grants:?}, {owner} gives {amount:?}");
        assert_eq!(lock.is_vacant(), released == Ok(Released::Gone), "{grants:?}, {owner} gives {amount:?}");
    }
}

#[test]
fn an_eviction_removes_every_hold_of_one_owner() {
    for claim in [MUTEX, reentrant(Delta(3)), write(Delta(2)), permits(3, Delta(3))] {
        let mut lock = lock(&[("a", claim)]);
        assert_eq!(lock.remove_holder(b"b"), Released::NotHeld, "{claim:?}");
        assert_eq!(lock.remove_holder(b"a"), Released::Gone, "{claim:?}");
        assert!(lock.is_vacant(), "{claim:?}");
    }
    let mut semaphore = lock(&[("a", permits(3, Delta(2))), ("b", permits(3, Delta(1)))]);
    assert_eq!(semaphore.remove_holder(b"a"), Released::Gone);
    assert_eq!(shown(&semaphore), [("b".into(), 2, 1, 0)]);
    assert_eq!(semaphore.admission(b"c", &permits(3, Delta(2))), Ok(Admission::Admit), "its permits are back");
}

#[test]
fn a_renewal_restarts_the_lease_of_one_owner() {
    for claim in [MUTEX, reentrant(Delta(1)), write(Delta(1)), permits(2, Delta(1))] {
        let mut lock = lock_with_leases(&[("a", claim, 10)]);
        assert_eq!(lock.renew(b"b", None, timestamp(5)), None, "{claim:?}");
        assert_eq!(lock.renew(b"a", None, timestamp(5)), Some(until(15)), "{claim:?}: of the length last given");
        assert_eq!(lock.renew(b"a", Lease::from_ms(3), timestamp(5)), Some(until(8)), "{claim:?}: it may be shorter");
        assert_eq!(lock.renew(b"a", None, timestamp(6)), Some(until(9)), "{claim:?}: the length is kept");
    }
    let mut readers = lock_with_leases(&[("a", read(Delta(1)), 10), ("b", read(Delta(1)), 50)]);
    assert_eq!(readers.renew(b"a", None, timestamp(5)), Some(until(51)), "the key ends with the last of them");
    assert_eq!(readers.hold(b"a", Deadline::Never).unwrap().until, until(15));
    assert_eq!(Lock::Vacant.renew(b"a", None, timestamp(5)), None);
}

#[test]
fn a_changed_deadline_of_the_key_expires_holders_earlier() {
    let ends = |lock: &Lock| lock.stored_holds().iter().map(|hold| hold.until).collect::<Vec<_>>();
    // A single holder expires with the key.
    for key_until in [until(5), until(11), until(99), Deadline::Never] {
        let mut one = lock_with_leases(&[("a", read(Delta(1)), 10)]);
        assert_eq!(one.clamp(key_until), key_until != until(11), "{key_until:?}");
        assert_eq!(ends(&one), [key_until]);
    }
    // Several expire no later than the key.
    let rows = [(until(5), [5, 5], true), (until(15), [11, 15], true), (until(21), [11, 21], false)];
    for (key_until, after, changed) in rows {
        let mut two = lock_with_leases(&[("a", read(Delta(1)), 10), ("b", read(Delta(1)), 20)]);
        assert_eq!(two.clamp(key_until), changed, "{key_until:?}");
        assert_eq!(ends(&two), after.map(until), "{key_until:?}");
    }
    let mut mutex = lock_with_leases(&[("a", MUTEX, 10)]);
    assert!(!mutex.clamp(until(5)), "the only deadline of a mutex is that of its key");
}

/// The owners that `remove_expired` removes at this millisecond.
fn expired_at(lock: &mut Lock, ms: u64) -> Vec<Owner> {
    lock.remove_expired(timestamp(ms)).into_iter().map(|holder| holder.owner).collect()
}

#[test]
fn holders_with_expired_leases_are_removed() {
    let grants = [("a", permits(3, Delta(1)), 10), ("b", permits(3, Delta(1)), 20), ("c", permits(3, Delta(1)), -1)];
    let mut semaphore = lock_with_leases(&grants);
    assert_eq!(semaphore.first_deadline(Deadline::Never), until(11));
    assert_eq!(semaphore.last_deadline(), Some(Deadline::Never));
    assert_eq!(expired_at(&mut semaphore, 11), [], "over one millisecond after its deadline");
    assert_eq!(expired_at(&mut semaphore, 22), [Owner::new(b"a").unwrap(), Owner::new(b"b").unwrap()]);
    assert_eq!(semaphore.admission(b"d", &permits(3, Delta(2))), Ok(Admission::Admit), "their permits are back");
    assert_eq!(semaphore.first_deadline(until(50)), until(50), "the only holder ends with the key");
    let mut mutex = lock_with_leases(&[("a", MUTEX, 10)]);
    assert_eq!(expired_at(&mut mutex, 99), [], "a mutex ends with its key");
    assert_eq!((mutex.first_deadline(until(7)), mutex.last_deadline()), (until(7), None));
}

/// Rows: grants, the deadline of the key, when the first holder expires, and whether one of several is stored with a
/// later deadline than the key.
#[test]
fn several_holders_expire_by_themselves_and_one_with_its_key() {
    let never = Deadline::Never;
    let (a, b) = (("a", read(Delta(1)), 10), ("b", read(Delta(1)), 20));
    let rows = [
        (vec![("a", MUTEX, 10)], until(5), until(5), false),
        (vec![a], until(5), until(5), false),
        (vec![a, b], until(5), until(5), true),
        (vec![a, b], until(20), until(11), true),
        (vec![a, b], until(21), until(11), false),
        (vec![a, b], never, until(11), false),
    ];
    for (grants, key_until, first, outlives_key) in rows {
        let row = format!("{grants:?}, the key {key_until:?}");
        let lock = lock_with_leases(&grants);
        assert_eq!(lock.has_multiple_holders(), grants.len() > 1, "{row}");
        assert_eq!(lock.first_deadline(key_until), first, "{row}");
        assert_eq!(lock.outlives_key(key_until), outlives_key, "{row}");
    }
}

#[test]
fn a_lock_reports_lock_type_limit_fence_owner_and_memory() {
    let shared = size_of::<Lock>() + size_of::<Shared>() + 4 * size_of::<crate::value::holders::Record>();
    let rows = [
        (lock(&[]), None, None, None, "", size_of::<Lock>()),
        (lock(&[("a", MUTEX)]), Some(LockType::Mutex), None, Some(1), "a", size_of::<Lock>()),
        (lock(&[("a", reentrant(Delta(1)))]), Some(LockType::Reentrant), None, Some(1), "a", size_of::<Lock>()),
        (lock(&[("a", read(Delta(1))), ("b", read(Delta(1)))]), Some(LockType::ReadWrite), None, Some(2), "", shared),
        (lock(&[("a", permits(3, Delta(2)))]), Some(LockType::Semaphore), Some(3), Some(1), "", shared),
    ];
    for (mut lock, lock_type, limit, fence, only_owner, memory_bytes) in rows {
        let is_shared = lock_type.is_some_and(|lock_type| !lock_type.is_exclusive());
        assert_eq!((lock.lock_type(), lock.is_shared(), lock.semaphore_limit()), (lock_type, is_shared, limit));
        assert_eq!((lock.is_vacant(), lock.fence().map(Fence::get)), (lock_type.is_none(), fence), "{lock_type:?}");
        let owner = lock.exclusive_owner().map(|owner| format!("{owner:?}")).unwrap_or_default();
        assert_eq!((owner.as_str(), lock.memory_bytes()), (only_owner, memory_bytes), "{lock_type:?}");
        let kind = lock_type.and_then(|lock_type| LockTypeAndLimit::of(lock_type, limit));
        assert_eq!(lock.lock_type_and_limit(), kind);
        // Only a semaphore has a limit, and it is never 0.
        assert_eq!((lock.set_limit(0), lock.set_limit(9), lock.set_limit(9)), (false, limit.is_some(), false));
        assert_eq!(lock.semaphore_limit(), limit.map(|_| 9));
    }
    let long = [b'x'; 100];
    let long = std::str::from_utf8(&long).unwrap();
    assert_eq!(lock(&[(long, MUTEX)]).memory_bytes(), size_of::<Lock>() + 100);
}

#[test]
fn the_owners_of_a_lock_are_listed_and_counted() {
    let owners = |lock: &Lock| (lock.owners().count(), lock.holders());
    let readers = lock(&[("a", read(Delta(1))), ("b", read(Delta(1)))]);
    assert_eq!((owners(&readers), owners(&lock(&[("a", MUTEX)])), owners(&Lock::Vacant)), ((2, 2), (1, 1), (0, 0)));
}

#[test]
fn the_first_live_holder_has_the_smallest_fence_wherever_it_is_stored() {
    for (released, expected) in [("a", ("b", 3)), ("b", ("a", 3)), ("d", ("a", 3)), ("", ("a", 4))] {
        let mut lock = lock(&["a", "b", "c", "d"].map(|name| (name, permits(9, Delta(1)))));
        _ = lock.release(released.as_bytes(), &ReleaseAmount::Permits(Delta(1)));
        let live = lock.live(Deadline::Never, |_| true).unwrap();
        assert_eq!((format!("{:?}", live.first.owner).as_str(), live.number), expected, "without {released}");
    }
    let semaphore = lock(&[("a", permits(9, Delta(1)))]);
    assert!(semaphore.live(Deadline::Never, |_| false).is_none());
}
