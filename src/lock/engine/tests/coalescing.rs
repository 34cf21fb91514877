//! Tests of COALESCE requests: the release of the lock completes them, and no other end of the hold does.

use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::fixture::{key, owner, Fixture};
use crate::engine::leave::{Cancelled, Leave};
use crate::engine::release::{HoldsOf, WorkOutcome};
use crate::engine::session::RenewRequest;
use crate::host::simulated::TimeSlices;
use crate::host::{WaitOutcome, WriteCheck};
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::value::claim::{Claim, Count, LockRequest, LockType, ReleaseAmount};
use crate::value::fence::Fence;
use crate::value::outcome::Released;
use crate::value::time::{Lease, WaitLimit};

const MUTEX: Claim = Claim::Mutex;

/// `LOCK.ACQUIRE name owner BLOCK`, with or without COALESCE. The request waits for 500 ms, and its position may be
/// reserved.
fn ask_for(fixture: &mut Fixture, name: &[u8], token: &str, coalesces: bool) -> Acquired {
    let (owner, now) = (owner(token), fixture.server.now());
    let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
    let limit = WaitLimit::Ms(500.try_into().unwrap());
    let wait = Some(Wait { limit, may_detach: true, coalesces, lease_deadline: None });
    let request = AcquireRequest { db: 0, names: &[name], request, wait, session: None };
    fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request).unwrap()
}

fn queue(fixture: &mut Fixture, token: &str, coalesces: bool) -> RequestId {
    match ask_for(fixture, b"k", token, coalesces) {
        Acquired::Queued(id) => id,
        other => panic!("{token} does not wait: {other:?}"),
    }
}

/// `a` holds the key, and one request waits for each letter: with COALESCE if the letter is in upper case.
fn waiting(tokens: &str) -> (Fixture, Vec<RequestId>) {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    let ids = tokens.chars().map(|c| queue(&mut fixture, &c.to_string(), c.is_ascii_uppercase())).collect();
    (fixture, ids)
}

fn release(fixture: &mut Fixture, token: &str) {
    assert_eq!(fixture.release(token, ReleaseAmount::Mutex), Ok(Released::Gone), "{token}");
}

fn release_failed(fixture: &mut Fixture, token: &str) {
    let now = fixture.server.now();
    let released = fixture.manager.with_host(&mut fixture.server.host(&now)).release(
        key().as_ref(),
        token.as_bytes(),
        &ReleaseAmount::Mutex,
        WorkOutcome::Failed,
    );
    assert_eq!(released, Ok(Released::Gone), "{token}");
}

/// The fencing token of the current hold.
fn fence(fixture: &Fixture) -> Fence {
    fixture.stored().0.fence().unwrap()
}

fn replies(fixture: &mut Fixture) -> Vec<(RequestId, WaitOutcome)> {
    std::mem::take(&mut fixture.server.inbox.replies)
}

fn drain_all(fixture: &mut Fixture) {
    for _ in 0..100 {
        if !fixture.manager.has_due() {
            return;
        }
        fixture.drain();
    }
    panic!("the drain does not end");
}

/// Checks that nothing is left of the completed requests.
fn assert_no_waiters(fixture: &mut Fixture) {
    assert!(fixture.manager.queues().is_empty() && fixture.manager.queues().is_clean());
    assert_eq!((fixture.manager.queues().waiters(), fixture.next_timer()), (0, None));
    assert!(!fixture.manager.has_due());
}

#[test]
fn a_release_completes_all_requests_with_coalesce_and_grants_the_first_without() {
    let (mut fixture, ids) = waiting("BcDe");
    let released = fence(&fixture);
    release(&mut fixture, "a");
    let done = WaitOutcome::Done { fence: released };
    let granted = WaitOutcome::Granted { fence: fence(&fixture), holds: 1, slot: None };
    assert_eq!(replies(&mut fixture), [(ids[1], granted), (ids[0], done), (ids[2], done)]);
    assert_eq!((fixture.holders(), fixture.manager.queues().waiters()), ("c".into(), 1));
    assert_eq!(fixture.manager.observer.statistics.coalesced, 2);
    release(&mut fixture, "c");
    assert!(matches!(replies(&mut fixture)[..], [(id, WaitOutcome::Granted { .. })] if id == ids[3]));
    // If all waiters coalesce, the key is free afterwards.
    let (mut fixture, _) = waiting("BCD");
    release(&mut fixture, "a");
    assert_eq!((replies(&mut fixture).len(), fixture.holders()), (3, "".into()));
    assert_no_waiters(&mut fixture);
}

