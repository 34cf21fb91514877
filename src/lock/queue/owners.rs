//! The owners that wait, or hold waited-for keys, by id: the deadlock search follows them without hashing a name.
//!
//! The holders of a waited-for key are listed by name if they are few. A key with many holders is opaque: a search has
//! to open it. So is a key after another command has changed it, until it is inspected. The list may have former
//! holders until the queue is served; it never omits a current one.

use std::collections::BTreeMap;

use super::request::{Others, OwnerId, QueueId};
use super::small_set::SmallSet;
use crate::id_map::IdMap;
use crate::key::RequestId;
use crate::one_or_many::OneOrMany;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// The requests of an owner, and the waited-for keys that it may hold.
#[derive(Clone, Debug)]
pub(super) struct OwnerEntry {
    pub owner: Owner,
    db: i32,
    /// Its queued requests by the queue under which they are listed: a retry is found quickly among thousands.
    pub listed: SmallSet<(QueueId, RequestId)>,
    /// How many [`NotedHolders`] list it.
    pub holds: usize,
}

impl OwnerEntry {
    fn is_used(&self) -> bool {
        !self.listed.is_empty() || self.holds > 0
    }
}

/// The owners of all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    // The tables of a database are kept when empty: databases are few, and each hand-off would create them again.
    ids: BTreeMap<i32, BTreeMap<Owner, OwnerId>>,
    entries: IdMap<OwnerId, OwnerEntry>,
    /// The owners that were last without a request and a waited-for key, the latest first: they stay in the table. A
    /// former holder often asks again: to remove it and enter it anew costs 2,100 of 42,100 instructions of a hand-off
    /// among 48 clients (callgrind, Redis 7.0.15). Two, because a hand-off between two clients leaves both without.
    unused: [Option<OwnerId>; 2],
    last_number: u64,
}

impl Owners {
    pub fn id_of(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        self.ids.get(&db).and_then(|ids| ids.get(owner)).copied()
    }

    pub fn get(&self, id: OwnerId) -> Option<&OwnerEntry> {
        self.entries.get(&id)
    }

    /// A request of the owner was queued. `known`: its id by an earlier look-up, if it had one. Returns its id, and all
    /// of its requests.
    pub fn enlist(
        &mut self,
        db: i32,
        owner: &Owner,
        known: Option<OwnerId>,
        under: QueueId,
        request: RequestId,
    ) -> (OwnerId, &SmallSet<(QueueId, RequestId)>) {
        let id = match known.filter(|known| self.entries.contains_key(known)) {
            Some(known) => known,
            None => self.enter(db, owner),
        };
        let entry = self.entries.get_mut(&id).expect("it was there, or was entered now");
        entry.listed.insert((under, request));
        (id, &entry.listed)
    }

    /// A request of the owner has left. Returns whether the owner has others.
    pub fn unlist(&mut self, id: OwnerId, under: QueueId, request: RequestId) -> Others {
        let Some(entry) = self.entries.get_mut(&id) else { return Others::None };
        entry.listed.remove(&(under, request));
        if !entry.listed.is_empty() {
            return Others::Some;
        }
        if !entry.is_used() {
            self.keep_unused(id);
        }
        Others::None
    }

    /// The owner has become a holder of a waited-for key.
    fn gains(&mut self, id: OwnerId) {
        self.entries.get_mut(&id).into_iter().for_each(|entry| entry.holds += 1);
    }

    /// The owner holds a waited-for key no longer, or its queue is gone.
    fn loses(&mut self, id: OwnerId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.holds -= 1;
        if !entry.is_used() {
            self.keep_unused(id);
        }
    }

    fn is_named(&self, id: OwnerId, db: i32, owner: &Owner) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.db == db && entry.owner == *owner)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ids.values().all(BTreeMap::is_empty)
    }

    fn enter(&mut self, db: i32, owner: &Owner) -> OwnerId {
        let ids = self.ids.entry(db).or_default();
        if let Some(id) = ids.get(owner.as_bytes()) {
            return *id;
        }
        self.last_number += 1;
        let id = OwnerId(self.last_number);
        ids.insert(owner.clone(), id);
        let entry = OwnerEntry { owner: owner.clone(), db, listed: SmallSet::default(), holds: 0 };
        self.entries.insert(id, entry);
        id
    }

    /// Forgets all owners without a request and a waited-for key.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_unused(&mut self) {
        std::mem::take(&mut self.unused).into_iter().flatten().for_each(|id| self.remove_if_unused(id));
    }

    /// The owner has lost its last request or waited-for key. It is forgotten after others.
    fn keep_unused(&mut self, id: OwnerId) {
        if self.unused.contains(&Some(id)) {
            return;
        }
        let [latest, oldest] = self.unused;
        self.unused = [Some(id), latest];
        oldest.into_iter().for_each(|oldest| self.remove_if_unused(oldest));
    }

    fn remove_if_unused(&mut self, id: OwnerId) {
        if self.entries.get(&id).is_some_and(OwnerEntry::is_used) {
            return;
        }
        let Some(entry) = self.entries.remove(&id) else { return };
        if let Some(ids) = self.ids.get_mut(&entry.db) {
            ids.remove(entry.owner.as_bytes());
        }
    }
}

