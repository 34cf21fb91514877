//! Grants in flight to their clients. A grant that was not delivered is revoked, unless another reply has confirmed it
//! to its owner by then.

use std::collections::{BTreeMap, BTreeSet};

use super::observer::EndedBy;
use crate::hold::{HoldKey, HoldKeyParts, HoldKeyRef};
use crate::id_map::IdMap;
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::value::claim::Claim;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;

/// A grant in flight to a client.
#[derive(Clone, Debug)]
pub struct GrantInFlight {
    /// The request that was granted.
    pub request: RequestId,
    /// The owner of the grant.
    pub owner: Owner,
    /// The claim that was granted.
    pub claim: Claim,
    /// The keys, each with its grant.
    pub grants: OneOrMany<(Key, Grant)>,
}

impl GrantInFlight {
    fn holds(&self) -> impl Iterator<Item = HoldKey> + '_ {
        self.grants.iter().map(|(key, _)| HoldKey { key: key.clone(), owner: self.owner.clone() })
    }
}

/// Grants in flight to their clients, and undelivered grants, which must be revoked.
///
/// An undelivered grant is not revoked while a later grant of the same hold is in flight, because the reply to the
/// later one confirms both. If both are undelivered, the later one is revoked first, because `Lock::revoke` undoes
/// the latest grant.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    all: IdMap<RequestId, Sent>,
    /// Built on first use. Nearly always only one grant is in flight, and indexing it takes 530 of 33,400 instructions
    /// of a hand-off (callgrind, Redis 7.0.15). But one iteration may make thousands of grants, each of which may be
    /// confirmed or lost.
    index: Option<Index>,
    /// Undelivered grants.
    undelivered: BTreeSet<(GrantNumber, RequestId)>,
    last: GrantNumber,
}

#[derive(Clone, Debug)]
struct Sent {
    number: GrantNumber,
    /// `None` if it could not be sent.
    to: Option<ClientId>,
    grant: GrantInFlight,
}

/// Numbers the grants in the order in which they were made.
type GrantNumber = u64;

/// The grants in flight by hold and by connection.
#[derive(Clone, Debug, Default)]
struct Index {
    by_hold: BTreeMap<HoldKey, GrantsOfHold>,
    by_client: BTreeSet<(ClientId, RequestId)>,
}

/// The grants of one hold, the latest last.
type GrantsOfHold = BTreeSet<(GrantNumber, RequestId)>;

impl Index {
    fn insert(&mut self, Sent { number, to, grant }: &Sent) {
        for hold in grant.holds() {
            self.by_hold.entry(hold).or_default().insert((*number, grant.request));
        }
        self.by_client.extend(to.map(|client| (client, grant.request)));
    }

    fn remove(&mut self, Sent { number, to, grant }: &Sent) {
        for (key, _) in &grant.grants {
            let hold = HoldKeyRef { key: key.as_ref(), owner: grant.owner.as_bytes() };
            let Some(grants) = self.by_hold.get_mut(&hold as &dyn HoldKeyParts) else { continue };
            grants.remove(&(*number, grant.request));
            if grants.is_empty() {
                self.by_hold.remove(&hold as &dyn HoldKeyParts);
            }
        }
        if let Some(client) = to {
            self.by_client.remove(&(*client, grant.request));
        }
    }
}

impl Deliveries {
    /// The reply to the request is in flight to the client.
    pub fn sent(&mut self, to: ClientId, grant: GrantInFlight) {
        self.insert(Some(to), grant);
    }

    fn insert(&mut self, to: Option<ClientId>, grant: GrantInFlight) {
        self.last += 1;
        let sent = Sent { number: self.last, to, grant };
        if let Some(index) = &mut self.index {
            index.insert(&sent);
        }
        let before = self.all.insert(sent.grant.request, sent);
        debug_assert!(before.is_none(), "a request is granted once");
    }

    /// The reply was written. It also confirms earlier grants of the same holds to the owner.
    pub fn delivered(&mut self, request: RequestId) {
        let is_undelivered = |sent: &Sent| self.undelivered.contains(&(sent.number, request));
        if self.has_undelivered() && self.all.get(&request).is_some_and(is_undelivered) {
            return;
        }
        if let Some(grant) = self.take(request) {
            self.delivered_at_once(&grant);
        }
    }

    /// The client had disconnected before the reply was written, so the grant must be revoked.
    pub fn undelivered(&mut self, request: RequestId) {
        let Some(sent) = self.all.get(&request) else { return };
        self.undelivered.insert((sent.number, request));
        self.ensure_index();
    }

