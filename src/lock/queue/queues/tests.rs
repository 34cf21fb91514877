use super::super::fixture::{key, names, Fixture};
use super::super::wait_queue::WaitQueue;
use super::*;
use crate::value::claim::{Claim, Count, LockRequest, Mode};
use crate::value::owner::Owner;
use crate::value::time::Lease;

const MUTEX: Claim = Claim::Mutex;

fn permits(limit: u32, permits: u32) -> Claim {
    Claim::Permits { limit, count: Count::Delta(permits) }
}

fn retried(queues: &WaitQueues, owner: &str, keys: &str, claim: Claim) -> Option<RequestId> {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
    queues.of_owner(queues.owner_id(0, owner.as_bytes())).find_retried(0, &names(keys), &request)
}

#[test]
fn a_retry_has_the_same_owner_keys_mode_and_number() {
    let mut fixture = Fixture::default();
    // Other requests of the owner, queued before and after.
    fixture.wait("a", "jkl", MUTEX);
    fixture.wait("a", "kz", MUTEX);
    fixture.wait("a", "k", MUTEX);
    let multi_key = fixture.wait("a", "kl", MUTEX);
    let one = fixture.wait("a", "l", MUTEX);
    let semaphore = fixture.wait("a", "s", permits(3, 2));
    fixture.wait("b", "lm", MUTEX);
    let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
    let reader = fixture.wait("a", "w", read);
    let rows = [
        ("a", "kl", MUTEX, Some(multi_key)),
        ("a", "lk", MUTEX, Some(multi_key)),
        ("a", "l", MUTEX, Some(one)),
        ("a", "jl", MUTEX, None),
        ("a", "lx", MUTEX, None),
        ("b", "kl", MUTEX, None),
        ("a", "m", MUTEX, None),
        ("a", "s", permits(3, 2), Some(semaphore)),
        ("a", "s", permits(9, 2), Some(semaphore)),
        ("a", "s", permits(3, 1), None),
        ("a", "w", read, Some(reader)),
        ("a", "w", Claim::ReadWrite(Mode::Write, Count::Delta(1)), None),
        ("a", "w", MUTEX, None),
    ];
    for (owner, keys, claim, found) in rows {
        assert_eq!(retried(&fixture.queues, owner, keys, claim), found, "{owner} asks for {keys}: {claim:?}");
    }
}

#[test]
fn a_lease_expiry_is_watched_once_at_the_earliest_known_time() {
    let mut fixture = Fixture::default();
    let id = fixture.wait("a", "k", MUTEX);
    let (queues, at) = (&mut fixture.queues, Timestamp::from_ms);
    let queue = queues.id_of(key("k").as_ref()).unwrap();
    for (end_ms, watched_ms, is_sooner) in [(20, 20, true), (25, 20, false), (15, 15, true)] {
        queues.watch_lease(queue, at(end_ms));
        assert_eq!(
            (queues.lease_timers.next(), queues.lease_timers.take_needs_rearm()),
            (Some(at(watched_ms)), is_sooner),
            "{end_ms}"
        );
    }
    assert_eq!([queues.take_due_lease(at(14)), queues.take_due_lease(at(15))], [None, Some(queue)]);
    assert_eq!(queues.take_due_lease(at(99)), None);
    queues.watch_lease(queue, at(40));
    assert_eq!(queues.lease_timers.next(), Some(at(40)), "what was watched before is forgotten");
    queues.remove(id);
    queues.watch_lease(queue, at(50));
    assert!(queues.is_clean());
}

#[test]
fn a_wait_times_out_once_and_a_reserved_position_ends_instead() {
    let mut fixture = Fixture::default();
    let id = fixture.wait("a", "k", MUTEX);
    let (queues, at) = (&mut fixture.queues, Instant::from_ms);
    for until_ms in [30, 20] {
        queues.reserve_position(id, at(until_ms));
        assert_eq!((queues.wait_timers.next(), queues.request(id).unwrap().until), (Some(at(30)), Some(at(30))));
    }
    assert_eq!(queues.wait_timers.all().collect::<Vec<_>>(), [at(30)]);
    assert_eq!([at(29), at(30), at(30)].map(|now| queues.wait_timers.pop_due(now)), [None, Some(id), None]);
    queues.remove(id);
    assert!(queues.is_clean());
}

