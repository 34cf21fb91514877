//! Every schedule of a small world, as far as the time allows: a few keys and three owners, each with a connection.
//! Each state is visited once; states that differ only in the names of owners count as one.
//!
//! `LOCK_EVERY_SECONDS` is the time limit for all worlds together.

use std::collections::hash_map::DefaultHasher;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use super::contract::*;
use super::random::outcome_of;
use super::schedule::{Cast, Rng, Step};
use super::search::setting;
use super::simulator::Simulation;

const OWNERS: [Name; 3] = ["o", "p", "q"];
const LEASE: Ms = 100;

/// A small world: its keys, the claims on each, and its steps.
struct World {
    name: &'static str,
    keys: &'static [(Name, Kind)],
    claims: &'static [&'static [Claim]],
    steps: fn(&World) -> Vec<Step>,
    /// Whether a client sends commands while it waits.
    sends_in_parallel: bool,
}

const ONE: Holds = Holds::By(1);
const SET_NX: Claim = Claim::Adopted { is_absolute: false };
const SET_NX_PXAT: Claim = Claim::Adopted { is_absolute: true };

static WORLDS: [World; 10] = [
    World {
        name: "mutexes",
        keys: &[("a", Kind::Mutex), ("b", Kind::Mutex)],
        claims: &[&[Claim::Mutex], &[Claim::Mutex]],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "reentrant mutexes",
        keys: &[("e", Kind::Reentrant), ("f", Kind::Reentrant)],
        claims: &[&[Claim::Reentrant(ONE), Claim::Reentrant(Holds::Exactly(2))], &[Claim::Reentrant(ONE)]],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "read/write locks",
        keys: &[("v", Kind::ReadWrite), ("w", Kind::ReadWrite)],
        claims: &[&[Claim::Read(ONE), Claim::Write(ONE)], &[Claim::Write(ONE), Claim::Read(ONE)]],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "semaphores",
        keys: &[("s", Kind::Semaphore), ("t", Kind::Semaphore)],
        claims: &[
            &[Claim::Permits(2, ONE), Claim::Permits(2, Holds::By(2)), Claim::Permits(1, ONE)],
            &[Claim::Permits(1, ONE)],
        ],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "slots of semaphores",
        keys: &[("s", Kind::Semaphore), ("t", Kind::Semaphore)],
        claims: &[&[Claim::Slot(2), Claim::Permits(2, ONE)], &[Claim::Slot(1)]],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "a mutex and a read/write lock",
        keys: &[("a", Kind::Mutex), ("w", Kind::ReadWrite)],
        claims: &[&[Claim::Mutex], &[Claim::Read(ONE), Claim::Write(ONE)]],
        steps: World::all,
        sends_in_parallel: true,
    },
    World {
        name: "mutexes of clients that do not know the module",
        keys: &[("a", Kind::Mutex), ("b", Kind::Mutex)],
        claims: &[&[Claim::Mutex, SET_NX, SET_NX_PXAT], &[SET_NX]],
        steps: World::adopted,
        sends_in_parallel: true,
    },
    World {
        name: "reentrant mutexes that count in a hash",
        keys: &[("e", Kind::Reentrant)],
        claims: &[&[Claim::Reentrant(ONE), Claim::Reentrant(Holds::Exactly(2))]],
        steps: World::counted,
        sends_in_parallel: true,
    },
    World {
        name: "several mutexes",
        keys: &[("a", Kind::Mutex), ("b", Kind::Mutex), ("c", Kind::Mutex)],
        claims: &[&[Claim::Mutex], &[Claim::Mutex], &[Claim::Mutex]],
        steps: World::waits,
        sends_in_parallel: false,
    },
    World {
        name: "several mutexes, a read/write lock and a semaphore",
        keys: &[("a", Kind::Mutex), ("b", Kind::Mutex), ("w", Kind::ReadWrite), ("s", Kind::Semaphore)],
        claims: &[
            &[Claim::Mutex],
            &[Claim::Mutex],
            &[Claim::Read(ONE), Claim::Write(ONE)],
            &[Claim::Permits(2, ONE), Claim::Permits(2, Holds::By(2))],
        ],
        steps: World::waits,
        sends_in_parallel: false,
    },
];

