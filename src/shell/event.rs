//! Changes that callbacks see but may not act on. They are recorded, and the next engine pass applies them.

use lock::engine::keyspace_changes::LockRemoval;
use lock::key::{ClientId, Key, RequestId};
use lock::value::fence::Fence;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use super::ffi::blocked::BlockedId;
use super::slots::Slots;

#[derive(Debug, PartialEq)]
pub enum Event {
    /// A lock with this latest fencing token was removed from the key, replaced or renamed.
    KeyRemoved(Key, Fence),
    /// Locks were removed from keys of the database. Recorded if too many events are pending to record each removal.
    ManyRemoved(i32),
    /// A lock was removed from a key that no request waits for.
    LockRemoved,
    /// A lock was removed from the key: its latest holder, the fencing token of that grant, and the reason.
    HoldRemoved(Key, Owner, Fence, LockRemoval),
    /// RESTORE has added a lock to the key.
    KeyChanged(Key),
    /// Any key of the database, or of all databases, may have changed.
    DbChanged(Option<i32>),
    /// These slots of the cluster now belong to another node.
    SlotsMoved(Slots),
    /// The connection closed.
    ClientDisconnected(ClientId),
    /// The reply that contains the grant was written to the client.
    GrantDelivered(RequestId),
    /// The client was gone before its grant was written.
    GrantUndelivered(RequestId),
    /// `CLIENT UNBLOCK` has replied to the blocked client.
    Unblocked(BlockedId),
    /// The server has unblocked the client: its connection closed, or `CLIENT UNBLOCK … ERROR`, or a demotion.
    Disconnected(BlockedId),
    /// The server became a replica.
    Demoted,
    /// The server started, loaded its data or was promoted to primary.
    Started {
        since: Instant,
        /// `lock.grace` at that time: a later change does not start a grace period.
        grace_ms: u64,
    },
    /// The wall clock was set.
    ClockSet,
    /// A setting was changed.
    Configured,
}
