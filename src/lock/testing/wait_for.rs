//! The model's deadlock detection: applies the sentence of the contract to a copy of the model.

use super::contract::*;
use super::model::{Model, Request};

impl Model {
    /// The contract's rule: every owner that does not wait releases all that it holds, so does every owner that is
    /// served by that, and so on. A request that would still wait gets DEADLOCK: here the one at `new` in `requests`,
    /// which is the queue that includes it. So does a request ahead of others, if another request of its owner would
    /// still wait.
    pub(super) fn would_deadlock(&self, requests: &[Request], new: usize) -> bool {
        let Acquire { number, owner, keys, claim, .. } = &requests[new].asked;
        let is_ahead = requests[new + 1..].iter().any(|behind| keys.iter().any(|key| behind.waits_for(key)));
        let mut with = self.with_requests(requests.iter());
        // Only a new LIMIT refuses waiters at once. A request that RENAME has made too large gets its error at the
        // head.
        if let Some(limit) = claim.limit().filter(|limit| *limit != self.limit(keys[0])) {
            with.set_limit(keys[0], limit);
            with.over_limit.clear();
            with.refuse_over_limit(keys[0], limit, &requests[new]);
        }
        let mut left = with.left_waiting(Some(*number)).into_iter();
        left.any(|left| left.asked.number == *number || is_ahead && left.asked.owner == *owner)
    }

    /// The requests that are deadlocked.
    pub fn endless_waits(&self) -> Vec<Request> {
        self.with_requests(self.requests.iter()).left_waiting(None)
    }

    /// Whether an owner has several requests, including reserved positions. In normal use an owner is one thread or
    /// task.
    pub fn has_parallel_waits(&self) -> bool {
        let owners: Vec<_> = self.requests.iter().map(|request| request.asked.owner).collect();
        (1..owners.len()).any(|index| owners[..index].contains(&owners[index]))
    }

    fn with_requests<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> Model {
        let waiting = requests.filter(|request| request.detached.is_none());
        Model { requests: waiting.cloned().collect(), grace: None, ..self.clone() }
    }

    /// Waiters that can never fit it, counting what their owner already holds, get an error.
    fn refuse_over_limit(&mut self, key: Name, limit: u32, new: &Request) {
        let held = |owner: Name| self.value(key).and_then(|value| value.holder(owner)).map_or(0, |holder| holder.holds);
        let wanted = |request: &Request| match request.asked.claim.holds() {
            Holds::By(more) => held(request.asked.owner) + more,
            Holds::Exactly(exactly) => exactly,
        };
        let fits = |request: &Request| request == new || !request.waits_for(key) || wanted(request) <= limit;
        let staying: Vec<_> = self.requests.iter().filter(|request| fits(request)).cloned().collect();
        self.requests = staying;
    }

    /// The requests that still wait after all others have released. An adopted wait is bounded, so waiting for it or in
    /// it is not an edge in deadlock detection; but what its owner will hold after the grant counts. If its owner also
    /// has a native request for the key, the grant serves that one as well; then neither its grant nor its timeout may
    /// leave a deadlock.
    fn left_waiting(self, new: Option<u64>) -> Vec<Request> {
        let is_doubled_by = |adopted: &Request, other: &Request| {
            let is_of_same_owner = adopted.asked.owner == other.asked.owner;
            is_of_same_owner && other.must_be_served() && other.waits_for(adopted.asked.keys[0])
        };
        let mut without_doubled = self.clone();
        without_doubled.requests.retain(|request| {
            request.must_be_served() || !self.requests.iter().any(|other| is_doubled_by(request, other))
        });
        let outcomes = [without_doubled, self].into_iter().flat_map(|mut model| {
            model.drain(new);
            model.requests
        });
        outcomes.filter(Request::must_be_served).collect()
    }

    /// Repeats releases and grants until nothing changes.
    fn drain(&mut self, new: Option<u64>) {
        loop {
            if let Some((index, _)) = self.first_impossible(new) {
                self.requests.remove(index);
                continue;
            }
            let must_be_served = self.requests.iter().filter(|request| request.must_be_served());
            let waiting: Vec<Name> = must_be_served.map(|request| request.asked.owner).collect();
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

impl Request {
    fn must_be_served(&self) -> bool {
        !matches!(self.asked.claim, Claim::Adopted { .. })
    }
}