#[test]
fn requests_with_and_without_coalesce_share_one_queue_order() {
    for tokens in ["bCdE", "BcDe", "BCD", "bcd"] {
        let (fixture, ids) = waiting(tokens);
        let queue = fixture.manager.queues().of_key(key().as_ref()).unwrap();
        let (positions, present): (Vec<_>, Vec<_>) = queue.present().unzip();
        assert_eq!((&present, queue.head()), (&ids, Some((positions[0], ids[0]))), "{tokens}");
        assert_eq!(queue.waiters(), ids.len(), "{tokens}");
        assert!(queue.range(positions[1]..).eq(positions.iter().copied().zip(ids.iter().copied()).skip(1)), "{tokens}");
        let last = ids.len() - 1;
        assert_eq!(queue.last(), Some((positions[last], ids[last])), "{tokens}");
        assert!(
            queue.has_requests_behind(positions[last - 1]) && !queue.has_requests_behind(positions[last]),
            "{tokens}"
        );
    }
}

#[test]
fn a_release_by_an_owner_that_does_not_hold_the_lock_completes_no_request() {
    let (mut fixture, _) = waiting("B");
    for token in ["z", "B"] {
        assert_eq!(fixture.release(token, ReleaseAmount::Mutex), Ok(Released::NotHeld));
    }
    assert_eq!((replies(&mut fixture).len(), fixture.manager.queues().waiters()), (0, 1));
}

#[test]
fn any_other_end_of_the_hold_grants_the_head_and_completes_no_other_request() {
    type End = fn(&mut Fixture);
    let ends: [(&str, End); 5] = [
        ("FAILED", |fixture| release_failed(fixture, "a")),
        ("LOCK.BREAK", |fixture| _ = fixture.break_holds(HoldsOf::AllOwners).unwrap()),
        ("LOCK.BREAK OWNER", |fixture| _ = fixture.break_holds(HoldsOf::Owner(b"a")).unwrap()),
        ("DEL", |fixture| {
            fixture.server.keyspace.delete(&key());
            fixture.manager.key_changed(key().as_ref());
        }),
        ("end of its lease", |fixture| {
            let (now, lease) = (fixture.server.now(), Lease::from_ms(1));
            let request = RenewRequest { db: 0, names: &[b"k"], owner: b"a", lock_type: LockType::Mutex, lease };
            fixture.manager.with_host(&mut fixture.server.host(&now)).renew(&request).unwrap();
            fixture.server.keyspace.now_ms += 2;
            fixture.tick();
        }),
    ];
    for (row, end) in ends {
        let (mut fixture, ids) = waiting("BcD");
        end(&mut fixture);
        drain_all(&mut fixture);
        assert!(matches!(replies(&mut fixture)[..], [(id, WaitOutcome::Granted { .. })] if id == ids[0]), "{row}");
        assert_eq!((fixture.holders(), fixture.manager.queues().waiters()), ("B".into(), 2), "{row}");
    }
    // The end of its connection, and an undelivered grant.
    let mut fixture = Fixture::default();
    fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::Persist);
    let ids = ["b", "c"].map(|token| queue(&mut fixture, token, true));
    fixture.manager.end_session(ClientId(7));
    drain_all(&mut fixture);
    fixture.manager.undelivered(ids[0]);
    drain_all(&mut fixture);
    let granted: Vec<_> = replies(&mut fixture).into_iter().map(|(id, _)| id).collect();
    assert_eq!((granted, fixture.holders()), (ids.to_vec(), "c".into()));
    assert_eq!(fixture.manager.observer.statistics.coalesced, 0);
}

