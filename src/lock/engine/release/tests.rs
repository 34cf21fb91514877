use super::*;
use crate::engine::acquire::Acquired;
use crate::engine::fixture::{key, owner, Fixture};
use crate::host::simulated::SentEffect;
use crate::host::WaitOutcome;
use crate::key::{ClientId, Key};
use crate::value::claim::{Count, Mode};
use crate::value::time::{Instant, Lease};

const MUTEX: Claim = Claim::Mutex;
const REENTRANT: Claim = Claim::Reentrant(Count::Delta(2));
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));
const PERMIT: Claim = Claim::Permits { limit: 2, count: Count::Delta(1) };

/// The rows of the table above: the requests that are granted or queued, what `a` releases, the holders afterwards, and
/// the effects on replicas.
#[test]
fn a_release_leaves_what_the_table_says() {
    let (hold, dropped) = (|name: &str| SentEffect::Hold(owner(name)), |name: &str| SentEffect::Drop(owner(name)));
    let one = Count::Delta(1);
    let read = ReleaseAmount::ReadWrite(Mode::Read, one);
    let rows = [
        // Fewer holds or permits.
        (vec![("a", REENTRANT)], ReleaseAmount::Reentrant(one), Released::Fewer(1), "a", vec![hold("a")]),
        (
            vec![("a", REENTRANT), ("b", REENTRANT)],
            ReleaseAmount::Reentrant(one),
            Released::Fewer(1),
            "a",
            vec![hold("a")],
        ),
        (vec![("a", WRITE), ("a", READ)], read, Released::Fewer(0), "a", vec![hold("a")]),
        (
            vec![("a", PERMIT), ("a", PERMIT), ("b", PERMIT)],
            ReleaseAmount::Permits(one),
            Released::Fewer(1),
            "a b",
            vec![hold("a"), hold("b")],
        ),
        // One of several holders goes.
        (vec![("a", READ), ("b", READ)], read, Released::Gone, "b", vec![dropped("a")]),
        (
            vec![("a", PERMIT), ("b", PERMIT), ("c", PERMIT)],
            ReleaseAmount::Permits(one),
            Released::Gone,
            "b c",
            vec![dropped("a"), hold("c")],
        ),
        // The last holder goes, and a request waits.
        (vec![("a", MUTEX), ("b", MUTEX), ("c", MUTEX)], ReleaseAmount::Mutex, Released::Gone, "b", vec![hold("b")]),
        (vec![("a", READ), ("b", WRITE), ("c", READ)], read, Released::Gone, "b", vec![dropped("a"), hold("b")]),
        // The last holder goes, and no request waits.
        (vec![("a", MUTEX)], ReleaseAmount::Mutex, Released::Gone, "", vec![SentEffect::Delete]),
        (vec![("a", READ)], read, Released::Gone, "", vec![SentEffect::Delete]),
        // Nothing ends.
        (vec![("b", MUTEX), ("c", MUTEX)], ReleaseAmount::Mutex, Released::NotHeld, "b", vec![]),
        (vec![], ReleaseAmount::Mutex, Released::NotHeld, "", vec![]),
        (vec![("a", REENTRANT)], ReleaseAmount::Reentrant(Count::Exactly(2)), Released::Same(2), "a", vec![]),
    ];
    for (requests, amount, released, holders, effects) in rows {
        let row = format!("{requests:?}, a gives {amount:?}");
        let mut fixture = Fixture::of(&requests);
        assert_eq!(fixture.release("a", amount), Ok(released), "{row}");
        assert_eq!(fixture.holders(), holders, "{row}");
        assert_eq!(fixture.effects(), effects, "{row}");
        assert!(!fixture.manager.has_due(), "{row}");
    }
}