impl World {
    /// Requests without a time limit, and all steps that end holds. Goes deeper than `all`.
    fn waits(&self) -> Vec<Step> {
        let mut steps = vec![Step::Pass(LEASE + 1), Step::Pass(LEASE / 2)];
        for (client, owner) in (0..).zip(OWNERS) {
            let acquire = |keys: &[Name], claim, block| {
                let (keys, lease) = (keys.to_vec(), Some(LEASE));
                let (number, session, coalesce, notify) = (0, false, false, false);
                let asked = Acquire { number, client, keys, owner, claim, lease, block, session, coalesce, notify };
                Step::Send(Command::Acquire(asked))
            };
            let mutexes: Vec<Name> =
                self.keys.iter().filter(|(_, kind)| *kind == Kind::Mutex).map(|(key, _)| *key).collect();
            for (number, first) in mutexes.iter().enumerate() {
                steps.extend(
                    mutexes[number + 1..].iter().map(|second| acquire(&[first, second], Claim::Mutex, Some(0))),
                );
            }
            steps.extend((mutexes.len() > 2).then(|| acquire(&mutexes, Claim::Mutex, Some(0))));
            // A wait that times out and whose position is reserved.
            steps.push(acquire(&mutexes[..2], Claim::Mutex, Some(LEASE / 2)));
            for ((key, _), claims) in self.keys.iter().zip(self.claims) {
                steps.extend(claims.iter().map(|claim| acquire(&[key], *claim, Some(0))));
                let keys = vec![*key];
                steps.extend(claims.iter().map(|claim| {
                    let keys = keys.clone();
                    Step::Send(Command::Release { keys, owner, claim: *claim, failed: false })
                }));
            }
        }
        for (key, _) in self.keys {
            steps.push(Step::Send(Command::Break { key, owner: None }));
        }
        steps
    }

    /// SET with and without NX, and MSET, in addition to native requests for one key and for both.
    fn adopted(&self) -> Vec<Step> {
        let mut steps = self.ends_of_holds();
        for (client, owner) in (0..).zip(OWNERS) {
            for ((key, _), claims) in self.keys.iter().zip(self.claims) {
                for claim in *claims {
                    let block = if *claim == Claim::Mutex { 0 } else { LEASE / 2 };
                    steps.push(ask(client, owner, &[key], *claim, Some(block)));
                }
                steps.push(ask(client, owner, &[key], SET_NX, None));
                let take = |lease| Step::Send(Command::TakeOver { client, pairs: vec![(*key, owner)], lease });
                steps.extend([take(None), take(Some(Some(LEASE)))]);
                let (keys, claim, failed) = (vec![*key], Claim::Mutex, false);
                steps.push(Step::Send(Command::Release { keys, owner, claim, failed }));
            }
            steps.push(ask(client, owner, &["a", "b"], Claim::Mutex, Some(0)));
            let other = OWNERS[(client as usize + 1) % OWNERS.len()];
            for pairs in [vec![("a", owner), ("b", owner)], vec![("b", other), ("a", owner)]] {
                steps.push(Step::Send(Command::TakeOver { client, pairs, lease: Some(None) }));
            }
        }
        steps
    }

    /// HINCRBY and HSET in addition to native requests.
    fn counted(&self) -> Vec<Step> {
        let mut steps = self.ends_of_holds();
        for (client, owner) in (0..).zip(OWNERS) {
            for claim in self.claims[0] {
                steps.push(ask(client, owner, &["e"], *claim, Some(0)));
                let (keys, failed) = (vec!["e"], false);
                steps.push(Step::Send(Command::Release { keys, owner, claim: *claim, failed }));
            }
            for change in [Change::By(1), Change::By(-1), Change::To(2), Change::To(0)] {
                steps.push(Step::Send(Command::Count { client, key: "e", owner, change }));
            }
            let kind = Kind::Reentrant;
            steps.push(Step::Send(Command::Renew { keys: vec!["e"], owner, kind, lease: Some(Some(LEASE)) }));
        }
        steps
    }

    /// Steps that end holds and waits of any lock type.
    fn ends_of_holds(&self) -> Vec<Step> {
        let mut steps = vec![Step::Pass(LEASE + 1), Step::Pass(LEASE / 2), Step::SetClock(80), Step::Failover(0)];
        steps.extend((0..).zip(OWNERS).map(|(client, _)| Step::Happen(Event::ClientGone(client))));
        steps.push(Step::Deafen(0, Command::Break { key: self.keys[0].0, owner: None }));
        for (key, _) in self.keys {
            steps.push(Step::Happen(Event::Deleted(key)));
            steps.push(Step::Send(Command::Break { key, owner: None }));
        }
        steps
    }

