//! Cycles of owners that wait for each other. The server refuses a request that would close one, so a cycle only arises
//! in other ways: through RENAME, a lowered LIMIT, or across nodes of a cluster, which do not see each other's locks.
//! It ends when a lease expires, or with LOCK.BREAK.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::model::{Graph, LockId, Owner};
use crate::text::Text;

/// The owner of each step waits for its lock, which the owner of the next step holds. The last step is followed by the
/// first.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Cycle(pub Vec<Step>);

#[derive(Serialize)]
pub struct Step {
    pub owner: Text,
    pub server: String,
    pub db: u64,
    pub key: Text,
    #[serde(skip)]
    pub lock: LockId,
    /// The fencing token of the next owner's hold, and how long this owner has waited. They identify the hold and the
    /// wait.
    #[serde(skip)]
    pub fence: u64,
    #[serde(skip)]
    pub waited: u64,
    /// The remaining time of that hold's lease.
    #[serde(skip)]
    pub ttl: i64,
}

/// The cycles among the shown locks. Each owner is in at most one of them, which limits a large knot to a few cycles.
pub fn cycles(graph: &Graph) -> Vec<Cycle> {
    let between = graph.owners_in_between();
    let edges = |owner: &Owner| -> Vec<(LockId, Owner)> {
        let locks = between.get(owner).into_iter().flat_map(|locks| locks.iter());
        let holders = |id: &LockId| {
            let id = *id;
            graph.lock(id).holders().map(move |(_, holder)| (id, holder))
        };
        let shown = locks.filter(|id| graph.is_shown(**id));
        shown.flat_map(holders).filter(|(_, holder)| holder != owner && between.contains_key(holder)).collect()
    };
    let mut owners: Vec<&Owner> = between.keys().copied().collect();
    owners.sort_by(|a, b| (a.db, &a.owner).cmp(&(b.db, &b.owner)));
    let (mut visited, mut reported, mut cycles) = (HashSet::new(), HashSet::new(), Vec::new());
    for start in owners {
        if !visited.insert(start.clone()) {
            continue;
        }
        // The path from `start`: each owner, its edges still to follow, and the lock of the edge that led to it.
        let mut path = vec![(start.clone(), edges(start), None)];
        let mut position = HashMap::from([(start.clone(), 0)]);
        while let Some((owner, open, taken)) = path.last_mut() {
            let Some((lock, next)) = open.pop() else {
                position.remove(owner);
                path.pop();
                continue;
            };
            *taken = Some(lock);
            if let Some(first) = position.get(&next) {
                let steps = &path[*first..];
                if steps.iter().all(|(owner, ..)| !reported.contains(owner)) {
                    reported.extend(steps.iter().map(|(owner, ..)| owner.clone()));
                    let locks: Vec<(Owner, LockId)> =
                        steps.iter().filter_map(|(owner, _, lock)| Some((owner.clone(), (*lock)?))).collect();
                    cycles.push(Cycle::of(graph, &locks));
                }
            } else if visited.insert(next.clone()) {
                position.insert(next.clone(), path.len());
                let open = edges(&next);
                path.push((next, open, None));
            }
        }
    }
    cycles
}

impl Cycle {
    fn of(graph: &Graph, path: &[(Owner, LockId)]) -> Cycle {
        let next = path.iter().cycle().skip(1);
        let step = |((owner, id), (holder, _)): (&(Owner, LockId), &(Owner, LockId))| {
            let lock = graph.lock(*id);
            let waiter = lock.waiters().find(|(_, waiter)| waiter == owner).map(|(waiter, _)| waiter);
            let hold = lock.holders().find(|(_, other)| other == holder).map(|(hold, _)| hold);
            Step {
                owner: owner.owner.clone(),
                server: lock.server.clone(),
                db: lock.db,
                key: lock.info.key.clone(),
                lock: *id,
                fence: hold.map_or(0, |hold| hold.fence),
                waited: waiter.map_or(0, |waiter| waiter.waited),
                ttl: hold.map_or(-1, |hold| hold.ttl),
            }
        };
        Cycle(path.iter().zip(next).map(step).collect())
    }

    /// Each step, and the owner of the next step.
    pub fn steps(&self) -> impl Iterator<Item = (&Step, &Text)> {
        self.0.iter().zip(self.0.iter().cycle().skip(1).map(|next| &next.owner))
    }

    /// The remaining time of the lease that expires first; None if none of them expires.
    pub fn first_end(&self) -> Option<u64> {
        self.0.iter().filter_map(|step| u64::try_from(step.ttl).ok()).min()
    }
}
