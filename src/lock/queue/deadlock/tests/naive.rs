//! The deadlock as the contract defines it, for tests: every owner that waits for nothing releases all that it holds,
//! every request that can be served is served, until nothing changes. No graph, no index, no order but that of the
//! queues.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::{Content, Entry, Keys};
use crate::key::KeyRef;
use crate::queue::fixture::Fixture;
use crate::queue::request::{NewRequest, Place};
use crate::value::claim::{Claim, Count, Family, Share};

type Name = Vec<u8>;

#[derive(Clone, PartialEq)]
struct Waits {
    owner: Name,
    claim: Claim,
    place: Place,
    names: Vec<Name>,
}

/// How requests ahead of a request count.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Kept,
    /// If nothing else makes progress, an owner passes requests for several keys that wait for a key that it holds, or
    /// are behind others that do.
    HolderPasses,
    /// If nothing else makes progress, an owner passes requests for several keys that wait for it in any way.
    MayPass,
    /// If there is still no progress, requests for several keys give up: only requests that wait for holders, or behind
    /// requests for one key, wait for ever.
    GivenUp,
}

#[derive(Clone, Default)]
struct World {
    /// For each key with a lock: its family and its holders.
    locks: BTreeMap<Name, (Family, BTreeMap<Name, Share>)>,
    limits: BTreeMap<Name, u32>,
    /// In the order of their places.
    waiting: Vec<Waits>,
}

/// Whether the new request would wait for ever because of its own waiting.
pub(super) fn closes_cycle(fixture: &mut Fixture, new: &NewRequest<'_>) -> bool {
    let without = World::of(fixture, new);
    let asked = Waits {
        owner: new.owner().to_vec(),
        claim: new.request.claim,
        place: new.place,
        names: new.names.iter().map(|name| name.to_vec()).collect(),
    };
    let stuck = without.clone().drained(asked.place);
    if stuck.contains(&asked.owner) {
        return false;
    }
    let mut with = without;
    if let Some(limit) = asked.claim.limit() {
        with.limits.insert(asked.names[0].clone(), limit);
        let fits = |world: &World, waits: &Waits| {
            let held = world.share(&asked.names[0], &waits.owner).holds;
            let wanted = match waits.claim.count() {
                Count::Step(more) => held + more,
                Count::Exactly(exactly) => exactly,
            };
            waits.names != asked.names || wanted <= limit
        };
        with.waiting = with.waiting.iter().filter(|waits| fits(&with, waits)).cloned().collect();
    }
    with.waiting.push(asked.clone());
    with.waiting.sort_by_key(|waits| waits.place);
    with.waiting.retain(|waits| !stuck.contains(&waits.owner));
    with.drained(asked.place).contains(&asked.owner)
}

impl World {
    /// The state without the new request.
    fn of(fixture: &mut Fixture, new: &NewRequest<'_>) -> World {
        let now = fixture.server.now().timestamp();
        let mut world = World::default();
        let queues = &fixture.queues;
        let queued = queues.requests().map(|(_, queued)| queued);
        for queued in queued.filter(|queued| queued.is_present() && queued.place != new.place) {
            world.waiting.push(Waits {
                owner: queued.owner.as_bytes().to_vec(),
                claim: queued.claim,
                place: queued.place,
                names: queues.keys_of(queued).map(|key| key.name.to_vec()).collect(),
            });
        }
        world.waiting.sort_by_key(|waits| waits.place);
        for name in fixture.server.keyspace.primary.keys().map(|key| key.name.to_vec()).collect::<Vec<_>>() {
            let mut keyspace = &mut fixture.server.keyspace;
            if let Content::Lock(lock) = keyspace.open(KeyRef { db: 0, name: &name }).content() {
                let shares = lock.live_holds(now).map(|hold| (hold.owner.as_bytes().to_vec(), hold.share()));
                world.locks.insert(name.clone(), (lock.family().unwrap(), shares.collect()));
            }
        }
        let limits = queues.iter().filter_map(|(_, queue)| Some((queue.key.name.to_vec(), queue.limit?)));
        world.limits = limits.collect();
        world
    }

    fn share(&self, name: &Name, owner: &Name) -> Share {
        self.locks.get(name).and_then(|(_, shares)| shares.get(owner)).copied().unwrap_or_default()
    }

