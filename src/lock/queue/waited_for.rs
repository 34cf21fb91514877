//! The index of holders of waited-for keys.
//!
//! It lists the holders of a key by name if they are few. A key with many holders is opaque: a search has to open it.
//! So is a key after another command has changed it, until it is inspected. The index may list former holders until
//! the queue is served; it never omits a current one.

use std::collections::BTreeMap;

use super::owners::Owners;
use super::request::{OwnerId, QueueId};
use crate::one_or_many::OneOrMany;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// At most this many holders of a waited-for key are listed by name. Smaller in tests, so that they exceed it.
const FEW_HOLDERS: usize = if cfg!(test) { 2 } else { 16 };

/// The holders of waited-for keys; the other direction, from an owner to what it holds, is in [`Owners`].
#[derive(Clone, Debug, Default)]
pub(super) struct WaitedFor {
    /// The holders of the key of each queue, if they are few.
    by_queue: BTreeMap<QueueId, OneOrMany<OwnerId>>,
    /// The queues whose keys have to be opened, and their databases.
    opaque: BTreeMap<QueueId, i32>,
}

impl WaitedFor {
    /// Records the current holders of the queue's key; `None` if it has no lock.
    pub fn note(&mut self, owners: &mut Owners, queue: QueueId, db: i32, lock: Option<&Lock>) {
        if let Some(owner) = lock.and_then(Lock::exclusive_owner) {
            return self.note_one(owners, queue, db, owner);
        }
        if lock.is_some_and(|lock| lock.holders() > FEW_HOLDERS) {
            self.opaque.insert(queue, db);
            return self.replace(owners, queue, OneOrMany::Many(Vec::new()));
        }
        self.becomes_known(queue);
        let ids = lock.into_iter().flat_map(Lock::owners).map(|owner| owners.gains(db, owner, queue)).collect();
        self.replace(owners, queue, ids);
    }

    /// A hand-off of an exclusive lock: replaces one owner by another without a new list.
    fn note_one(&mut self, owners: &mut Owners, queue: QueueId, db: i32, owner: &Owner) {
        self.becomes_known(queue);
        match self.by_queue.get_mut(&queue) {
            Some(OneOrMany::One(noted)) if owners.get(*noted).is_some_and(|noted| noted.owner == *owner) => {}
            Some(OneOrMany::One(noted)) => {
                let before = std::mem::replace(noted, owners.gains(db, owner, queue));
                owners.loses(before, queue);
            }
            _ => {
                let id = owners.gains(db, owner, queue);
                self.replace(owners, queue, OneOrMany::One(id));
            }
        }
    }

    /// The key was changed by another command: its holders are unknown.
    pub fn becomes_opaque(&mut self, queue: QueueId, db: i32) {
        self.opaque.insert(queue, db);
    }

    /// The queue is removed.
    pub fn forget(&mut self, owners: &mut Owners, queue: QueueId) {
        self.becomes_known(queue);
        self.replace(owners, queue, OneOrMany::Many(Vec::new()));
    }

    /// Whether any key has to be opened.
    pub fn has_opaque(&self) -> bool {
        !self.opaque.is_empty()
    }

    /// The queues of this database whose keys have to be opened.
    pub fn opaque(&self, db: i32) -> impl Iterator<Item = QueueId> + '_ {
        self.opaque.iter().filter(move |(_, other)| **other == db).map(|(queue, _)| *queue)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.by_queue.is_empty() && self.opaque.is_empty()
    }

    fn becomes_known(&mut self, queue: QueueId) {
        self.opaque.remove(&queue);
    }

    fn replace(&mut self, owners: &mut Owners, queue: QueueId, holders: OneOrMany<OwnerId>) {
        let before = match holders.is_empty() {
            true => self.by_queue.remove(&queue),
            false => self.by_queue.insert(queue, holders),
        };
        let now = self.by_queue.get(&queue).map_or(&[][..], |now| now);
        let gone = before.into_iter().flatten().filter(|id| !now.contains(id));
        gone.for_each(|id| owners.loses(id, queue));
    }
}
