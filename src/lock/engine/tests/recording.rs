//! Tests of what is counted and recorded.

use crate::engine::acquire::AcquireRequest;
use crate::engine::fixture::{key, owner, Fixture};
use crate::engine::keyspace_changes::LockRemoval;
use crate::engine::lock_manager::LockError;
use crate::engine::observer::{EndedBy, Observe, Observer, Occurrence, Statistics};
use crate::engine::release::HoldsOf;
use crate::engine::session::{RenewRequest, Renewed};
use crate::host::simulated::Stored;
use crate::key::{ClientId, RequestId};
use crate::queue::queues::WaitQueues;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::{Claim, Count, LockRequest, Mode, ReleaseAmount};
use crate::value::fence::Fence;
use crate::value::outcome::KeyError;
use crate::value::time::{Deadline, Lease, Now, Timestamp};

const MUTEX: Claim = Claim::Mutex;
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const TWICE: Claim = Claim::Reentrant(Count::Delta(2));

/// A fixture that records every change.
fn observed() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.manager.observer.settings.changes = true;
    fixture
}

/// The records in short: owner, event and number.
fn records(fixture: &mut Fixture) -> Vec<String> {
    let short = |occurrence: Occurrence| match occurrence {
        Occurrence::Granted { owner, grant, waited, .. } => match waited {
            None => format!("{owner:?} granted {}", grant.holds),
            Some(waited) => format!("{owner:?} granted {} after {}", grant.holds, waited.ms),
        },
        Occurrence::Ended { owner, by, held_ms, waiters, .. } => {
            let by = format!("{by:?}").split('(').next().map(str::to_owned).unwrap_or_default();
            format!("{owner:?} {by} after {held_ms}, {waiters} wait")
        }
        Occurrence::Renewed { owner, .. } => format!("{owner:?} renewed"),
        Occurrence::PartiallyReleased { owner, .. } => format!("{owner:?} fewer"),
        Occurrence::DeadlockRefused { owner, .. } => format!("{owner:?} deadlock"),
        Occurrence::MaxWaitersRefused { owner, .. } => format!("{owner:?} max waiters"),
        Occurrence::Protected { owner, waiters, .. } => format!("{owner:?} protected, {waiters} wait"),
        Occurrence::GraceBegan { ms } => format!("grace of {ms}"),
        Occurrence::GraceEnded => "grace is over".into(),
    };
    fixture.manager.observer.occurrences.take().into_iter().map(short).collect()
}

#[test]
fn a_hand_off_is_the_end_and_then_the_grant() {
    let mut fixture = observed();
    fixture.acquire("a", MUTEX, None, Lease::Persist);
    fixture.acquire("b", MUTEX, None, Lease::Persist);
    fixture.server.keyspace.now_ms += 70;
    fixture.release("a", ReleaseAmount::Mutex).unwrap();
    assert_eq!(records(&mut fixture), ["a granted 1", "a Released after 70, 1 wait", "b granted 1 after 70"]);
    let statistics = fixture.manager.observer.statistics;
    assert_eq!((statistics.grants_immediate(), statistics.grants_after_wait, statistics.releases()), (1, 1, 1));
    assert_eq!(fixture.manager.observer.wait_times.take().collect::<Vec<_>>(), [70]);
}

#[test]
fn every_refusal_is_counted_by_its_kind() {
    let mut observer = Observer::default();
    for (error, times) in [
        (LockError::Deadlock(Vec::new()), 3),
        (LockError::MaxWaiters(WaiterLimit::Server(1)), 4),
        (LockError::Grace, 5),
        (LockError::Key(KeyError::WrongType), 1),
    ] {
        let refused = |_| observer.refused(&WaitQueues::default(), key().as_ref(), &owner("a"), &error);
        (0..times).for_each(refused);
    }
    let Statistics { deadlocks, max_waiters_refusals, grace_refusals, .. } = observer.statistics;
    assert_eq!([deadlocks, max_waiters_refusals, grace_refusals], [3, 4, 5]);
    assert_eq!(observer.occurrences.take().len(), 7, "deadlocks and refusals for the number of waiters");
}

