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
pub struct GrantInFlight {
    /// Who was granted.
    pub owner: Owner,
    /// What.
    pub claim: Claim,
    /// On which keys.
    pub grants: Vec<(Key, Grant)>,
}

impl GrantInFlight {
    fn is_for(&self, db: i32, names: &[&[u8]], owner: &[u8]) -> bool {
        self.owner.as_bytes() == owner && self.grants.iter().any(|(key, _)| key.db == db && names.contains(&&*key.name))
    }
}

/// All grants of which it is not known whether they were received, and those of which it is known that they were not.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    in_flight: IdMap<RequestId, GrantInFlight>,
    lost: Vec<GrantInFlight>,
}

impl Deliveries {
    /// The client of the request is going to be told.
    pub fn sent(&mut self, request: RequestId, delivery: GrantInFlight) {
        self.in_flight.insert(request, delivery);
    }

    /// It was told, and was still there when that turn of the server was over.
    pub fn delivered(&mut self, request: RequestId) {
        self.in_flight.remove(&request);
        shrink::map(&mut self.in_flight);
    }

    /// It has gone before that: the grant is to be taken back.
    pub fn undelivered(&mut self, request: RequestId) {
        self.lost.extend(self.in_flight.remove(&request));
        shrink::map(&mut self.in_flight);
    }

    /// To be taken back by the next drain.
    pub fn put_back(&mut self, delivery: GrantInFlight) {
        self.lost.push(delivery);
    }

    /// The owner was told by another reply that it holds the keys: whatever became of the earlier grant, it was
    /// received.
    pub fn confirm(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        if !self.is_empty() {
            self.in_flight.retain(|_, delivery| !delivery.is_for(db, names, owner));
            self.lost.retain(|delivery| !delivery.is_for(db, names, owner));
        }
    }

    /// Whether there is any of either kind.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.lost.is_empty()
    }

    /// Whether a grant is to be taken back.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Those that are to be taken back.
    pub fn take_lost(&mut self) -> Vec<GrantInFlight> {
        std::mem::take(&mut self.lost)
    }

    /// Nothing is on its way any more: this server is no primary.
    pub fn clear(&mut self) {
        self.in_flight.clear();
        self.lost.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::fence::Fence;

    /// A grant of the keys of database 0 to the owner, one letter each.
    fn delivery(owner: &str, keys: &str) -> GrantInFlight {
        let grant = Grant { fence: Fence::new(1).unwrap(), holds_before: 0, holds: 1 };
        let grants = keys.bytes().map(|name| (Key::new(0, &[name]), grant)).collect();
        GrantInFlight { owner: Owner::new(owner.as_bytes()).unwrap(), claim: Claim::Mutex, grants }
    }

    fn lost(deliveries: &mut Deliveries) -> Vec<String> {
        deliveries.take_lost().iter().map(|delivery| format!("{:?}", delivery.owner)).collect()
    }

    #[test]
    fn only_grants_that_nobody_received_are_taken_back() {
        let mut deliveries = Deliveries::default();
        for (number, owner) in [(1, "a"), (2, "b"), (3, "c")] {
            deliveries.sent(RequestId(number), delivery(owner, "k"));
        }
        assert!(!deliveries.has_lost());
        deliveries.delivered(RequestId(1));
        deliveries.undelivered(RequestId(1));
        deliveries.undelivered(RequestId(2));
        deliveries.undelivered(RequestId(2));
        assert!(deliveries.has_lost());
        assert_eq!(lost(&mut deliveries), ["b"], "once, and no other");
        assert!(!deliveries.has_lost());
        deliveries.put_back(delivery("b", "k"));
        assert_eq!(lost(&mut deliveries), ["b"], "to be tried again");
        assert!(!deliveries.is_empty(), "c is on its way");
        deliveries.delivered(RequestId(3));
        assert!(deliveries.is_empty());
    }

    #[test]
    fn another_reply_to_the_owner_about_one_of_the_keys_confirms_a_grant() {
        let rows: [(i32, &[&[u8]], &str, bool); 6] = [
            (0, &[b"k"], "a", true),
            (0, &[b"m", b"l"], "a", true),
            (0, &[b"m"], "a", false),
            (1, &[b"k"], "a", false),
            (0, &[b"k"], "b", false),
            (0, &[], "a", false),
        ];
        for (db, names, owner, is_confirmed) in rows {
            let mut deliveries = Deliveries::default();
            deliveries.sent(RequestId(1), delivery("a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            deliveries.undelivered(RequestId(1));
            assert_eq!(deliveries.has_lost(), !is_confirmed, "on its way: {db} {names:?} {owner}");
            deliveries.clear();
            deliveries.put_back(delivery("a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            assert_eq!(deliveries.has_lost(), !is_confirmed, "lost: {db} {names:?} {owner}");
        }
    }

    #[test]
    fn nothing_is_left_when_the_server_is_no_primary() {
        let mut deliveries = Deliveries::default();
        deliveries.sent(RequestId(1), delivery("a", "k"));
        deliveries.put_back(delivery("b", "k"));
        deliveries.clear();
        deliveries.undelivered(RequestId(1));
        assert!(!deliveries.has_lost());
    }
}