    /// All possible next steps, with two keys.
    fn all(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let [(first, kind), (second, _)] = *self.keys else { panic!("{} has two keys", self.name) };
        for (client, owner) in (0..).zip(OWNERS) {
            // Requests with SESSION also have COALESCE if that is possible.
            let acquire = |keys: &[Name], claim, block: Option<Ms>, session| {
                let (keys, lease) = (keys.to_vec(), Some(LEASE));
                let coalesce = session && block.is_some() && claim == Claim::Mutex;
                Step::Send(Command::Acquire(Acquire {
                    number: 0,
                    client,
                    keys,
                    owner,
                    claim,
                    lease,
                    block,
                    session,
                    coalesce,
                    notify: false,
                }))
            };
            let release = |keys: &[Name], claim| {
                Step::Send(Command::Release { keys: keys.to_vec(), owner, claim, failed: false })
            };
            for ((key, _), claims) in self.keys.iter().zip(self.claims) {
                steps.extend(claims.iter().map(|claim| acquire(&[key], *claim, Some(0), false)));
                steps.extend(claims.iter().map(|claim| match claim {
                    // A release names permits, not a slot.
                    Claim::Slot(limit) => release(&[key], Claim::Permits(*limit, ONE)),
                    claim => release(&[key], *claim),
                }));
            }
            steps.push(acquire(&[first], self.claims[0][0], Some(30), true));
            steps.push(acquire(&[second], self.claims[1][0], None, false));
            if self.keys.iter().all(|(_, kind)| *kind == Kind::Mutex) {
                steps.push(acquire(&[first, second], Claim::Mutex, Some(0), false));
                steps.push(release(&[first, second], Claim::Mutex));
            }
            if kind == Kind::Mutex {
                let (keys, claim) = (vec![first], Claim::Mutex);
                steps.push(Step::Send(Command::Release { keys, owner, claim, failed: true }));
            }
            steps.push(Step::Send(Command::Break { key: first, owner: Some(owner) }));
            steps.push(Step::Send(Command::Cancel { key: first, owner }));
            steps.push(Step::Send(Command::Renew { keys: vec![first], owner, kind, lease: Some(Some(LEASE)) }));
            steps.push(Step::Happen(Event::ClientGone(client)));
        }
        steps.push(Step::Send(Command::Break { key: first, owner: None }));
        steps.push(Step::Deafen(0, Command::Cancel { key: second, owner: "nobody" }));
        steps.extend([
            Step::Pass(40),
            Step::SetClock(-50),
            Step::SetClock(80),
            Step::Save,
            Step::Crash(0),
            Step::Crash(50),
            Step::Failover(0),
        ]);
        let events = [
            Event::Deleted(first),
            Event::Overwritten(first),
            Event::Renamed(second, first),
            Event::Restored(first, second),
            Event::Expire(first, Some(20)),
            Event::Writes(Writes::Refused),
            Event::Writes(Writes::Accepted),
            Event::SlotMoved,
        ];
        steps.extend(events.map(Step::Happen));
        steps
    }

    fn play(&'static self, steps: &[Step], path: &[u8]) -> Simulation {
        let mut simulation = Simulation::new(&Cast { keys: self.keys, owners: &OWNERS });
        path.iter().for_each(|step| simulation.play(&steps[usize::from(*step)]));
        simulation
    }

    /// Visits states until the time has elapsed. Returns their number, and the depth up to which all were visited.
    fn explore(&'static self, time: Duration) -> (usize, usize) {
        let (end, steps) = (Instant::now() + time, (self.steps)(self));
        let keys: Vec<Name> = self.keys.iter().map(|(key, _)| *key).collect();
        let mut seen: HashSet<u64> = HashSet::new();
        let mut depth = 0;
        let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
        loop {
            let mut next = Vec::new();
            for path in &paths {
                if Instant::now() > end {
                    return (seen.len(), depth);
                }
                let here = self.play(&steps, path);
                for (number, step) in (0..).zip(&steps) {
                    if !self.sends_in_parallel && waits(&here, step) {
                        continue;
                    }
                    let mut there = here.clone();
                    let played = outcome_of(|| there.play(step));
                    let mut longer = path.clone();
                    longer.push(number);
                    if let Err(error) = played {
                        let steps: Vec<_> =
                            longer.iter().map(|n| format!("    {:?}", steps[usize::from(*n)])).collect();
                        panic!("{}: {error}\n{}", self.name, steps.join("\n"));
                    }
                    let mut hasher = DefaultHasher::new();
                    there.describe(&keys).hash(&mut hasher);
                    if seen.insert(hasher.finish()) {
                        next.push(longer);
                    }
                }
            }
            depth += 1;
            paths = next;
        }
    }
}