/// The queue that was closed last is reused, and keeps nothing but its name.
#[test]
fn a_key_that_is_waited_for_again_has_a_new_queue() {
    let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
    for (before, after) in [("k", "k"), ("k", "l")] {
        let mut fixture = Fixture::default();
        fixture.hold("h", "k", permits(3, 1));
        let id = fixture.wait("a", before, permits(3, 1));
        let queue = fixture.queues.id_of(key(before).as_ref()).unwrap();
        fixture.queues.set_seen(queue, Fence::new(7));
        fixture.queues.watch_lease(queue, Timestamp::from_ms(20));
        fixture.queues.remove(id);
        assert!(fixture.queues.is_clean());
        let id = fixture.wait("b", after, read);
        let again = fixture.queues.id_of(key(after).as_ref()).unwrap();
        let WaitQueue { key: name, lock_type, limit, seen, lease_end, .. } = fixture.queues.get(again).unwrap();
        assert_eq!((name, *lock_type, *limit, *seen, *lease_end), (&key(after), LockType::ReadWrite, None, None, None));
        assert!(again != queue && fixture.queues.get(again).unwrap().head().unwrap().1 == id);
    }
}

#[test]
fn the_head_is_the_earliest_request_and_upgrades_are_ahead_of_all() {
    let mut fixture = Fixture::default();
    let first = fixture.wait("a", "k", MUTEX);
    let second = fixture.wait("b", "k", MUTEX);
    let queue = fixture.queues.of_key(key("k").as_ref()).unwrap();
    assert_eq!(queue.present().map(|(_, id)| id).collect::<Vec<_>>(), [first, second]);
    let (normal, upgrade) = (fixture.queues.last_position(Rank::Normal), fixture.queues.last_position(Rank::Upgrade));
    assert_eq!(queue.range(upgrade..).map(|(_, id)| id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(queue.range(normal..).count(), 0);
}

#[test]
fn a_reserved_position_is_no_waiter_and_is_resumed() {
    let mut fixture = Fixture::default();
    let kept = fixture.wait("a", "kl", MUTEX);
    let other = fixture.wait("b", "l", MUTEX);
    let queues = &mut fixture.queues;
    queues.reserve_position(kept, Instant::from_ms(60_000));
    queues.reserve_position(kept, Instant::from_ms(60_000));
    assert_eq!((queues.waiters(), queues.reserved_positions(), queues.oldest_reserved()), (1, 1, Some(kept)));
    assert_eq!(queues.of_key(key("l").as_ref()).unwrap().head().map(|(_, id)| id), Some(other), "it is skipped");
    assert_eq!(queues.of_key(key("k").as_ref()).unwrap().waiters(), 0);
    assert_eq!(retried(queues, "a", "kl", MUTEX), Some(kept), "a retry finds it");
    let position = queues.remove(kept).unwrap().0.position;
    let back = fixture.wait("a", "l", MUTEX);
    assert!(position < fixture.queues.request(other).unwrap().position);
    assert!(position < fixture.queues.request(back).unwrap().position, "a new request gets another position");
    assert!(fixture.queues.id_of(key("k").as_ref()).is_none());
}

#[test]
fn the_oldest_reserved_position_is_found_first() {
    let mut fixture = Fixture::default();
    let ids = ["a", "b", "c"].map(|owner| fixture.wait(owner, "k", MUTEX));
    for index in [1, 0, 2] {
        fixture.queues.reserve_position(ids[index], Instant::from_ms(60_000));
    }
    assert_eq!(fixture.queues.oldest_reserved(), Some(ids[1]));
    fixture.queues.remove(ids[1]);
    assert_eq!(fixture.queues.oldest_reserved(), Some(ids[0]));
}

#[test]
fn no_state_is_left_of_requests_that_left() {
    let mut fixture = Fixture::default();
    fixture.hold("z", "kl", MUTEX);
    let mut ids = ["a", "b", "a"].map(|owner| fixture.wait(owner, "kl", MUTEX)).to_vec();
    ids.push(fixture.wait("a", "k", MUTEX));
    fixture.queues.reserve_position(ids[1], Instant::from_ms(60_000));
    assert!(!fixture.queues.is_empty() && !fixture.queues.is_clean());
    for id in ids {
        assert!(fixture.queues.remove(id).is_some());
        assert!(fixture.queues.remove(id).is_none());
    }
    assert!(fixture.queues.is_empty() && fixture.queues.is_clean(), "{:?}", fixture.queues);
}

#[test]
fn a_queue_of_reserved_positions_takes_the_lock_type_of_a_new_request() {
    let mut fixture = Fixture::default();
    let kept = fixture.wait("a", "k", permits(3, 1));
    assert_eq!(fixture.queues.of_key(key("k").as_ref()).map(|queue| (queue.lock_type, queue.limit)), {
        Some((LockType::Semaphore, Some(3)))
    });
    fixture.queues.reserve_position(kept, Instant::from_ms(60_000));
    fixture.wait("b", "k", MUTEX);
    assert_eq!(fixture.queues.of_key(key("k").as_ref()).map(|queue| (queue.lock_type, queue.limit)), {
        Some((LockType::Mutex, None))
    });
}

#[test]
fn the_limit_of_the_newest_request_counts() {
    let mut fixture = Fixture::default();
    fixture.wait("a", "s", permits(3, 1));
    fixture.wait("b", "s", permits(5, 1));
    let id = fixture.queues.id_of(key("s").as_ref()).unwrap();
    assert_eq!(permits(3, 1).under_limit(fixture.queues.get(id).unwrap().limit), permits(5, 1));
    assert!(!fixture.queues.set_limit(id, 5));
    assert!(fixture.queues.set_limit(id, 4));
    assert_eq!(fixture.queues.get(id).unwrap().limit, Some(4));
}

#[test]
fn an_owner_that_can_be_waited_for_holds_or_waits() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "k", MUTEX);
    assert!(!fixture.may_be_waited_for("a"), "no request waits for the key");
    let waiter = fixture.wait("b", "k", MUTEX);
    assert!(fixture.may_be_waited_for("a"), "it holds a key that is waited for");
    assert!(fixture.may_be_waited_for("b"), "it waits");
    assert!(!fixture.queues.may_be_waited_for(1, b"a", None) && !fixture.may_be_waited_for("c"));
    fixture.queues.reserve_position(waiter, Instant::from_ms(60_000));
    assert!(!fixture.may_be_waited_for("b"), "its client has left");
    fixture.queues.remove(waiter);
    assert!(!fixture.may_be_waited_for("a"), "no request waits for the key any more");
}