/// At most this many holders of a waited-for key are listed by name. Smaller in tests, so that they exceed it.
const FEW_HOLDERS: usize = if cfg!(test) { 2 } else { 16 };

/// The holders of the key of a wait queue, if they are few; the other direction, from an owner to what it holds, is in
/// [`Owners`].
#[derive(Clone, Debug)]
pub(super) struct NotedHolders(OneOrMany<OwnerId>);

impl Default for NotedHolders {
    fn default() -> NotedHolders {
        NotedHolders(OneOrMany::Many(Vec::new()))
    }
}

impl NotedHolders {
    /// Whether the holders of the lock are listed by name.
    pub fn may_list(lock: Option<&Lock>) -> bool {
        lock.is_none_or(|lock| lock.holders() <= FEW_HOLDERS)
    }

    /// Whether it lists the owner.
    pub fn lists(&self, owner: OwnerId) -> bool {
        self.0.contains(&owner)
    }

    /// The queue is gone.
    pub fn forget(self, owners: &mut Owners) {
        self.0.into_iter().for_each(|id| owners.loses(id));
    }

    /// Lists the current holders of the queue's key; `None`: it has no lock. `granted`: the id of its only holder, if
    /// it is known. Returns the only holder before, if it holds the key no more.
    pub fn note(
        &mut self,
        owners: &mut Owners,
        db: i32,
        lock: Option<&Lock>,
        granted: Option<OwnerId>,
    ) -> Option<OwnerId> {
        let now = match lock.and_then(Lock::exclusive_owner) {
            Some(owner) => {
                debug_assert!(
                    granted.is_none_or(|granted| owners.is_named(granted, db, owner)),
                    "an exclusive lock has one holder"
                );
                // A key that is noted again usually has the same holder: its name is not looked up.
                let is_same = |noted| match granted {
                    Some(granted) => granted == noted,
                    None => owners.is_named(noted, db, owner),
                };
                if matches!(self.0, OneOrMany::One(noted) if is_same(noted)) {
                    return None;
                }
                OneOrMany::One(granted.unwrap_or_else(|| owners.enter(db, owner)))
            }
            None if !NotedHolders::may_list(lock) => OneOrMany::Many(Vec::new()),
            None => lock.into_iter().flat_map(Lock::owners).map(|owner| owners.enter(db, owner)).collect(),
        };
        let before = std::mem::replace(&mut self.0, now);
        self.0.iter().filter(|id| !before.contains(id)).for_each(|id| owners.gains(*id));
        before.iter().filter(|id| !self.lists(**id)).for_each(|id| owners.loses(*id));
        match before {
            OneOrMany::One(only) => Some(only).filter(|only| !self.lists(*only)),
            OneOrMany::Many(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;
    use crate::value::claim::{Claim, Count};

    /// One table at a time has an entry.
    #[test]
    fn owners_with_an_entry_in_any_table_are_not_empty() {
        let of_one = || {
            let mut owners = Owners::default();
            _ = owners.enlist(0, &Owner::new(b"a").unwrap(), None, QueueId(1), RequestId(1));
            owners
        };
        let empty = Owners::default;
        assert!(empty().is_empty());
        assert!(!Owners { ids: of_one().ids, ..empty() }.is_empty());
        assert!(!Owners { entries: of_one().entries, ..empty() }.is_empty());
    }

    #[test]
    fn the_last_two_owners_without_requests_keep_their_ids() {
        let mut owners = Owners::default();
        let enlist = |owners: &mut Owners, name: &str, number| {
            owners.enlist(0, &Owner::new(name.as_bytes()).unwrap(), None, QueueId(1), RequestId(number)).0
        };
        let ids: Vec<_> =
            ["a", "b", "c"].iter().zip(1..).map(|(name, number)| enlist(&mut owners, name, number)).collect();
        for (id, number) in ids.iter().zip(1..) {
            assert_eq!(owners.unlist(*id, QueueId(1), RequestId(number)), Others::None);
        }
        let found = |owners: &Owners| ["a", "b", "c"].map(|name| owners.id_of(0, name.as_bytes()));
        assert_eq!(found(&owners), [None, Some(ids[1]), Some(ids[2])]);
        assert_eq!(enlist(&mut owners, "b", 4), ids[1]);
        owners.forget_unused();
        assert_eq!(found(&owners), [None, Some(ids[1]), None], "b has a request again");
        owners.unlist(ids[1], QueueId(1), RequestId(4));
        owners.forget_unused();
        assert!(owners.is_empty());
    }

    #[test]
    fn the_holders_of_a_key_are_listed_by_name_if_they_are_few() {
        let permit = Claim::Permits { limit: 9, count: Count::Step(1) };
        for number in 1..=FEW_HOLDERS + 1 {
            let mut fixture = Fixture::default();
            (0..number).for_each(|number| fixture.hold(&format!("holder {number}"), "s", permit));
            fixture.wait("b", "s", permit);
            assert_eq!(
                fixture.queues.of_owner(fixture.queues.owner_id(0, b"anybody")).may_be_waited_for(),
                number > FEW_HOLDERS,
                "{number}"
            );
            assert!(fixture.queues.of_owner(fixture.queues.owner_id(0, b"holder 0")).may_be_waited_for(), "{number}");
        }
    }
}
