//! Tests that no time slice is long, however many requests, keys and owners there are. Each slice is counted in steps
//! (keys opened, requests and owners looked up), so that an unbounded slice fails by a number and not by a clock.

use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::fixture::{key, owner, Fixture};
use crate::engine::release::WorkOutcome;
use crate::host::simulated::{Stored, TimeSlices};
use crate::key::{Key, KeyRef, RequestId};
use crate::queue::lookups;
use crate::value::claim::{Claim, Count, LockRequest, ReleaseAmount};
use crate::value::outcome::Released;
use crate::value::time::{Lease, WaitLimit};

const MUTEX: Claim = Claim::Mutex;

/// Units of work in a time slice.
const UNITS: u32 = 32;

/// The maximum number of steps of one unit of work with one key: more than any unit has, and far fewer than a loop over
/// all requests.
const STEPS_A_UNIT: usize = 40;

/// The maximum number of steps of a slice: its units, and one more of each kind of work with a request for `keys` keys.
fn most(keys: usize) -> usize {
    UNITS as usize * STEPS_A_UNIT + 16 * keys
}

fn steps(fixture: &Fixture) -> usize {
    fixture.server.keyspace.opened + lookups::count()
}

/// The steps of `work`, and its result.
fn cost<R>(fixture: &mut Fixture, work: impl FnOnce(&mut Fixture) -> R) -> (usize, R) {
    let before = steps(fixture);
    let result = work(fixture);
    (steps(fixture) - before, result)
}

/// Runs all iterations that are due. Returns their number, and the steps of the longest.
fn drain(fixture: &mut Fixture) -> (usize, usize) {
    let (mut iterations, mut longest) = (0, 0);
    while fixture.manager.has_due() {
        let (steps, ()) = cost(fixture, |fixture| {
            fixture.tick();
            fixture.drain();
        });
        (iterations, longest) = (iterations + 1, longest.max(steps));
        assert!(iterations < 10_000, "the drain does not end");
    }
    (iterations, longest)
}

fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("k{number}").into_bytes()).collect()
}

/// The owner `h` holds `keys` keys, and `requests` other owners wait for all of them.
fn multi_key_requests(keys: usize, requests: usize) -> (Fixture, Vec<Vec<u8>>, Vec<RequestId>) {
    let (mut fixture, names) = (Fixture::default(), names(keys));
    let all: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    fixture.acquire_all("h", &all, MUTEX, None, Lease::Persist);
    let queue = |number| match fixture.acquire_all(&format!("o{number}"), &all, MUTEX, None, Lease::Persist) {
        Acquired::Queued(id) => id,
        other => panic!("it is not queued: {other:?}"),
    };
    let ids = (0..requests).map(queue).collect();
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    (fixture, names, ids)
}