#[test]
fn after_a_hand_off_no_request_waits_for_the_former_holder() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "k", MUTEX);
    let waiter = fixture.wait("c", "k", MUTEX);
    fixture.hold("b", "k", MUTEX);
    assert!(!fixture.may_be_waited_for("a"));
    assert!(fixture.may_be_waited_for("b"));
    fixture.queues.remove(waiter);
    assert!(fixture.queues.is_clean());
}

/// The owner holds the key before or after its request is queued.
#[test]
fn a_multi_key_request_counts_on_a_key_until_its_owner_loses_it_or_it_no_longer_waits() {
    for (is_first_held, how_it_ends) in [(true, 0), (false, 0), (true, 1), (true, 2), (false, 1), (false, 2)] {
        let mut fixture = Fixture::default();
        fixture.hold("b", "kl", MUTEX);
        if is_first_held {
            fixture.hold("a", "k", MUTEX);
        }
        let [id, other] = ["a", "c"].map(|owner| fixture.wait(owner, "kl", MUTEX));
        let queue = fixture.queues.id_of(key("k").as_ref()).unwrap();
        if is_first_held {
            fixture.queues.add_holder_request(id, queue);
        } else {
            assert_eq!(fixture.hold("a", "k", MUTEX), []);
        }
        assert_eq!(fixture.hold("a", "k", MUTEX), [], "the same holder");
        match how_it_ends {
            0 => {}
            1 => _ = fixture.queues.remove(id),
            _ => fixture.queues.reserve_position(id, Instant::from_ms(60_000)),
        }
        let holder_requests = fixture.queues.get(queue).map(|queue| queue.holder_requests.len());
        assert_eq!(holder_requests, Some(usize::from(how_it_ends == 0)));
        let lost = fixture.hold("b", "k", MUTEX);
        assert_eq!(lost, if how_it_ends == 0 { vec![id] } else { vec![] }, "{is_first_held} {how_it_ends}");
        assert_eq!(fixture.hold("c", "k", MUTEX), []);
        assert_eq!(fixture.hold("b", "k", MUTEX), [other]);
    }
}

