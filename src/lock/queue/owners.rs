//! The owners that wait, or hold waited-for keys, by id: the deadlock search follows them without hashing a name.

use std::collections::{BTreeMap, BTreeSet};

use super::request::{Others, OwnerId, QueueId};
use crate::key::RequestId;
use crate::value::owner::Owner;

/// The requests of an owner, and the waited-for keys that it may hold.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub owner: Owner,
    db: i32,
    /// Its queued requests by the queue under which they are listed: a retry is found quickly among thousands.
    pub listed: BTreeSet<(QueueId, RequestId)>,
    /// The queues of keys that it may hold, if [`super::waited_for`] lists the holders of the key by name.
    pub holds: BTreeSet<QueueId>,
}

/// The owners of all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    // The tables of a database are kept when empty: databases are few, and each hand-off would create them again.
    ids: BTreeMap<i32, BTreeMap<Owner, OwnerId>>,
    known: BTreeMap<OwnerId, Known>,
    /// How many owners have several requests, or wait and hold a waited-for key. Other requests may wait for these
    /// owners while they wait themselves; no other owner is both.
    entangled: usize,
    last_number: u64,
}

impl Known {
    /// The owner has several requests, or waits and may hold a waited-for key.
    fn waits_through_others(&self) -> bool {
        self.listed.len() > 1 || !self.listed.is_empty() && !self.holds.is_empty()
    }
}

impl Owners {
    pub fn id_of(&self, db: i32, owner: &[u8]) -> Option<OwnerId> {
        self.ids.get(&db).and_then(|ids| ids.get(owner)).copied()
    }

    pub fn get(&self, id: OwnerId) -> Option<&Known> {
        self.known.get(&id)
    }

    /// A request of the owner was queued.
    pub fn enlist(&mut self, db: i32, owner: &Owner, under: QueueId, request: RequestId) -> OwnerId {
        let id = self.enter(db, owner);
        self.change(id, |known| _ = known.listed.insert((under, request)));
        id
    }

    /// A request of the owner has left. Returns whether the owner has others.
    pub fn unlist(&mut self, id: OwnerId, under: QueueId, request: RequestId) -> Others {
        self.change(id, |known| _ = known.listed.remove(&(under, request)));
        let has_others = self.known.get(&id).is_some_and(|known| !known.listed.is_empty());
        self.forget_if_unused(id);
        if has_others {
            Others::Some
        } else {
            Others::None
        }
    }

    /// The owner has become a holder of the queue's key.
    pub fn gains(&mut self, db: i32, owner: &Owner, queue: QueueId) -> OwnerId {
        let id = self.enter(db, owner);
        self.change(id, |known| _ = known.holds.insert(queue));
        id
    }

    /// The owner holds the queue's key no longer, or the queue is gone.
    pub fn loses(&mut self, id: OwnerId, queue: QueueId) {
        self.change(id, |known| _ = known.holds.remove(&queue));
        self.forget_if_unused(id);
    }

    /// Whether any waiting owner may be waited for: it has several requests, or is listed as the holder of a waited-for
    /// key.
    pub fn are_entangled(&self) -> bool {
        self.entangled > 0
    }

    fn change(&mut self, id: OwnerId, change: impl FnOnce(&mut Known)) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let before = known.waits_through_others();
        change(known);
        match (before, known.waits_through_others()) {
            (false, true) => self.entangled += 1,
            (true, false) => self.entangled -= 1,
            _ => {}
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.entangled == 0 && self.ids.values().all(BTreeMap::is_empty)
    }

    fn enter(&mut self, db: i32, owner: &Owner) -> OwnerId {
        let ids = self.ids.entry(db).or_default();
        if let Some(id) = ids.get(owner.as_bytes()) {
            return *id;
        }
        self.last_number += 1;
        let id = OwnerId(self.last_number);
        ids.insert(owner.clone(), id);
        let known = Known { owner: owner.clone(), db, listed: BTreeSet::new(), holds: BTreeSet::new() };
        self.known.insert(id, known);
        id
    }

    fn forget_if_unused(&mut self, id: OwnerId) {
        let is_used = |known: &Known| !known.listed.is_empty() || !known.holds.is_empty();
        if self.known.get(&id).is_none_or(is_used) {
            return;
        }
        let Some(known) = self.known.remove(&id) else { return };
        if let Some(ids) = self.ids.get_mut(&known.db) {
            ids.remove(known.owner.as_bytes());
        }
    }
}
