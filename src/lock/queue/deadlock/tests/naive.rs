//! The deadlock as the contract defines it, for tests: every owner that waits for nothing releases all that it holds,
//! and every request that can be served is served, until nothing changes. No graph, no index, no order except that of
//! the queues.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::{Content, Entry, Keys};
use crate::key::KeyRef;
use crate::queue::fixture::Fixture;
use crate::queue::position::QueuePosition;
use crate::queue::request::NewRequest;
use crate::value::claim::{Claim, Count, LockType, Share};

type Name = Vec<u8>;

#[derive(Clone, PartialEq)]
struct Waits {
    owner: Name,
    claim: Claim,
    position: QueuePosition,
    names: Vec<Name>,
}

impl Waits {
    fn of(new: &NewRequest<'_>) -> Waits {
        Waits {
            owner: new.owner().to_vec(),
            claim: new.request.claim,
            position: new.position.clone(),
            names: new.names.iter().map(|name| name.to_vec()).collect(),
        }
    }

    /// An adopted wait is bounded.
    fn must_be_served(&self) -> bool {
        self.claim != Claim::AdoptedMutex
    }
}

#[derive(Clone, Default)]
struct World {
    /// For each key with a lock: its lock type and its holders.
    locks: BTreeMap<Name, (LockType, BTreeMap<Name, Share>)>,
    limits: BTreeMap<Name, u32>,
    /// In the order of their positions.
    waiting: Vec<Waits>,
}

/// What the definition says of a new request.
pub(super) struct Expected {
    /// The request would deadlock, or it is ahead of others and another request of its owner would.
    pub is_deadlock: bool,
    /// Other requests are deadlocked even without the new one.
    pub is_old: bool,
}

pub(super) fn expected(fixture: &mut Fixture, new: &NewRequest<'_>) -> Expected {
    let without = World::of(fixture, new);
    let asked = Waits::of(new);
    let is_old = !without.clone().left_waiting(&asked.position).is_empty();
    let is_behind = |it: &Waits| it.position > asked.position && it.names.iter().any(|name| asked.names.contains(name));
    let is_ahead = without.waiting.iter().any(is_behind);
    let mut with = without;
    if let Some(limit) = asked.claim.limit() {
        with.limits.insert(asked.names[0].clone(), limit);
        let fits = |world: &World, waits: &Waits| {
            let held = world.share(&asked.names[0], &waits.owner).holds;
            let wanted = match waits.claim.count() {
                Count::Delta(more) => held + more,
                Count::Exactly(exactly) => exactly,
            };
            waits.names != asked.names || wanted <= limit
        };
        with.waiting = with.waiting.iter().filter(|waits| fits(&with, waits)).cloned().collect();
    }
    with.enter(asked.clone());
    let left = with.left_waiting(&asked.position);
    let is_deadlock = left.iter().any(|left| left.position == asked.position || is_ahead && left.owner == asked.owner);
    Expected { is_deadlock, is_old }
}

/// Whether these owners are deadlocked even if every other owner releases all that it holds and stops waiting.
pub(super) fn are_deadlocked_alone(fixture: &mut Fixture, new: &NewRequest<'_>, owners: &BTreeSet<Name>) -> bool {
    let mut world = World::of(fixture, new);
    world.enter(Waits::of(new));
    world.waiting.retain(|waits| owners.contains(&waits.owner));
    let are_left = |left: &Vec<Waits>| owners.iter().all(|owner| left.iter().any(|left| left.owner == *owner));
    world.outcomes(&new.position).iter().any(are_left)
}

impl World {
    /// The state without the new request.
    fn of(fixture: &mut Fixture, new: &NewRequest<'_>) -> World {
        let now = fixture.server.now().timestamp();
        let mut world = World::default();
        let queues = &fixture.queues;
        let queued = queues.requests().filter(|(id, queued)| queued.is_present() && new.replaces != Some(*id));
        for (_, queued) in queued {
            world.waiting.push(Waits {
                owner: queued.owner.as_bytes().to_vec(),
                claim: queued.claim,
                position: queued.position.clone(),
                names: queues.keys_of(queued).map(|key| key.name.to_vec()).collect(),
            });
        }
        world.waiting.sort_by_key(|waits| waits.position.clone());
        for name in fixture.server.keyspace.primary.keys().map(|key| key.name.to_vec()).collect::<Vec<_>>() {
            let mut keyspace = &mut fixture.server.keyspace;
            if let Content::Lock(lock) = keyspace.open(KeyRef { db: 0, name: &name }).content() {
                let shares = lock.live_holds(now).map(|hold| (hold.owner.as_bytes().to_vec(), hold.share()));
                world.locks.insert(name.clone(), (lock.lock_type().unwrap(), shares.collect()));
            }
        }
        let limits = queues.iter().filter_map(|(_, queue)| Some((queue.key.name.to_vec(), queue.limit?)));
        world.limits = limits.collect();
        world
    }