#[test]
fn any_owner_may_hold_a_key_with_many_holders() {
    let mut fixture = Fixture::default();
    for number in 0..20 {
        fixture.hold(&format!("holder {number}"), "s", permits(20, 1));
    }
    let waiter = fixture.wait("b", "s", permits(20, 1));
    assert!(fixture.may_be_waited_for("anybody"));
    fixture.queues.remove(waiter);
    assert!(fixture.queues.is_clean());
}

#[test]
fn an_owner_of_two_waited_for_keys_can_be_waited_for_until_both_queues_are_empty() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "kl", MUTEX);
    let waiters = [fixture.wait("b", "k", MUTEX), fixture.wait("c", "l", MUTEX)];
    fixture.queues.remove(waiters[0]);
    assert!(fixture.may_be_waited_for("a"));
    fixture.queues.remove(waiters[1]);
    assert!(!fixture.may_be_waited_for("a"));
    assert!(fixture.queues.is_clean());
}

#[test]
fn a_queue_knows_whether_a_waiter_also_wants_other_keys() {
    let knows = |fixture: &Fixture| {
        ["k", "l"].map(|name| fixture.queues.of_key(key(name).as_ref()).unwrap().has_multi_key_requests())
    };
    let mut fixture = Fixture::default();
    let one = fixture.wait("a", "k", MUTEX);
    fixture.wait("b", "k", MUTEX);
    fixture.wait("c", "l", MUTEX);
    assert_eq!(knows(&fixture), [false, false]);
    let multi_key = ["d", "e"].map(|owner| fixture.wait(owner, "kl", MUTEX));
    fixture.queues.remove(one);
    fixture.queues.remove(multi_key[0]);
    assert_eq!(knows(&fixture), [true, true]);
    fixture.queues.reserve_position(multi_key[1], Instant::from_ms(60_000));
    assert_eq!(knows(&fixture), [false, false], "its client has left");
    fixture.queues.remove(multi_key[1]);
    let again = fixture.wait("e", "kl", MUTEX);
    assert_eq!(knows(&fixture), [true, true]);
    fixture.queues.remove(again);
    assert_eq!(knows(&fixture), [false, false]);
}

#[test]
fn a_request_that_was_moved_to_the_last_position_is_ahead_of_later_ones() {
    let mut fixture = Fixture::default();
    let [a, b] = ["a", "b"].map(|owner| fixture.wait(owner, "kl", MUTEX));
    fixture.queues.move_to(a, fixture.queues.last_position(Rank::Normal));
    let c = fixture.wait("c", "kl", MUTEX);
    for name in ["k", "l"] {
        let queue = fixture.queues.of_key(key(name).as_ref()).unwrap();
        assert_eq!(queue.present().map(|(_, id)| id).collect::<Vec<_>>(), [b, a, c], "{name}");
    }
}

#[test]
fn every_position_but_the_last_has_a_waiter_behind_it() {
    let mut fixture = Fixture::default();
    let ids = ["a", "b", "c"].map(|owner| fixture.wait(owner, "k", MUTEX));
    let positions = ids.map(|id| fixture.queues.request(id).unwrap().position.clone());
    let behind = |queues: &WaitQueues| {
        let queue = queues.of_key(key("k").as_ref()).unwrap();
        positions.each_ref().map(|position| queue.has_requests_behind(position))
    };
    assert_eq!(behind(&fixture.queues), [true, true, false]);
    fixture.queues.reserve_position(ids[2], Instant::from_ms(60_000));
    assert_eq!(behind(&fixture.queues), [true, false, false], "a reserved position is no waiter");
}

#[test]
fn a_name_without_a_queue_is_not_looked_up_and_every_queue_is_counted() {
    let mut fixture = Fixture::default();
    assert!(!fixture.queues.may_have(b"k"));
    fixture.wait("a", "kl", MUTEX);
    assert!(fixture.queues.may_have(b"k") && !fixture.queues.may_have(b"another"));
    assert_eq!(fixture.queues.len(), 2);
}

