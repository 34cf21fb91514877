//! A request that asks whether it may queue: what the searches for a deadlock begin with.

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
    /// Who wants what.
    pub request: LockRequest<'a>,
    /// Where it would stand. It takes the place over of the request that it is a retry of.
    pub place: Place,
}

impl<'a> NewRequest<'a> {
    pub(super) fn key(&self, name: &'a [u8]) -> KeyRef<'a> {
        KeyRef { db: self.db, name }
    }

    pub(super) fn owner(&self) -> &'a [u8] {
        self.request.owner.as_bytes()
    }

    /// The wait queues of its keys, where there are any yet.
    pub(super) fn queues<'q>(&'q self, queues: &'q WaitQueues) -> impl Iterator<Item = QueueId> + 'q {
        self.names.iter().filter_map(|name| queues.id_of(self.key(name)))
    }
}