    /// The owners that still wait when all others have released.
    fn drained(mut self, new: Place) -> Vec<Name> {
        loop {
            let is_impossible = |waits: &Waits| {
                waits.names.iter().any(|name| self.is_impossible(waits, name))
                    || waits.place != new && self.never_fits(waits)
            };
            if let Some(index) = self.waiting.iter().position(is_impossible) {
                self.waiting.remove(index);
                continue;
            }
            let waiting: Vec<Name> = self.waiting.iter().map(|waits| waits.owner.clone()).collect();
            for (_, shares) in self.locks.values_mut() {
                shares.retain(|owner, _| waiting.contains(owner));
            }
            let is_served = |index: &usize, order| {
                let names = &self.waiting[*index].names;
                names.iter().all(|name| self.admits(*index, name, order))
            };
            let first = |order| (0..self.waiting.len()).find(|index| is_served(index, order));
            let served = [Order::Kept, Order::HolderPasses, Order::MayPass, Order::GivenUp].into_iter().find_map(first);
            let Some(index) = served else { return waiting };
            let Waits { owner, claim, names, .. } = self.waiting.remove(index);
            for name in names {
                let share = self.share(&name, &owner).with(&claim);
                let (_, shares) = self.locks.entry(name).or_insert((claim.family(), BTreeMap::new()));
                shares.insert(owner.clone(), share);
            }
        }
    }

    /// The first in its queue, with what its owner holds for more than LIMIT.
    fn never_fits(&self, waits: &Waits) -> bool {
        let [name] = &waits.names[..] else { return false };
        let Claim::Permits { count: Count::Step(more), .. } = waits.claim else { return false };
        let first = self.waiting.iter().find(|other| other.names.contains(name));
        first.is_some_and(|first| first.place == waits.place)
            && self.limits.get(name).is_some_and(|limit| self.share(name, &waits.owner).holds + more > *limit)
    }

    fn is_impossible(&self, Waits { claim, owner, .. }: &Waits, name: &Name) -> bool {
        let is_another = |(family, shares): &(Family, BTreeMap<_, _>)| *family != claim.family() && !shares.is_empty();
        let limit = self.limits.get(name).copied().unwrap_or(u32::MAX);
        let share = self.share(name, owner);
        self.locks.get(name).is_some_and(is_another)
            || match claim {
                Claim::Permits { count, .. } => share.has_slot || count.number() > limit,
                Claim::Slot { .. } => share.holds > 0 && !share.has_slot,
                _ => false,
            }
    }

    fn admits(&self, index: usize, name: &Name, order: Order) -> bool {
        let Waits { owner, claim, .. } = &self.waiting[index];
        let share = self.share(name, owner);
        if share.covers(claim) {
            return true;
        }
        let others = self.locks.get(name).into_iter().flat_map(|(_, shares)| shares);
        let mut others = others.filter(|(other, _)| *other != owner).map(|(_, share)| share);
        let is_admitted = match claim {
            Claim::Permits { .. } | Claim::Slot { .. } => {
                let out: u32 = others.map(|share| share.holds).sum();
                out + share.with(claim).holds <= self.limits[name]
            }
            claim if claim.is_read() => others.all(|share| share.holds == 0),
            _ => others.next().is_none(),
        };
        let mut ahead = (0..index).filter(|ahead| self.waiting[*ahead].names.contains(name));
        is_admitted
            && ahead.all(|ahead| match order {
                Order::Kept => false,
                Order::HolderPasses | Order::MayPass => self.passes(owner, ahead, order),
                Order::GivenUp => self.waiting[ahead].names.len() > 1 && self.waiting[ahead].owner != *owner,
            })
    }

    /// Whether this owner passes the request: one for several keys that waits for the owner, or for others that do.
    fn passes(&self, owner: &Name, ahead: usize, order: Order) -> bool {
        let (mut owners, mut waiting) = (BTreeSet::new(), BTreeSet::from([ahead]));
        loop {
            let before = (owners.len(), waiting.len());
            for index in waiting.clone() {
                let waits = &self.waiting[index];
                for name in waits.names.iter().filter(|name| !self.share(name, &waits.owner).covers(&waits.claim)) {
                    let holders = self.locks.get(name).into_iter().flat_map(|(_, shares)| shares.keys());
                    owners.extend(holders.filter(|holder| **holder != waits.owner).cloned());
                    let ahead = (0..index).filter(|ahead| self.waiting[*ahead].names.contains(name));
                    match order {
                        Order::MayPass => owners.extend(ahead.map(|ahead| self.waiting[ahead].owner.clone())),
                        _ => waiting.extend(ahead),
                    }
                }
            }
            let waits = |index: &usize| order == Order::MayPass && owners.contains(&self.waiting[*index].owner);
            waiting.extend((0..self.waiting.len()).filter(waits));
            if before == (owners.len(), waiting.len()) {
                let Waits { names, owner: other, .. } = &self.waiting[ahead];
                return names.len() > 1 && other != owner && owners.contains(owner);
            }
        }
    }
}