fn ask(client: u64, owner: Name, keys: &[Name], claim: Claim, block: Option<Ms>) -> Step {
    let (number, session, coalesce, notify) = (0, false, false, false);
    let (keys, lease) = (keys.to_vec(), Some(LEASE));
    Step::Send(Command::Acquire(Acquire {
        number,
        client,
        keys,
        owner,
        claim,
        lease,
        block,
        session,
        coalesce,
        notify,
    }))
}

/// Whether the client of this step waits.
fn waits(simulation: &Simulation, step: &Step) -> bool {
    let Step::Send(Command::Acquire(Acquire { owner, .. }) | Command::Release { owner, .. }) = step else {
        return false;
    };
    simulation.model.requests().iter().any(|request| request.asked.owner == *owner && request.detached.is_none())
}

#[test]
fn every_schedule_of_a_small_world_does_what_the_contract_says() {
    let time = Duration::from_secs(setting("LOCK_EVERY_SECONDS").unwrap_or(10)) / WORLDS.len() as u32;
    for world in &WORLDS {
        let (states, depth) = world.explore(time);
        println!("{}: {states} distinct states, every schedule of {depth} steps", world.name);
    }
}

/// The worlds in which a waiting client sends nothing, in random schedules that are longer than exhaustive schedules
/// can be. `LOCK_LONG` is the number of schedules.
#[test]
fn in_long_schedules_of_a_small_world_no_request_waits_indefinitely() {
    let (mut refused, mut reevaluated) = (0, 0);
    for world in WORLDS.iter().filter(|world| !world.sends_in_parallel) {
        let steps = (world.steps)(world);
        for seed in 0..setting("LOCK_LONG").unwrap_or(1_000) {
            let (mut rng, mut here) = (Rng::new(seed), world.play(&steps, &[]));
            let mut played = Vec::new();
            for _ in 0..40 {
                let step = &steps[rng.below(steps.len())];
                if waits(&here, step) {
                    continue;
                }
                played.push(step);
                if let Err(error) = outcome_of(|| here.play(step)) {
                    panic!("{}, schedule {seed}: {error}\n{played:#?}", world.name);
                }
                refused += u64::from(here.outcome == Some(Outcome::Refused(Refusal::Deadlock)));
            }
            reevaluated += here.model.reevaluated();
        }
    }
    println!("{refused} refused, {reevaluated} reevaluated");
    assert!(refused > 0 && reevaluated > 0);
}

/// Owners that send several requests at once, native and adopted ones, for one key each. One owner sends both kinds for
/// the same key. Whatever times out or ends, no deadlock arises that was not refused. `LOCK_LONG` is the number of
/// schedules.
#[test]
fn parallel_requests_complete_no_deadlock_later() {
    let cast = Cast { keys: &[("a", Kind::Mutex), ("b", Kind::Mutex), ("c", Kind::Mutex)], owners: &OWNERS };
    let requests = [("o", "a", "abc"), ("p", "b", "ac"), ("q", "c", "ab")];
    let mut steps = vec![Step::Pass(LEASE + 1), Step::Pass(LEASE / 2), Step::Pass(LEASE / 10)];
    for (key, _) in cast.keys {
        steps.push(Step::Happen(Event::Deleted(key)));
        for (owner, adopted, native) in requests {
            // Each request has its own connection.
            let connection = steps.len() as u64;
            let asks = |offset, claim, block| ask(connection + offset, owner, &[key], claim, block);
            if native.contains(key) {
                steps.extend([None, Some(0), Some(LEASE / 2)].map(|block| asks(0, Claim::Mutex, block)));
            }
            if adopted == *key {
                steps.extend([1, 2].map(|offset| asks(offset, SET_NX, Some(LEASE / 2))));
            }
            let (keys, claim, failed) = (vec![*key], Claim::Mutex, false);
            steps.push(Step::Send(Command::Release { keys, owner, claim, failed }));
            steps.push(Step::Send(Command::Cancel { key, owner }));
            steps.extend([0, 1, 2].map(|offset| Step::Happen(Event::ClientGone(connection + offset))));
        }
    }
    let mut refused = 0;
    for seed in 0..setting("LOCK_LONG").unwrap_or(1_000) {
        let (mut rng, mut here) = (Rng::new(seed), Simulation::with_max_waiters(&cast, 100));
        let mut played = Vec::new();
        for _ in 0..60 {
            let step = &steps[rng.below(steps.len())];
            played.push(step);
            here.play(step);
            refused += u64::from(here.outcome == Some(Outcome::Refused(Refusal::Deadlock)));
            let endless = here.model.endless_waits();
            assert!(endless.is_empty(), "schedule {seed}: {endless:?}\n{played:#?}");
        }
    }
    assert!(refused > 0);
}
