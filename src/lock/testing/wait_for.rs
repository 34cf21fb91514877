//! The model's deadlock search: applies the sentence of the contract to a copy of the model.

use super::contract::*;
use super::model::{Model, Request};

impl Model {
    /// The contract's rule: every owner that waits for nothing gives back all that it holds; so does every owner that
    /// is served by that, and so on. A request that would still wait gets DEADLOCK: here the one at `new` in
    /// `requests`, the queue with it. So does a request ahead of others, if another request of its owner would still
    /// wait.
    pub(super) fn would_deadlock(&self, requests: &[Request], new: usize) -> bool {
        let Acquire { number, owner, keys, claim, .. } = &requests[new].asked;
        // "An adopted wait, being bounded, is no edge of the deadlock search": it ends by itself.
        if matches!(claim, Claim::Adopted { .. }) {
            return false;
        }
        let is_ahead = requests[new + 1..].iter().any(|behind| keys.iter().any(|key| behind.waits_for(key)));
        let mut with = self.with_requests(requests.iter());
        // Only a new LIMIT refuses waiters at once. One that RENAME has made too large gets its error at the head.
        if let Some(limit) = claim.limit().filter(|limit| *limit != self.limit(keys[0])) {
            with.set_limit(keys[0], limit);
            with.turned_out.clear();
            with.turn_out(keys[0], limit, &requests[new]);
        }
        with.drain(Some(*number));
        with.requests.iter().any(|left| left.asked.number == *number || is_ahead && left.asked.owner == *owner)
    }

    /// The requests that would wait for ever.
    pub fn endless_waits(&self) -> Vec<Request> {
        let mut all = self.with_requests(self.requests.iter());
        all.drain(None);
        all.requests
    }

    /// Whether an owner has several requests, kept places included: "one owner is one line of execution".
    pub fn has_parallel_waits(&self) -> bool {
        let owners: Vec<_> = self.requests.iter().map(|request| request.asked.owner).collect();
        (1..owners.len()).any(|index| owners[..index].contains(&owners[index]))
    }

    fn with_requests<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> Model {
        let ends = |request: &Request| matches!(request.asked.claim, Claim::Adopted { .. });
        let waiting = requests.filter(|request| request.away.is_none() && !ends(request));
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
            if let Some(index) = self.next_to_be_served() {
                let Request { asked, .. } = self.requests.remove(index);
                self.grant(&asked, self.limit(asked.keys[0]));
            } else {
                return;
            }
        }
    }
}