#[test]
fn a_release_completes_requests_even_if_the_grant_it_ended_was_not_delivered() {
    let (mut fixture, ids) = waiting("bC");
    release_failed(&mut fixture, "a");
    let released = fence(&fixture);
    release(&mut fixture, "b");
    fixture.manager.undelivered(ids[0]);
    drain_all(&mut fixture);
    assert_eq!(replies(&mut fixture)[1..], [(ids[1], WaitOutcome::Done { fence: released })]);
    assert_no_waiters(&mut fixture);
}

#[test]
fn a_release_ends_a_reserved_position_with_coalesce_and_a_failed_release_does_not() {
    for (is_failed, kept) in [(false, 0), (true, 1)] {
        let (mut fixture, ids) = waiting("B");
        let now = fixture.server.now();
        fixture.manager.leave(&now, ids[0], Leave::Detach);
        assert_eq!(fixture.manager.queues().reserved_positions(), 1);
        if is_failed {
            release_failed(&mut fixture, "a");
        } else {
            release(&mut fixture, "a");
        }
        drain_all(&mut fixture);
        assert_eq!(
            (replies(&mut fixture), fixture.manager.queues().reserved_positions()),
            (vec![], kept),
            "{is_failed}"
        );
    }
}

#[test]
fn the_coalesce_flag_of_a_retry_counts_whether_the_client_was_waiting_or_detached() {
    for (coalesced, coalesces, is_detached) in
        [(false, true, false), (true, false, false), (false, true, true), (true, false, true)]
    {
        let row = format!("{coalesced} {coalesces} {is_detached}");
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let older = queue(&mut fixture, "b", coalesced);
        let behind = queue(&mut fixture, "c", false);
        if is_detached {
            let now = fixture.server.now();
            fixture.manager.leave(&now, older, Leave::Detach);
        }
        let retry = queue(&mut fixture, "b", coalesces);
        let present = fixture.manager.queues().of_key(key().as_ref()).unwrap().present();
        assert_eq!(
            present.map(|(_, id)| id).collect::<Vec<_>>(),
            [retry, behind],
            "{row}: the retry keeps the position"
        );
        replies(&mut fixture);
        release(&mut fixture, "a");
        assert_eq!(fixture.holders(), if coalesces { "c" } else { "b" }, "{row}");
        let is_done =
            replies(&mut fixture).iter().any(|(id, it)| *id == retry && matches!(it, WaitOutcome::Done { .. }));
        assert_eq!(is_done, coalesces, "{row}");
    }
}

#[test]
fn mutexes_that_are_released_together_reply_each_with_the_fence_of_its_hold() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    fixture.acquire_all("a", &[b"k", b"l"], MUTEX, None, Lease::Persist);
    let fences = [&b"k"[..], b"l"].map(|name| fixture.stored_under(&Key::new(0, name)).unwrap().0.fence().unwrap());
    let of_k = queue(&mut fixture, "b", true);
    let Acquired::Queued(of_l) = ask_for(&mut fixture, b"l", "c", true) else { panic!("l is held") };
    let now = fixture.server.now();
    let released = fixture.manager.with_host(&mut fixture.server.host(&now)).release_multiple(0, &[b"k", b"l"], b"a");
    assert_eq!(released, Ok(2));
    let done = |id, fence| (id, WaitOutcome::Done { fence });
    assert_eq!(replies(&mut fixture), [done(of_k, fences[0]), done(of_l, fences[1])]);
}

/// The release of a mutex for which several COALESCE requests wait. The slice of the release replies only to the first.
fn released(tokens: &str) -> (Fixture, Vec<RequestId>, WaitOutcome) {
    let (mut fixture, ids) = waiting(tokens);
    let fence = fence(&fixture);
    fixture.server.time_slices = TimeSlices::Of(1);
    release(&mut fixture, "a");
    assert_eq!(replies(&mut fixture), [(ids[0], WaitOutcome::Done { fence })], "{tokens}");
    (fixture, ids, WaitOutcome::Done { fence })
}

