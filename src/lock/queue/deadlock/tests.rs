use super::*;
use crate::queue::fixture::Fixture;
use crate::value::claim::Mode;

const MUTEX: Claim = Claim::Mutex;
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Step(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Step(1));

const fn permits(limit: u32, permits: u32) -> Claim {
    Claim::Permits { limit, count: Count::Step(permits) }
}

type Requests = &'static [(&'static str, &'static str, Claim)];

/// Who holds what, who waits for what in this order, the new request, and the cycle that it would close.
struct Case {
    title: &'static str,
    held: Requests,
    waiting: Requests,
    new: (&'static str, &'static str, Claim),
    cycle: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        title: "two owners that wait for each other",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("a", "l", MUTEX)],
        new: ("b", "k", MUTEX),
        cycle: Some("b@k a@l"),
    },
    Case {
        title: "nobody waits for the new owner",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("c", "l", MUTEX)],
        new: ("b", "k", MUTEX),
        cycle: None,
    },
    Case {
        title: "a chain that ends",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("c", "m", MUTEX)],
        waiting: &[("a", "m", MUTEX), ("d", "l", MUTEX)],
        new: ("b", "k", MUTEX),
        cycle: None,
    },
    Case {
        title: "three owners over three families",
        held: &[("a", "k", MUTEX), ("b", "w", WRITE), ("c", "s", permits(1, 1))],
        waiting: &[("a", "w", READ), ("b", "s", permits(1, 1))],
        new: ("c", "k", MUTEX),
        cycle: Some("c@k a@w b@s"),
    },
    Case {
        title: "two readers that both want to write",
        held: &[("a", "w", READ), ("b", "w", READ)],
        waiting: &[("a", "w", WRITE)],
        new: ("b", "w", WRITE),
        cycle: Some("b@w a@w"),
    },
    Case {
        title: "readers do not wait for each other",
        held: &[("a", "k", MUTEX), ("b", "w", WRITE)],
        waiting: &[("c", "w", READ), ("c", "k", MUTEX)],
        new: ("a", "w", READ),
        cycle: None,
    },
    Case {
        title: "a waiter ahead blocks like a holder",
        held: &[("a", "k", MUTEX), ("d", "w", READ)],
        waiting: &[("b", "w", WRITE), ("b", "k", MUTEX)],
        new: ("a", "w", READ),
        cycle: Some("a@w b@k"),
    },
    Case {
        title: "behind a reader stands a writer, which is not passed",
        held: &[("a", "k", MUTEX), ("d", "w", READ)],
        waiting: &[("b", "w", WRITE), ("b", "k", MUTEX), ("c", "w", READ)],
        new: ("a", "w", READ),
        cycle: Some("a@w b@k"),
    },
    Case {
        title: "a semaphore of which every holder is stuck",
        held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
        waiting: &[("a", "k", MUTEX), ("b", "k", MUTEX)],
        new: ("c", "s", permits(2, 1)),
        cycle: Some("c@s a@k"),
    },
    Case {
        title: "a semaphore of which one holder moves",
        held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
        waiting: &[("a", "k", MUTEX)],
        new: ("c", "s", permits(2, 1)),
        cycle: None,
    },
    Case {
        title: "a semaphore with room for it",
        held: &[("a", "s", permits(3, 1)), ("c", "k", MUTEX)],
        waiting: &[("a", "k", MUTEX)],
        new: ("c", "s", permits(3, 2)),
        cycle: None,
    },
    Case {
        title: "a queued request has room under the LIMIT of a newer one",
        held: &[("a", "s", permits(1, 1)), ("b", "k", MUTEX)],
        waiting: &[("b", "s", permits(1, 1)), ("d", "s", permits(2, 2))],
        new: ("a", "k", MUTEX),
        cycle: None,
    },
    Case {
        title: "more permits than its own ones leave",
        held: &[("a", "s", permits(3, 2))],
        waiting: &[],
        new: ("a", "s", permits(3, 2)),
        cycle: Some("a@s"),
    },
    Case {
        title: "as many permits as its own ones leave",
        held: &[("a", "s", permits(3, 2)), ("b", "s", permits(3, 1))],
        waiting: &[],
        new: ("a", "s", permits(3, 1)),
        cycle: None,
    },
    Case {
        title: "an owner passes the request for several keys that waits for it",
        held: &[("a", "k", MUTEX), ("d", "l", MUTEX)],
        waiting: &[("b", "kl", MUTEX)],
        new: ("a", "l", MUTEX),
        cycle: None,
    },
    Case {
        title: "a request for several keys waits on each of them",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("d", "m", MUTEX)],
        waiting: &[("b", "k", MUTEX)],
        new: ("a", "ml", MUTEX),
        cycle: Some("a@l b@k"),
    },
    Case {
        title: "an owner's own request ahead does not block it",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("a", "l", MUTEX)],
        new: ("a", "l", MUTEX),
        cycle: None,
    },
];

#[test]
fn a_cycle_is_found_and_nothing_else_is_taken_for_one() {
    for case in CASES {
        let mut fixture = Fixture::default();
        for (owner, keys, claim) in case.held {
            fixture.hold(owner, keys, *claim);
        }
        for (owner, keys, claim) in case.waiting {
            fixture.wait(owner, keys, *claim);
        }
        let (owner, keys, claim) = case.new;
        assert_eq!(fixture.deadlock(owner, keys, claim).as_deref(), case.cycle, "{}", case.title);
    }
}

#[test]
fn who_is_away_waits_for_nobody() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "k", MUTEX);
    fixture.hold("b", "l", MUTEX);
    let id = fixture.wait("a", "l", MUTEX);
    fixture.queues.keep_place(id);
    assert_eq!(fixture.deadlock("b", "k", MUTEX), None);
}
