//! Tests of time slices that are spent before all work is done: the next iteration continues, and no new request is
//! granted in between.

use std::num::NonZeroU64;

use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::fixture::{key, owner, Fixture};
use crate::engine::leave::Leave;
use crate::engine::pending_removals::PendingRemoval;
use crate::engine::release::WorkOutcome;
use crate::engine::session::{RenewRequest, Renewed};
use crate::engine::timers::WRITE_RETRY_MS;
use crate::host::simulated::{SentEffect, Stored, TimeSlices};
use crate::host::{WaitOutcome, WriteCheck};
use crate::key::{ClientId, Key, RequestId};
use crate::value::claim::{Claim, Count, LockRequest, LockType, Mode, ReleaseAmount};
use crate::value::outcome::Released;
use crate::value::time::{Instant, Lease, WaitLimit};

const MUTEX: Claim = Claim::Mutex;
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));
const GIVE_READ: ReleaseAmount = ReleaseAmount::ReadWrite(Mode::Read, Count::Delta(1));
const GIVE_WRITE: ReleaseAmount = ReleaseAmount::ReadWrite(Mode::Write, Count::Delta(1));

/// The owners `names` wait to read behind a writer w. From now on a time slice has `units` units of work.
fn readers(names: &[&str], units: u32) -> Fixture {
    let mut fixture = Fixture::of(&[("w", WRITE)]);
    names.iter().for_each(|name| _ = fixture.acquire(name, READ, None, Lease::Persist));
    fixture.server.time_slices = TimeSlices::Of(units);
    fixture
}

/// Requests the key without waiting.
fn ask(fixture: &mut Fixture, name: &str, claim: Claim) -> Acquired {
    let (owner, now) = (owner(name), fixture.server.now());
    let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
    let request = AcquireRequest { db: 0, names: &[b"k"], request, wait: None, session: None };
    fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request).unwrap()
}

/// Runs all iterations that are due. Returns their number.
fn drain_all(fixture: &mut Fixture) -> usize {
    let mut iterations = 0;
    while fixture.manager.has_due() {
        fixture.drain();
        iterations += 1;
        assert!(iterations < 100, "the drain does not end");
    }
    iterations
}

fn replies(fixture: &mut Fixture) -> Vec<(RequestId, WaitOutcome)> {
    std::mem::take(&mut fixture.server.inbox.replies)
}

/// The requests that wait for the key, in order.
fn waiting(fixture: &Fixture) -> Vec<RequestId> {
    let queue = fixture.manager.queues().of_key(key().as_ref());
    queue.into_iter().flat_map(|queue| queue.present()).map(|(_, id)| id).collect()
}

#[test]
fn a_release_does_its_share_and_the_next_iterations_continue_in_the_order_of_the_queue() {
    let mut fixture = readers(&["a", "b", "c", "d", "e"], 2);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    assert_eq!((fixture.holders(), fixture.manager.has_due()), ("a b".into(), true));
    fixture.drain();
    assert_eq!((fixture.holders(), fixture.manager.has_due()), ("a b c d".into(), true));
    fixture.drain();
    assert_eq!((fixture.holders(), fixture.manager.has_due()), ("a b c d e".into(), false));
    let holds = |name: &str| SentEffect::Hold(owner(name));
    let effects = [SentEffect::Drop(owner("w")), holds("a"), holds("b"), holds("c"), holds("d"), holds("e")];
    assert_eq!(fixture.effects(), effects, "replicas get the effects in the order of the grants");
}

#[test]
fn a_new_request_waits_behind_requests_that_are_granted_in_the_next_iterations() {
    let mut fixture = readers(&["a", "b", "c"], 1);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    assert_eq!(fixture.holders(), "a");
    assert_eq!(ask(&mut fixture, "n", READ), Acquired::NotGranted, "b and c are ahead");
    assert!(matches!(fixture.acquire("n", READ, None, Lease::Persist), Acquired::Queued(_)));
    assert_eq!(fixture.holders(), "a");
    drain_all(&mut fixture);
    assert_eq!(fixture.holders(), "a b c n");
}

#[test]
fn a_holder_reenters_between_two_iterations() {
    let mut fixture = readers(&["a", "b", "c"], 1);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    assert!(matches!(ask(&mut fixture, "a", READ), Acquired::Granted(grant) if grant.holds == 2));
    drain_all(&mut fixture);
    assert_eq!(fixture.holders(), "a b c");
}

