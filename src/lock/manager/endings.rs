//! Requests that are to end, each in a turn of its own.

use std::collections::BTreeMap;

use crate::host::WaitOutcome;
use crate::key::RequestId;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its client gets this outcome.
    Told(WaitOutcome),
    /// Its client has disconnected, and may come back to the place.
    Left,
}

/// How a client stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its wait timed out or its connection ended: it may come back to its place.
    MayComeBack,
    /// Its place is not kept.
    ForGood,
}

/// The requests that end, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<RequestId, Ending>);

impl Endings {
    /// Records how the requests end. An outcome replaces `Left`: its reply reaches no client, and the request keeps no
    /// place.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = RequestId>, ending: Ending) {
        for id in ids {
            let known = self.0.entry(id).or_insert(ending);
            if *known == Ending::Left {
                *known = ending;
            }
        }
    }

    /// True if the request is to end.
    #[inline]
    pub fn contains(&self, id: RequestId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&id)
    }

    /// Takes the next request out.
    pub fn take_next(&mut self) -> Option<(RequestId, Ending)> {
        self.0.pop_first()
    }

    /// Takes the request out. `None`: it is not to end.
    pub fn take(&mut self, id: RequestId) -> Option<Ending> {
        self.0.remove(&id)
    }

    /// The request has left its queues.
    pub fn remove(&mut self, id: RequestId) {
        if !self.0.is_empty() {
            self.0.remove(&id);
        }
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_replaces_a_departure_and_no_other_outcome() {
        let (left, timed_out) = (Ending::Left, Ending::Told(WaitOutcome::TimedOut));
        let cancelled = Ending::Told(WaitOutcome::Cancelled);
        for (first, second, expected) in
            [(left, timed_out, timed_out), (timed_out, left, timed_out), (timed_out, cancelled, timed_out)]
        {
            let mut endings = Endings::default();
            endings.extend([RequestId(2)], first);
            endings.extend([RequestId(2)], second);
            assert_eq!(endings.take_next(), Some((RequestId(2), expected)));
        }
    }

    #[test]
    fn a_request_that_left_its_queues_ends_no_more() {
        let mut endings = Endings::default();
        endings.remove(RequestId(1));
        endings.extend([1, 2].map(RequestId), Ending::Left);
        endings.remove(RequestId(1));
        assert!(!endings.contains(RequestId(1)) && endings.contains(RequestId(2)) && !endings.is_empty());
    }
}