#[test]
fn refused_writes_delay_the_hand_off() {
    for (claim, amount) in
        [(MUTEX, ReleaseAmount::Mutex), (WRITE, ReleaseAmount::ReadWrite(Mode::Write, Count::Delta(1)))]
    {
        let mut fixture = Fixture::of(&[("a", claim), ("b", claim)]);
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        assert_eq!(fixture.release("c", amount), Ok(Released::NotHeld));
        assert!(!fixture.manager.has_due(), "a release that ends no hold leaves nothing due");
        assert_eq!(fixture.release("a", amount), Ok(Released::Gone));
        assert_eq!((fixture.holders(), fixture.effects()), ("".into(), vec![SentEffect::Delete]), "{claim:?}");
        fixture.drain();
        assert!(fixture.holders().is_empty() && fixture.manager.has_due());
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.drain();
        assert_eq!(fixture.holders(), "b", "{claim:?}");
    }
}

#[test]
fn waiters_for_a_key_that_moves_get_try_again() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    fixture.server.keyspace.write_check = WriteCheck::SlotMoved;
    assert_eq!(fixture.release("c", ReleaseAmount::Mutex), Ok(Released::NotHeld));
    assert!(fixture.server.inbox.replies.is_empty(), "a release that ends no hold completes no waiter");
    assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::Gone));
    fixture.drain();
    assert!(matches!(fixture.server.inbox.replies[..], [(_, WaitOutcome::TryAgain)]));
    assert!(fixture.holders().is_empty() && fixture.manager.queues().is_empty());
}

#[test]
fn an_error_changes_nothing() {
    let wrong_lock_type = |lock_type| Err(KeyError::Invalid(InvalidClaim::WrongLockType(lock_type)));
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    assert_eq!(fixture.release("a", ReleaseAmount::Permits(Count::Delta(1))), wrong_lock_type(LockType::Mutex));
    assert_eq!((fixture.holders(), fixture.effects()), ("a".into(), vec![]));
    // A free key keeps the lock type of its waiters.
    fixture.server.keyspace.write_check = WriteCheck::Refused;
    fixture.server.keyspace.delete(&key());
    assert_eq!(fixture.release("a", ReleaseAmount::Reentrant(Count::Delta(1))), wrong_lock_type(LockType::Mutex));
    assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::NotHeld));
}

#[test]
fn a_release_unbinds_and_a_hold_that_has_ended_is_not_held() {
    let session = Some(ClientId(7));
    let lease = Lease::from_ms(300).unwrap();
    let mut fixture = Fixture::default();
    fixture.acquire("a", READ, session, lease);
    fixture.acquire("b", READ, session, Lease::Persist);
    let read = ReleaseAmount::ReadWrite(Mode::Read, Count::Delta(1));
    fixture.server.keyspace.now_ms += 301;
    assert_eq!(fixture.release("a", read), Ok(Released::NotHeld), "its lease is over");
    assert_eq!(fixture.manager.bindings().client_of(key().as_ref(), b"a"), None);
    assert_eq!(fixture.release("b", read), Ok(Released::Gone));
    assert!(fixture.manager.bindings().is_empty());
    assert_eq!(fixture.next_timer(), None, "nothing is to be renewed");
}

#[test]
fn the_holds_of_an_ended_connection_end_before_a_command_is_decided() {
    let mut fixture = Fixture::default();
    fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::Persist);
    fixture.manager.end_session(ClientId(7));
    assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::NotHeld));
    assert_eq!(fixture.holders(), "");
    // Holds of other connections stay.
    let mut fixture = Fixture::default();
    fixture.acquire("a", READ, Some(ClientId(7)), Lease::Persist);
    fixture.acquire("b", READ, Some(ClientId(8)), Lease::Persist);
    fixture.manager.end_session(ClientId(7));
    let read = ReleaseAmount::ReadWrite(Mode::Read, Count::Delta(1));
    assert_eq!(fixture.release("a", read), Ok(Released::NotHeld));
    assert_eq!(fixture.holders(), "b");
}

#[test]
fn a_release_hands_off_to_a_multi_key_request() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    let queued = fixture.acquire_all("b", &[b"k", b"l"], MUTEX, None, Lease::Persist);
    assert!(matches!(queued, Acquired::Queued(_)));
    assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.holders(), "b");
    assert!(fixture.server.keyspace.primary.contains_key(&Key::new(0, b"l")));
}