#[test]
fn a_command_in_between_does_not_do_the_work_of_the_timer() {
    let mut fixture = readers(&["a", "b", "c", "d"], 1);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    fixture.server.time_slices = TimeSlices::Endless;
    assert_eq!(fixture.release("a", GIVE_READ), Ok(Released::Gone));
    assert_eq!(
        (fixture.holders(), fixture.manager.has_due()),
        ("b".into(), true),
        "one grant, so that the lock is never free"
    );
    drain_all(&mut fixture);
    assert_eq!(fixture.holders(), "b c d");
}

#[test]
fn the_remaining_requests_are_granted_after_the_key_is_removed() {
    let mut fixture = readers(&["a", "b", "c"], 1);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    fixture.server.keyspace.delete(&key());
    fixture.manager.key_changed(key().as_ref());
    assert_eq!(ask(&mut fixture, "n", WRITE), Acquired::NotGranted);
    drain_all(&mut fixture);
    assert_eq!(fixture.holders(), "b c");
}

#[test]
fn between_iterations_a_request_that_leaves_is_not_granted_and_a_retry_keeps_its_position() {
    let mut fixture = readers(&["a", "b", "c", "d", "e"], 1);
    assert_eq!(fixture.release("w", GIVE_WRITE), Ok(Released::Gone));
    let now = fixture.server.now();
    let [b, ..] = waiting(&fixture)[..] else { panic!("three wait") };
    fixture.manager.leave(&now, b, Leave::Abandon);
    assert!(matches!(fixture.acquire("c", READ, None, Lease::Persist), Acquired::Granted(_)), "no request is ahead");
    assert_eq!(fixture.holders(), "a c d", "and one more is granted");
    for _ in 0..2 {
        assert!(matches!(fixture.acquire("n", READ, None, Lease::Persist), Acquired::Queued(_)), "e is ahead");
    }
    drain_all(&mut fixture);
    assert_eq!(fixture.holders(), "a c d e n");
}

#[test]
fn waiters_of_a_key_that_became_another_type_get_replies_over_several_iterations() {
    let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.server.keyspace.put(&key(), Stored::Foreign);
    fixture.manager.key_changed(key().as_ref());
    let ids = waiting(&fixture);
    fixture.drain();
    fixture.drain();
    assert_eq!(waiting(&fixture).len(), 2, "one gets its reply in each iteration");
    drain_all(&mut fixture);
    let replied_in_order: Vec<_> = replies(&mut fixture).iter().map(|(id, _)| *id).collect();
    assert_eq!((replied_in_order, fixture.manager.queues().is_empty()), (ids, true));
    // A request keeps its outcome even if the key is free again before it gets its reply.
    let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.server.keyspace.put(&key(), Stored::Foreign);
    fixture.manager.key_changed(key().as_ref());
    fixture.drain();
    fixture.server.keyspace.delete(&key());
    drain_all(&mut fixture);
    assert_eq!((fixture.holders(), replies(&mut fixture).len()), ("".into(), 3));
}

/// The key k is accessed but unchanged, and then gets a lock of a: its queue is inspected again from the head.
#[test]
fn a_key_that_changes_between_iterations_is_inspected_again_from_the_head() {
    let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
    let mut other = Fixture::of(&[("a", MUTEX)]);
    let lock_of_a = other.server.keyspace.take_copy(&key()).unwrap();
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.manager.key_changed(key().as_ref());
    fixture.drain();
    fixture.drain();
    assert_eq!(replies(&mut fixture), [], "h holds it as before");
    fixture.server.keyspace.put(&key(), lock_of_a);
    fixture.manager.key_changed(key().as_ref());
    drain_all(&mut fixture);
    assert!(matches!(replies(&mut fixture)[..], [(_, WaitOutcome::Granted { holds: 1, .. })]), "a holds it already");
    assert_eq!((fixture.holders(), waiting(&fixture).len()), ("a".into(), 2));
}