#[test]
fn a_request_that_is_not_granted_is_counted() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    for (name, not_granted) in [("b", 1), ("a", 1), ("b", 2)] {
        let (owner, now) = (owner(name), fixture.server.now());
        let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
        let request = AcquireRequest { db: 0, names: &[b"k"], request, wait: None, session: None };
        _ = fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request);
        assert_eq!(fixture.manager.observer.statistics.not_granted, not_granted, "{name}");
    }
}

#[test]
fn a_grant_reports_how_many_other_requests_wait_for_the_key() {
    let mut fixture = observed();
    for name in ["a", "b", "c"] {
        fixture.acquire(name, MUTEX, None, Lease::Persist);
    }
    fixture.release("a", ReleaseAmount::Mutex).unwrap();
    let granted = |occurrence| match occurrence {
        Occurrence::Granted { owner, waiters, .. } => Some(format!("{owner:?} {waiters}")),
        _ => None,
    };
    let granted: Vec<_> = fixture.manager.observer.occurrences.take().into_iter().filter_map(granted).collect();
    assert_eq!(granted, ["a 0", "b 1"]);
}

#[test]
fn a_repeated_request_is_recorded_if_it_changes_something() {
    let mut fixture = observed();
    let lease = |ms| Lease::from_ms(ms).unwrap();
    for (lease, expected) in [
        (lease(300), vec!["a granted 1"]),
        (lease(300), vec![]),
        (lease(299), vec![]),
        (lease(301), vec!["a granted 1"]),
        (Lease::Persist, vec!["a granted 1"]),
        (Lease::Persist, vec![]),
    ] {
        fixture.acquire("a", MUTEX, None, lease);
        assert_eq!(records(&mut fixture), expected, "{lease:?}");
    }
    // Both keys get a new fencing token.
    fixture.acquire_all("a", &[b"k", b"l"], MUTEX, None, Lease::Persist);
    assert_eq!(records(&mut fixture), ["a granted 1", "a granted 1"]);
}

#[test]
fn growing_and_shrinking_holds_are_recorded() {
    let mut fixture = observed();
    fixture.acquire("a", TWICE, None, Lease::Persist);
    fixture.acquire("a", TWICE, None, Lease::Persist);
    fixture.release("a", ReleaseAmount::Reentrant(Count::Delta(1))).unwrap();
    fixture.release("a", ReleaseAmount::Reentrant(Count::Exactly(0))).unwrap();
    assert_eq!(records(&mut fixture), ["a granted 2", "a granted 4", "a fewer", "a Released after 0, 0 wait"]);
    assert_eq!(
        (fixture.manager.observer.statistics.grants_immediate(), fixture.manager.observer.statistics.releases()),
        (2, 2)
    );
}

#[test]
fn a_lease_expiry_is_recorded_if_a_request_waits_for_a_mutex_or_shared_lock() {
    for claim in [MUTEX, READ] {
        let mut fixture = Fixture::default();
        fixture.acquire("a", claim, None, Lease::from_ms(100).unwrap());
        if claim == READ {
            fixture.acquire("r", READ, None, Lease::from_ms(5_000).unwrap());
            fixture.acquire("s", Claim::ReadWrite(Mode::Write, Count::Delta(1)), None, Lease::Persist);
        } else {
            fixture.acquire("s", MUTEX, None, Lease::Persist);
        }
        fixture.server.keyspace.now_ms += 101;
        fixture.tick();
        fixture.drain();
        let is_shared = claim == READ;
        let ended = if is_shared { "a LeaseExpired after 100, 1 wait" } else { "a Expired after 101, 1 wait" };
        assert_eq!(records(&mut fixture), [ended], "{claim:?}");
        assert_eq!(
            fixture.manager.observer.statistics.leases_expired,
            u64::from(is_shared),
            "the host counts the ends of mutexes"
        );
    }
}