#[test]
fn a_failed_delivery_and_an_ended_connection_hand_off_as_a_release_does() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
    fixture.release("a", ReleaseAmount::Mutex).unwrap();
    let (granted, _) = fixture.server.inbox.replies[0];
    fixture.manager.undelivered(granted);
    fixture.effects();
    fixture.drain();
    assert_eq!((fixture.holders(), fixture.effects()), ("c".into(), vec![SentEffect::Hold(owner("c"))]));
    let mut fixture = Fixture::default();
    fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::Persist);
    fixture.acquire("b", MUTEX, None, Lease::Persist);
    fixture.effects();
    fixture.manager.end_session(ClientId(7));
    fixture.drain();
    assert_eq!((fixture.holders(), fixture.effects()), ("b".into(), vec![SentEffect::Hold(owner("b"))]));
}

#[test]
fn a_key_is_checked_for_its_lock_type_and_a_free_one_for_that_of_its_queue() {
    let wrong_lock_type = |lock_type| Err(KeyError::Invalid(InvalidClaim::WrongLockType(lock_type)));
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    fixture.acquire_all("a", &[b"r"], REENTRANT, None, Lease::Persist);
    let now = fixture.server.now();
    let check = |fixture: &mut Fixture, name: &[u8], lock_type| {
        let mut host = fixture.server.host(&now);
        let mut engine = fixture.manager.with_host(&mut host);
        let found = engine.open(KeyRef { db: 0, name }).lock_of_type(lock_type).map(|_| ());
        found
    };
    assert_eq!(check(&mut fixture, b"k", LockType::Mutex), Ok(()));
    assert_eq!(check(&mut fixture, b"free", LockType::Mutex), Ok(()));
    assert_eq!(check(&mut fixture, b"r", LockType::Mutex), wrong_lock_type(LockType::Reentrant));
    assert_eq!(check(&mut fixture, b"r", LockType::Reentrant), Ok(()));
    assert_eq!(check(&mut fixture, b"k", LockType::Semaphore), wrong_lock_type(LockType::Mutex));
    fixture.server.keyspace.delete(&key());
    assert_eq!(check(&mut fixture, b"k", LockType::Mutex), Ok(()));
    assert_eq!(check(&mut fixture, b"k", LockType::Semaphore), wrong_lock_type(LockType::Mutex));
}

#[test]
fn all_mutexes_are_released_or_none() {
    let wrong_lock_type = Err(KeyError::Invalid(InvalidClaim::WrongLockType(LockType::Reentrant)));
    let rows: [(&[&[u8]], _, _); 4] = [
        (&[b"k", b"r"], wrong_lock_type, "a"),
        (&[b"r"], wrong_lock_type, "a"),
        (&[b"k", b"free"], Ok(1), ""),
        (&[b"k", b"l"], Ok(2), ""),
    ];
    for (names, released, holders) in rows {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("a", &[b"r"], REENTRANT, None, Lease::Persist);
        let now = fixture.server.now();
        let found = fixture.manager.with_host(&mut fixture.server.host(&now)).release_multiple(0, names, b"a");
        assert_eq!((found, fixture.holders()), (released, holders.into()), "{names:?}");
    }
}

#[test]
fn a_reserved_position_keeps_no_lock_type() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    let (id, _) = fixture.manager.queues().requests().next().unwrap();
    fixture.manager.waits.queues.reserve_position(id, Instant::from_ms(60_000));
    assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.release("a", ReleaseAmount::Reentrant(Count::Delta(1))), Ok(Released::NotHeld));
    assert!(matches!(fixture.acquire("c", REENTRANT, None, Lease::Persist), Acquired::Granted(_)));
}