/// The key k, for which a and b wait, has got a lock of b. Another command sees it before the iteration that notices
/// it.
#[test]
fn a_restored_lock_of_a_waiter_is_noticed_whatever_another_command_does_first() {
    let by_a_request = |fixture: &mut Fixture| {
        assert!(matches!(fixture.acquire("c", MUTEX, None, Lease::Persist), Acquired::Queued(_)));
    };
    let by_a_renewal = |fixture: &mut Fixture| {
        let (now, name) = (fixture.server.now(), key().name);
        let names: [&[u8]; 1] = [&name];
        let request = RenewRequest { db: 0, names: &names, owner: b"b", lock_type: LockType::Mutex, lease: None };
        assert_eq!(fixture.manager.with_host(&mut fixture.server.host(&now)).renew(&request), Ok(Renewed::All));
    };
    for before in [by_a_request as fn(&mut Fixture), by_a_renewal] {
        let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX)]);
        let fence = fixture.stored().0.fence().unwrap();
        let mut other = Fixture::of(&[("b", MUTEX)]);
        let lock_of_b = other.server.keyspace.take_copy(&key()).unwrap();
        fixture.server.keyspace.put(&key(), lock_of_b);
        fixture.manager.key_removed(key().as_ref(), fence);
        before(&mut fixture);
        drain_all(&mut fixture);
        assert!(
            matches!(replies(&mut fixture)[..], [(_, WaitOutcome::Granted { holds: 1, .. })]),
            "b holds it already"
        );
    }
}

/// A release forgets the requests that could reenter, so they do not delay the next waiter. With short time slices, a
/// multi-key request of b has still to be tried when b releases the key.
#[test]
fn a_release_hands_off_although_the_owner_has_just_been_granted_the_key() {
    for time_slices in [TimeSlices::Endless, TimeSlices::Of(1)] {
        let mut fixture = Fixture::of(&[("h", MUTEX)]);
        fixture.acquire_all("h", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.acquire("w", MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"k", b"l"], MUTEX, None, Lease::Persist);
        fixture.server.time_slices = time_slices;
        assert_eq!(fixture.release("h", ReleaseAmount::Mutex), Ok(Released::Gone));
        assert_eq!(fixture.release("b", ReleaseAmount::Mutex), Ok(Released::Gone));
        assert_eq!(fixture.holders(), "w", "in the same step");
        drain_all(&mut fixture);
        assert_eq!(fixture.holders(), "w");
    }
}

/// The first request at the head is one of many of a connection that has ended.
#[test]
fn a_release_skips_the_requests_of_an_ended_connection() {
    let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX), ("w", MUTEX)]);
    let gone = waiting(&fixture);
    fixture.manager.waits.backlog.pending_removals.extend(gone[..2].iter().copied(), PendingRemoval::Disconnected);
    assert_eq!(fixture.release("h", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.holders(), "w", "in the same step");
}

/// The connection of a request has ended, and the request is retried before an iteration has recorded that.
#[test]
fn a_grant_without_waiting_ends_the_position_of_a_connection_that_has_just_ended() {
    let mut fixture = Fixture::of(&[("h", MUTEX)]);
    let (b, now) = (owner("b"), fixture.server.now());
    let request = LockRequest { owner: b.as_ref(), claim: MUTEX, lease: Lease::Persist };
    let wait = Some(Wait { limit: WaitLimit::Unlimited, may_detach: true, coalesces: false, lease_deadline: None });
    let request = AcquireRequest { db: 0, names: &[b"k"], request, wait, session: None };
    let queued = fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request).unwrap();
    let Acquired::Queued(id) = queued else { panic!("it waits") };
    fixture.manager.leave_all([id]);
    fixture.server.keyspace.delete(&key());
    assert!(matches!(ask(&mut fixture, "b", MUTEX), Acquired::Granted(_)));
    drain_all(&mut fixture);
    assert!(fixture.manager.queues().is_empty(), "no position is reserved");
}

#[test]
fn a_smaller_limit_counts_no_hold_that_was_lost() {
    let permits = |limit, count| Claim::Permits { limit, count: Count::Delta(count) };
    let mut fixture = Fixture::of(&[("x", permits(3, 3)), ("a", permits(3, 1)), ("a", permits(3, 2))]);
    let [first, second] = waiting(&fixture)[..] else { panic!("two wait") };
    assert_eq!(fixture.release("x", ReleaseAmount::Permits(Count::Delta(1))), Ok(Released::Fewer(2)));
    assert!(matches!(replies(&mut fixture)[..], [(id, WaitOutcome::Granted { .. })] if id == first));
    fixture.manager.undelivered(first);
    assert!(matches!(fixture.acquire("n", permits(2, 1), None, Lease::Persist), Acquired::Queued(_)));
    assert!(replies(&mut fixture).is_empty() && waiting(&fixture).contains(&second), "it fits the smaller LIMIT");
}