    /// The client has disconnected, so all replies in flight to it are undelivered.
    pub fn undelivered_to(&mut self, client: ClientId) {
        if self.is_empty() {
            return;
        }
        let requests = self.ensure_index().by_client.range((client, RequestId::FIRST)..=(client, RequestId::LAST));
        let requests: Vec<_> = requests.map(|(_, request)| *request).collect();
        for request in requests {
            self.undelivered(request);
        }
    }

    /// The reply could not be sent, so the next drain revokes the grant.
    pub fn not_sent(&mut self, grant: GrantInFlight) {
        let request = grant.request;
        self.insert(None, grant);
        self.undelivered(request);
    }

    /// The grant was delivered at once, which also confirms earlier grants of the same holds.
    pub fn delivered_at_once(&mut self, delivery: &GrantInFlight) {
        let owner = delivery.owner.as_bytes();
        for (key, _) in &delivery.grants {
            self.confirm_hold(key.as_ref(), owner);
        }
    }

    /// Another reply has shown the owner that it holds the keys, which confirms the earlier grants.
    pub fn confirm(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        for name in names {
            self.confirm_hold(KeyRef { db, name }, owner);
        }
    }

    fn confirm_hold(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.is_empty() {
            return;
        }
        self.ensure_index();
        let confirmed: Vec<_> = self.of_hold(key, owner).map(|(_, request)| request).collect();
        for request in confirmed {
            self.take(request);
        }
    }

    /// Builds the index if it does not exist. [`Deliveries::of_hold`] needs it. It always exists while a grant is
    /// undelivered.
    fn ensure_index(&mut self) -> &mut Index {
        self.index.get_or_insert_with(|| {
            let mut index = Index::default();
            for (_, sent) in self.all.iter() {
                index.insert(sent);
            }
            index
        })
    }

    /// The grants of a hold, the latest first.
    fn of_hold(&self, key: KeyRef<'_>, owner: &[u8]) -> impl Iterator<Item = (GrantNumber, RequestId)> + '_ {
        let index = self.index.as_ref();
        let grants = index.and_then(|index| index.by_hold.get(&HoldKeyRef { key, owner } as &dyn HoldKeyParts));
        grants.into_iter().flat_map(|grants| grants.iter().rev().copied())
    }

    /// Whether the owner's hold of this key consists only of undelivered grants.
    pub fn is_undelivered(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        debug_assert!(self.undelivered.is_empty() || self.index.is_some(), "undelivered grants are indexed");
        !self.undelivered.is_empty() && self.is_whole_hold(key, owner, |grant| self.undelivered.contains(&grant))
    }

    /// The cause to count for a hold that ends with its connection. If the reply to its grant was not written yet, the
    /// hold counts as undelivered, although the server has not reported that.
    pub fn end_with_connection(&mut self, key: KeyRef<'_>, owner: &[u8]) -> EndedBy {
        if self.is_empty() {
            return EndedBy::Disconnected;
        }
        self.ensure_index();
        if self.is_whole_hold(key, owner, |_| true) {
            EndedBy::Undelivered
        } else {
            EndedBy::Disconnected
        }
    }

    /// Whether the hold consists only of grants in this table, all of which meet the condition.
    fn is_whole_hold(
        &self,
        key: KeyRef<'_>,
        owner: &[u8],
        condition: impl Fn((GrantNumber, RequestId)) -> bool,
    ) -> bool {
        let is_first = |request: &RequestId| {
            let granted = self.all.get(request).into_iter().flat_map(|sent| &sent.grant.grants);
            granted.filter(|(granted, _)| granted.as_ref() == key).any(|(_, grant)| grant.holds_before == 0)
        };
        let (mut do_all_meet_it, mut has_first) = (true, false);
        for (number, request) in self.of_hold(key, owner) {
            do_all_meet_it &= condition((number, request));
            has_first |= is_first(&request);
        }
        do_all_meet_it && has_first
    }

    /// The requests whose grants are in flight or undelivered.
    #[cfg(any(test, feature = "testing"))]
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.all.iter().map(|(request, _)| *request)
    }

