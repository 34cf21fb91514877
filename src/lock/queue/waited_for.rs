//! Which owners may be waited for: those that hold a key with a wait queue. It spares most requests the search for a
//! deadlock.

use super::request::QueueId;
use crate::id_map::IdMap;
use crate::name_map::NameMap;
use crate::shrink;
use crate::value::lock::Lock;
use crate::value::owner::Owner;

/// At most this many holders of a waited-for key are entered by name; where there are more, the key is inspected.
const FEW_HOLDERS: usize = 16;

/// The holders of waited-for keys, as of the last inspection.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitedFor {
    /// The holders of the key of each queue; a queue whose key has many is in `with_many` instead.
    by_queue: IdMap<QueueId, Vec<Owner>>,
    /// How many waited-for keys an owner holds, those with many holders left out.
    by_owner: IdMap<i32, NameMap<Owner, u32>>,
    /// The queues of keys with many holders, and their databases.
    with_many: IdMap<QueueId, i32>,
}

impl WaitedFor {
    /// Notes who holds the key of this queue now; `None`: nobody.
    pub fn note(&mut self, queue: QueueId, db: i32, lock: Option<&Lock>) {
        // One owner after the other, as a hand-off has it: no new list.
        if let (Some(owner), Some([noted])) =
            (lock.and_then(Lock::exclusive_owner), self.by_queue.get_mut(&queue).map(Vec::as_mut_slice))
        {
            if owner != noted {
                let before = std::mem::replace(noted, owner.clone());
                self.add(db, owner);
                self.remove(db, &before);
            }
            return;
        }
        let owners = lock.map_or(Some(Vec::new()), |lock| lock.owners_if_few(FEW_HOLDERS));
        match &owners {
            Some(_) => self.with_many.remove(&queue),
            None => self.with_many.insert(queue, db),
        };
        let owners = owners.unwrap_or_default();
        owners.iter().for_each(|owner| self.add(db, owner));
        let before = match owners.is_empty() {
            true => self.by_queue.remove(&queue),
            false => self.by_queue.insert(queue, owners),
        };
        before.into_iter().flatten().for_each(|owner| self.remove(db, &owner));
    }

    /// Nobody waits in this queue any more.
    pub fn forget(&mut self, queue: QueueId, db: i32) {
        self.with_many.remove(&queue);
        let owners = self.by_queue.remove(&queue);
        shrink::map(&mut self.by_queue);
        owners.into_iter().flatten().for_each(|owner| self.remove(db, &owner));
    }

    /// Whether this owner was seen to hold a waited-for key.
    pub fn contains(&self, db: i32, owner: &[u8]) -> bool {
        self.by_owner.get(&db).is_some_and(|owners| owners.contains_key(owner))
    }

    /// The queues of this database whose keys have too many holders to be entered by name.
    pub fn with_many_holders(&self, db: i32) -> impl Iterator<Item = QueueId> + '_ {
        self.with_many.iter().filter(move |(_, other)| **other == db).map(|(queue, _)| *queue)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_queue.is_empty() && self.by_owner.values().all(NameMap::is_empty) && self.with_many.is_empty()
    }

    fn add(&mut self, db: i32, owner: &Owner) {
        *self.by_owner.entry(db).or_default().entry(owner.clone()).or_default() += 1;
    }

    fn remove(&mut self, db: i32, owner: &Owner) {
        let Some(owners) = self.by_owner.get_mut(&db) else { return };
        let Some(count) = owners.get_mut(owner.as_bytes()) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        owners.remove(owner.as_bytes());
        shrink::map(owners);
    }
}
