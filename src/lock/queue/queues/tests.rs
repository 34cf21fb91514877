use super::super::fixture::{key, names, Fixture};
use super::*;
use crate::value::claim::{Claim, Count, Mode};
use crate::value::time::Lease;

const MUTEX: Claim = Claim::Mutex;

fn permits(limit: u32, permits: u32) -> Claim {
    Claim::Permits { limit, count: Count::Step(permits) }
}

fn retried(queues: &WaitQueues, owner: &str, keys: &str, claim: Claim) -> Option<RequestId> {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    queues.find_retried(0, &names(keys), &LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist })
}

#[test]
fn a_retry_has_the_same_owner_keys_mode_and_number() {
    let mut fixture = Fixture::default();
    // Other requests of the owner, queued before and after.
    fixture.wait("a", "jkl", MUTEX);
    fixture.wait("a", "kz", MUTEX);
    fixture.wait("a", "k", MUTEX);
    let several = fixture.wait("a", "kl", MUTEX);
    let one = fixture.wait("a", "l", MUTEX);
    let semaphore = fixture.wait("a", "s", permits(3, 2));
    fixture.wait("b", "lm", MUTEX);
    let read = Claim::ReadWrite(Mode::Read, Count::Step(1));
    let reader = fixture.wait("a", "w", read);
    let rows = [
        ("a", "kl", MUTEX, Some(several)),
        ("a", "lk", MUTEX, Some(several)),
        ("a", "l", MUTEX, Some(one)),
        ("a", "jl", MUTEX, None),
        ("a", "lx", MUTEX, None),
        ("b", "kl", MUTEX, None),
        ("a", "m", MUTEX, None),
        ("a", "s", permits(3, 2), Some(semaphore)),
        ("a", "s", permits(9, 2), Some(semaphore)),
        ("a", "s", permits(3, 1), None),
        ("a", "w", read, Some(reader)),
        ("a", "w", Claim::ReadWrite(Mode::Write, Count::Step(1)), None),
        ("a", "w", MUTEX, None),
    ];
    for (owner, keys, claim, found) in rows {
        assert_eq!(retried(&fixture.queues, owner, keys, claim), found, "{owner} asks for {keys}: {claim:?}");
    }
}

