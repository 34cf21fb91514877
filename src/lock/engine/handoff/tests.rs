use std::num::NonZeroU64;

use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::fixture::{key, owner, Fixture};
use crate::engine::observer::Occurrence;
use crate::engine::release::WorkOutcome;
use crate::host::simulated::{Keyspace, SentEffect, SimulatedEntry, TimeSlices};
use crate::host::{Host, Keys, WaitOutcome, WriteCheck};
use crate::key::{ClientId, Key, KeyRef};
use crate::value::claim::{Claim, Count, LockRequest, Mode, ReleaseAmount};
use crate::value::outcome::Released;
use crate::value::time::{Deadline, Instant, Lease, WaitLimit};

const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));
const GIVE_READ: ReleaseAmount = ReleaseAmount::ReadWrite(Mode::Read, Count::Delta(1));
const GIVE_WRITE: ReleaseAmount = ReleaseAmount::ReadWrite(Mode::Write, Count::Delta(1));

#[test]
fn the_request_of_a_holder_goes_before_the_multi_key_request_that_waits_for_it() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("a", &[b"l"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire("a", Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.holders(), "a", "b waits for a");
}

/// p waits for m and l, and k, which it holds. The wait of q for k has timed out when p releases k, so k is free for a
/// moment. Then p has the last position, behind r on m.
#[test]
fn an_owner_that_has_lost_a_key_gets_another_position_although_the_head_of_its_queue_has_timed_out() {
    let mut fixture = Fixture::of(&[("p", Claim::Mutex)]);
    fixture.acquire_all("o", &[b"l"], Claim::Mutex, None, Lease::Persist);
    let (q, now) = (owner("q"), fixture.server.now());
    let request = LockRequest { owner: q.as_ref(), claim: Claim::Mutex, lease: Lease::Persist };
    let limit = WaitLimit::Ms(NonZeroU64::new(10).unwrap());
    let wait = Some(Wait { limit, may_detach: false, coalesces: false, lease_deadline: None });
    let request = AcquireRequest { db: 0, names: &[b"k"], request, wait, session: None };
    fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request).unwrap();
    for (name, names) in [("s", &[b"k"][..]), ("p", &[b"m", b"l", b"k"]), ("r", &[b"m"])] {
        let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        fixture.acquire_all(name, &names, Claim::Mutex, None, Lease::Persist);
    }
    fixture.drain();
    fixture.server.keyspace.now_ms += 10;
    assert_eq!(fixture.release("p", ReleaseAmount::Mutex), Ok(Released::Gone));
    fixture.tick();
    (0..2).for_each(|_| fixture.drain());
    let (lock, _) = fixture.stored_under(&Key::new(0, b"m")).expect("it is held");
    assert_eq!((fixture.holders(), lock.is_held_by(b"r")), ("s".into(), true));
}

/// x waits for k and z, w holds z and waits for n, and p holds n and k. Without k, p would deadlock behind x.
#[test]
fn an_owner_that_has_lost_a_key_gets_deadlock_if_it_would_deadlock() {
    let mut fixture = Fixture::of(&[("p", Claim::Mutex)]);
    let mut asked = Vec::new();
    for (name, names) in
        [("p", &[b"n"][..]), ("y", &[b"m"]), ("w", &[b"z"]), ("x", &[b"k", b"z"]), ("w", &[b"n"]), ("p", &[b"k", b"m"])]
    {
        let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        asked.push(fixture.acquire_all(name, &names, Claim::Mutex, None, Lease::Persist));
    }
    let Some(Acquired::Queued(last)) = asked.pop() else { panic!("{asked:?}") };
    assert_eq!(fixture.release("p", ReleaseAmount::Mutex), Ok(Released::Gone));
    fixture.drain();
    assert_eq!(fixture.server.inbox.replies, [(last, WaitOutcome::Deadlock)]);
    assert_eq!((fixture.manager.observer.statistics.deadlocks, fixture.manager.queues().waiters()), (1, 2));
    let happened = fixture.manager.observer.occurrences.take();
    let cycle = happened.iter().find_map(|occurrence| match occurrence {
        Occurrence::DeadlockRefused { cycle, .. } => Some(cycle.iter().map(|edge| format!("{:?}", edge.owner))),
        _ => None,
    });
    assert_eq!(cycle.map(Vec::from_iter), Some(["p", "x", "w"].map(String::from).to_vec()));
}