#[test]
fn only_a_queue_for_a_semaphore_gets_a_limit() {
    let mut fixture = Fixture::default();
    fixture.wait("a", "s", Claim::Permits { limit: 1, count: Count::Delta(1) });
    fixture.wait("a", "w", Claim::ReadWrite(Mode::Write, Count::Delta(1)));
    for (name, is_set, limit) in [("s", true, Some(2)), ("w", false, None)] {
        let queue = fixture.queues.id_of(key(name).as_ref()).unwrap();
        assert_eq!(fixture.queues.set_limit(queue, 2), is_set, "{name}");
        assert_eq!(fixture.queues.get(queue).unwrap().limit, limit, "{name}");
    }
}

#[test]
fn after_a_move_of_a_lock_holders_are_unknown_until_two_rounds_have_ended() {
    let mut fixture = Fixture::default();
    fixture.hold("z", "k", MUTEX);
    fixture.wait("b", "k", MUTEX);
    let queue = fixture.queues.id_of(key("k").as_ref()).unwrap();
    for (seen, is_unknown) in [(Fence::new(7), false), (None, true)] {
        fixture.queues.set_seen(queue, seen);
        fixture.queues.lock_may_have_moved();
        let unknown = [(); 3].map(|()| {
            let is_unknown = fixture.may_be_waited_for("anybody");
            fixture.queues.end_round();
            is_unknown
        });
        assert_eq!(unknown, [is_unknown, is_unknown, false], "{seen:?}");
    }
}

#[test]
fn after_a_flush_holders_are_unknown_until_the_rescan_has_ended_or_no_queue_is_left() {
    let mut fixture = Fixture::default();
    fixture.hold("z", "kl", MUTEX);
    let is_unknown = |fixture: &Fixture| fixture.may_be_waited_for("anybody");
    fixture.queues.set_rescan_pending();
    let id = fixture.wait("b", "kl", MUTEX);
    assert!(!is_unknown(&fixture), "no request waited");
    let other = fixture.wait("c", "m", MUTEX);
    fixture.queues.set_rescan_pending();
    assert!(is_unknown(&fixture));
    fixture.queues.remove(other);
    assert!(is_unknown(&fixture), "another queue is left");
    fixture.queues.end_rescan();
    assert!(!is_unknown(&fixture));
    fixture.queues.set_rescan_pending();
    fixture.queues.remove(id);
    fixture.wait("b", "kl", MUTEX);
    assert!(!is_unknown(&fixture), "no queue was left");
}

#[test]
fn an_earlier_request_of_the_owner_for_the_key_alone_covers_a_later_one() {
    let (read, write) = (Claim::ReadWrite(Mode::Read, Count::Delta(1)), Claim::ReadWrite(Mode::Write, Count::Delta(1)));
    let mut fixture = Fixture::default();
    fixture.wait("c", "kl", MUTEX);
    let earlier = fixture.wait("a", "k", MUTEX);
    fixture.wait("b", "w", read);
    let position = &fixture.queues.request(earlier).unwrap().position;
    let behind = &fixture.queues.last_position(Rank::Normal);
    let ahead = &QueuePosition::last(Rank::Normal, 0);
    for (row, name, owner, position, claim, is_covered) in [
        ("behind its own request", "k", "a", behind, MUTEX, true),
        ("at the position of its own request", "k", "a", position, MUTEX, false),
        ("ahead of its own request", "k", "a", ahead, MUTEX, false),
        ("behind another owner's request", "k", "b", behind, MUTEX, false),
        ("the earlier one is for several keys", "k", "c", behind, MUTEX, false),
        ("a read does not cover a write", "w", "b", behind, write, false),
        ("a read covers a read", "w", "b", behind, read, true),
    ] {
        let key = key(name);
        let found = {
            let owner = fixture.queues.owner_id(0, owner.as_bytes());
            fixture.queues.of_owner(owner).is_covered_by_earlier(key.as_ref(), position, &claim)
        };
        assert_eq!(found, is_covered, "{row}");
    }
}

