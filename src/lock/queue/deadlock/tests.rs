mod naive;

use super::*;
use crate::key::Key;
use crate::queue::fixture::{names, Fixture};
use crate::queue::precedence::has_turn;
use crate::queue::request::Rank;
use crate::testing::schedule::Rng;
use crate::value::claim::{LockRequest, Mode};
use crate::value::outcome::Admission;
use crate::value::owner::Owner;
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
        cycle: Some("c@s b@k"),
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

/// Random worlds of a few owners, small or large shared locks, with leases that are over, kept places, keys that have
/// gone, and holders that nobody has looked at.
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
        (0..world.rng.below(3)).for_each(|_| world.change());
        world.fixture.server.keyspace.now_ms += 10;
        world
    }

    fn owner(&mut self) -> String {
        self.rng.below(self.owners).to_string()
    }

    /// The keys a to d are mutexes, v and w read/write locks, s and t semaphores.
    fn keys(&mut self) -> (&'static str, Claim) {
        match self.rng.below(6) {
            0 | 1 => (self.rng.pick(&["a", "b", "c", "d"]), MUTEX),
            2 => (self.rng.pick(&["ab", "bc", "cd", "ad", "abc", "bcd", "abcd"]), MUTEX),
            3 => (self.rng.pick(&["v", "w"]), READ),
            4 => (self.rng.pick(&["v", "w"]), WRITE),
            _ => (self.rng.pick(&["s", "t"]), permits(4, 1 + self.rng.below(3) as u32)),
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
        let place = self.fixture.queues.last_place(rank);
        let id = self.fixture.wait_at(&owner, &names(keys), claim, place);
        if self.rng.once_in(8) {
            self.fixture.queues.keep_place(id);
        }
    }

    /// What nobody has looked at yet: a lock goes, or comes from elsewhere.
    fn change(&mut self) {
        let [key, other] = [(); 2].map(|()| self.rng.pick(&["a", "b", "c", "d", "v", "w", "s", "t"]));
        let key = Key::new(0, key.as_bytes());
        let primary = &mut self.fixture.server.keyspace.primary;
        match primary.get(&Key::new(0, other.as_bytes())).cloned() {
            Some(lock) if self.rng.once_in(2) => _ = primary.insert(key.clone(), lock),
            _ => _ = primary.remove(&key),
        }
        if let Some(id) = self.fixture.queues.id_of(key.as_ref()) {
            self.fixture.queues.holders_may_differ(id);
        }
    }

    /// A new request: one that is queued comes again, or another.
    fn ask(&mut self, check: impl FnOnce(&mut Fixture, &NewRequest<'_>)) {
        let queued: Vec<_> = self.fixture.queues.requests().map(|(_, queued)| queued.clone()).collect();
        if !queued.is_empty() && self.rng.once_in(3) {
            let again = &queued[self.rng.below(queued.len())];
            let keys: Vec<_> = self.fixture.queues.keys_of(again).cloned().collect();
            let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
            check(
                &mut self.fixture,
                &NewRequest { db: 0, names: &names, request: again.request(), place: again.place },
            );
            return;
        }
        let (owner, (keys, claim)) = (self.owner(), self.keys());
        let rank = self.rank(&owner, keys, &claim);
        let place = self.fixture.queues.last_place(rank);
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let names = names(keys);
        check(&mut self.fixture, &NewRequest { db: 0, names: &names, request, place });
    }
}

/// Whose turn has come, against the table of `precedence`, every key opened.
#[test]
fn everyone_ahead_goes_first_but_who_waits_for_the_owner() {
    let mut turns = [0, 0];
    for seed in 0..3_000 {
        let Fixture { mut server, queues, .. } = World::new(seed).fixture;
        let keys = &mut &mut server.keyspace;
        for (id, queue) in queues.iter() {
            for (place, request) in queue.present() {
                let owner = queues.request(request).unwrap().owner.as_bytes();
                let mut ahead = queue.ahead_of(place).filter_map(|ahead| queues.request(ahead));
                let has_turn_expected = ahead.all(|ahead| {
                    let waits_for_it = queues.keys_of(ahead).any(|key| keys.is_held_by(key.as_ref(), owner));
                    ahead.has_several_keys() && ahead.owner.as_bytes() != owner && waits_for_it
                });
                assert_eq!(has_turn(&queues, keys, id, place, owner), has_turn_expected, "{seed}: {owner:?}");
                turns[usize::from(has_turn_expected && queue.first() != Some(request))] += 1;
            }
        }
    }
    assert!(turns.iter().all(|turns| *turns > 100), "{turns:?}");
}

/// Both searches against the definition, each alone and together.
#[test]
fn the_searches_find_what_every_edge_of_the_graph_says() {
    let (mut cycles, mut spared, mut searched) = (0, 0, 0);
    for seed in 0..crate::testing::search::setting("LOCK_WORLDS").unwrap_or(10_000) {
        World::new(seed).ask(|fixture, new| {
            let expected = naive::closes_cycle(fixture, new);
            let now = fixture.server.now();
            let (queues, keys) = (&fixture.queues, &mut &mut fixture.server.keyspace);
            let reach = reach(queues, keys, &now, new, MOST_STEPS);
            let stuck = Stuck::new(queues, keys, &now, new).cycle();
            assert_eq!(stuck.is_some(), expected, "{seed}: {stuck:?}");
            assert!(!expected || reach == Reached::Itself, "{seed}: {stuck:?}");
            let itself = waits_for_itself(keys, new);
            let found = find(queues, keys, &now, new);
            assert_eq!(found.is_some(), expected || itself, "{seed}: {found:?}");
            assert!(found.is_none() || may_close_cycle(queues, new), "{seed}");
            if let (Some(edges), false) = (&found, itself) {
                assert_eq!(edges[0].owner.as_bytes(), new.owner(), "{seed}: {edges:?}");
                let waits = |edge: &Edge| {
                    let queued = queues.requests_of(0, edge.owner.as_bytes()).filter_map(|id| queues.request(id));
                    let mut waiting = queued.filter(|queued| queued.is_present());
                    waiting.any(|queued| queues.keys_of(queued).any(|key| key.name == edge.key))
                };
                assert!(edges[1..].iter().all(waits), "{seed}: {edges:?}");
                let owners: std::collections::BTreeSet<_> = edges.iter().map(|edge| edge.owner.as_bytes()).collect();
                assert_eq!(owners.len(), edges.len(), "{seed}: {edges:?}");
            }
            cycles += usize::from(expected);
            spared += usize::from(reach == Reached::NotItself);
            searched += usize::from(reach == Reached::Itself && !expected);
        });
    }
    println!("{cycles} cycles, {spared} seen at a glance to be none, {searched} not");
    assert!([cycles, spared, searched].iter().all(|worlds| *worlds > 300), "{cycles} {spared} {searched}");
}

/// What one search costs: keys opened, owners and requests looked up.
fn work(fixture: &mut Fixture, owner: &str, name: &[u8], claim: Claim) -> (usize, Option<Vec<Edge>>) {
    let owner = Owner::new(owner.as_bytes()).unwrap();
    let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
    let new = NewRequest { db: 0, names: &[name], request, place: fixture.queues.last_place(Rank::Normal) };
    let now = fixture.server.now();
    let before = fixture.server.keyspace.opened + fixture.queues.looked_up.get();
    let found = find(&fixture.queues, &mut &mut fixture.server.keyspace, &now, &new);
    (fixture.server.keyspace.opened + fixture.queues.looked_up.get() - before, found)
}

/// Who asks for what at the end, and whether that is a deadlock.
type Ask = (&'static str, &'static str, Claim, bool);

/// What is there, with so many of what there are many of.
type Build = fn(&mut Fixture, usize) -> Ask;

fn each(count: usize, mut build: impl FnMut(&str, &str)) {
    (0..count).for_each(|index| build(&format!("own {index}"), &format!("owner {index}")));
}

fn waits(fixture: &mut Fixture, owner: &str, name: &str, claim: Claim) {
    let place = fixture.queues.last_place(Rank::Normal);
    fixture.wait_at(owner, &[name.as_bytes()], claim, place);
}

fn holds(fixture: &mut Fixture, owner: &str, name: &str, claim: Claim) {
    fixture.hold_for(owner, &[name.as_bytes()], claim, Lease::Persist);
}

/// An owner that is waited for, and another that n readers of `rw` wait for in some way.
fn upgrade(fixture: &mut Fixture, n: usize, wait: impl Fn(&mut Fixture, &str, &str)) -> Ask {
    holds(fixture, "writer", "mine", MUTEX);
    waits(fixture, "somebody", "mine", MUTEX);
    each(n, |_, owner| holds(fixture, owner, "rw", READ));
    each(n, |own, owner| wait(fixture, own, owner));
    ("writer", "rw", WRITE, false)
}

/// A chain of owners that wait for each other and for nobody else, too long for a look ahead; the new request is to
/// wait for its first.
fn chain(fixture: &mut Fixture) {
    for link in 0..200 {
        holds(fixture, &format!("link {link}"), &format!("link {link}"), MUTEX);
    }
    for link in 0..199 {
        waits(fixture, &format!("link {link}"), &format!("link {}", link + 1), MUTEX);
    }
}

/// Each of them took as many steps as the square of n, or n for one more that queues.
const FLAT: &[(&str, Build)] = &[
    ("one of n holders of a semaphore with n waiters", |fixture, n| {
        let claim = permits(n as u32, 1);
        each(n, |_, owner| holds(fixture, owner, "sem", claim));
        each(n, |own, _| waits(fixture, own, "sem", claim));
        ("owner 0", "sem", claim, false)
    }),
    ("one more of n owners of waited-for locks queues on one mutex", |fixture, n| {
        holds(fixture, "holder", "one", MUTEX);
        each(n, |own, owner| holds(fixture, owner, own, MUTEX));
        each(n, |own, _| waits(fixture, &format!("waits for {own}"), own, MUTEX));
        each(n - 1, |_, owner| waits(fixture, owner, "one", MUTEX));
        (Box::leak(format!("owner {}", n - 1).into_boxed_str()), "one", MUTEX, false)
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
    ("n wait for the owner, which waits for a holder that waits for nothing", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        holds(fixture, "holder", "other", MUTEX);
        each(n, |_, owner| waits(fixture, owner, "mine", MUTEX));
        ("owner", "other", MUTEX, false)
    }),
];

/// Here n are stuck indeed, and a look ahead does not tell.
const LINEAR: &[(&str, Build)] = &[
    ("n holders of a semaphore wait for the owner", |fixture, n| {
        holds(fixture, "owner", "mine", MUTEX);
        each(n, |_, owner| holds(fixture, owner, "sem", permits(n as u32, 1)));
        each(n, |_, owner| waits(fixture, owner, "mine", MUTEX));
        ("owner", "sem", permits(n as u32, 1), true)
    }),
    ("n holders of a semaphore want more, and one of them waits for the owner", |fixture, n| {
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
    ("n wait for each of n readers, and all of these for the owner", |fixture, n| {
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
            let place = fixture.queues.last_place(Rank::Normal);
            fixture.wait_at(owner, &[b"k", b"l", b"m", b"mine"], MUTEX, place);
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
    ("a chain of n", |fixture, n| {
        each(n, |own, owner| holds(fixture, owner, own, MUTEX));
        for link in 1..n {
            waits(fixture, &format!("owner {}", link - 1), &format!("own {link}"), MUTEX);
        }
        (Box::leak(format!("owner {}", n - 1).into_boxed_str()), "own 0", MUTEX, true)
    }),
];

#[test]
fn a_search_costs_what_is_stuck_and_not_what_is_there() {
    const FEW: usize = 150;
    for (rows, growth) in [(FLAT, 1), (LINEAR, 4)] {
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
            assert!(few <= if growth == 1 { 500 } else { 20 * FEW }, "{title}: {few}");
        }
    }
}
