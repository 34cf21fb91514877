use super::*;
use crate::queue::fixture::Fixture;
use crate::queue::request::Rank;
use crate::value::claim::Mode;
use crate::value::time::Lease;

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

/// Otherwise a search would take as many steps as the square of a queue's length.
#[test]
fn one_edge_stands_for_all_ahead_of_who_passes_none_of_them() {
    const WAITERS: usize = 10;
    for (several, elsewhere) in [(false, false), (false, true), (true, false)] {
        let mut fixture = Fixture::default();
        fixture.hold("h", "km", MUTEX);
        for number in 0..WAITERS {
            fixture.wait(&number.to_string(), if several && number == 3 { "kl" } else { "k" }, MUTEX);
        }
        if elsewhere {
            fixture.wait("n", "m", MUTEX);
        }
        let Fixture { mut server, queues, .. } = fixture;
        let owner = Owner::new(b"n").unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist };
        let new = NewRequest { db: 0, names: &[b"k"], request, place: queues.last_place(Rank::Normal) };
        let (now, mut keys) = (server.now(), &mut server.keyspace);
        let (graph, upto, passing) = (Graph::default(), HashMap::new(), HashMap::new());
        let mut search = Search { queues: &queues, keys: &mut keys, now: &now, new: &new, graph, upto, passing };
        search.explore();
        // Each request has one for the holder and one for those ahead, each place one for who stands there and one for
        // those ahead. Nobody is ahead of the first.
        let edges = 2 * (WAITERS + 1) - 1 + 2 * WAITERS - 1 + usize::from(elsewhere);
        assert_eq!(search.graph.size(), edges, "several keys: {several}, elsewhere: {elsewhere}");
    }
}

#[test]
fn who_can_be_waited_for_by_nobody_needs_no_search() {
    let rows = [
        ("n", "k", MUTEX, false),
        ("w", "l", MUTEX, true),
        ("h", "l", MUTEX, true),
        ("n", "s", permits(2, 1), true),
        ("n", "s", Claim::Permits { limit: 2, count: Count::Exactly(1) }, false),
    ];
    let mut fixture = Fixture::default();
    fixture.hold("h", "k", MUTEX);
    fixture.wait("w", "k", MUTEX);
    for (owner, key, claim, may_close) in rows {
        let named = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: named.as_ref(), claim, lease: Lease::Persist };
        let place = fixture.queues.last_place(Rank::Normal);
        let new = NewRequest { db: 0, names: &[key.as_bytes()], request, place };
        assert_eq!(may_close_cycle(&fixture.queues, &new), may_close, "{owner} asks for {key}");
    }
}