/// Rows: how a hold ends, and whether that is recorded if no request waits for the key, and if one does.
#[test]
fn an_unsolicited_end_is_recorded_if_a_request_waits_or_the_owner_still_needs_the_lock() {
    use EndedBy::{Broken, Disconnected, Expired, LeaseExpired, Released, Undelivered};
    for (by, alone, waited_for) in [
        (Released, false, false),
        (Disconnected, false, false),
        (LeaseExpired(Timestamp::from_ms(1_000)), false, true),
        (Expired, false, true),
        (Broken, true, true),
        (Undelivered, true, true),
    ] {
        for (requests, expected) in [(&[("a", MUTEX)][..], alone), (&[("a", MUTEX), ("b", MUTEX)], waited_for)] {
            let mut fixture = Fixture::of(requests);
            let (now, fence) = (fixture.server.now(), fixture.stored().0.fence().unwrap());
            fixture.manager.record_end(&now, key().as_ref(), b"a", fence, by);
            assert_eq!(!fixture.manager.observer.occurrences.is_empty(), expected, "{by:?} {requests:?}");
        }
    }
}

#[test]
fn a_holder_removed_long_after_its_lease_expired_has_held_until_the_expiry() {
    let mut fixture = observed();
    for (name, lease_ms) in [("a", 100), ("b", 900_000)] {
        fixture.acquire(name, READ, None, Lease::from_ms(lease_ms).unwrap());
    }
    fixture.server.keyspace.now_ms += 600_000;
    fixture.acquire("c", READ, None, Lease::Persist);
    assert_eq!(records(&mut fixture)[2..], ["a LeaseExpired after 100, 0 wait", "c granted 1"]);
}

#[test]
fn the_expiry_of_a_key_reports_how_long_the_hold_lasted() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    let fence = fixture.stored().0.fence().unwrap();
    fixture.server.keyspace.now_ms += 70;
    let now = fixture.server.now();
    fixture.manager.hold_expired(&now, key().as_ref(), &owner("a"), fence);
    assert_eq!(records(&mut fixture), ["a Expired after 70, 1 wait"]);
}

#[test]
fn only_long_holds_or_waits_are_recorded_if_a_threshold_is_set() {
    for (after_ms, observe, expected) in [
        (49, Observe { holds_ms: Some(50), ..Observe::default() }, &[][..]),
        (50, Observe { holds_ms: Some(50), ..Observe::default() }, &["a Released after 50, 1 wait"]),
        (49, Observe { waits_ms: Some(50), ..Observe::default() }, &[]),
        (50, Observe { waits_ms: Some(50), ..Observe::default() }, &["b granted 1 after 50"]),
    ] {
        let mut fixture = Fixture::default();
        fixture.manager.observer.settings = observe;
        fixture.acquire("a", MUTEX, None, Lease::Persist);
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.now_ms += after_ms;
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        assert_eq!(records(&mut fixture), expected, "{after_ms} {observe:?}");
    }
}

#[test]
fn rare_occurrences_are_always_recorded() {
    let mut fixture = Fixture::default();
    fixture.manager.begin_grace(fixture.server.keyspace.instant(), 100);
    fixture.server.keyspace.now_ms += 100;
    fixture.tick();
    assert_eq!(records(&mut fixture), ["grace of 100", "grace is over"]);
    fixture.acquire("a", MUTEX, None, Lease::Persist);
    fixture.acquire_all("b", &[b"l"], MUTEX, None, Lease::Persist);
    fixture.acquire("b", MUTEX, None, Lease::Persist);
    fixture.try_acquire("a", &[b"l"], MUTEX).unwrap_err();
    fixture.manager.limits.max_waiters = 1;
    fixture.try_acquire("c", &[b"k"], MUTEX).unwrap_err();
    assert_eq!(records(&mut fixture), ["a deadlock", "c max waiters"]);
    fixture.release("a", ReleaseAmount::Mutex).unwrap();
    fixture.manager.undelivered(fixture.server.inbox.replies[0].0);
    fixture.drain();
    assert_eq!(records(&mut fixture), ["b Undelivered after 0, 0 wait"]);
    let Statistics { deadlocks, max_waiters_refusals, undelivered_grants, .. } = fixture.manager.observer.statistics;
    assert_eq!((deadlocks, max_waiters_refusals, undelivered_grants), (1, 1, 1));
}