    /// Panics unless the tables agree.
    #[cfg(any(test, feature = "testing"))]
    pub fn check_tables(&self) {
        let sent = |(number, request): &(GrantNumber, RequestId)| {
            self.all.get(request).filter(|sent| sent.number == *number && sent.grant.request == *request)
        };
        assert!(self.undelivered.iter().all(|grant| sent(grant).is_some()), "an undelivered grant is in flight");
        let Some(Index { by_hold, by_client }) = &self.index else {
            return assert!(self.undelivered.is_empty(), "undelivered grants are indexed: {self:?}");
        };
        let of_holds: usize = by_hold.values().map(BTreeSet::len).sum();
        assert_eq!(of_holds, self.all.iter().map(|(_, sent)| sent.grant.grants.len()).sum(), "{self:?}");
        assert_eq!(by_client.len(), self.all.iter().filter(|(_, sent)| sent.to.is_some()).count(), "{self:?}");
        for (hold, grants) in by_hold {
            let is_of_hold = |sent: &Sent| sent.grant.holds().any(|other| other == *hold);
            assert!(grants.iter().all(|grant| sent(grant).is_some_and(is_of_hold)), "{hold:?}: {self:?}");
        }
    }

    /// Whether no grant is in flight or undelivered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a grant must be revoked.
    pub fn has_undelivered(&self) -> bool {
        !self.undelivered.is_empty()
    }

    /// Returns the latest undelivered grant that is also the latest of its holds. The caller revokes it, then calls
    /// [`Deliveries::forget`]; until then the hold is unconfirmed. Each grant is returned once, so a panic in the
    /// caller cannot loop.
    pub fn begin_revocation(&mut self) -> Option<GrantInFlight> {
        let is_last = |(number, request): &(GrantNumber, RequestId)| {
            let Some(Sent { grant, .. }) = self.all.get(request) else { return true };
            let mut keys = grant.grants.iter().map(|(key, _)| key.as_ref());
            keys.all(|key| self.of_hold(key, grant.owner.as_bytes()).next().is_none_or(|(last, _)| last == *number))
        };
        let undelivered = self.undelivered.iter().rev().copied().find(is_last)?;
        self.undelivered.remove(&undelivered);
        debug_assert!(self.all.contains_key(&undelivered.1), "an undelivered grant is in flight until it is revoked");
        self.all.get(&undelivered.1).map(|sent| sent.grant.clone())
    }

    /// The undelivered grant has been revoked.
    pub fn forget(&mut self, request: RequestId) {
        _ = self.take(request);
    }

    /// Forgets all grants, because this server is no longer a primary.
    pub fn clear(&mut self) {
        *self = Deliveries::default();
    }