#[test]
fn requests_completed_over_several_iterations_get_the_fence_of_their_own_release() {
    let (mut fixture, mut ids, first) = released("BCD");
    assert!(matches!(ask_for(&mut fixture, b"k", "e", true), Acquired::Granted(_)), "the mutex is free");
    let second = WaitOutcome::Done { fence: fence(&fixture) };
    ids.push(queue(&mut fixture, "f", true));
    ids.push(queue(&mut fixture, "g", true));
    release(&mut fixture, "e");
    drain_all(&mut fixture);
    let mut replies = replies(&mut fixture);
    replies.sort_by_key(|(id, _)| *id);
    assert_eq!(replies, [(ids[1], first), (ids[2], first), (ids[3], second), (ids[4], second)]);
    assert_no_waiters(&mut fixture);
}

#[test]
fn a_release_replies_to_its_own_request_although_another_key_has_replies_left() {
    let (mut fixture, ids, done) = released("BCDEFG");
    fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
    let own: Vec<_> = ["x", "y", "z"].map(|token| ask_for(&mut fixture, b"l", token, true)).into();
    let [Acquired::Queued(x), Acquired::Queued(y), Acquired::Queued(z)] = own[..] else { panic!("l is held") };
    let now = fixture.server.now();
    let l = Key::new(0, b"l");
    let of_l = WaitOutcome::Done { fence: fixture.stored_under(&l).unwrap().0.fence().unwrap() };
    let released = fixture.manager.with_host(&mut fixture.server.host(&now)).release(
        l.as_ref(),
        b"a",
        &ReleaseAmount::Mutex,
        WorkOutcome::Done,
    );
    assert_eq!((released, replies(&mut fixture)), (Ok(Released::Gone), vec![(x, of_l)]));
    // The rest of both in later iterations.
    (0..4).for_each(|_| fixture.drain());
    let mut first = replies(&mut fixture);
    first.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(first, [(ids[1], done), (ids[2], done), (y, of_l), (z, of_l)]);
}

#[test]
fn a_completed_request_is_no_waiter_before_its_reply_is_sent() {
    let (mut fixture, ids, done) = released("BCDEFG");
    let queues = fixture.manager.queues();
    assert_eq!((queues.waiters(), queues.requests().count(), queues.is_empty()), (0, 0, true));
    assert!(fixture.manager.has_waiters_or_sessions() && fixture.manager.is_being_removed(ids[1]));
    assert_eq!(fixture.cancel("C"), Ok(Cancelled::Nothing));
    assert!(matches!(ask_for(&mut fixture, b"k", "C", true), Acquired::Granted(_)), "a retry is a new request");
    // No position is reserved for a client that disconnects now, and the end of its connection is not a second reply.
    let now = fixture.server.now();
    fixture.manager.leave(&now, ids[2], Leave::Detach);
    fixture.manager.leave_all([ids[3]]);
    // A completed request does not time out.
    fixture.server.keyspace.now_ms += 500;
    fixture.tick();
    assert_eq!(replies(&mut fixture), [(ids[1], done)]);
    drain_all(&mut fixture);
    assert_eq!(replies(&mut fixture), [(ids[4], done), (ids[5], done)]);
    assert_no_waiters(&mut fixture);
}

#[test]
fn a_completed_request_is_no_waiter_among_requests_that_wait() {
    let (mut fixture, ids) = waiting("BCDEfg");
    fixture.acquire_all("D", &[b"x"], MUTEX, None, Lease::Persist);
    let first = WaitOutcome::Done { fence: fence(&fixture) };
    fixture.server.time_slices = TimeSlices::Of(1);
    release(&mut fixture, "a");
    let second = WaitOutcome::Done { fence: fence(&fixture) };
    assert_eq!((fixture.holders(), replies(&mut fixture).len()), ("f".into(), 2), "one grant, one of four replies");
    assert_eq!(fixture.cancel("C"), Ok(Cancelled::Nothing));
    assert!(matches!(ask_for(&mut fixture, b"x", "f", false), Acquired::Queued(_)), "D does not wait for f");
    let retry = queue(&mut fixture, "C", true);
    assert_eq!(replies(&mut fixture), [], "the older request is not superseded");
    assert!(!fixture.manager.is_being_removed(retry), "no release has completed it yet");
    release(&mut fixture, "f");
    fixture.server.time_slices = TimeSlices::Endless;
    drain_all(&mut fixture);
    assert_eq!(replies(&mut fixture)[1..], [(ids[1], first), (ids[2], first), (ids[3], first), (retry, second)]);
    assert_eq!((fixture.holders(), fixture.manager.queues().waiters()), ("g".into(), 1), "f waits for x");
}

