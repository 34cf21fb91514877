//! A request that is about to queue: the input of the deadlock search.

use super::queues::WaitQueues;
use super::request::{Place, QueueId};
use crate::key::KeyRef;
use crate::value::claim::LockRequest;

/// A request that is about to queue.
pub struct NewRequest<'a> {
    /// The database of its keys.
    pub db: i32,
    /// Its keys.
    pub names: &'a [&'a [u8]],
    /// Owner, claim and lease.
    pub request: LockRequest<'a>,
    /// The place that it would get. A retry takes over the place of the request that it repeats.
    pub place: Place,
}

impl<'a> NewRequest<'a> {
    pub(super) fn key(&self, name: &'a [u8]) -> KeyRef<'a> {
        KeyRef { db: self.db, name }
    }

    pub(super) fn owner(&self) -> &'a [u8] {
        self.request.owner.as_bytes()
    }

    /// The wait queues of its keys, for keys that have one.
    pub(super) fn queues<'q>(&'q self, queues: &'q WaitQueues) -> impl Iterator<Item = QueueId> + 'q {
        self.names.iter().filter_map(|name| queues.id_of(self.key(name)))
    }
}