#[test]
fn the_head_is_the_earliest_request_and_upgrades_are_ahead_of_all() {
    let mut fixture = Fixture::default();
    let first = fixture.wait("a", "k", MUTEX);
    let second = fixture.wait("b", "k", MUTEX);
    let queue = fixture.queues.of_key(key("k").as_ref()).unwrap();
    assert_eq!(queue.present().map(|(_, id)| id).collect::<Vec<_>>(), [first, second]);
    let (normal, upgrade) = (fixture.queues.new_place(Rank::Normal), fixture.queues.new_place(Rank::Upgrade));
    assert_eq!(queue.range(upgrade..).map(|(_, id)| id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(queue.range(normal..).count(), 0);
}

#[test]
fn a_kept_place_is_no_waiter_and_is_taken_up_again() {
    let mut fixture = Fixture::default();
    let kept = fixture.wait("a", "kl", MUTEX);
    let other = fixture.wait("b", "l", MUTEX);
    let queues = &mut fixture.queues;
    queues.keep_place(kept);
    queues.keep_place(kept);
    assert_eq!((queues.waiters(), queues.kept_places(), queues.longest_away()), (1, 1, Some(kept)));
    assert_eq!(queues.of_key(key("l").as_ref()).unwrap().head().map(|(_, id)| id), Some(other), "it is passed over");
    assert_eq!(queues.of_key(key("k").as_ref()).unwrap().waiters(), 0);
    assert_eq!(retried(queues, "a", "kl", MUTEX), Some(kept), "a retry finds it");
    let place = queues.leave(kept).unwrap().0.place;
    let back = fixture.wait("a", "l", MUTEX);
    assert!(place < fixture.queues.request(other).unwrap().place);
    assert!(place < fixture.queues.request(back).unwrap().place, "a new request gets another place");
    assert!(fixture.queues.id_of(key("k").as_ref()).is_none());
}

#[test]
fn the_request_that_is_away_longest_is_found_first() {
    let mut fixture = Fixture::default();
    let ids = ["a", "b", "c"].map(|owner| fixture.wait(owner, "k", MUTEX));
    for index in [1, 0, 2] {
        fixture.queues.keep_place(ids[index]);
    }
    assert_eq!(fixture.queues.longest_away(), Some(ids[1]));
    fixture.queues.leave(ids[1]);
    assert_eq!(fixture.queues.longest_away(), Some(ids[0]));
}

#[test]
fn no_state_is_left_of_requests_that_left() {
    let mut fixture = Fixture::default();
    fixture.hold("z", "kl", MUTEX);
    let mut ids = ["a", "b", "a"].map(|owner| fixture.wait(owner, "kl", MUTEX)).to_vec();
    ids.push(fixture.wait("a", "k", MUTEX));
    fixture.queues.keep_place(ids[1]);
    assert!(!fixture.queues.is_empty() && !fixture.queues.is_clean());
    for id in ids {
        assert!(fixture.queues.leave(id).is_some());
        assert!(fixture.queues.leave(id).is_none());
    }
    assert!(fixture.queues.is_empty() && fixture.queues.is_clean(), "{:?}", fixture.queues);
}

#[test]
fn a_queue_of_kept_places_takes_the_family_of_a_new_request() {
    let mut fixture = Fixture::default();
    let kept = fixture.wait("a", "k", permits(3, 1));
    assert_eq!(fixture.queues.of_key(key("k").as_ref()).map(|queue| (queue.family, queue.limit)), {
        Some((Family::Semaphore, Some(3)))
    });
    fixture.queues.keep_place(kept);
    fixture.wait("b", "k", MUTEX);
    assert_eq!(fixture.queues.of_key(key("k").as_ref()).map(|queue| (queue.family, queue.limit)), {
        Some((Family::Mutex, None))
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
    assert!(!fixture.queues.may_be_waited_for(0, b"a"), "no request waits for the key");
    let waiter = fixture.wait("b", "k", MUTEX);
    assert!(fixture.queues.may_be_waited_for(0, b"a"), "it holds a key that is waited for");
    assert!(fixture.queues.may_be_waited_for(0, b"b"), "it waits");
    assert!(!fixture.queues.may_be_waited_for(1, b"a") && !fixture.queues.may_be_waited_for(0, b"c"));
    fixture.queues.keep_place(waiter);
    assert!(!fixture.queues.may_be_waited_for(0, b"b"), "it is away");
    fixture.queues.leave(waiter);
    assert!(!fixture.queues.may_be_waited_for(0, b"a"), "no request waits for the key any more");
}

#[test]
fn after_a_hand_off_no_request_waits_for_the_former_holder() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "k", MUTEX);
    let waiter = fixture.wait("c", "k", MUTEX);
    fixture.hold("b", "k", MUTEX);
    assert!(!fixture.queues.may_be_waited_for(0, b"a"));
    assert!(fixture.queues.may_be_waited_for(0, b"b"));
    fixture.queues.leave(waiter);
    assert!(fixture.queues.is_clean());
}

#[test]
fn any_owner_may_hold_a_key_with_many_holders() {
    let mut fixture = Fixture::default();
    for number in 0..20 {
        fixture.hold(&format!("holder {number}"), "s", permits(20, 1));
    }
    let waiter = fixture.wait("b", "s", permits(20, 1));
    assert!(fixture.queues.may_be_waited_for(0, b"anybody") && !fixture.queues.may_be_waited_for(1, b"anybody"));
    fixture.queues.leave(waiter);
    assert!(fixture.queues.is_clean());
}

#[test]
fn an_owner_of_two_waited_for_keys_can_be_waited_for_until_both_queues_are_empty() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "kl", MUTEX);
    let waiters = [fixture.wait("b", "k", MUTEX), fixture.wait("c", "l", MUTEX)];
    fixture.queues.leave(waiters[0]);
    assert!(fixture.queues.may_be_waited_for(0, b"a"));
    fixture.queues.leave(waiters[1]);
    assert!(!fixture.queues.may_be_waited_for(0, b"a"));
    assert!(fixture.queues.is_clean());
}

#[test]
fn a_queue_knows_whether_a_waiter_wants_other_keys_too() {
    let knows = |fixture: &Fixture| {
        ["k", "l"].map(|name| fixture.queues.of_key(key(name).as_ref()).unwrap().has_requests_for_several())
    };
    let mut fixture = Fixture::default();
    let one = fixture.wait("a", "k", MUTEX);
    fixture.wait("b", "k", MUTEX);
    fixture.wait("c", "l", MUTEX);
    assert_eq!(knows(&fixture), [false, false]);
    let several = ["d", "e"].map(|owner| fixture.wait(owner, "kl", MUTEX));
    fixture.queues.leave(one);
    fixture.queues.leave(several[0]);
    assert_eq!(knows(&fixture), [true, true]);
    fixture.queues.keep_place(several[1]);
    assert_eq!(knows(&fixture), [false, false], "it is away");
    fixture.queues.leave(several[1]);
    let again = fixture.wait("e", "kl", MUTEX);
    assert_eq!(knows(&fixture), [true, true]);
    fixture.queues.leave(again);
    assert_eq!(knows(&fixture), [false, false]);
}

#[test]
fn every_place_but_the_last_has_a_waiter_behind_it() {
    let mut fixture = Fixture::default();
    let ids = ["a", "b", "c"].map(|owner| fixture.wait(owner, "k", MUTEX));
    let places = ids.map(|id| fixture.queues.request(id).unwrap().place);
    let behind =
        |queues: &WaitQueues| places.map(|place| queues.of_key(key("k").as_ref()).unwrap().has_requests_behind(place));
    assert_eq!(behind(&fixture.queues), [true, true, false]);
    fixture.queues.keep_place(ids[2]);
    assert_eq!(behind(&fixture.queues), [true, false, false], "a kept place is no waiter");
}
