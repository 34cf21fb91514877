use super::*;
use crate::engine::fixture::{owner, Fixture};
use crate::host::simulated::SentEffect;
use crate::host::WriteCheck;
use crate::queue::position::QueuePosition;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::{Claim, Count, InvalidClaim, Mode, ReleaseAmount};
use crate::value::outcome::Released;
use crate::value::time::{Instant, Lease, WaitLimit};

const MUTEX: Claim = Claim::Mutex;
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));

fn permits(limit: u32, permits: u32) -> Claim {
    Claim::Permits { limit, count: Count::Delta(permits) }
}

fn ask(fixture: &mut Fixture, name: &str, names: &[&[u8]], claim: Claim) -> Result<Acquired, LockError> {
    let (owner, now) = (owner(name), fixture.server.now());
    let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
    let wait = Some(Wait { limit: WaitLimit::Unlimited, may_detach: false, coalesces: false, lease_deadline: None });
    let request = AcquireRequest { db: 0, names, request, wait, session: None };
    fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request)
}

fn is_granted(acquired: &Result<Acquired, LockError>) -> bool {
    matches!(acquired, Ok(Acquired::Granted(_)))
}

#[test]
fn a_holder_that_asks_for_more_permits_overtakes_no_waiter() {
    let mut fixture = Fixture::of(&[("a", permits(3, 1)), ("z", permits(3, 1)), ("b", permits(3, 2))]);
    assert!(matches!(ask(&mut fixture, "a", &[b"k"], permits(3, 1)), Ok(Acquired::Queued(_))));
    assert_eq!(fixture.manager.queues().waiters(), 2);
}

#[test]
fn a_holder_of_one_of_multiple_keys_overtakes_the_waiters_for_it() {
    let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
    assert!(is_granted(&ask(&mut fixture, "a", &[b"k", b"l"], MUTEX)), "b waits for a itself");
    assert_eq!(fixture.manager.queues().waiters(), 1);
}

#[test]
fn one_waiter_more_than_the_maximum_is_refused_but_a_retry_is_not() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    fixture.manager.limits.max_waiters = 2;
    assert!(matches!(ask(&mut fixture, "b", &[b"k"], MUTEX), Ok(Acquired::Queued(_))));
    assert!(matches!(ask(&mut fixture, "c", &[b"k"], MUTEX), Ok(Acquired::Queued(_))));
    assert_eq!(ask(&mut fixture, "d", &[b"k"], MUTEX), Err(LockError::MaxWaiters(WaiterLimit::Server(2))));
    assert!(matches!(ask(&mut fixture, "b", &[b"k"], MUTEX), Ok(Acquired::Queued(_))));
    assert_eq!(fixture.manager.queues().waiters(), 2);
}

#[test]
fn one_waiter_more_than_the_maximum_of_a_key_is_refused_and_other_keys_are_not_affected() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    fixture.manager.limits.max_waiters_per_key = Some(1);
    for name in [b"l", b"m"] {
        assert!(is_granted(&ask(&mut fixture, "a", &[name], MUTEX)));
    }
    assert!(matches!(ask(&mut fixture, "b", &[b"k", b"l"], MUTEX), Ok(Acquired::Queued(_))));
    for names in [&[b"k".as_slice()][..], &[b"l"], &[b"m", b"k"], &[b"m", b"n", b"l"]] {
        assert_eq!(ask(&mut fixture, "c", names, MUTEX), Err(LockError::MaxWaiters(WaiterLimit::Key(1))), "{names:?}");
    }
    assert!(matches!(ask(&mut fixture, "c", &[b"m"], MUTEX), Ok(Acquired::Queued(_))));
    assert!(
        matches!(ask(&mut fixture, "b", &[b"k", b"l"], MUTEX), Ok(Acquired::Queued(_))),
        "a retry is no new waiter"
    );
    assert_eq!(fixture.manager.queues().waiters(), 2);
}

