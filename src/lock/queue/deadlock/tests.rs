mod naive;

use std::collections::BTreeSet;

use super::super::lookups;
use super::*;
use crate::host::{Content, Entry};
use crate::key::{Key, KeyRef, RequestId};
use crate::queue::fixture::{names, Fixture};
use crate::queue::position::Rank;
use crate::testing::schedule::Rng;
use crate::value::claim::{LockRequest, Mode};
use crate::value::outcome::Admission;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Instant, Lease};

const MUTEX: Claim = Claim::Mutex;
const ADOPTED: Claim = Claim::AdoptedMutex;
const RLOCK: Claim = Claim::Reentrant(Count::Delta(1));
const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));

const fn permits(limit: u32, permits: u32) -> Claim {
    Claim::Permits { limit, count: Count::Delta(permits) }
}

type Requests = &'static [(&'static str, &'static str, Claim)];

/// Holds, waiting requests in order, the new request, and the cycle that it would complete.
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
        title: "no request waits for the new owner",
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
        title: "three owners over three lock types",
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
        title: "an adopted wait is bounded",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("b", "k", ADOPTED)],
        new: ("a", "l", MUTEX),
        cycle: None,
    },
    Case {
        title: "an owner keeps what its adopted request is granted while it waits for another key",
        held: &[("x", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("a", "k", ADOPTED), ("b", "k", MUTEX)],
        new: ("a", "l", MUTEX),
        cycle: Some("a@l b@k"),
    },
    Case {
        title: "an adopted request is granted the key after the request that waits ahead of it",
        held: &[("x", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("b", "k", MUTEX), ("a", "k", ADOPTED)],
        new: ("a", "l", MUTEX),
        cycle: None,
    },
    Case {
        title: "a request behind an adopted request of an owner that waits for it",
        held: &[("x", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("a", "l", MUTEX), ("a", "k", ADOPTED)],
        new: ("b", "k", MUTEX),
        cycle: Some("b@k a@l"),
    },
    Case {
        title: "a request behind an adopted request of an owner that waits for nothing else",
        held: &[("x", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("a", "k", ADOPTED), ("a", "m", ADOPTED), ("c", "l", MUTEX)],
        new: ("b", "k", MUTEX),
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
        title: "a reader does not pass a writer ahead of another reader",
        held: &[("a", "k", MUTEX), ("d", "w", READ)],
        waiting: &[("b", "w", WRITE), ("b", "k", MUTEX), ("c", "w", READ)],
        new: ("a", "w", READ),
        cycle: Some("a@w b@k"),
    },
    Case {
        title: "the cycle names the writer between two readers",
        held: &[("a", "w", READ), ("x", "k", MUTEX)],
        waiting: &[("b", "w", WRITE), ("a", "k", MUTEX)],
        new: ("x", "w", READ),
        cycle: Some("x@w b@w a@k"),
    },
    Case {
        title: "the cycle names no reader as what a reader waits for",
        held: &[("h", "w", WRITE), ("c", "j", MUTEX), ("x", "km", MUTEX)],
        waiting: &[("r", "w", READ), ("r", "k", MUTEX), ("h", "j", MUTEX), ("c", "m", MUTEX)],
        new: ("x", "w", READ),
        cycle: Some("x@w h@j c@m"),
    },
    Case {
        title: "every holder of the semaphore is stuck",
        held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
        waiting: &[("a", "k", MUTEX), ("b", "k", MUTEX)],
        new: ("c", "s", permits(2, 1)),
        cycle: Some("c@s a@k"),
    },
    Case {
        title: "one holder of the semaphore is not stuck",
        held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
        waiting: &[("a", "k", MUTEX)],
        new: ("c", "s", permits(2, 1)),
        cycle: None,
    },
    Case {
        title: "the semaphore has enough free permits",
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
        title: "more permits than its own holds leave",
        held: &[("a", "s", permits(3, 2))],
        waiting: &[],
        new: ("a", "s", permits(3, 2)),
        cycle: Some("a@s"),
    },
    Case {
        title: "as many permits as its own holds leave",
        held: &[("a", "s", permits(3, 2)), ("b", "s", permits(3, 1))],
        waiting: &[],
        new: ("a", "s", permits(3, 1)),
        cycle: None,
    },
    Case {
        title: "one of two holders would be enough, but both wait for the owner that waits for them",
        held: &[("a", "k", MUTEX), ("b", "s", permits(2, 1)), ("c", "s", permits(2, 1))],
        waiting: &[("a", "s", permits(2, 1)), ("b", "k", MUTEX)],
        new: ("c", "k", MUTEX),
        cycle: Some("c@k a@s"),
    },
    Case {
        title: "each holds one of three permits and wants one more",
        held: &[("a", "s", permits(3, 1)), ("b", "s", permits(3, 1)), ("c", "s", permits(3, 1))],
        waiting: &[("a", "s", permits(3, 1)), ("b", "s", permits(3, 1))],
        new: ("c", "s", permits(3, 1)),
        cycle: Some("c@s a@s"),
    },
    Case {
        title: "one holder that gives back is not enough",
        held: &[("a", "s", permits(4, 3)), ("b", "s", permits(4, 1)), ("d", "k", MUTEX)],
        waiting: &[("d", "s", permits(4, 2))],
        new: ("a", "k", MUTEX),
        cycle: Some("a@k d@s"),
    },
    Case {
        title: "one holder that gives back is enough",
        held: &[("a", "s", permits(4, 2)), ("b", "s", permits(4, 2)), ("d", "k", MUTEX)],
        waiting: &[("d", "s", permits(4, 2))],
        new: ("a", "k", MUTEX),
        cycle: None,
    },
    Case {
        title: "the holders of two semaphores wait for each other",
        held: &[
            ("a", "s", permits(2, 1)),
            ("b", "s", permits(2, 1)),
            ("c", "t", permits(2, 1)),
            ("d", "t", permits(2, 1)),
        ],
        waiting: &[("a", "t", permits(2, 1)), ("b", "t", permits(2, 1)), ("c", "s", permits(2, 1))],
        new: ("d", "s", permits(2, 1)),
        cycle: Some("d@s a@t"),
    },
    Case {
        title: "over two lock types, no part is a deadlock without the others",
        held: &[
            ("b", "s", permits(2, 1)),
            ("e", "s", permits(2, 1)),
            ("a", "t", permits(2, 1)),
            ("b", "t", permits(2, 1)),
            ("a", "k", MUTEX),
        ],
        waiting: &[("a", "s", permits(2, 1)), ("e", "t", permits(2, 1))],
        new: ("b", "k", MUTEX),
        cycle: Some("b@k a@s"),
    },
    Case {
        title: "a larger LIMIT makes room for all",
        held: &[("n", "s", permits(1, 1))],
        waiting: &[("b", "s", permits(1, 1))],
        new: ("n", "s", permits(3, 1)),
        cycle: None,
    },
    Case {
        title: "a smaller LIMIT refuses the waiter that waits for the owner",
        held: &[("a", "s", permits(3, 1))],
        waiting: &[("b", "s", permits(3, 3))],
        new: ("a", "s", permits(2, 1)),
        cycle: None,
    },
    Case {
        title: "a smaller LIMIT refuses a waiter that would exceed it with the permits that it holds",
        held: &[("a", "s", permits(3, 1)), ("b", "s", permits(3, 1))],
        waiting: &[("b", "s", permits(3, 2))],
        new: ("a", "s", permits(2, 1)),
        cycle: None,
    },
    Case {
        title: "a smaller LIMIT makes others wait for each other, and the new request for them",
        held: &[("p", "s", permits(2, 1)), ("z", "s", permits(2, 1)), ("q", "k", MUTEX)],
        waiting: &[("p", "k", MUTEX), ("q", "s", permits(2, 1))],
        new: ("y", "s", permits(1, 1)),
        cycle: Some("p@k q@s"),
    },
    Case {
        title: "an owner that is served first reenters ahead of requests behind it",
        held: &[("h", "e", RLOCK)],
        waiting: &[("a", "e", RLOCK), ("b", "e", RLOCK)],
        new: ("a", "e", Claim::Reentrant(Count::Exactly(2))),
        cycle: None,
    },
    Case {
        title: "permits of its own request ahead count as held",
        held: &[("h", "s", permits(3, 3))],
        waiting: &[("a", "s", permits(3, 2))],
        new: ("a", "s", permits(3, 3)),
        cycle: Some("a@s"),
    },
    Case {
        title: "a request that waits for owners that wait for each other already would deadlock too",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("c", "m", MUTEX)],
        waiting: &[("a", "l", MUTEX), ("b", "k", MUTEX), ("d", "m", MUTEX)],
        new: ("c", "k", MUTEX),
        cycle: Some("a@l b@k"),
    },
    Case {
        title: "a deadlock of others that the request does not wait for does not count",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("c", "m", MUTEX), ("e", "n", MUTEX)],
        waiting: &[("a", "l", MUTEX), ("b", "k", MUTEX), ("d", "m", MUTEX)],
        new: ("c", "n", MUTEX),
        cycle: None,
    },
    Case {
        title: "behind a request for several keys that waits for the owner",
        held: &[("a", "k", MUTEX), ("d", "l", MUTEX)],
        waiting: &[("b", "kl", MUTEX)],
        new: ("a", "l", MUTEX),
        cycle: Some("a@l b@k"),
    },
    Case {
        title: "behind a request for several keys that waits for an owner which waits for the new one",
        held: &[("h", "k", MUTEX), ("y", "j", MUTEX), ("x", "x", MUTEX)],
        waiting: &[("w", "kj", MUTEX), ("y", "x", MUTEX)],
        new: ("x", "k", MUTEX),
        cycle: Some("x@k w@j y@x"),
    },
    Case {
        title: "a request for several keys does not wait for the one that its owner holds, nor behind others there",
        held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
        waiting: &[("c", "k", MUTEX)],
        new: ("a", "kl", MUTEX),
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
    Case {
        title: "b, which can never have more of s, waits for a only",
        held: &[("a", "k", MUTEX), ("b", "s", permits(1, 1))],
        waiting: &[("b", "s", permits(1, 1)), ("b", "k", MUTEX)],
        new: ("a", "s", Claim::Slot { limit: 1 }),
        cycle: Some("a@s b@k"),
    },
    Case {
        title: "b waits for a, which waits behind b",
        held: &[("a", "s", permits(3, 3))],
        waiting: &[("b", "s", permits(3, 2))],
        new: ("a", "s", permits(3, 1)),
        cycle: Some("a@s b@s"),
    },
];

#[test]
fn a_cycle_is_found_and_nothing_else_is_mistaken_for_one() {
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
fn a_reserved_position_waits_for_no_owner() {
    let mut fixture = Fixture::default();
    fixture.hold("a", "k", MUTEX);
    fixture.hold("b", "l", MUTEX);
    let id = fixture.wait("a", "l", MUTEX);
    fixture.queues.reserve_position(id, Instant::from_ms(60_000));
    assert_eq!(fixture.deadlock("b", "k", MUTEX), None);
}

/// o waits until p has read, and r waits until o has written: p waits for r on v.
#[test]
fn a_request_at_a_reserved_position_blocks_the_requests_behind_it() {
    let mut fixture = Fixture::default();
    fixture.hold("q", "w", WRITE);
    fixture.hold("r", "v", WRITE);
    let kept = fixture.queues.last_position(Rank::Normal);
    let id = fixture.wait_at("p", &names("w"), READ, kept.clone());
    fixture.queues.reserve_position(id, Instant::from_ms(60_000));
    fixture.wait("p", "v", READ);
    fixture.wait("o", "w", WRITE);
    fixture.wait("r", "w", READ);
    assert_eq!(fixture.deadlock_at("p", "w", READ, kept).as_deref(), Some("p@v r@w o@w"));
}

#[test]
fn an_owner_that_cannot_be_waited_for_needs_no_search() {
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
    for (owner, key, claim, may_be) in rows {
        let named = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: named.as_ref(), claim, lease: Lease::Persist };
        let position = fixture.queues.last_position(Rank::Normal);
        let owner_id = fixture.queues.owner_id(0, named.as_bytes());
        let new = NewRequest { db: 0, names: &[key.as_bytes()], request, owner_id, position, replaces: None };
        assert_eq!(search_for(&fixture.queues, &new).is_some(), may_be, "{owner} asks for {key}");
    }
}

/// Random worlds of a few owners and shared locks with few or many holders, expired leases, reserved positions, removed
/// keys, and holders that were not inspected yet.
struct World {
    fixture: Fixture,
    rng: Rng,
    owners: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let owners = 2 + rng.below(8);
        let mut world = World { fixture: Fixture::default(), rng, owners };
        (0..world.rng.below(12)).for_each(|_| world.hold());
        (0..world.rng.below(14)).for_each(|_| world.wait());
        (0..world.rng.below(3)).for_each(|_| world.hold());
        ["s", "t"].into_iter().for_each(|semaphore| world.refuse_over_limit(semaphore));
        (0..world.rng.below(3)).for_each(|_| world.change());
        world.fixture.server.keyspace.now_ms += 10;
        world
    }

    fn owner(&mut self) -> String {
        self.rng.below(self.owners).to_string()
    }

    /// The keys a to d are mutexes, v and w are read/write locks, s and t are semaphores.
    fn keys(&mut self) -> (&'static str, Claim) {
        match self.rng.below(7) {
            0 | 1 => (self.rng.pick(&["a", "b", "c", "d"]), MUTEX),
            5 => (self.rng.pick(&["a", "b", "c", "d"]), ADOPTED),
            2 => (self.rng.pick(&["ab", "bc", "cd", "ad", "abc", "bcd", "abcd"]), MUTEX),
            3 => (self.rng.pick(&["v", "w"]), READ),
            4 => (self.rng.pick(&["v", "w"]), WRITE),
            _ => {
                let (limit, exactly) = (self.rng.pick(&[4, 4, 3, 2]), self.rng.once_in(4));
                let number = 1 + self.rng.below(limit as usize) as u32;
                let count = if exactly { Count::Exactly(number) } else { Count::Delta(number) };
                let is_slot = self.rng.once_in(3);
                let claim = if is_slot { Claim::Slot { limit } } else { Claim::Permits { limit, count } };
                (self.rng.pick(&["s", "t"]), claim)
            }
        }
    }

    fn admission(&mut self, owner: &str, name: &[u8], claim: &Claim) -> Admission {
        match (&mut self.fixture.server.keyspace).open(KeyRef { db: 0, name }).content() {
            Content::Lock(lock) => lock.admission(owner.as_bytes(), claim).unwrap_or(Admission::Wait),
            _ => Admission::Admit,
        }
    }

    fn hold(&mut self) {
        let (owner, (keys, claim)) = (self.owner(), self.keys());
        for name in names(keys) {
            if self.admission(&owner, name, &claim) == Admission::Wait {
                continue;
            }
            let is_first = !self.fixture.server.keyspace.primary.contains_key(&Key::new(0, name));
            let is_over = !is_first && self.rng.once_in(5);
            let lease = if is_over { Lease::from_ms(5).unwrap() } else { Lease::Persist };
            self.fixture.hold_for(&owner, &[name], claim, lease);
        }
    }

    fn rank(&mut self, owner: &str, keys: &str, claim: &Claim) -> Rank {
        let key = KeyRef { db: 0, name: keys.as_bytes() };
        match (&mut self.fixture.server.keyspace).open(key).content() {
            Content::Lock(lock) => Rank::of_upgrade(lock.is_upgrade(owner.as_bytes(), claim)),
            _ => Rank::Normal,
        }
    }

    fn wait(&mut self) {
        let (owner, (keys, claim)) = (self.owner(), self.keys());
        let rank = self.rank(&owner, keys, &claim);
        let position = self.fixture.queues.last_position(rank);
        let id = self.fixture.wait_at(&owner, &names(keys), claim, position);
        self.refuse_over_limit(keys);
        if self.rng.once_in(8) {
            self.fixture.queues.reserve_position(id, Instant::from_ms(60_000));
        }
    }

    /// As the rules do when a request with another LIMIT is queued. What an owner holds counts too.
    fn refuse_over_limit(&mut self, name: &str) {
        let Fixture { queues, server, .. } = &mut self.fixture;
        let key = KeyRef { db: 0, name: name.as_bytes() };
        let Some(queue) = queues.of_key(key) else { return };
        let Some(limit) = queue.limit else { return };
        let mut keys = &mut server.keyspace;
        let mut entry = keys.open(key);
        let mut held = |owner: &Owner| match entry.content() {
            Content::Lock(lock) => lock.hold(owner.as_bytes(), Deadline::Never).map_or(0, |hold| hold.holds),
            _ => 0,
        };
        let is_over = |id: &RequestId| {
            queues.request(*id).is_some_and(|queued| match queued.claim.count() {
                Count::Delta(more) => held(&queued.owner) + more > limit,
                Count::Exactly(exactly) => exactly > limit,
            })
        };
        let over: Vec<_> = queue.present().map(|(_, id)| id).filter(is_over).collect();
        over.into_iter().for_each(|id| _ = queues.remove(id));
    }

    /// A change that was not inspected yet: a lock is removed, or is moved here from another key.
    fn change(&mut self) {
        let [key, other] = [(); 2].map(|()| self.rng.pick(&["a", "b", "c", "d", "v", "w", "s", "t"]));
        let key = Key::new(0, key.as_bytes());
        let primary = &mut self.fixture.server.keyspace.primary;
        match primary.get(&Key::new(0, other.as_bytes())).cloned() {
            Some(lock) if self.rng.once_in(2) => _ = primary.insert(key.clone(), lock),
            _ => _ = primary.remove(&key),
        }
        if let Some(id) = self.fixture.queues.id_of(key.as_ref()) {
            self.fixture.queues.mark_holders_unknown(id);
        }
    }

    /// A new request: the retry of a queued one, or another.
    fn ask(&mut self, check: impl FnOnce(&mut Fixture, &NewRequest<'_>)) {
        let queued = self.fixture.queues.requests().map(|(id, queued)| (id, queued.clone()));
        let queued: Vec<_> = queued.collect();
        if !queued.is_empty() && self.rng.once_in(3) {
            let (id, again) = &queued[self.rng.below(queued.len())];
            let keys: Vec<_> = self.fixture.queues.keys_of(again).cloned().collect();
            let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
            let (request, position) = (again.request(), again.position.clone());
            let (owner_id, replaces) = (Some(again.owner_id), Some(*id));
            let new = NewRequest { db: 0, names: &names, request, owner_id, position, replaces };
            return check(&mut self.fixture, &new);
        }
        let (owner, (keys, claim)) = (self.owner(), self.keys());
        let rank = self.rank(&owner, keys, &claim);
        let position = self.fixture.queues.last_position(rank);
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let names = names(keys);
        let owner_id = self.fixture.queues.owner_id(0, owner.as_bytes());
        check(&mut self.fixture, &NewRequest { db: 0, names: &names, request, owner_id, position, replaces: None });
    }
}

/// Compares the search with the definition.
#[test]
fn the_search_finds_requests_that_would_deadlock() {
    let (mut cycles, mut none) = (0, 0);
    let from = crate::testing::search::setting("LOCK_SEED").unwrap_or(0);
    let worlds = crate::testing::search::setting("LOCK_WORLDS").unwrap_or(20_000);
    // In the last world the new request's smaller LIMIT refuses a waiter, which then no longer blocks any request.
    for seed in (from..from + worlds).chain([161_051]) {
        World::new(seed).ask(|fixture, new| {
            // A request that can never be granted is refused before the search.
            let mut keys = &mut fixture.server.keyspace;
            if new.names.iter().any(|name| match keys.open(new.key(name)).content() {
                Content::Lock(lock) => lock.admission(new.owner(), &new.request.claim).is_err(),
                _ => false,
            }) {
                return;
            }
            let naive::Expected { is_deadlock: expected, is_old } = naive::expected(fixture, new);
            let now = fixture.server.now().timestamp();
            let (queues, keys) = (&fixture.queues, &mut &mut fixture.server.keyspace);
            let holders = &mut HolderLookup::new(keys, &fixture.ended, now);
            // A request that no other waits for is stuck only behind others that were stuck before, so it may wait.
            let may_close_one = Search::of(queues, new).changes_waits || is_waited_for(queues, holders, new);
            assert!(may_close_one || !expected || is_old, "{seed}");
            let found = Search::of(queues, new).find(queues, holders, new);
            assert_eq!(found.is_some(), expected && may_close_one, "{seed}: {found:?}");
            assert!(
                found.is_none() || waits_for_nothing_new(queues, new) || search_for(queues, new).is_some(),
                "{seed}"
            );
            if let Some(edges) = &found {
                assert!(!edges.is_empty(), "{seed}");
                let waits = |edge: &Edge| {
                    let queued = queues
                        .of_owner(queues.owner_id(0, edge.owner.as_bytes()))
                        .requests()
                        .filter_map(|id| queues.request(id));
                    let mut waiting = queued.filter(|queued| queued.is_present());
                    let is_new = edge.owner.as_bytes() == new.owner() && new.names.contains(&&*edge.key);
                    is_new || waiting.any(|queued| queues.keys_of(queued).any(|key| key.name == edge.key))
                };
                assert!(edges.iter().all(waits), "{seed}: {edges:?}");
                let owners: BTreeSet<_> = edges.iter().map(|edge| edge.owner.as_bytes()).collect();
                assert_eq!(owners.len(), edges.len(), "{seed}: {edges:?}");
                // A request for permits waits for any of several holders, so its cycle is only a part of the deadlock.
                if edges.iter().all(|edge| !matches!(*edge.key, [b's' | b't'])) {
                    let owners = owners.into_iter().map(<[u8]>::to_vec).collect();
                    assert!(naive::are_deadlocked_alone(fixture, new, &owners), "{seed}: {edges:?}");
                }
            }
            *(if expected { &mut cycles } else { &mut none }) += 1;
        });
    }
    println!("{cycles} deadlocks, {none} none");
    assert!([cycles, none].iter().all(|found| *found > worlds / 20), "{cycles} {none}");
}

/// The cost of one search: keys opened, owners and requests looked up.
fn work(fixture: &mut Fixture, owner: &str, name: &[u8], claim: Claim) -> (usize, Option<Vec<Edge>>) {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
    let position = fixture.queues.last_position(Rank::Normal);
    let owner_id = fixture.queues.owner_id(0, owner.as_bytes());
    let new = NewRequest { db: 0, names: &[name], request, owner_id, position, replaces: None };
    let now = fixture.server.now().timestamp();
    let before = fixture.server.keyspace.opened + lookups::count();
    let keys = &mut &mut fixture.server.keyspace;
    let mut holders = HolderLookup::new(keys, &fixture.ended, now);
    let found = Search::of(&fixture.queues, &new).find(&fixture.queues, &mut holders, &new);
    (fixture.server.keyspace.opened + lookups::count() - before, found)
}

/// The new request (owner, key, claim), and whether it completes a deadlock.
type Ask = (&'static str, &'static str, Claim, bool);

/// Builds a scenario of size n.
type Build = fn(&mut Fixture, usize) -> Ask;

fn each(count: usize, mut build: impl FnMut(&str, &str)) {
    (0..count).for_each(|index| build(&format!("own {index}"), &format!("owner {index}")));
}

fn waits(fixture: &mut Fixture, owner: &str, name: &str, claim: Claim) {
    let position = fixture.queues.last_position(Rank::Normal);
    fixture.wait_at(owner, &[name.as_bytes()], claim, position);
}

fn holds(fixture: &mut Fixture, owner: &str, name: &str, claim: Claim) {
    fixture.hold_for(owner, &[name.as_bytes()], claim, Lease::Persist);
}

/// An owner that others wait for asks to write `rw`, and each of its n readers waits in some way.
fn upgrade(fixture: &mut Fixture, n: usize, wait: impl Fn(&mut Fixture, &str, &str)) -> Ask {
    holds(fixture, "writer", "mine", MUTEX);
    waits(fixture, "somebody", "mine", MUTEX);
    each(n, |_, owner| holds(fixture, owner, "rw", READ));
    each(n, |own, owner| wait(fixture, own, owner));
    ("writer", "rw", WRITE, false)
}

/// A chain of owners, each waiting only for the next, which is too long for a bounded lookahead. The new request waits
/// for the first.
fn chain(fixture: &mut Fixture) {
    for link in 0..200 {
        holds(fixture, &format!("link {link}"), &format!("link {link}"), MUTEX);
    }
    for link in 0..199 {
        waits(fixture, &format!("link {link}"), &format!("link {}", link + 1), MUTEX);
    }
}

/// A chain of n owners, each waiting for the next. The new request completes the cycle.
fn closed_chain(fixture: &mut Fixture, n: usize) -> Ask {
    each(n, |own, owner| holds(fixture, owner, own, MUTEX));
    for link in 1..n {
        waits(fixture, &format!("owner {}", link - 1), &format!("own {link}"), MUTEX);
    }
    (Box::leak(format!("owner {}", n - 1).into_boxed_str()), "own 0", MUTEX, true)
}

/// The work does not grow with n: the n owners wait for nothing else, or few owners wait for the new one.
const FLAT: &[(&str, Build)] = &[
    ("one more of n owners of waited-for locks queues on one mutex", |fixture, n| {
        holds(fixture, "holder", "one", MUTEX);
        each(n, |own, owner| holds(fixture, owner, own, MUTEX));
        each(n, |own, _| waits(fixture, &format!("waits for {own}"), own, MUTEX));
        each(n - 1, |_, owner| waits(fixture, owner, "one", MUTEX));
        (Box::leak(format!("owner {}", n - 1).into_boxed_str()), "one", MUTEX, false)
    }),
    ("n wait for the owner, which waits for a holder that waits for nothing", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        holds(fixture, "holder", "other", MUTEX);
        each(n, |_, owner| waits(fixture, owner, "mine", MUTEX));
        ("owner", "other", MUTEX, false)
    }),
    ("the owner has n requests for keys of their own, and another owner waits behind one of them", |fixture, n| {
        holds(fixture, "holder", "one", MUTEX);
        each(n, |own, _| holds(fixture, "holder", own, MUTEX));
        each(n, |own, _| waits(fixture, "owner", own, MUTEX));
        waits(fixture, "another", "own 0", MUTEX);
        ("owner", "one", MUTEX, false)
    }),
    ("an owner that holds nothing asks for one of n permits, as n others do", |fixture, n| {
        let claim = permits(n as u32, 1);
        each(n, |_, owner| holds(fixture, owner, "sem", claim));
        each(n, |own, _| waits(fixture, own, "sem", claim));
        ("newcomer", "sem", claim, false)
    }),
];

/// Each of n is visited once.
const LINEAR: &[(&str, Build)] = &[
    ("one of n holders of a semaphore with n waiters", |fixture, n| {
        let claim = permits(n as u32, 1);
        each(n, |_, owner| holds(fixture, owner, "sem", claim));
        each(n, |own, _| waits(fixture, own, "sem", claim));
        ("owner 0", "sem", claim, false)
    }),
    ("n holders of a semaphore wait for the owner", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        each(n, |_, owner| holds(fixture, owner, "sem", permits(n as u32, 1)));
        each(n, |_, owner| waits(fixture, owner, "mine", MUTEX));
        ("owner", "sem", permits(n as u32, 1), true)
    }),
    ("n holders of a semaphore have a deadlock already, as each wants one more", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        each(n, |_, owner| holds(fixture, owner, "sem", permits(n as u32, 1)));
        each(n, |_, owner| waits(fixture, owner, "sem", permits(n as u32, 1)));
        waits(fixture, "owner 0", "mine", MUTEX);
        ("owner", "sem", permits(n as u32, 1), true)
    }),
    ("n readers wait to write what the owner reads", |fixture, n| {
        each(n, |_, owner| holds(fixture, owner, "rw", READ));
        holds(fixture, "owner", "elsewhere", READ);
        each(n, |_, owner| waits(fixture, owner, "elsewhere", WRITE));
        ("owner", "rw", WRITE, true)
    }),
    ("n requests wait for each of n readers, and all readers for the owner", |fixture, n| {
        chain(fixture);
        holds(fixture, "owner", "mine", MUTEX);
        each(n, |_, owner| holds(fixture, owner, "rw", READ));
        each(n, |own, _| waits(fixture, own, "rw", WRITE));
        each(n, |_, owner| waits(fixture, owner, "mine", MUTEX));
        ("owner", "link 0", MUTEX, false)
    }),
    ("n requests for the same keys wait for the owner", |fixture, n| {
        chain(fixture);
        holds(fixture, "owner", "mine", MUTEX);
        each(n, |_, owner| {
            let position = fixture.queues.last_position(Rank::Normal);
            fixture.wait_at(owner, &[b"k", b"l", b"m", b"mine"], MUTEX, position);
        });
        ("owner", "link 0", MUTEX, false)
    }),
    ("n readers and writers behind each other wait for the owner", |fixture, n| {
        chain(fixture);
        holds(fixture, "owner", "rw", WRITE);
        each(n, |own, owner| {
            waits(fixture, own, "rw", READ);
            waits(fixture, owner, "rw", WRITE);
        });
        ("owner", "link 0", MUTEX, false)
    }),
    ("n readers wait for a mutex each", |fixture, n| {
        each(n, |own, _| holds(fixture, "other", own, MUTEX));
        upgrade(fixture, n, |fixture, own, owner| waits(fixture, owner, own, MUTEX))
    }),
    ("n readers wait to read elsewhere", |fixture, n| {
        holds(fixture, "other", "elsewhere", WRITE);
        upgrade(fixture, n, |fixture, _, owner| waits(fixture, owner, "elsewhere", READ))
    }),
    ("n readers wait to write elsewhere", |fixture, n| {
        each(n, |own, _| holds(fixture, own, "elsewhere", READ));
        upgrade(fixture, n, |fixture, _, owner| waits(fixture, owner, "elsewhere", WRITE))
    }),
    ("a chain of n", closed_chain),
];