    fn take(&mut self, request: RequestId) -> Option<GrantInFlight> {
        let sent = self.all.remove(&request)?;
        self.undelivered.remove(&(sent.number, request));
        if self.is_empty() {
            self.index = None;
        } else if let Some(index) = &mut self.index {
            index.remove(&sent);
        }
        Some(sent.grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::fence::Fence;

    const CLIENT: ClientId = ClientId(7);

    /// A grant to the owner. Each letter of `keys` is a key of database 0.
    fn delivery(request: u64, owner: &str, keys: &str) -> GrantInFlight {
        let grant = Grant { fence: Fence::new(1).unwrap(), holds_before: 0, holds: 1, slot: None };
        let grants = keys.bytes().map(|name| (Key::new(0, &[name]), grant)).collect();
        let owner = Owner::new(owner.as_bytes()).unwrap();
        GrantInFlight { request: RequestId(request), owner, claim: Claim::Mutex, grants }
    }

    fn undelivered(deliveries: &mut Deliveries) -> Vec<String> {
        let mut owners = Vec::new();
        while let Some(GrantInFlight { request, owner, .. }) = deliveries.begin_revocation() {
            deliveries.forget(request);
            owners.push(format!("{owner:?} {}", request.0));
        }
        owners
    }

    #[test]
    fn only_undelivered_grants_are_revoked() {
        let mut deliveries = Deliveries::default();
        for (number, owner) in [(1, "a"), (2, "b"), (3, "c")] {
            deliveries.sent(CLIENT, delivery(number, owner, "k"));
        }
        assert!(!deliveries.has_undelivered());
        deliveries.delivered(RequestId(1));
        deliveries.undelivered(RequestId(1));
        deliveries.undelivered(RequestId(2));
        deliveries.undelivered(RequestId(2));
        assert!(deliveries.has_undelivered());
        assert_eq!(undelivered(&mut deliveries), ["b 2"], "once, and no other");
        assert!(!deliveries.has_undelivered());
        assert!(!deliveries.is_empty(), "the grant of c is in flight");
        deliveries.delivered(RequestId(3));
        assert!(deliveries.is_empty() && deliveries.index.is_none());
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
            deliveries.sent(CLIENT, delivery(1, "a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            deliveries.undelivered(RequestId(1));
            assert_eq!(deliveries.has_undelivered(), !is_confirmed, "in flight: {db} {names:?} {owner}");
            deliveries.clear();
            deliveries.not_sent(delivery(1, "a", "kl"));
            deliveries.confirm(db, names, owner.as_bytes());
            assert_eq!(deliveries.has_undelivered(), !is_confirmed, "undelivered: {db} {names:?} {owner}");
        }
    }

    #[test]
    fn a_grant_is_found_by_each_of_its_holds_until_it_is_removed() {
        for when_asked in 0..3 {
            let mut deliveries = Deliveries::default();
            for (number, keys) in [(1, "kl"), (2, "k")] {
                if when_asked == number {
                    _ = deliveries.ensure_index();
                }
                deliveries.sent(CLIENT, delivery(number, "a", keys));
            }
            _ = deliveries.ensure_index();
            let found = |deliveries: &Deliveries, db, name: &[u8], owner: &[u8]| -> Vec<u64> {
                deliveries.of_hold(KeyRef { db, name }, owner).map(|(_, request)| request.0).collect()
            };
            let k = found(&deliveries, 0, b"k", b"a");
            assert_eq!((k, found(&deliveries, 0, b"l", b"a")), (vec![2, 1], vec![1]));
            for (db, name, owner) in [(0, b"m", b"a"), (1, b"k", b"a"), (0, b"k", b"b")] {
                assert_eq!(found(&deliveries, db, name, owner), [], "{db} {}", name.escape_ascii());
            }
            deliveries.forget(RequestId(1));
            assert_eq!((found(&deliveries, 0, b"k", b"a"), found(&deliveries, 0, b"l", b"a")), (vec![2], vec![]));
            deliveries.forget(RequestId(2));
            assert!(deliveries.index.is_none());
        }
    }

    #[test]
    fn undelivered_grants_of_one_hold_are_revoked_latest_first_and_not_while_a_later_one_is_in_flight() {
        let two = || {
            let mut deliveries = Deliveries::default();
            deliveries.sent(CLIENT, delivery(1, "a", "k"));
            let mut second = delivery(2, "a", "kl");
            second.grants = second.grants.into_iter().map(|(key, it)| (key, Grant { holds_before: 1, ..it })).collect();
            deliveries.sent(CLIENT, second);
            deliveries.undelivered(RequestId(1));
            deliveries
        };
        let (k, l) = (KeyRef { db: 0, name: b"k" }, KeyRef { db: 0, name: b"l" });
        let mut deliveries = two();
        assert_eq!((undelivered(&mut deliveries).len(), deliveries.is_undelivered(k, b"a")), (0, false));
        deliveries.undelivered(RequestId(2));
        let is_undelivered =
            [(k, "a"), (l, "a"), (k, "b")].map(|(key, owner)| deliveries.is_undelivered(key, owner.as_bytes()));
        assert_eq!(is_undelivered, [true, false, false], "a held l before");
        assert_eq!(undelivered(&mut deliveries), ["a 2", "a 1"]);
        let mut deliveries = two();
        deliveries.delivered(RequestId(2));
        assert!(deliveries.is_empty() && deliveries.index.is_none(), "both are confirmed to a");
        // They are ordered by grant: an older request may have waited longer.
        deliveries = Deliveries::default();
        deliveries.sent(CLIENT, delivery(9, "a", "k"));
        deliveries.not_sent(delivery(1, "a", "k"));
        deliveries.undelivered(RequestId(9));
        assert_eq!(undelivered(&mut deliveries), ["a 1", "a 9"]);
    }

    #[test]
    fn grants_in_flight_to_a_disconnected_client_are_undelivered() {
        let mut deliveries = Deliveries::default();
        for (number, client) in [(1, CLIENT), (2, ClientId(8)), (3, CLIENT), (4, CLIENT)] {
            deliveries.sent(client, delivery(number, &number.to_string(), "k"));
            // Others are added and removed before and after.
            deliveries.undelivered_to(ClientId(9));
        }
        deliveries.delivered(RequestId(4));
        assert_eq!(deliveries.ensure_index().by_client.len(), 3);
        deliveries.undelivered_to(CLIENT);
        // The server may still call the reply's callback, and then report the loss once more.
        deliveries.delivered(RequestId(1));
        deliveries.undelivered(RequestId(3));
        assert_eq!(undelivered(&mut deliveries), ["3 3", "1 1"]);
        deliveries.delivered(RequestId(2));
        assert!(deliveries.is_empty());
    }

    #[test]
    fn no_grant_in_flight_is_left_after_a_demotion() {
        let mut deliveries = Deliveries::default();
        deliveries.sent(CLIENT, delivery(1, "a", "k"));
        deliveries.not_sent(delivery(2, "b", "k"));
        deliveries.clear();
        deliveries.undelivered(RequestId(1));
        assert!(!deliveries.has_undelivered());
    }
}