#[test]
fn a_request_that_would_deadlock_is_refused() {
    for wants in [&[b"k".as_slice()][..], &[b"k", b"m"]] {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        assert!(is_granted(&ask(&mut fixture, "b", &[b"l"], MUTEX)));
        assert!(matches!(ask(&mut fixture, "a", &[b"l"], MUTEX), Ok(Acquired::Queued(_))));
        let Err(LockError::Deadlock(cycle)) = ask(&mut fixture, "b", wants, MUTEX) else { panic!("{wants:?}") };
        assert_eq!(cycle.len(), 2, "{wants:?}");
        assert_eq!(fixture.manager.queues().waiters(), 1, "{wants:?}");
    }
}

#[test]
fn a_smaller_limit_refuses_requests_that_it_can_never_admit() {
    let over_limit = WaitOutcome::Impossible(InvalidClaim::OverLimit.into());
    let mut fixture = Fixture::of(&[("a", permits(3, 3)), ("b", permits(3, 2)), ("c", permits(3, 3))]);
    assert!(matches!(ask(&mut fixture, "d", &[b"k"], permits(2, 1)), Ok(Acquired::Queued(_))));
    assert_eq!(fixture.effects(), [SentEffect::Limit(2)]);
    let (lock, _) = fixture.stored();
    assert_eq!(lock.semaphore_limit(), Some(2), "the limit that LOCK.INFO shows");
    let outcomes: Vec<_> = fixture.server.inbox.replies.iter().map(|(_, outcome)| *outcome).collect();
    assert_eq!(outcomes, [over_limit], "c asks for 3 permits, and is refused before it is first");
    assert_eq!(fixture.manager.queues().waiters(), 2);
}

/// Writes are refused, so a queue that would have been served stays due.
#[test]
fn only_a_changed_limit_serves_the_queue() {
    for (limit, is_other) in [(1, false), (2, true)] {
        for is_held in [true, false] {
            let row = format!("LIMIT {limit}, held: {is_held}");
            let mut fixture = Fixture::of(&[("a", permits(1, 1)), ("b", permits(1, 1))]);
            fixture.server.keyspace.write_check = WriteCheck::Refused;
            if !is_held {
                assert_eq!(fixture.release("a", ReleaseAmount::Permits(Count::Delta(1))), Ok(Released::Gone), "{row}");
                fixture.manager.waits.backlog.queues = Default::default();
            }
            assert!(matches!(ask(&mut fixture, "c", &[b"k"], permits(limit, 1)), Ok(Acquired::Queued(_))), "{row}");
            assert_eq!(fixture.manager.has_due(), is_other, "{row}");
        }
    }
}

/// Rows: the rank of the earlier request, whether its client still waits, the rank of the new one, and the position.
#[test]
fn a_retry_keeps_its_position_and_a_reserved_position_of_the_other_rank_counts_as_the_new_rank_does() {
    let (upgrade, normal) = (Rank::Upgrade, Rank::Normal);
    for (before, is_present, rank, expected) in [
        (normal, true, normal, "the same"),
        (normal, true, upgrade, "the same"),
        (upgrade, true, normal, "the same"),
        (upgrade, false, upgrade, "the same"),
        (normal, false, normal, "the same"),
        (upgrade, false, normal, "by its arrival"),
        (normal, false, upgrade, "a new one"),
    ] {
        let mut fixture = Fixture::of(&[("b", READ), ("a", READ), ("c", WRITE)]);
        let names = &[b"k".as_slice()][..];
        let by = if before == upgrade { "a" } else { "x" };
        let Ok(Acquired::Queued(id)) = ask(&mut fixture, by, names, WRITE) else { panic!("it waits") };
        let queues = &mut fixture.manager.waits.queues;
        let first = queues.request(id).unwrap().position.clone();
        assert_eq!(first.rank, before);
        if !is_present {
            queues.reserve_position(id, Instant::from_ms(60_000));
        }
        let found = fixture.manager.waits.retried_position(Some(id), rank);
        let row = format!("{before:?}, present: {is_present}, {rank:?}");
        match expected {
            "the same" => assert_eq!(found, Some(first), "{row}"),
            "by its arrival" => assert_eq!(found, Some(QueuePosition::last(rank, first.arrival)), "{row}"),
            _ => assert_eq!(found, None, "{row}"),
        }
    }
}
