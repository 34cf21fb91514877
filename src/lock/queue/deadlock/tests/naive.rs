//! The deadlock as it is defined, for tests: every edge of every owner, and who is stuck by them until nothing changes.
//! No index, no order, no shortcut.

use super::super::*;
use crate::queue::fixture::Fixture;
use crate::queue::request::Place;
use crate::value::outcome::{Admission, Blockers};

struct Waits<'a> {
    owner: &'a [u8],
    claim: Claim,
    place: Place,
    names: Vec<&'a [u8]>,
}

/// Whether the new request would close a cycle.
pub(super) fn closes_cycle(fixture: &mut Fixture, new: &NewRequest<'_>) -> bool {
    let now = fixture.server.now();
    let queues = &fixture.queues;
    let queued = queues.requests().map(|(_, queued)| queued);
    let present = queued.filter(|queued| queued.is_present() && queued.place != new.place);
    let mut all: Vec<_> = present
        .map(|queued| Waits {
            owner: queued.owner.as_bytes(),
            claim: queued.claim,
            place: queued.place,
            names: queues.keys_of(queued).map(|key| &*key.name).collect(),
        })
        .collect();
    all.push(Waits { owner: new.owner(), claim: new.request.claim, place: new.place, names: new.names.to_vec() });
    let mut keys = &mut fixture.server.keyspace;
    let mut edges: Vec<(&[u8], Vec<Vec<u8>>)> = Vec::new();
    for waits in &all {
        for name in &waits.names {
            let key = KeyRef { db: 0, name };
            let queue = queues.of_key(key).filter(|_| waits.place != new.place);
            let claim = queue.map_or(waits.claim, |queue| queue.under_limit(waits.claim));
            if let Content::Lock(lock) = keys.open(key).content() {
                if lock.admission(waits.owner, &claim) == Ok(Admission::AlreadyHeld) {
                    continue;
                }
                match lock.blockers(waits.owner, &claim, now.timestamp()) {
                    Blockers::Each(holders) => {
                        edges.extend(holders.map(|holder| (waits.owner, vec![holder.as_bytes().to_vec()])));
                    }
                    Blockers::Together(holders) => {
                        let holders: Vec<_> = holders.map(|holder| holder.as_bytes().to_vec()).collect();
                        edges.extend((!holders.is_empty()).then_some((waits.owner, holders)));
                    }
                }
            }
            for ahead in all.iter().filter(|ahead| ahead.place < waits.place && ahead.names.contains(name)) {
                let both_read = waits.claim.is_read() && ahead.claim.is_read();
                let stands_before = |other: &Waits| {
                    other.owner == waits.owner
                        && other.place < ahead.place
                        && other.names.iter().any(|name| ahead.names.contains(name))
                };
                let holds = |name: &&[u8]| keys.is_held_by(KeyRef { db: 0, name }, waits.owner);
                let passes = ahead.names.len() > 1 && (ahead.names.iter().any(holds) || all.iter().any(stands_before));
                if ahead.owner != waits.owner && !both_read && !passes {
                    edges.push((waits.owner, vec![ahead.owner.to_vec()]));
                }
            }
        }
    }
    let mut stuck = vec![new.owner().to_vec()];
    loop {
        let before = stuck.len();
        for (waiter, blockers) in &edges {
            if !blockers.iter().all(|blocker| stuck.contains(blocker)) {
                continue;
            }
            if *waiter == new.owner() {
                return true;
            }
            if !stuck.iter().any(|other| other == waiter) {
                stuck.push(waiter.to_vec());
            }
        }
        if stuck.len() == before {
            return false;
        }
    }
}