#[test]
fn an_owner_that_is_granted_one_request_reenters_with_the_next() {
    let holds = |holds| Claim::Reentrant(Count::Delta(holds));
    let mut fixture = Fixture::of(&[("z", holds(1)), ("a", holds(1)), ("a", holds(2)), ("b", holds(1))]);
    assert_eq!(fixture.release("z", ReleaseAmount::Reentrant(Count::Delta(1))), Ok(Released::Gone));
    fixture.drain();
    let (lock, _) = fixture.stored();
    assert_eq!(lock.hold(b"a", Deadline::Never).map(|hold| hold.holds), Some(3));
    assert_eq!(fixture.manager.queues().waiters(), 1);
}

#[test]
fn an_owner_is_granted_more_in_the_order_of_the_queue_only() {
    let mut fixture = Fixture::of(&[("z", WRITE), ("a", READ), ("b", READ), ("a", WRITE)]);
    assert_eq!(fixture.release("z", GIVE_WRITE), Ok(Released::Gone));
    fixture.drain();
    fixture.drain();
    assert_eq!(fixture.holders(), "a b", "a does not write before b has read");
    assert_eq!(fixture.manager.queues().waiters(), 1);
    assert_eq!(fixture.release("b", GIVE_READ), Ok(Released::Gone));
    assert!(fixture.manager.queues().is_empty());
}

#[test]
fn a_grant_leaves_requests_of_its_owner_for_other_keys_queued() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex), ("a", Claim::Mutex), ("c", Claim::Mutex)]);
    for name in ["x", "a"] {
        fixture.acquire_all(name, &[b"m"], Claim::Mutex, None, Lease::Persist);
    }
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!((fixture.holders(), fixture.manager.queues().waiters()), ("a".into(), 2));
}