#[test]
fn a_larger_limit_is_granted_at_once_to_a_holder_that_waits_next_to_a_reserved_position() {
    let permits = |limit| Claim::Permits { limit, count: Count::Delta(1) };
    let mut fixture = Fixture::of(&[("a", permits(2)), ("x", permits(2)), ("away", permits(2))]);
    fixture.manager.waits.queues.reserve_position(waiting(&fixture)[0], Instant::from_ms(60_000));
    // A lock is moved here by RENAME while no request waits.
    let mut source = Fixture::default();
    source.server.keyspace.now_ms += 5;
    source.acquire("a", permits(2), None, Lease::Persist);
    source.acquire("x", permits(2), None, Lease::Persist);
    fixture.server.keyspace.primary.extend(source.server.keyspace.primary);
    assert!(matches!(fixture.acquire("a", permits(2), None, Lease::Persist), Acquired::Queued(_)));
    fixture.acquire("z", permits(3), None, Lease::Persist);
    assert_eq!(replies(&mut fixture).len(), 1, "a has another permit");
}

/// A session of client 7 holds k, l and m; b waits for k.
fn session() -> Fixture {
    let mut fixture = Fixture::default();
    for name in [b"k", b"l", b"m"] {
        fixture.acquire_all("a", &[name], MUTEX, Some(ClientId(7)), Lease::from_ms(300).unwrap());
    }
    fixture.acquire("b", MUTEX, None, Lease::Persist);
    fixture.server.keyspace.sent_effects = Some(Vec::new());
    fixture
}

#[test]
fn the_holds_of_an_ended_connection_end_one_after_another() {
    let mut fixture = session();
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.manager.end_session(ClientId(7));
    fixture.drain();
    assert_eq!(
        (fixture.effects(), fixture.holders()),
        (vec![SentEffect::Hold(owner("b"))], "b".into()),
        "the oldest first"
    );
    // A command that arrives before the drain does not find the hold.
    let now = fixture.server.now();
    let name = Key::new(0, b"m");
    let released = fixture.manager.with_host(&mut fixture.server.host(&now)).release(
        name.as_ref(),
        b"a",
        &ReleaseAmount::Mutex,
        WorkOutcome::Done,
    );
    assert_eq!((released, fixture.effects()), (Ok(Released::NotHeld), vec![SentEffect::Delete]));
    drain_all(&mut fixture);
    assert_eq!((fixture.effects(), fixture.server.keyspace.primary.len()), (vec![SentEffect::Delete], 1));
    assert!(fixture.manager.bindings().is_empty());
}

#[test]
fn a_hold_bound_to_a_connection_after_its_end_is_known_ends_too() {
    let mut fixture = session();
    fixture.manager.end_session(ClientId(7));
    fixture.acquire_all("a", &[b"n"], MUTEX, Some(ClientId(7)), Lease::Persist);
    drain_all(&mut fixture);
    assert_eq!(fixture.server.keyspace.primary.len(), 1, "b has k");
}

#[test]
fn one_write_check_serves_all_renewals_while_writes_are_refused() {
    let mut fixture = session();
    let retry_ms = 1_100 + WRITE_RETRY_MS;
    fixture.server.keyspace.write_check = WriteCheck::Refused;
    fixture.server.keyspace.now_ms = 1_100;
    fixture.tick();
    assert_eq!(fixture.manager.next_timer().instant.map(|next| next.ms()), Some(retry_ms));
    fixture.server.keyspace.write_check = WriteCheck::Allowed;
    fixture.tick();
    assert_eq!(fixture.effects(), [], "not before");
    fixture.server.keyspace.now_ms = retry_ms;
    fixture.tick();
    assert_eq!(
        fixture.effects(),
        [SentEffect::Renew(owner("a")), SentEffect::Renew(owner("a")), SentEffect::Renew(owner("a"))]
    );
    // A key in a slot that moves is not retried at once.
    fixture.server.keyspace.write_check = WriteCheck::SlotMoved;
    fixture.server.keyspace.now_ms += 100;
    fixture.tick();
    assert_eq!(fixture.manager.next_timer().instant.map(|next| next.ms()), Some(retry_ms + 1_100));
}

