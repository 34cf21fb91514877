//! Owners that pass requests for several keys, because these requests wait for them (see [`crate::queue::precedence`]).
//! Tried only if nothing else moves, so that a request that need not pass any is served first.

use std::collections::BTreeSet;

use crate::key::RequestId;
use crate::queue::precedence::Reach;
use crate::queue::request::Place;

/// The requests to be tried, ordered by place.
#[derive(Clone, Debug, Default)]
pub(super) struct PassingOwners {
    /// Requests that have to wait: the requests that they wait for may pass.
    pub stuck: BTreeSet<(Place, RequestId)>,
    /// Requests that may pass; [`Reach::Holders`] is tried first.
    pub passing: BTreeSet<(Reach, Place, RequestId)>,
}

impl PassingOwners {
    /// True if no request is to be tried.
    pub fn is_empty(&self) -> bool {
        self.stuck.is_empty() && self.passing.is_empty()
    }

    /// Drops all requests.
    pub fn clear(&mut self) {
        *self = PassingOwners::default();
    }

    /// Drops a request that has left its queues.
    pub fn remove(&mut self, place: Place, id: RequestId) {
        if !self.is_empty() {
            self.stuck.remove(&(place, id));
            self.passing.remove(&(Reach::Holders, place, id));
            self.passing.remove(&(Reach::Everything, place, id));
        }
    }
}
