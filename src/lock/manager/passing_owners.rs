//! Owners that pass requests for several keys, because these requests wait for them (see [`crate::queue::precedence`]).
//! Tried only if nothing else moves, so that a request that need not pass any is served first.

use std::collections::BTreeSet;

use super::lock_manager::LockManager;
use super::try_grant::Order;
use crate::host::{Clients, Gate, Host, Keys};
use crate::key::RequestId;
use crate::queue::precedence::{requests_waited_for, Reach};
use crate::queue::request::Place;

/// The requests to be tried, ordered by place.
#[derive(Clone, Debug, Default)]
pub(super) struct PassingOwners {
    /// Requests that have to wait: the requests that they wait for may pass.
    stuck: BTreeSet<(Place, RequestId)>,
    /// Requests that may pass; [`Reach::Holders`] is tried first.
    passing: BTreeSet<(Reach, Place, RequestId)>,
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

impl LockManager {
    /// The request has to wait, or may wait for other owners than before: the requests that it waits for are to be
    /// tried.
    pub(super) fn note_stuck(&mut self, id: RequestId) {
        if let Some(queued) = self.queues.request(id).filter(|_| self.queues.has_requests_for_several()) {
            self.passing_owners.stuck.insert((queued.place, id));
        }
    }

    /// Tries the next request that may pass others. `None`: there is none. Otherwise the state of the gate.
    pub(super) fn let_an_owner_pass<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        if !self.queues.may_any_pass() {
            self.passing_owners.clear();
            return None;
        }
        if let Some((_, id)) = self.passing_owners.stuck.pop_first() {
            let passing = requests_waited_for(&self.queues, &mut self.holders(&mut host.keys, host.now), id);
            for reach in [Reach::Holders, Reach::Everything] {
                self.passing_owners.passing.extend(passing.iter().map(|(place, id)| (reach, *place, *id)));
            }
            return Some(Gate::Open);
        }
        let (reach, place, id) = self.passing_owners.passing.pop_first()?;
        let gate = self.try_request(host, id, Order::MayPass(reach));
        if gate == Gate::Closed {
            self.passing_owners.passing.insert((reach, place, id));
        }
        Some(gate)
    }
}