#[test]
fn only_waiters_count_as_multi_key_requests_or_with_other_waits() {
    let counts = |fixture: &Fixture| {
        let queue = fixture.queues.of_key(key("l").as_ref()).unwrap();
        (fixture.queues.has_multi_key_requests(), queue.multi_key, queue.with_other_waits)
    };
    let mut fixture = Fixture::default();
    fixture.wait("b", "l", MUTEX);
    let both = [fixture.wait("a", "kl", MUTEX), fixture.wait("a", "l", MUTEX)];
    assert_eq!(counts(&fixture), (true, 1, 2));
    fixture.queues.reserve_position(both[0], Instant::from_ms(60_000));
    assert_eq!(counts(&fixture), (false, 0, 1));
    let third = fixture.wait("a", "l", MUTEX);
    assert_eq!(counts(&fixture), (false, 0, 2));
    fixture.queues.remove(both[0]);
    assert_eq!(counts(&fixture), (false, 0, 2), "a reserved position was no longer counted");
    fixture.queues.remove(both[1]);
    fixture.queues.remove(third);
    assert_eq!(counts(&fixture), (false, 0, 0));
    // A reserved position that is joined by another is not a waiter either.
    let kept = fixture.wait("c", "l", MUTEX);
    fixture.queues.reserve_position(kept, Instant::from_ms(60_000));
    fixture.wait("c", "l", MUTEX);
    assert_eq!(counts(&fixture), (false, 0, 1));
    let multi_key = fixture.wait("d", "kl", MUTEX);
    fixture.queues.remove(multi_key);
    assert_eq!(counts(&fixture), (false, 0, 1));
}

#[test]
fn a_key_without_waiters_takes_the_new_lock_type_but_no_limit_of_its_old_one() {
    for (present, claim, limit) in [(true, MUTEX, Some(3)), (false, MUTEX, None), (false, permits(5, 1), Some(5))] {
        let mut fixture = Fixture::default();
        let first = fixture.wait("a", "k", permits(3, 1));
        if !present {
            fixture.queues.reserve_position(first, Instant::from_ms(60_000));
        }
        fixture.wait("b", "k", claim);
        assert_eq!(fixture.queues.of_key(key("k").as_ref()).unwrap().limit, limit, "{present} {claim:?}");
    }
}

#[test]
fn a_request_remembers_the_queue_that_blocks_it() {
    let mut fixture = Fixture::default();
    let id = fixture.wait("a", "kl", MUTEX);
    let queue = fixture.queues.id_of(key("l").as_ref());
    fixture.queues.set_blocked_on(id, queue);
    assert_eq!(fixture.queues.request(id).unwrap().blocked_on, queue);
}

/// One table at a time has an entry.
#[test]
fn a_table_with_an_entry_is_not_clean() {
    let empty = WaitQueues::default;
    assert!(empty().is_clean());
    let of_one = || {
        let mut fixture = Fixture::default();
        let id = fixture.wait("a", "k", MUTEX);
        fixture.queues.reserve_position(id, Instant::from_ms(60_000));
        let queue = fixture.queues.id_of(key("k").as_ref()).unwrap();
        fixture.queues.watch_lease(queue, Timestamp::from_ms(20));
        fixture.queues
    };
    let requests = OrderedRequests::default();
    let done = [((QueueId(1), RequestId(1)), Done { fence: Fence::new(1).unwrap(), requests })].into();
    for (row, queues) in [
        ("table", WaitQueues { table: of_one().table, ..empty() }),
        ("requests", WaitQueues { requests: of_one().requests, ..empty() }),
        ("owners", WaitQueues { owners: of_one().owners, ..empty() }),
        ("wait_timers", WaitQueues { wait_timers: of_one().wait_timers, ..empty() }),
        ("lease_timers", WaitQueues { lease_timers: of_one().lease_timers, ..empty() }),
        ("detached", WaitQueues { detached: of_one().detached, ..empty() }),
        ("done", WaitQueues { done, ..empty() }),
        ("done_waiters", WaitQueues { done_waiters: 1, ..empty() }),
        ("holdings", WaitQueues { holdings: of_one().holdings, ..empty() }),
    ] {
        assert!(!queues.is_clean(), "{row}");
    }
}