#[test]
fn requests_for_a_slot_that_moved_get_replies_before_others_are_served() {
    let mut fixture = Fixture::of(&[("h", MUTEX), ("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
    fixture.acquire_all("x", &[b"l"], MUTEX, None, Lease::Persist);
    fixture.acquire_all("y", &[b"l"], MUTEX, None, Lease::Persist);
    let ids = waiting(&fixture);
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.manager.slots_moved(|key| key.name == b"k");
    fixture.server.keyspace.delete(&Key::new(0, b"l"));
    fixture.manager.key_changed(Key::new(0, b"l").as_ref());
    fixture.drain();
    assert_eq!(replies(&mut fixture), [(ids[0], WaitOutcome::TryAgain), (ids[1], WaitOutcome::TryAgain)]);
    fixture.drain();
    drain_all(&mut fixture);
    let [(last, WaitOutcome::TryAgain), (_, WaitOutcome::Granted { .. })] = replies(&mut fixture)[..] else {
        panic!("c is answered, then y is granted");
    };
    assert_eq!(last, ids[2]);
}

#[test]
fn a_smaller_limit_refuses_a_few_at_a_time() {
    let permits = |limit, count| Claim::Permits { limit, count: Count::Delta(count) };
    let mut fixture =
        Fixture::of(&[("h", permits(3, 3)), ("a", permits(3, 2)), ("b", permits(3, 3)), ("c", permits(3, 2))]);
    let ids = waiting(&fixture);
    fixture.server.time_slices = TimeSlices::Of(1);
    assert!(matches!(fixture.acquire("n", permits(1, 1), None, Lease::Persist), Acquired::Queued(_)));
    let refused = |fixture: &mut Fixture| -> Vec<_> {
        let replies = replies(fixture);
        assert!(replies.iter().all(|(_, outcome)| matches!(outcome, WaitOutcome::Impossible(_))), "{replies:?}");
        replies.iter().map(|(id, _)| *id).collect()
    };
    assert_eq!(
        refused(&mut fixture),
        ids[..2],
        "one of the requests to end in this iteration, and the head of the queue"
    );
    drain_all(&mut fixture);
    assert_eq!((refused(&mut fixture), waiting(&fixture).len()), (ids[2..].to_vec(), 1));
}

/// A time slice that is spent at once still allows one item of each kind: an undelivered grant, a session's hold, a
/// queue, a request that is tried again.
#[test]
fn no_kind_of_work_starves_behind_another() {
    let mut fixture = session();
    fixture.acquire_all("c", &[b"n"], MUTEX, None, Lease::Persist);
    fixture.acquire_all("d", &[b"n"], MUTEX, None, Lease::Persist);
    fixture.manager.end_session(ClientId(7));
    fixture.server.keyspace.delete(&Key::new(0, b"n"));
    fixture.manager.key_changed(Key::new(0, b"n").as_ref());
    fixture.server.time_slices = TimeSlices::Of(1);
    fixture.drain();
    assert_eq!(fixture.holders(), "b");
    assert!(fixture.server.keyspace.primary.contains_key(&Key::new(0, b"n")), "d has it");
}

#[test]
fn a_request_that_has_timed_out_is_not_granted() {
    for names in [&[&b"k"[..]][..], &[b"k", b"l"]] {
        let mut fixture = Fixture::of(&[("h", MUTEX)]);
        let now = fixture.server.now();
        for name in ["a", "b", "c"] {
            let owner = owner(name);
            let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
            let limit = WaitLimit::Ms(NonZeroU64::new(500).unwrap());
            let wait = Some(Wait { limit, may_detach: false, coalesces: false, lease_deadline: None });
            let request = AcquireRequest { db: 0, names, request, wait, session: None };
            let acquired = fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request);
            assert!(matches!(acquired, Ok(Acquired::Queued(_))));
        }
        fixture.server.time_slices = TimeSlices::Of(1);
        fixture.server.keyspace.now_ms += 500;
        fixture.server.keyspace.delete(&key());
        fixture.manager.key_changed(key().as_ref());
        for _ in 0..3 {
            fixture.tick();
            fixture.drain();
        }
        assert_eq!(fixture.holders(), "", "{names:?}");
        assert!(fixture.server.inbox.replies.iter().all(|(_, outcome)| *outcome == WaitOutcome::TimedOut));
    }
}