/// Requests of one owner, and requests for many keys.
const MANY_KEYS: &[(&str, Build)] = &[
    ("the holder has n other requests", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        waits(fixture, "somebody", "mine", MUTEX);
        holds(fixture, "holder", "one", MUTEX);
        each(n, |own, _| holds(fixture, "other", own, MUTEX));
        each(n, |own, _| waits(fixture, "holder", own, MUTEX));
        ("owner", "one", MUTEX, false)
    }),
    ("n requests for the same 16 keys ahead", |fixture, n| {
        let names: Vec<String> = (0..16).map(|key| format!("key {key}")).collect();
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        holds(fixture, "owner", "mine", MUTEX);
        waits(fixture, "somebody", "mine", MUTEX);
        fixture.hold_for("holder", &names, MUTEX, Lease::Persist);
        each(n / 16, |_, owner| {
            let position = fixture.queues.last_position(Rank::Normal);
            fixture.wait_at(owner, &names, MUTEX, position);
        });
        ("owner", "key 3", MUTEX, false)
    }),
];

#[test]
fn a_search_costs_no_more_than_the_graph_is_large() {
    const FEW: usize = 160;
    for (rows, growth, most) in [(FLAT, 1, 500), (LINEAR, 4, 20 * FEW), (MANY_KEYS, 4, 20 * FEW)] {
        for (title, build) in rows {
            let [few, many] = [FEW, 4 * FEW].map(|n| {
                let mut fixture = Fixture::default();
                let (owner, name, claim, is_deadlock) = build(&mut fixture, n);
                let (work, found) = work(&mut fixture, owner, name.as_bytes(), claim);
                assert_eq!(found.is_some(), is_deadlock, "{title}: {found:?}");
                work
            });
            println!("{title}: {few} {many}");
            assert!(many <= few * growth + few / 10 + 20, "{title}: {few} for {FEW}, {many} for four times as many");
            assert!(few <= most, "{title}: {few}");
        }
    }
}