/// The request gets its reply, nothing is granted or replicated for it, and the next request is served in the same
/// step.
#[test]
fn a_request_that_is_no_longer_permitted_gets_its_reply_and_is_skipped() {
    let mut fixture = Fixture::of(&[("z", Claim::Mutex)]);
    let mut queue =
        |name: &str, names: &[&[u8]]| match fixture.acquire_all(name, names, Claim::Mutex, None, Lease::Persist) {
            Acquired::Queued(id) => id,
            other => panic!("{name} does not wait: {other:?}"),
        };
    let refused = [queue("a", &[b"k"]), queue("b", &[b"k", b"l"])];
    queue("c", &[b"k"]);
    fixture.server.inbox.unpermitted.extend(refused);
    fixture.effects();
    assert_eq!(fixture.release("z", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!((fixture.holders(), fixture.effects()), ("c".into(), vec![SentEffect::Hold(owner("c"))]));
    assert_eq!(fixture.server.inbox.replies[..2], refused.map(|id| (id, WaitOutcome::NotPermitted)));
    assert!(fixture.manager.queues().is_empty());
    let statistics = fixture.manager.observer.statistics;
    assert_eq!((statistics.grants_after_wait, statistics.undelivered_grants), (1, 0));
}

#[test]
fn in_a_grace_only_holders_are_granted_more() {
    let mut fixture = Fixture::of(&[("a", READ), ("z", READ), ("a", WRITE)]);
    fixture.acquire_all("d", &[b"m"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("b", &[b"l", b"m"], Claim::Mutex, None, Lease::Persist);
    fixture.manager.begin_grace(fixture.server.keyspace.instant(), 1_000);
    assert_eq!(fixture.release("z", GIVE_READ), Ok(Released::Gone));
    let (lock, _) = fixture.stored();
    assert_eq!(lock.hold(b"a", Deadline::Never).map(|hold| hold.holds), Some(1), "it writes now");
    // New requests wait, for one key and for multiple.
    fixture.acquire_all("c", &[b"n"], Claim::Mutex, None, Lease::Persist);
    fixture.server.keyspace.delete(&Key::new(0, b"m"));
    for name in [b"m", b"n"] {
        fixture.manager.key_changed(Key::new(0, name).as_ref());
    }
    fixture.drain();
    assert_eq!((fixture.manager.queues().waiters(), fixture.server.keyspace.primary.len()), (2, 1));
    // They are granted when the grace period ends.
    fixture.server.keyspace.now_ms += 1_000;
    fixture.tick();
    fixture.drain();
    assert_eq!((fixture.manager.queues().waiters(), fixture.server.keyspace.primary.len()), (0, 4));
}

#[test]
fn a_multi_key_request_overtakes_no_request_on_any_of_its_keys() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("x", &[b"m"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("c", &[b"l", b"m"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!((fixture.holders(), fixture.manager.queues().waiters()), ("".into(), 2), "c is ahead on l");
}

#[test]
fn a_grant_of_multiple_keys_lets_its_owner_reenter_from_the_queues_of_all() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("a", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("a", &[b"l"], Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    fixture.drain();
    assert!(fixture.manager.queues().is_empty() && !fixture.manager.has_due());
    assert_eq!(fixture.server.inbox.replies.len(), 2);
    // Queues that were removed are not served.
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("a", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert!(!fixture.manager.has_due());
}

#[test]
fn waiters_for_the_other_keys_of_a_grant_are_served_when_its_lease_ends() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::from_ms(300).unwrap());
    fixture.acquire_all("c", &[b"l"], Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    fixture.drain();
    assert_eq!(fixture.next_timer(), Some(1_301));
    fixture.server.keyspace.now_ms = 1_301;
    fixture.tick();
    fixture.drain();
    assert!(fixture.manager.queues().is_empty(), "c holds it");
}

#[test]
fn an_undelivered_grant_of_multiple_keys_is_revoked_from_all() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.server.keyspace.primary.len(), 2);
    let (granted, _) = fixture.server.inbox.replies[0];
    fixture.manager.undelivered(granted);
    fixture.drain();
    assert!(fixture.server.keyspace.primary.is_empty());
}

#[test]
fn a_key_with_only_reserved_positions_is_deleted_and_not_handed_off() {
    let mut fixture = Fixture::of(&[("a", READ), ("b", WRITE)]);
    let (id, _) = fixture.manager.queues().requests().next().unwrap();
    fixture.manager.waits.queues.reserve_position(id, Instant::from_ms(60_000));
    fixture.effects();
    fixture.server.keyspace.write_check = WriteCheck::Refused;
    assert_eq!(fixture.release("a", GIVE_READ), Ok(Released::Gone));
    assert_eq!(fixture.effects(), [SentEffect::Delete]);
    assert!(!fixture.manager.has_due(), "nothing waits for writes to be accepted");
}

/// The keyspace, with another result of the write check for the key l.
struct WriteCheckOfL<'a>(&'a mut Keyspace, WriteCheck);

impl Keys for WriteCheckOfL<'_> {
    type Entry<'e>
        = SimulatedEntry<'e>
    where
        Self: 'e;

    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> SimulatedEntry<'e> {
        self.0.open(key)
    }

    fn write_check(&mut self, key: KeyRef<'_>) -> WriteCheck {
        if key.name == b"l" {
            self.1
        } else {
            WriteCheck::Allowed
        }
    }
}

#[test]
fn multiple_keys_are_granted_if_writes_are_accepted_for_all() {
    for write_check in [WriteCheck::Allowed, WriteCheck::Refused, WriteCheck::SlotMoved] {
        let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
        fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
        let (now, server) = (fixture.server.now(), &mut fixture.server);
        let keys = WriteCheckOfL(&mut server.keyspace, write_check);
        let mut host = Host { keys, clients: &mut server.inbox, now: &now };
        let released = fixture.manager.with_host(&mut host).release(
            key().as_ref(),
            b"d",
            &ReleaseAmount::Mutex,
            WorkOutcome::Done,
        );
        assert_eq!(released, Ok(Released::Gone));
        assert_eq!(fixture.holders(), if write_check == WriteCheck::Allowed { "b" } else { "" }, "{write_check:?}");
        assert_eq!(fixture.manager.has_due(), write_check == WriteCheck::Refused, "{write_check:?}: later");
        let asks_again = matches!(fixture.server.inbox.replies[..], [(_, WaitOutcome::TryAgain)]);
        assert_eq!(asks_again, write_check == WriteCheck::SlotMoved, "{write_check:?}");
    }
}

/// A request that no longer waits is granted nothing, although it is removed from its queue only in a later iteration.
#[test]
fn a_request_that_no_longer_waits_is_not_served() {
    let limit_ms = 10;
    for (passed_ms, has_left, is_granted) in [(9, false, true), (10, false, false), (9, true, false)] {
        let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
        let (a, now) = (owner("a"), fixture.server.now());
        let request = LockRequest { owner: a.as_ref(), claim: Claim::Mutex, lease: Lease::Persist };
        let limit = WaitLimit::Ms(NonZeroU64::new(limit_ms).unwrap());
        let wait = Some(Wait { limit, may_detach: false, coalesces: false, lease_deadline: None });
        let request = AcquireRequest { db: 0, names: &[b"k"], request, wait, session: None };
        let asked = fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request);
        let Ok(Acquired::Queued(id)) = asked else { panic!("{asked:?}") };
        fixture.server.keyspace.delete(&key());
        fixture.manager.leave_all(has_left.then_some(id));
        fixture.server.keyspace.now_ms += passed_ms;
        let (now, queue) = (fixture.server.now(), fixture.manager.queues().id_of(key().as_ref()).unwrap());
        fixture.manager.with_host(&mut fixture.server.host(&now)).serve(queue);
        assert_eq!(fixture.holders(), if is_granted { "a" } else { "" }, "{passed_ms} ms, has left: {has_left}");
    }
}

/// A reserved position is not a waiter: nothing is opened for it, postponed, or left to a later iteration.
#[test]
fn a_queue_without_waiters_is_not_served() {
    let mut fixture = Fixture::of(&[("a", Claim::Mutex), ("b", Claim::Mutex)]);
    let queue = fixture.manager.queues().id_of(key().as_ref()).unwrap();
    let (id, _) = fixture.manager.queues().requests().next().unwrap();
    fixture.manager.waits.queues.reserve_position(id, Instant::from_ms(60_000));
    fixture.manager.waits.keep_due(queue);
    for write_check in [WriteCheck::Allowed, WriteCheck::Refused] {
        fixture.server.keyspace.write_check = write_check;
        let (now, opened) = (fixture.server.now(), fixture.server.keyspace.opened);
        assert_eq!(fixture.manager.with_host(&mut fixture.server.host(&now)).serve(queue), WriteCheck::Allowed);
        assert_eq!(fixture.server.keyspace.opened, opened);
        assert!(!fixture.manager.has_due());
    }
}

#[test]
fn multi_key_requests_that_are_not_permitted_get_replies_over_several_iterations() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    for name in ["a", "b", "c"] {
        fixture.acquire_all(name, &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.server.inbox.unpermitted.extend(fixture.server.inbox.parked);
    }
    fixture.server.time_slices = TimeSlices::Of(1);
    assert_eq!(fixture.release("d", ReleaseAmount::Mutex), Ok(Released::Gone));
    for replied in 1..=3 {
        assert_eq!(fixture.server.inbox.replies.len(), replied);
        assert_eq!(fixture.manager.has_due(), replied < 3, "the rest is left to the next iteration");
        fixture.drain();
    }
}

/// When an owner's requests are tried again, removing an ended hold of the key is also a write.
#[test]
fn nothing_ends_before_writes_are_accepted_when_an_owner_is_tried_again() {
    let mut fixture = Fixture::default();
    fixture.acquire("s", READ, Some(ClientId(7)), Lease::Persist);
    fixture.acquire("o", READ, None, Lease::Persist);
    fixture.acquire("o", WRITE, None, Lease::Persist);
    fixture.acquire("o", READ, None, Lease::Persist);
    fixture.effects();
    fixture.server.keyspace.write_check = WriteCheck::Refused;
    fixture.manager.end_session(ClientId(7));
    fixture.drain();
    assert_eq!(fixture.effects(), []);
    fixture.server.keyspace.write_check = WriteCheck::Allowed;
    fixture.drain();
    assert_eq!(fixture.holders(), "o");
    assert!(fixture.manager.queues().is_empty(), "o writes");
}

/// In a cluster a release may write its own key, k, while writes are refused for l. Rows: who holds l when b becomes
/// the holder of k.
#[test]
fn a_request_that_reenters_while_writes_are_refused_for_another_key_is_served_when_they_are_accepted() {
    for holder in ["", "b"] {
        let mut fixture = Fixture::of(&[("a", Claim::Mutex)]);
        if !holder.is_empty() {
            fixture.acquire_all(holder, &[b"l"], Claim::Mutex, None, Lease::Persist);
        }
        fixture.acquire("b", Claim::Mutex, None, Lease::Persist);
        fixture.acquire("c", Claim::Mutex, None, Lease::Persist);
        fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        fixture.server.keyspace.open_to_command = Some(key());
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        fixture.server.keyspace.open_to_command = None;
        fixture.drain();
        let replied = |fixture: &Fixture| fixture.server.inbox.replies.len();
        assert_eq!((replied(&fixture), fixture.manager.has_due()), (1, true), "{holder}");
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.drain();
        assert_eq!((replied(&fixture), fixture.manager.has_due()), (2, false), "{holder}: b holds both");
        assert_eq!(fixture.holders(), "b");
    }
}
