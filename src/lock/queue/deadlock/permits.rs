//! How far a semaphore is served, as long as its permits are within LIMIT.

use super::nodes::{KeyId, NodeId, NEW};
use super::wait_for_graph::{KeyState, Permits, Standing, WaitForGraph};
use crate::host::Keys;
use crate::queue::request::Place;

impl<'a, K: Keys> WaitForGraph<'a, '_, K> {
    /// The node waits until the request at this place of a semaphore is served.
    pub fn wait_for_permits(&mut self, node: NodeId, place: Place, key: KeyId) {
        let KeyState { permits, holders, limit, .. } = &mut self.states[key];
        if permits.is_none() {
            let mut here = Permits { excess: -i64::from(*limit), ..Permits::default() };
            for (holder, share) in holders {
                if !self.nodes.is_free(*holder) {
                    here.excess += i64::from(share.holds);
                    here.taken.insert(*holder, *share);
                    self.nodes.all[*holder].semaphores.push(key);
                }
            }
            *permits = Some(here);
            self.serve(key);
        }
        let Some(permits) = &mut self.states[key].permits else { return };
        if permits.served < Some(place) {
            permits.waiting.insert(place, node);
            self.nodes.all[node].needs += 1;
        }
    }

    /// Serves requests of a semaphore, as far as LIMIT allows.
    pub fn serve(&mut self, key: KeyId) {
        loop {
            let Some(permits) = &mut self.states[key].permits else { return };
            if let Some((place, of_unknown)) = permits.next {
                if permits.excess > 0 {
                    return;
                }
                // Its owner waits for nothing else, so it releases them at once.
                permits.excess -= i64::from(of_unknown);
                (permits.served, permits.next) = (Some(place), None);
                if let Some(node) = permits.waiting.remove(&place) {
                    self.nodes.reduce_needs(node);
                }
            }
            let served = permits.served;
            let Some(next) = self.standing(key, served).next() else { return };
            self.take_up(key, &next);
        }
    }

    /// Counts the permits that the next request asks for.
    fn take_up(&mut self, key: KeyId, next: &Standing<'a>) {
        let gets_error = next.queued.is_some() && (self.states[key].is_another || self.never_fits(key, next));
        let known = match next.queued {
            _ if gets_error => None,
            None => Some(NEW),
            Some((_, queued)) if Some(queued.owner_id) == self.nodes.new_id => Some(NEW),
            Some((_, queued)) if queued.may_wait_elsewhere => self.nodes.reach(queued.owner_id),
            Some((_, queued)) => self.nodes.by_owner.get(&queued.owner_id).copied(),
        };
        let is_unknown = next.queued.is_some_and(|(_, queued)| {
            !gets_error
                && known.is_none()
                && !queued.may_wait_elsewhere
                && !self.question.free.contains(&queued.owner_id)
        });
        let of_unknown = if is_unknown { next.claim.count().number() } else { 0 };
        let Some(permits) = &mut self.states[key].permits else { return };
        permits.excess += i64::from(of_unknown);
        if let Some(node) = known.filter(|node| !self.nodes.is_free(*node)) {
            let taken = permits.taken.get(&node).copied();
            let share = taken.unwrap_or_default();
            let after = share.with(&next.claim);
            permits.excess += i64::from(after.holds - share.holds);
            permits.taken.insert(node, after);
            if taken.is_none() {
                self.nodes.all[node].semaphores.push(key);
            }
        }
        permits.next = Some((next.place, of_unknown));
    }
}
