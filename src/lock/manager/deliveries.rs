//! Grants on their way to their clients. A grant that nobody received is taken back, unless its owner was told of it
//! meanwhile.

use crate::id_map::IdMap;
use crate::key::{Key, RequestId};
use crate::shrink;
use crate::value::claim::Claim;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;

/// A grant on its way to a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who was granted.
    pub owner: Owner,
    /// What.
    pub claim: Claim,
    /// On which keys.
    pub grants: Vec<(Key, Grant)>,
}

impl Delivery {
    fn is_for(&self, db: i32, names: &[&[u8]], owner: &[u8]) -> bool {
        self.owner.as_bytes() == owner && self.grants.iter().any(|(key, _)| key.db == db && names.contains(&&*key.name))
    }
}

/// All grants of which it is not known whether they were received, and those of which it is known that they were not.
#[derive(Debug, Default)]
pub struct Deliveries {
    in_flight: IdMap<RequestId, Delivery>,
    lost: Vec<Delivery>,
}

impl Deliveries {
    /// The client of the request is going to be told.
    pub fn sent(&mut self, request: RequestId, delivery: Delivery) {
        self.in_flight.insert(request, delivery);
    }

    /// It was told.
    pub fn delivered(&mut self, request: RequestId) {
        self.in_flight.remove(&request);
        shrink::map(&mut self.in_flight);
    }

    /// It has gone without being told: the grant is to be taken back.
    pub fn undelivered(&mut self, request: RequestId) {
        self.lost.extend(self.in_flight.remove(&request));
        shrink::map(&mut self.in_flight);
    }

    /// To be tried again later.
    pub fn put_back(&mut self, delivery: Delivery) {
        self.lost.push(delivery);
    }

    /// The owner was told by another reply that it holds the keys: whatever became of the earlier grant, it was heard.
    pub fn confirm(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        if !self.in_flight.is_empty() || !self.lost.is_empty() {
            self.in_flight.retain(|_, delivery| !delivery.is_for(db, names, owner));
            self.lost.retain(|delivery| !delivery.is_for(db, names, owner));
        }
    }

    /// Whether a grant is to be taken back.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Those that are to be taken back.
    pub fn take_lost(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.lost)
    }

    /// Nothing is on its way any more: this server is no primary.
    pub fn clear(&mut self) {
        self.in_flight.clear();
        self.lost.clear();
    }
}
