//! The cycle that the error message names.

use std::rc::Rc;

use super::wait_for_graph::{KeyIndex, OwnerIndex, RequestIndex, WaitForGraph, WaitedFor, NEW};
use crate::host::Keys;
use crate::value::claim::Share;
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
    /// Follows the stuck owners, beginning with the new one, until an owner repeats. Where every key has one holder,
    /// that is the new owner.
    pub fn cycle(&self) -> Vec<Edge> {
        let mut followed: Vec<Option<usize>> = vec![None; self.owners.len()];
        let (mut edges, mut owner) = (Vec::new(), NEW);
        while followed[owner].is_none() {
            let Some((key, blocker)) = self.wait_of(owner) else { break };
            followed[owner] = Some(edges.len());
            edges.push(self.edge(owner, key));
            owner = blocker;
        }
        edges.split_off(followed[owner].unwrap_or_default())
    }

    /// A key that a stuck owner waits for, and an owner that blocks it there; the owner itself only if no other blocks
    /// it.
    fn wait_of(&self, owner: OwnerIndex) -> Option<(KeyIndex, OwnerIndex)> {
        let stuck = self.stuck_requests(owner);
        let blockers = |&(key, request): &(_, _)| self.blockers(request, key).map(move |blocker| (key, blocker));
        let waits = || stuck.iter().flat_map(blockers);
        waits().find(|(_, blocker)| *blocker != owner).or_else(|| waits().next())
    }

    /// The requests of an owner that must be served, by key. A request that an earlier one of the owner covers is
    /// omitted: it is granted together with the earlier one, so it does not wait for the requests between the two.
    fn stuck_requests(&self, owner: OwnerIndex) -> Vec<(KeyIndex, RequestIndex)> {
        let own = self.own.range((owner, 0, 0)..(owner + 1, 0, 0)).map(|(_, key, request)| (*key, *request));
        let mut stuck: Vec<_> = own.filter(|(_, request)| self.requests[*request].must_be_served()).collect();
        stuck.sort_by_key(|(key, request)| (*key, &self.requests[*request].position));
        let mut at: Option<(KeyIndex, Share)> = None;
        stuck.retain(|(key, request)| {
            let claim = &self.requests[*request].claim;
            let share =
                at.filter(|(other, _)| other == key).map_or_else(|| self.share(*key, owner), |(_, share)| share);
            let is_covered = share.covers(claim);
            at = Some((*key, share.with(claim)));
            !is_covered
        });
        stuck
    }

    /// The owners that block a request on a key: the holders, and the owners of the requests ahead.
    fn blockers(&self, request: RequestIndex, key: KeyIndex) -> impl Iterator<Item = OwnerIndex> + use<'_, 'a, 'k, K> {
        let request = &self.requests[request];
        let (key, share, is_read) = (&self.keys[key], self.share(key, request.owner), request.claim.is_read());
        let is_covered = share.covers(&request.claim);
        let is_admitted = is_covered || key.admits(share, &request.claim);
        let holders = key.shares.iter().filter(move |(_, share)| !is_admitted && (!is_read || share.holds > 0));
        let ahead = key.waiting.range(..&request.position).map(|(_, ahead)| &self.requests[*ahead]);
        let ahead =
            ahead.filter(move |ahead| ahead.must_be_served() && !is_covered && !(is_read && ahead.claim.is_read()));
        holders.map(|(owner, _)| *owner).chain(ahead.map(|ahead| ahead.owner))
    }

    fn edge(&self, owner: OwnerIndex, key: KeyIndex) -> Edge {
        let known = self.owners[owner].id.and_then(|id| self.queues.of_owner(Some(id)).name()).cloned();
        let WaitedFor { name, queue, .. } = &self.keys[key];
        let key = queue.map_or_else(|| (*name).into(), |(_, queue)| queue.key.name.clone());
        Edge { owner: known.unwrap_or_else(|| self.new.request.owner.to_owner()), key }
    }
}