fn wait_with_coalesce(fixture: &mut Fixture, owner: &str, key: &str) -> RequestId {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
    let position = fixture.queues.last_position(Rank::Normal);
    let owner_id = fixture.queues.owner_id(0, owner.as_bytes());
    let new = NewRequest { db: 0, names: &names(key), request, owner_id, position, replaces: None };
    let since = fixture.server.now().instant();
    let arrival =
        Arrival { new, since, until: None, session: None, may_detach: false, coalesces: true, lease_deadline: None };
    fixture.queues.enqueue(arrival)
}

#[test]
fn completed_requests_of_several_keys_get_replies_in_rotation_and_others_keep_waiting() {
    let mut fixture = Fixture::default();
    let of_k = ["a", "b"].map(|owner| wait_with_coalesce(&mut fixture, owner, "k"));
    let of_l = ["c", "d"].map(|owner| wait_with_coalesce(&mut fixture, owner, "l"));
    let other = fixture.wait("e", "m", MUTEX);
    for name in ["k", "l"] {
        let queue = fixture.queues.id_of(key(name).as_ref()).unwrap();
        fixture.queues.complete_coalescing(queue, Fence::new(1).unwrap());
    }
    let of = |owner: &[u8]| fixture.queues.of_owner(fixture.queues.owner_id(0, owner)).requests().collect::<Vec<_>>();
    assert_eq!((of(b"a"), of(b"e")), (vec![], vec![other]));
    let replied = std::iter::from_fn(|| fixture.queues.next_done().inspect(|id| _ = fixture.queues.remove(*id)));
    assert_eq!(replied.collect::<Vec<_>>(), [of_l[0], of_k[0], of_l[1], of_k[1]]);
}

#[test]
fn completed_requests_do_not_touch_an_emptied_queue_that_is_used_again() {
    let mut fixture = Fixture::default();
    let done = ["a", "b"].map(|owner| wait_with_coalesce(&mut fixture, owner, "k"));
    ["a", "b"].iter().for_each(|owner| _ = fixture.wait(owner, "m", MUTEX));
    let queue = fixture.queues.id_of(key("k").as_ref()).unwrap();
    fixture.queues.complete_coalescing(queue, Fence::new(1).unwrap());
    fixture.queues.remove(done[0]);
    fixture.wait("c", "k", MUTEX);
    fixture.queues.remove(done[1]);
    let again = fixture.queues.of_key(key("k").as_ref());
    assert_eq!(again.map(|queue| (queue.waiters(), queue.with_other_waits)), Some((1, 0)));
}

/// Rows: the claims of an owner that wait, what it then holds, and which of them are served before the head.
#[test]
fn requests_that_reenter_come_before_the_head_while_their_owner_holds_the_key() {
    let permits = |count| Claim::Permits { limit: 3, count };
    let share = |holds, has_slot| Share { holds, reads: 0, has_slot };
    let of_semaphore = [permits(Count::Exactly(2)), permits(Count::Delta(1)), permits(Count::Exactly(1))];
    let of_reentrant = [2, 1, 3].map(|holds| Claim::Reentrant(Count::Exactly(holds)));
    for (claims, held, expected) in [
        (of_reentrant, share(1, false), vec![0, 1, 2]),
        (of_semaphore, share(1, false), vec![2]),
        (of_semaphore, share(2, false), vec![0, 2]),
        (of_semaphore, share(1, true), vec![0, 1, 2]),
        (of_semaphore, share(0, false), vec![]),
    ] {
        let mut fixture = Fixture::default();
        let head = fixture.wait("h", "k", claims[0]);
        let ids = claims.map(|claim| fixture.wait("a", "k", claim));
        let queues = &mut fixture.queues;
        let owner = queues.request(ids[0]).unwrap().owner_id;
        let queue = queues.id_of(key("k").as_ref()).unwrap();
        let has_reentering = |queues: &WaitQueues| queues.get(queue).is_some_and(WaitQueue::has_reentering);
        queues.list_reentering(queue, owner, || held);
        for index in &expected {
            assert!(has_reentering(queues));
            assert_eq!(queues.next_to_serve(queue), Some((ids[*index], Precedence::Behind)), "{held:?}");
        }
        assert!(!has_reentering(queues));
        assert_eq!(queues.next_to_serve(queue), Some((head, Precedence::First)));
        queues.list_reentering(queue, owner, || held);
        queues.end_reentering(queue, owner);
        assert_eq!(queues.next_to_serve(queue), Some((head, Precedence::First)));
    }
}