#[test]
fn a_completed_request_completes_no_deadlock_before_its_reply_is_sent() {
    let mut fixture = Fixture::of(&[("a", MUTEX)]);
    fixture.acquire_all("d", &[b"x"], MUTEX, None, Lease::Persist);
    ["b", "c", "d"].iter().for_each(|token| _ = queue(&mut fixture, token, true));
    fixture.server.time_slices = TimeSlices::Of(1);
    release(&mut fixture, "a");
    assert!(matches!(ask_for(&mut fixture, b"k", "e", false), Acquired::Granted(_)));
    // e waits for d. The release has completed the request of d, so d no longer waits for e.
    assert!(matches!(ask_for(&mut fixture, b"x", "e", false), Acquired::Queued(_)));
}

#[test]
fn no_other_outcome_precedes_the_reply_of_a_release() {
    for write_check in [WriteCheck::SlotMoved, WriteCheck::Refused] {
        let (mut fixture, ids) = waiting("Bc");
        let done = WaitOutcome::Done { fence: fence(&fixture) };
        fixture.server.keyspace.write_check = write_check;
        release(&mut fixture, "a");
        fixture.drain();
        let replies = replies(&mut fixture);
        assert_eq!(replies[0], (ids[0], done), "{write_check:?}");
        assert_eq!(replies.len(), if write_check == WriteCheck::SlotMoved { 2 } else { 1 }, "{write_check:?}");
    }
    let (mut fixture, ids, done) = released("BCD");
    fixture.manager.slots_moved(|_| true);
    fixture.manager.demote();
    drain_all(&mut fixture);
    assert_eq!(replies(&mut fixture), [(ids[1], done), (ids[2], done)]);
}

#[test]
fn the_release_of_another_lock_type_under_the_key_is_no_release_of_the_mutex() {
    let (mut fixture, ids) = waiting("B");
    let one = Count::Delta(1);
    fixture.acquire_all("r", &[b"r"], Claim::Reentrant(one), None, Lease::Persist);
    let lock = fixture.server.keyspace.take_copy(&Key::new(0, b"r")).unwrap();
    fixture.server.keyspace.put(&key(), lock);
    let now = fixture.server.now();
    let key = KeyRef { db: 0, name: b"k" };
    let released = fixture.manager.with_host(&mut fixture.server.host(&now)).release(
        key,
        b"r",
        &ReleaseAmount::Reentrant(one),
        WorkOutcome::Done,
    );
    assert_eq!(released, Ok(Released::Gone));
    drain_all(&mut fixture);
    assert!(matches!(replies(&mut fixture)[..], [(id, WaitOutcome::Granted { .. })] if id == ids[0]));
}

#[test]
fn one_time_slice_ends_requests_of_both_kinds_until_it_is_spent() {
    let (mut fixture, _) = waiting("BCDE");
    ask_for(&mut fixture, b"l", "a", false);
    let left = ["f", "g", "h"].map(|token| match ask_for(&mut fixture, b"l", token, false) {
        Acquired::Queued(id) => id,
        other => panic!("{token} does not wait: {other:?}"),
    });
    fixture.server.time_slices = TimeSlices::Of(1);
    release(&mut fixture, "a");
    fixture.manager.leave_all(left);
    assert!(fixture.manager.queues().has_done());
    fixture.server.time_slices = TimeSlices::Endless;
    fixture.drain();
    assert_eq!((replies(&mut fixture).len(), fixture.manager.queues().waiters()), (4, 0));
}