/// A search of a part of the graph finds the deadlocks in that part.
#[test]
fn a_search_ends_after_a_number_of_steps() {
    let [small, large, larger] = [800, 2_000, 4_000].map(|n| {
        let mut fixture = Fixture::default();
        let (owner, name, claim, _) = closed_chain(&mut fixture, n);
        // Two owners that wait for each other, outside of that part.
        holds(&mut fixture, "one", "k", MUTEX);
        waits(&mut fixture, "one", "own 1", MUTEX);
        waits(&mut fixture, "one", "l", MUTEX);
        holds(&mut fixture, "two", "l", MUTEX);
        assert_eq!(fixture.deadlock("two", "k", MUTEX).as_deref(), Some("two@k one@l"), "{n}");
        let (work, found) = work(&mut fixture, owner, name.as_bytes(), claim);
        (work, found.map(|cycle| cycle.len()))
    });
    assert_eq!((small.1, large, large.1), (Some(800), larger, None));
    assert!((1_500..5_000).contains(&large.0), "{large:?}");
    let (_, all_permits) = LINEAR.iter().find(|(title, _)| title.contains("semaphore wait for the owner")).unwrap();
    let found = [1_600, 4_000].map(|n| {
        let mut fixture = Fixture::default();
        let (owner, name, claim, _) = all_permits(&mut fixture, n);
        work(&mut fixture, owner, name.as_bytes(), claim).1.is_some()
    });
    assert_eq!(found, [true, false], "all holders of a semaphore wait for the owner");
    // One owner that waits for thousands of keys.
    let [large, larger] = [2_000, 4_000].map(|n| {
        let mut fixture = Fixture::default();
        holds(&mut fixture, "owner", "mine", MUTEX);
        (0..20).for_each(|number| waits(&mut fixture, &format!("waiter {number}"), "mine", MUTEX));
        holds(&mut fixture, "holder", "one", MUTEX);
        each(n, |own, _| holds(&mut fixture, "other", own, MUTEX));
        each(n, |own, _| waits(&mut fixture, "holder", own, MUTEX));
        work(&mut fixture, "owner", b"one", MUTEX).0
    });
    assert!(large == larger && large < 5_000, "{large} {larger}");
}

