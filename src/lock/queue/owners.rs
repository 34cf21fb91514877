//! The owners that have requests, by id. Deadlock detection compares these ids instead of owner names.

use std::collections::BTreeMap;

use super::request::{Others, OwnerId, QueueId};
use super::small_set::SmallSet;
use crate::id_map::IdMap;
use crate::key::RequestId;
use crate::value::owner::Owner;

/// The requests of an owner.
#[derive(Clone, Debug)]
pub(super) struct OwnerEntry {
    pub owner: Owner,
    db: i32,
    /// Its requests, each with the queue under which it is listed, so that a retry is found quickly among thousands.
    pub listed: SmallSet<(QueueId, RequestId)>,
}

/// The owners of all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    // The maps of a database are kept when they become empty: there are few databases, and each hand-off would create
    // the maps again.
    ids: BTreeMap<i32, BTreeMap<Owner, OwnerId>>,
    entries: IdMap<OwnerId, OwnerEntry>,
    /// The owners that most recently lost their last request, the latest first. They stay in the table, because a
    /// former holder often sends another request: removing and re-adding it costs 2,100 of 42,100 instructions of a
    /// hand-off among 48 clients (callgrind, Redis 7.0.15). Two, because a hand-off between two clients leaves both
    /// without requests.
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

    /// Adds a queued request of the owner. `known` is the owner's id from an earlier lookup, if it had one. Returns the
    /// id of the owner and all of its requests.
    pub fn add_request(
        &mut self,
        db: i32,
        owner: &Owner,
        known: Option<OwnerId>,
        listed_under: QueueId,
        request: RequestId,
    ) -> (OwnerId, &SmallSet<(QueueId, RequestId)>) {
        let id = match known.filter(|known| self.entries.contains_key(known)) {
            Some(known) => known,
            None => self.insert(db, owner),
        };
        let entry = self.entries.get_mut(&id).expect("the owner is known or was just inserted");
        debug_assert!(entry.db == db && entry.owner == *owner, "the id is that of another owner");
        entry.listed.insert((listed_under, request));
        (id, &entry.listed)
    }

    /// Removes a request of the owner. Returns whether the owner has others.
    pub fn remove_request(&mut self, id: OwnerId, listed_under: QueueId, request: RequestId) -> Others {
        debug_assert!(self.entries.contains_key(&id), "an owner with a request is in the table");
        let Some(entry) = self.entries.get_mut(&id) else { return Others::None };
        debug_assert!(entry.listed.contains(&(listed_under, request)), "a request is listed under its first queue");
        entry.listed.remove(&(listed_under, request));
        if !entry.listed.is_empty() {
            return Others::Some;
        }
        self.keep_unused(id);
        Others::None
    }

    /// The number of requests of all owners.
    #[cfg(any(test, feature = "testing"))]
    pub fn requests(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.listed.iter().count()).sum()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ids.values().all(BTreeMap::is_empty)
    }

    fn insert(&mut self, db: i32, owner: &Owner) -> OwnerId {
        let ids = self.ids.entry(db).or_default();
        if let Some(id) = ids.get(owner.as_bytes()) {
            return *id;
        }
        self.last_number += 1;
        let id = OwnerId(self.last_number);
        ids.insert(owner.clone(), id);
        let entry = OwnerEntry { owner: owner.clone(), db, listed: SmallSet::default() };
        self.entries.insert(id, entry);
        id
    }

    /// Forgets all owners without a request.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_unused(&mut self) {
        for id in std::mem::take(&mut self.unused).into_iter().flatten() {
            self.remove_if_unused(id);
        }
    }

    /// Keeps an owner that has lost its last request, until others replace it.
    fn keep_unused(&mut self, id: OwnerId) {
        if self.unused.contains(&Some(id)) {
            return;
        }
        let [latest, oldest] = self.unused;
        self.unused = [Some(id), latest];
        if let Some(oldest) = oldest {
            self.remove_if_unused(oldest);
        }
    }

    fn remove_if_unused(&mut self, id: OwnerId) {
        if self.entries.get(&id).is_some_and(|entry| !entry.listed.is_empty()) {
            return;
        }
        let Some(entry) = self.entries.remove(&id) else { return };
        let ids = self.ids.get_mut(&entry.db);
        let named = ids.and_then(|ids| ids.remove(entry.owner.as_bytes()));
        debug_assert_eq!(named, Some(id), "an owner has one id");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One table at a time has an entry.
    #[test]
    fn owners_with_an_entry_in_any_table_are_not_empty() {
        let of_one = || {
            let mut owners = Owners::default();
            _ = owners.add_request(0, &Owner::new(b"a").unwrap(), None, QueueId(1), RequestId(1));
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
        let add_request = |owners: &mut Owners, name: &str, number| {
            owners.add_request(0, &Owner::new(name.as_bytes()).unwrap(), None, QueueId(1), RequestId(number)).0
        };
        let ids: Vec<_> =
            ["a", "b", "c"].iter().zip(1..).map(|(name, number)| add_request(&mut owners, name, number)).collect();
        for (id, number) in ids.iter().zip(1..) {
            assert_eq!(owners.remove_request(*id, QueueId(1), RequestId(number)), Others::None);
        }
        let found = |owners: &Owners| ["a", "b", "c"].map(|name| owners.id_of(0, name.as_bytes()));
        assert_eq!(found(&owners), [None, Some(ids[1]), Some(ids[2])]);
        assert_eq!(add_request(&mut owners, "b", 4), ids[1]);
        owners.forget_unused();
        assert_eq!(found(&owners), [None, Some(ids[1]), None], "b has a request again");
        owners.remove_request(ids[1], QueueId(1), RequestId(4));
        owners.forget_unused();
        assert!(owners.is_empty());
    }
}
