//! Grants on their way to their clients. A grant that nobody received is taken back, unless its owner was told of it
//! meanwhile.

use std::collections::BTreeSet;

use crate::id_map::IdMap;
use crate::key::{Key, KeyRef, RequestId};
use crate::name_map::NameSecret;
use crate::one_or_many::OneOrMany;
use crate::shrink;
use crate::value::claim::Claim;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;

/// A grant on its way to a client.
#[derive(Clone, Debug)]
pub struct GrantInFlight {
    /// Of which request.
    pub request: RequestId,
    /// Who was granted.
    pub owner: Owner,
    /// What.
    pub claim: Claim,
    /// On which keys.
    pub grants: OneOrMany<(Key, Grant)>,
}

impl GrantInFlight {
    fn is_for(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        self.owner.as_bytes() == owner && self.grants.iter().any(|(granted, _)| granted.as_ref() == key)
    }
}

/// All grants of which it is not known whether they were received, and those of which it is known that they were not.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    all: IdMap<RequestId, GrantInFlight>,
    /// By the hash of each key and the owner: thousands are granted in one turn, and each may be confirmed.
    by_hold: BTreeSet<(u64, RequestId)>,
    secret: NameSecret,
    /// Those that nobody received.
    lost: BTreeSet<RequestId>,
}

impl Deliveries {
    /// The client of the request is going to be told.
    pub fn sent(&mut self, delivery: GrantInFlight) {
        let request = delivery.request;
        for (key, _) in &delivery.grants {
            self.by_hold.insert((self.secret.hash_hold(key.as_ref(), delivery.owner.as_bytes()).hold, request));
        }
        self.all.insert(request, delivery);
    }

    /// It was told, and was still there when that turn of the server was over.
    pub fn delivered(&mut self, request: RequestId) {
        if !self.lost.contains(&request) {
            self.take(request);
        }
    }

    /// It has gone before that: the grant is to be taken back.
    pub fn undelivered(&mut self, request: RequestId) {
        if self.all.contains_key(&request) {
            self.lost.insert(request);
        }
    }

    /// To be taken back by the next drain.
    pub fn put_back(&mut self, delivery: GrantInFlight) {
        self.lost.insert(delivery.request);
        self.sent(delivery);
    }

    /// The owner was told by another reply that it holds the keys: whatever became of the earlier grant, it was
    /// received.
    pub fn confirm(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        if self.is_empty() {
            return;
        }
        for name in names {
            let key = KeyRef { db, name };
            let hash = self.secret.hash_hold(key, owner).hold;
            let hashed = self.by_hold.range((hash, RequestId::FIRST)..=(hash, RequestId::LAST)).map(|(_, id)| *id);
            let is_for = |id: &RequestId| self.all.get(id).is_some_and(|delivery| delivery.is_for(key, owner));
            let confirmed: Vec<_> = hashed.filter(is_for).collect();
            for request in confirmed {
                self.take(request);
            }
        }
    }

    /// Whether there is any of either kind.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a grant is to be taken back.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Takes out one that is to be taken back.
    pub fn take_lost(&mut self) -> Option<GrantInFlight> {
        self.take(*self.lost.first()?)
    }

    /// Nothing is on its way any more: this server is no primary.
    pub fn clear(&mut self) {
        self.all.clear();
        self.by_hold.clear();
        self.lost.clear();
    }

    fn take(&mut self, request: RequestId) -> Option<GrantInFlight> {
        let delivery = self.all.remove(&request)?;
        shrink::map(&mut self.all);
        for (key, _) in &delivery.grants {
            self.by_hold.remove(&(self.secret.hash_hold(key.as_ref(), delivery.owner.as_bytes()).hold, request));
        }
        self.lost.remove(&request);
        Some(delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::fence::Fence;

    /// A grant of the keys of database 0 to the owner, one letter each.
    fn delivery(request: u64, owner: &str, keys: &str) -> GrantInFlight {
        let grant = Grant { fence: Fence::new(1).unwrap(), holds_before: 0, holds: 1 };
        let grants = keys.bytes().map(|name| (Key::new(0, &[name]), grant)).collect();
        let owner = Owner::new(owner.as_bytes()).unwrap();
        GrantInFlight { request: RequestId(request), owner, claim: Claim::Mutex, grants }
    }

    fn lost(deliveries: &mut Deliveries) -> Vec<String> {
        std::iter::from_fn(|| deliveries.take_lost()).map(|delivery| format!("{:?}", delivery.owner)).collect()
    }

    #[test]
    fn only_grants_that_nobody_received_are_taken_back() {
        let mut deliveries = Deliveries::default();
        for (number, owner) in [(1, "a"), (2, "b"), (3, "c")] {
            deliveries.sent(delivery(number, owner, "k"));
        }
        assert!(!deliveries.has_lost());
        deliveries.delivered(RequestId(1));
        deliveries.undelivered(RequestId(1));
        deliveries.undelivered(RequestId(2));
        deliveries.undelivered(RequestId(2));
        assert!(deliveries.has_lost());
        assert_eq!(lost(&mut deliveries), ["b"], "once, and no other");
        assert!(!deliveries.has_lost());
        deliveries.put_back(delivery(2, "b", "k"));
        assert_eq!(lost(&mut deliveries), ["b"], "to be tried again");
        assert!(!deliveries.is_empty(), "c is on its way");
        deliveries.delivered(RequestId(3));
        assert!(deliveries.is_empty() && deliveries.by_hold.is_empty());
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
            deliveries.sent(delivery(1, "a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            deliveries.undelivered(RequestId(1));
            assert_eq!(deliveries.has_lost(), !is_confirmed, "on its way: {db} {names:?} {owner}");
            deliveries.clear();
            deliveries.put_back(delivery(1, "a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            assert_eq!(deliveries.has_lost(), !is_confirmed, "lost: {db} {names:?} {owner}");
        }
    }

    #[test]
    fn nothing_is_left_when_the_server_is_no_primary() {
        let mut deliveries = Deliveries::default();
        deliveries.sent(delivery(1, "a", "k"));
        deliveries.put_back(delivery(2, "b", "k"));
        deliveries.clear();
        deliveries.undelivered(RequestId(1));
        assert!(!deliveries.has_lost());
    }
}
