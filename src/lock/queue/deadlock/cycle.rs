//! The cycle that an error names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::wait_for_graph::{KeyIndex, OwnerIndex, Request, WaitForGraph, WaitedFor, NEW};
use crate::host::Keys;
use crate::queue::request::Place;
use crate::value::owner::Owner;

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The owner that waits.
    pub owner: Owner,
    /// The key that it waits for.
    pub key: Rc<[u8]>,
}

impl<'a, 'k, K: Keys> WaitForGraph<'a, 'k, K> {
    /// The shortest cycle of stuck owners from the new owner back to it. If there is none, its LIMIT makes others
    /// stuck, and the cycle is theirs.
    pub fn cycle(&self) -> Vec<Edge> {
        let mut waits: Vec<Vec<&Request>> = vec![Vec::new(); self.owners.len()];
        for request in self.requests.iter().filter(|request| !request.is_served) {
            waits[request.owner].push(request);
        }
        // An owner that asks for more permits than its own leave blocks itself.
        let shortest = |owner| {
            let of = |itself| self.shortest_cycle(&waits, owner, itself);
            of(false).or_else(|| of(true))
        };
        shortest(NEW).or_else(|| shortest(self.one_on_a_cycle(&waits))).unwrap_or_default()
    }

    /// From the new owner on, a blocker of each owner, until one comes up again.
    fn one_on_a_cycle(&self, waits: &[Vec<&Request>]) -> OwnerIndex {
        let (mut seen, mut owner) = (BTreeSet::new(), NEW);
        while seen.insert(owner) {
            let asked = waits[owner].iter().flat_map(|request| request.keys.iter().map(move |key| (*request, *key)));
            let mut blockers = asked.flat_map(|(request, key)| self.blockers(request, key, Place::FIRST));
            owner = blockers.find(|blocker| *blocker != owner).unwrap_or(owner);
        }
        owner
    }

    fn shortest_cycle(&self, waits: &[Vec<&Request>], from: OwnerIndex, through_itself: bool) -> Option<Vec<Edge>> {
        // By owner: another one that waits for it, and on which key.
        let mut found: Vec<Option<(OwnerIndex, KeyIndex)>> = vec![None; self.owners.len()];
        // What blocks the first owner may wait for it on the same key: its own requests are visited apart.
        let mut visited: BTreeMap<(KeyIndex, bool, bool), Place> = BTreeMap::new();
        let mut to_visit = VecDeque::from([from]);
        while let Some(owner) = to_visit.pop_front().filter(|_| found[from].is_none()) {
            for (request, key) in waits[owner].iter().flat_map(|it| it.keys.iter().map(|key| (*it, *key))) {
                let visited = visited.entry((key, request.claim.is_read(), owner == from)).or_insert(Place::FIRST);
                let blockers = self.blockers(request, key, *visited);
                for blocker in blockers.filter(|blocker| through_itself || *blocker != owner) {
                    found[blocker].get_or_insert_with(|| {
                        to_visit.push_back(blocker);
                        (owner, key)
                    });
                }
                *visited = request.place.max(*visited);
            }
        }
        let mut edges = Vec::new();
        let mut next = found[from];
        while let Some((waiter, key)) = next {
            edges.push(self.edge(waiter, key));
            next = found[waiter].filter(|_| waiter != from);
        }
        edges.reverse();
        Some(edges).filter(|edges| !edges.is_empty())
    }

    /// The owners that block a request on a key, from this place on: the holders, and the owners of the requests ahead.
    /// Requests for several keys are left out: an owner that they wait for passes them.
    fn blockers<'r>(
        &'r self,
        request: &'r Request,
        key: KeyIndex,
        from: Place,
    ) -> impl Iterator<Item = OwnerIndex> + use<'r, 'a, 'k, K> {
        let WaitedFor { shares, waiting, .. } = &self.keys[key];
        let is_read = request.claim.is_read();
        let holders = shares.iter().filter(move |(_, share)| from == Place::FIRST && (!is_read || share.holds > 0));
        let ahead = waiting.range(from..request.place.max(from)).map(|(_, ahead)| &self.requests[*ahead]);
        let ahead = ahead.filter(move |ahead| ahead.keys.len() == 1 && !(is_read && ahead.claim.is_read()));
        holders.map(|(owner, _)| *owner).chain(ahead.map(|ahead| ahead.owner))
    }

    fn edge(&self, owner: OwnerIndex, key: KeyIndex) -> Edge {
        let known = self.owners[owner].id.and_then(|id| self.queues.owner(id)).cloned();
        let WaitedFor { name, queue, .. } = &self.keys[key];
        let key = queue.map_or_else(|| (*name).into(), |(_, queue)| queue.key.name.clone());
        Edge { owner: known.unwrap_or_else(|| self.question.new.request.owner.to_owner()), key }
    }
}