/// Rows: the requests that are granted or queued, the target of the break, how many owners lose the lock, the holders
/// afterwards, and the effects on replicas.
#[test]
fn a_break_ends_all_holds_of_its_target_and_hands_off_once() {
    let (hold, dropped) = (|name: &str| SentEffect::Hold(owner(name)), |name: &str| SentEffect::Drop(owner(name)));
    let (all_owners, a) = (HoldsOf::AllOwners, HoldsOf::Owner(b"a"));
    let rows = [
        (vec![("a", MUTEX)], all_owners, 1, "", vec![SentEffect::Delete]),
        (vec![("a", MUTEX), ("b", MUTEX), ("c", MUTEX)], all_owners, 1, "b", vec![hold("b")]),
        (vec![("a", MUTEX), ("b", MUTEX)], a, 1, "b", vec![hold("b")]),
        (vec![("b", MUTEX), ("c", MUTEX)], a, 0, "b", vec![]),
        (vec![], all_owners, 0, "", vec![]),
        (vec![], a, 0, "", vec![]),
        // A lock held more than once.
        (vec![("a", REENTRANT), ("b", REENTRANT)], a, 1, "b", vec![hold("b")]),
        (vec![("a", WRITE), ("a", READ), ("b", WRITE)], a, 1, "b", vec![dropped("a"), hold("b")]),
        // One of several, and all of them.
        (vec![("a", READ), ("b", READ), ("c", WRITE)], a, 1, "b", vec![dropped("a")]),
        (vec![("a", READ), ("b", READ)], all_owners, 2, "", vec![SentEffect::Delete]),
        (vec![("a", READ), ("b", READ), ("c", WRITE)], all_owners, 2, "c", vec![SentEffect::Delete, hold("c")]),
        // Queued requests stay: the permit that a still waits for is granted once.
        (vec![("a", PERMIT), ("b", PERMIT), ("a", PERMIT)], all_owners, 2, "a", vec![SentEffect::Delete, hold("a")]),
    ];
    for (requests, holds_of, broken, holders, effects) in rows {
        let row = format!("{requests:?}, {holds_of:?}");
        let mut fixture = Fixture::of(&requests);
        assert_eq!(fixture.break_holds(holds_of), Ok(broken), "{row}");
        assert_eq!(fixture.manager.observer.statistics.broken, broken as u64, "{row}");
        assert_eq!(fixture.holders(), holders, "{row}");
        assert_eq!(fixture.effects(), effects, "{row}");
        assert!(!fixture.manager.has_due(), "{row}");
    }
}

#[test]
fn a_key_that_is_no_lock_cannot_be_broken() {
    let mut fixture = Fixture::of(&[]);
    fixture.server.keyspace.put(&key(), crate::host::simulated::Stored::Foreign);
    for holds_of in [HoldsOf::AllOwners, HoldsOf::Owner(b"a")] {
        assert_eq!(fixture.break_holds(holds_of), Err(KeyError::WrongType));
    }
}

#[test]
fn a_broken_hold_is_bound_to_no_connection() {
    for holds_of in [HoldsOf::AllOwners, HoldsOf::Owner(b"a")] {
        let mut fixture = Fixture::of(&[("b", PERMIT)]);
        fixture.acquire("a", PERMIT, Some(ClientId(7)), Lease::from_ms(300).unwrap());
        assert!(!fixture.manager.bindings().is_empty());
        fixture.break_holds(holds_of).unwrap();
        assert!(fixture.manager.bindings().is_empty(), "{holds_of:?}");
    }
}

#[test]
fn refused_writes_delay_the_hand_off_of_a_broken_lock() {
    for claim in [MUTEX, WRITE] {
        let mut fixture = Fixture::of(&[("a", claim), ("b", claim)]);
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        assert_eq!(fixture.break_holds(HoldsOf::AllOwners), Ok(1));
        assert_eq!((fixture.holders(), fixture.effects()), ("".into(), vec![SentEffect::Delete]), "{claim:?}");
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.drain();
        assert_eq!(fixture.holders(), "b", "{claim:?}");
    }
}
