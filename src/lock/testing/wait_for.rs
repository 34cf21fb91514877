//! The model's deadlock search: applies the sentence of the contract to a copy of the model.

use super::contract::*;
use super::model::{Model, Request};

impl Model {
    /// "Imagine that every owner that waits for nothing gave back all that it holds, and then those that were served by
    /// that, and so on. A request that would still wait then, because of its own waiting": the one at `new`, `requests`
    /// being the queue with it.
    ///
    /// Owners that would be stuck even without the new request are assumed to have given up.
    pub(super) fn would_deadlock(&self, requests: &[Request], new: usize) -> bool {
        let Acquire { owner, keys, claim, .. } = &requests[new].asked;
        let mut without = self.with_requests(requests.iter().enumerate().filter(|(place, _)| *place != new));
        without.drain(None);
        let is_stuck = |owner: Word| without.requests.iter().any(|request| request.asked.owner == owner);
        if is_stuck(owner) {
            return false;
        }
        let mut with = self.with_requests(requests.iter().enumerate());
        // Only a new LIMIT refuses waiters at once. One that RENAME has made too large gets its error at the head.
        if let Some(limit) = claim.limit().filter(|limit| *limit != self.limit(keys[0])) {
            with.set_limit(keys[0], limit);
            with.turned_out.clear();
            with.turn_out(keys[0], limit, &requests[new]);
        }
        with.requests.retain(|request| !is_stuck(request.asked.owner));
        with.drain(Some(requests[new].asked.number));
        with.requests.iter().any(|request| request.asked.owner == *owner)
    }

    /// Whether an owner waits with several requests, or would with this one, while requests for several keys wait: "one
    /// owner is one line of execution", and the contract leaves open whether such a request closes a deadlock.
    pub fn has_parallel_waits(&self, asked: &Acquire) -> bool {
        let present = self.requests.iter().filter(|request| request.away.is_none()).map(|request| &request.asked);
        let waits: Vec<_> = present.filter(|waits| waits.number != asked.number).chain([asked]).collect();
        let is_one_of_several = |one: &Acquire| waits.iter().filter(|other| other.owner == one.owner).count() > 1;
        waits.iter().any(|one| one.keys.len() > 1) && waits.iter().any(|one| is_one_of_several(one))
    }

    fn with_requests<'a>(&self, requests: impl Iterator<Item = (usize, &'a Request)>) -> Model {
        let waiting = requests.map(|(_, request)| request).filter(|request| request.away.is_none());
        Model { requests: waiting.cloned().collect(), grace: None, ..self.clone() }
    }

    /// "Waiters that can never fit it (what their owner holds already counts) get an error."
    fn turn_out(&mut self, key: Word, limit: u32, new: &Request) {
        let held = |owner: Word| self.value(key).and_then(|value| value.holder(owner)).map_or(0, |holder| holder.holds);
        let wanted = |request: &Request| match request.asked.claim.holds() {
            Holds::By(more) => held(request.asked.owner) + more,
            Holds::Exactly(exactly) => exactly,
        };
        let fits = |request: &Request| request == new || !request.waits_for(key) || wanted(request) <= limit;
        let staying: Vec<_> = self.requests.iter().filter(|request| fits(request)).cloned().collect();
        self.requests = staying;
    }

    /// Repeats releases and grants until nothing changes.
    fn drain(&mut self, new: Option<u64>) {
        loop {
            if let Some((index, _)) = self.first_impossible(new) {
                self.requests.remove(index);
                continue;
            }
            let waiting: Vec<Word> = self.requests.iter().map(|request| request.asked.owner).collect();
            self.take_out(|holder| !waiting.contains(&holder.owner));
            if let Some(index) = self.next_to_be_imagined() {
                let Request { asked, .. } = self.requests.remove(index);
                self.grant(&asked, self.limit(asked.keys[0]));
            } else {
                return;
            }
        }
    }
}