/// A key with thousands of holders or waiters takes half of the steps; the rest is for what these wait for.
#[test]
fn a_search_ends_on_a_key_with_thousands_of_holders_or_waiters() {
    let rows = [("one of n holders of a semaphore with n waiters", None), ("n readers wait to write", Some(2))];
    for (title, found_expected) in rows {
        let (_, build) = LINEAR.iter().find(|(other, _)| other.starts_with(title)).unwrap();
        let [large, larger] = [8_000, 16_000].map(|n| {
            let mut fixture = Fixture::default();
            let (owner, name, claim, _) = build(&mut fixture, n);
            let (work, found) = work(&mut fixture, owner, name.as_bytes(), claim);
            assert_eq!(found.map(|cycle| cycle.len()), found_expected, "{title}");
            work
        });
        assert!(large.abs_diff(larger) < 100, "{title}: {large} {larger}");
    }
}

/// With 10,000 owners that depend on each other: `cargo test --release -p lock how_long -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn how_long_a_search_takes() {
    let multi_key: [(&str, Build); 1] = [("one MLOCK of 128 keys behind 1,000 such", |fixture, n| {
        let names: Vec<String> = (0..128).map(|key| format!("key {key}")).collect();
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        holds(fixture, "owner", "mine", MUTEX);
        waits(fixture, "somebody", "mine", MUTEX);
        fixture.hold_for("holder", &names, MUTEX, Lease::Persist);
        each(n / 10, |_, owner| {
            let position = fixture.queues.last_position(Rank::Normal);
            fixture.wait_at(owner, &names, MUTEX, position);
        });
        ("owner", "key 3", MUTEX, false)
    })];
    for (title, build) in FLAT.iter().chain(LINEAR).chain(MANY_KEYS).chain(&multi_key) {
        let mut fixture = Fixture::default();
        let (owner, name, claim, _) = build(&mut fixture, 10_000);
        let started = std::time::Instant::now();
        let (work, found) = work(&mut fixture, owner, name.as_bytes(), claim);
        let edges = found.map_or(0, |cycle| cycle.len());
        println!("{:7.2} ms, {work} steps, {edges} edges: {title}", started.elapsed().as_secs_f64() * 1e3);
    }
}