#[test]
fn thousands_of_requests_of_one_owner_are_granted_over_several_iterations() {
    const REQUESTS: usize = 1_000;
    let times = |holds| Claim::Reentrant(Count::Exactly(holds));
    let one = Claim::Reentrant(Count::Delta(1));
    let mut fixture = Fixture::of(&[("a", one)]);
    for holds in 1..=REQUESTS as u32 {
        let (steps, asked) = cost(&mut fixture, |fixture| fixture.acquire("b", times(holds), None, Lease::Persist));
        assert!(matches!(asked, Acquired::Queued(_)) && steps <= STEPS_A_UNIT, "request {holds}: {steps} steps");
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    let (steps, released) =
        cost(&mut fixture, |fixture| fixture.release("a", ReleaseAmount::Reentrant(Count::Delta(1))));
    assert!(released == Ok(Released::Gone) && steps <= most(1), "the release: {steps} steps");
    let (iterations, longest) = drain(&mut fixture);
    // Two passes, each over all requests of the owner.
    assert!(longest <= most(1) + 2 * REQUESTS, "{longest} steps in one iteration");
    assert!(iterations >= REQUESTS / UNITS as usize && fixture.manager.queues().is_empty(), "{iterations} iterations");
}

/// They have one key in common.
#[test]
fn thousands_of_multi_key_requests_of_one_owner_are_listed_once() {
    const REQUESTS: usize = 1_000;
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    for name in names(REQUESTS) {
        fixture.acquire_all("b", &[b"k", &name], MUTEX, None, Lease::Persist);
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    let (steps, released) = cost(&mut fixture, |fixture| fixture.release("a", ReleaseAmount::Mutex));
    assert!(released == Ok(Released::Gone) && steps <= most(2) + REQUESTS, "the release: {steps} steps");
    let (iterations, longest) = drain(&mut fixture);
    assert!(longest <= most(2), "{longest} steps in one iteration");
    assert!(iterations >= REQUESTS / UNITS as usize && fixture.manager.queues().is_empty(), "{iterations} iterations");
}

fn ask(fixture: &mut Fixture, name: &str, wait: Option<Wait>) -> Acquired {
    let (owner, now) = (owner(name), fixture.server.now());
    let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
    let request = AcquireRequest { db: 0, names: &[b"k"], request, wait, session: None };
    fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request).unwrap()
}

/// Ten thousand waiters, of which each `ordinary`th is without COALESCE.
fn ten_thousand_waiters(ordinary: usize) -> Fixture {
    let mut fixture = Fixture::of(&[("h", MUTEX)]);
    for number in 1..=10_000 {
        let coalesces = number % ordinary != 0;
        let wait = Wait { limit: WaitLimit::Unlimited, may_detach: true, coalesces, lease_deadline: None };
        assert!(matches!(ask(&mut fixture, &format!("o{number}"), Some(wait)), Acquired::Queued(_)));
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    fixture
}

#[test]
fn ten_thousand_waiters_with_coalesce_get_replies_over_several_iterations_and_delay_no_other_key() {
    let mut fixture = ten_thousand_waiters(5_000);
    let elsewhere = Key::new(0, b"elsewhere");
    fixture.acquire_all("a", &[&elsewhere.name], MUTEX, None, Lease::Persist);
    fixture.manager.limits.max_waiters += 1;
    fixture.acquire_all("b", &[&elsewhere.name], MUTEX, None, Lease::Persist);
    for (holder, next) in [("h", "o5000"), ("o5000", "o10000")] {
        let (steps, released) = cost(&mut fixture, |fixture| fixture.release(holder, ReleaseAmount::Mutex));
        assert!(released == Ok(Released::Gone) && steps <= most(1), "the release: {steps} steps");
        assert_eq!(fixture.holders(), next, "the first without COALESCE is granted in that step");
    }
    assert_eq!(fixture.release("o10000", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.manager.queues().waiters(), 1, "the waiter for the other key");
    assert!(matches!(ask(&mut fixture, "newcomer", None), Acquired::Granted(_)), "a newcomer finds the lock free");
    fixture.server.keyspace.delete(&elsewhere);
    fixture.manager.key_changed(elsewhere.as_ref());
    fixture.drain();
    assert!(fixture.manager.has_due(), "thousands are still to be answered");
    let holder = fixture.stored_under(&elsewhere).map(|(lock, _)| lock.is_held_by(b"b"));
    assert_eq!(holder, Some(true), "a hand-off elsewhere is in the next iteration");
    let (iterations, longest) = drain(&mut fixture);
    assert!(longest <= most(1), "{longest} steps in one iteration");
    assert!((10_000 / UNITS as usize - 4..10_000).contains(&iterations), "{iterations} iterations");
    assert_eq!(fixture.manager.observer.statistics.coalesced, 9_998);
}

#[test]
fn a_release_finds_a_waiter_with_coalesce_behind_thousands_without() {
    let mut fixture = ten_thousand_waiters(1);
    let wait = Wait { limit: WaitLimit::Unlimited, may_detach: true, coalesces: true, lease_deadline: None };
    fixture.manager.limits.max_waiters += 1;
    assert!(matches!(ask(&mut fixture, "last", Some(wait)), Acquired::Queued(_)));
    let (steps, released) = cost(&mut fixture, |fixture| fixture.release("h", ReleaseAmount::Mutex));
    assert!(released == Ok(Released::Gone) && steps <= STEPS_A_UNIT, "the release: {steps} steps");
    assert_eq!((fixture.holders(), fixture.manager.observer.statistics.coalesced), ("o1".into(), 1));
}

#[test]
fn requests_for_a_hundred_keys_delay_no_release() {
    const KEYS: usize = 100;
    let (mut fixture, names, _) = multi_key_requests(KEYS, 50);
    for name in &names {
        let key = KeyRef { db: 0, name };
        let (steps, released) = cost(&mut fixture, |fixture| {
            let now = fixture.server.now();
            fixture.manager.with_host(&mut fixture.server.host(&now)).release(
                key,
                b"h",
                &ReleaseAmount::Mutex,
                WorkOutcome::Done,
            )
        });
        assert_eq!(released, Ok(Released::Gone));
        assert!(steps <= most(KEYS), "{steps} steps");
    }
    let (_, longest) = drain(&mut fixture);
    assert!(longest <= most(KEYS), "{longest} steps in one iteration");
    let stored = fixture.stored_under(&Key::new(0, b"k0")).map(|(lock, _)| lock.is_held_by(b"o0"));
    assert_eq!((stored, fixture.manager.queues().waiters()), (Some(true), 49));
}

#[test]
fn requests_for_a_hundred_keys_end_over_several_iterations_when_their_connection_does() {
    const KEYS: usize = 100;
    let (mut fixture, _, ids) = multi_key_requests(KEYS, 50);
    let (steps, ()) = cost(&mut fixture, |fixture| fixture.manager.leave_all(ids));
    assert_eq!(steps, 0);
    let (_, longest) = drain(&mut fixture);
    assert!(longest <= most(KEYS), "{longest} steps in one iteration");
    assert!(fixture.manager.queues().is_empty());
}

#[test]
fn a_request_for_a_hundred_keys_is_cancelled_in_few_steps() {
    const KEYS: usize = 100;
    let (mut fixture, names, _) = multi_key_requests(KEYS, 50);
    let (steps, _) = cost(&mut fixture, |fixture| {
        let now = fixture.server.now();
        fixture.manager.with_host(&mut fixture.server.host(&now)).cancel(KeyRef { db: 0, name: &names[0] }, b"o0")
    });
    assert!(steps <= most(KEYS), "{steps} steps");
    let (_, longest) = drain(&mut fixture);
    assert!(longest <= most(KEYS), "{longest} steps in one iteration");
    assert_eq!(fixture.manager.queues().waiters(), 49);
}

#[test]
fn a_flush_of_thousands_of_waited_for_keys_is_spread_over_iterations() {
    const KEYS: usize = 2_000;
    let (mut fixture, names) = (Fixture::default(), names(KEYS));
    for owner in ["a", "b"] {
        names.iter().for_each(|name| _ = fixture.acquire_all(owner, &[name], MUTEX, None, Lease::Persist));
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    fixture.server.keyspace.primary.clear();
    let (steps, ()) = cost(&mut fixture, |fixture| fixture.manager.db_changed(None));
    assert!(steps <= 1, "the flush: {steps} steps");
    let (iterations, longest) = drain(&mut fixture);
    assert!(longest <= most(1), "{longest} steps in one iteration");
    assert!(iterations >= KEYS / UNITS as usize && fixture.manager.queues().is_empty(), "{iterations} iterations");
}

#[test]
fn a_change_of_the_keys_deadline_visits_no_waiter() {
    let permits = |count| Claim::Permits { limit: 1, count: Count::Delta(count) };
    let mut fixture = Fixture::of(&[("h", permits(1))]);
    for number in 0..2_000 {
        fixture.acquire(&format!("o{number}"), permits(1), None, Lease::Persist);
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    for _ in 0..3 {
        fixture.manager.key_changed(key().as_ref());
        let (iterations, longest) = drain(&mut fixture);
        assert!(iterations == 1 && longest <= STEPS_A_UNIT, "{longest} steps, {iterations} iterations");
    }
    // A value of another type is one decision for all waiters. The replies are spread over the next iterations.
    fixture.server.keyspace.put(&key(), Stored::Foreign);
    fixture.manager.key_changed(key().as_ref());
    let (_, longest) = drain(&mut fixture);
    assert!(longest <= most(1) && fixture.manager.queues().is_empty(), "{longest} steps in one iteration");
}

#[test]
fn a_hand_off_elsewhere_comes_in_the_next_iteration_while_thousands_end() {
    let mut fixture = Fixture::of(&[("h", MUTEX)]);
    for number in 0..2_000 {
        fixture.acquire(&format!("o{number}"), MUTEX, None, Lease::Persist);
    }
    let elsewhere = Key::new(0, b"elsewhere");
    for owner in ["a", "b"] {
        fixture.acquire_all(owner, &[&elsewhere.name], MUTEX, None, Lease::Persist);
    }
    fixture.server.time_slices = TimeSlices::Of(UNITS);
    fixture.server.keyspace.put(&key(), Stored::Foreign);
    fixture.manager.key_changed(key().as_ref());
    fixture.drain();
    fixture.server.keyspace.delete(&elsewhere);
    fixture.manager.key_changed(elsewhere.as_ref());
    fixture.drain();
    assert!(fixture.manager.queues().waiters() > 1_000, "thousands are still to be answered");
    let holder = fixture.stored_under(&elsewhere).map(|(lock, _)| lock.is_held_by(b"b"));
    assert_eq!(holder, Some(true));
}