#[test]
fn an_undelivered_grant_is_recorded_as_such_whatever_ends_it_first() {
    type Lost = fn(&mut Fixture, RequestId);
    let rows: [(&str, Option<ClientId>, Lost); 4] = [
        ("no session", None, |fixture, request| fixture.manager.undelivered(request)),
        ("known to be undelivered when its connection ends", Some(ClientId(7)), |fixture, request| {
            fixture.manager.undelivered(request);
            fixture.manager.end_session(ClientId(7));
        }),
        ("opened before the drain", Some(ClientId(7)), |fixture, request| {
            fixture.manager.undelivered(request);
            fixture.manager.end_session(ClientId(7));
            fixture.acquire("c", MUTEX, None, Lease::Persist);
        }),
        ("known to be undelivered later", Some(ClientId(7)), |fixture, request| {
            fixture.manager.end_session(ClientId(7));
            fixture.drain();
            fixture.manager.undelivered(request);
        }),
    ];
    for (row, session, lost) in rows {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire("b", MUTEX, session, Lease::Persist);
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.replies[0];
        lost(&mut fixture, granted);
        fixture.drain();
        let records = records(&mut fixture);
        assert!(records.iter().any(|line| line.starts_with("b Undelivered")), "{row}: {records:?}");
        let statistics = &fixture.manager.observer.statistics;
        assert_eq!((statistics.releases(), statistics.undelivered_grants), (1, 1), "{row}");
    }
}

#[test]
fn renewals_are_counted_and_recorded_unless_a_session_made_them() {
    for claim in [MUTEX, READ] {
        let mut fixture = observed();
        fixture.acquire("a", claim, Some(ClientId(7)), Lease::from_ms(300).unwrap());
        fixture.server.keyspace.now_ms += 100;
        fixture.tick();
        assert_eq!(
            (records(&mut fixture), fixture.manager.observer.statistics.renewals),
            (vec!["a granted 1".into()], 1)
        );
        let request = RenewRequest { db: 0, names: &[b"k"], owner: b"a", lock_type: claim.lock_type(), lease: None };
        let now = fixture.server.now();
        assert_eq!(fixture.manager.with_host(&mut fixture.server.host(&now)).renew(&request), Ok(Renewed::All));
        fixture.manager.end_session(ClientId(7));
        fixture.drain();
        assert_eq!(records(&mut fixture), ["a renewed", "a Disconnected after 100, 0 wait"], "{claim:?}");
        assert_eq!(
            (fixture.manager.observer.statistics.renewals, fixture.manager.observer.statistics.releases()),
            (2, 1)
        );
    }
}

#[test]
fn a_lock_removed_by_another_command_is_not_recorded() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    let Some(Stored::Lock(lock, until)) = fixture.server.keyspace.primary.get(&key()) else { panic!() };
    assert_eq!(*until, Deadline::Never);
    let fence = lock.fence().unwrap();
    let now = fixture.server.now();
    fixture.manager.hold_removed(&now, key().as_ref(), &owner("a"), fence, LockRemoval::Command);
    assert_eq!(records(&mut fixture), Vec::<String>::new());
    assert_eq!(fixture.manager.observer.statistics.leases_expired, 0);
    let is_over = |lease: Lease, ms| {
        let owner = owner("a");
        let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease };
        let mut lock = crate::value::lock::Lock::Vacant;
        lock.admit(&request, Fence::new(1_000_000).unwrap(), Timestamp::from_ms(1_000), Deadline::Never).unwrap();
        lock.may_have_expired(&at(ms))
    };
    assert!(is_over(Lease::from_ms(50).unwrap(), 1_050) && !is_over(Lease::from_ms(50).unwrap(), 1_049));
    assert!(!is_over(Lease::Persist, 9_999));
}

fn at(ms: u64) -> Now {
    thread_local!(static MS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    MS.set(ms);
    Now::by(|| MS.get() * 1_000, || 0)
}

#[test]
fn every_hold_that_is_broken_is_recorded() {
    let mut fixture = Fixture::of(&[("a", READ), ("b", READ)]);
    assert_eq!(fixture.break_holds(HoldsOf::AllOwners), Ok(2));
    assert_eq!(records(&mut fixture), ["a Broken after 0, 0 wait", "b Broken after 0, 0 wait"]);
    assert_eq!(fixture.manager.observer.statistics.broken, 2);
}