    fn enter(&mut self, waits: Waits) {
        self.waiting.push(waits);
        self.waiting.sort_by_key(|waits| waits.position.clone());
    }

    fn share(&self, name: &Name, owner: &Name) -> Share {
        self.locks.get(name).and_then(|(_, shares)| shares.get(owner)).copied().unwrap_or_default()
    }

    /// The requests that still wait after all others have released, in either case.
    fn left_waiting(self, new: &QueuePosition) -> Vec<Waits> {
        self.outcomes(new).concat()
    }

    /// The requests that still wait in two cases: if the adopted requests of owners that also have a native request for
    /// the key time out, and if they are served.
    fn outcomes(self, new: &QueuePosition) -> [Vec<Waits>; 2] {
        let is_doubled_by = |waits: &Waits, other: &Waits| {
            !waits.must_be_served()
                && other.must_be_served()
                && waits.owner == other.owner
                && other.names.contains(&waits.names[0])
        };
        let mut without_doubled = self.clone();
        without_doubled.waiting.retain(|waits| !self.waiting.iter().any(|other| is_doubled_by(waits, other)));
        [without_doubled.drained(new), self.drained(new)]
    }

    /// The requests that must be served and still wait after all others have released.
    fn drained(mut self, new: &QueuePosition) -> Vec<Waits> {
        loop {
            let is_impossible = |waits: &Waits| {
                waits.names.iter().any(|name| self.is_impossible(waits, name))
                    || waits.position != *new && self.never_fits(waits)
            };
            if let Some(index) = self.waiting.iter().position(is_impossible) {
                self.waiting.remove(index);
                continue;
            }
            let must_be_served = self.waiting.iter().filter(|waits| waits.must_be_served());
            let waiting: Vec<Name> = must_be_served.map(|waits| waits.owner.clone()).collect();
            for (_, shares) in self.locks.values_mut() {
                shares.retain(|owner, _| waiting.contains(owner));
            }
            let is_served = |index: &usize| self.waiting[*index].names.iter().all(|name| self.admits(*index, name));
            let Some(index) = (0..self.waiting.len()).find(is_served) else {
                self.waiting.retain(Waits::must_be_served);
                return self.waiting;
            };
            let Waits { owner, claim, names, .. } = self.waiting.remove(index);
            for name in names {
                let share = self.share(&name, &owner).with(&claim);
                let (_, shares) = self.locks.entry(name).or_insert((claim.lock_type(), BTreeMap::new()));
                shares.insert(owner.clone(), share);
            }
        }
    }

    /// Whether the request is first in its queue and exceeds LIMIT together with what its owner holds.
    fn never_fits(&self, waits: &Waits) -> bool {
        let [name] = &waits.names[..] else { return false };
        let Claim::Permits { count: Count::Delta(more), .. } = waits.claim else { return false };
        let first = self.waiting.iter().find(|other| other.names.contains(name));
        first.is_some_and(|first| first.position == waits.position)
            && self.limits.get(name).is_some_and(|limit| self.share(name, &waits.owner).holds + more > *limit)
    }

    fn is_impossible(&self, Waits { claim, owner, .. }: &Waits, name: &Name) -> bool {
        let is_another =
            |(lock_type, shares): &(LockType, BTreeMap<_, _>)| *lock_type != claim.lock_type() && !shares.is_empty();
        let limit = self.limits.get(name).copied().unwrap_or(u32::MAX);
        let share = self.share(name, owner);
        self.locks.get(name).is_some_and(is_another)
            || match claim {
                Claim::Permits { count, .. } => share.has_slot || count.number() > limit,
                Claim::Slot { .. } => share.holds > 0 && !share.has_slot,
                _ => false,
            }
    }

    fn admits(&self, index: usize, name: &Name) -> bool {
        let Waits { owner, claim, .. } = &self.waiting[index];
        let share = self.share(name, owner);
        if share.covers(claim) {
            return true;
        }
        let others = self.locks.get(name).into_iter().flat_map(|(_, shares)| shares);
        let mut others = others.filter(|(other, _)| *other != owner).map(|(_, share)| share);
        let is_admitted = match claim {
            Claim::Permits { .. } | Claim::Slot { .. } => {
                let in_use: u32 = others.map(|share| share.holds).sum();
                in_use + share.with(claim).holds <= self.limits[name]
            }
            claim if claim.is_read() => others.all(|share| share.holds == 0),
            _ => others.next().is_none(),
        };
        is_admitted && !self.waiting[..index].iter().any(|ahead| ahead.names.contains(name))
    }
}
