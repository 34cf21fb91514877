//! Changes that callbacks see and may not act upon: they note them, and the next turn applies them.

use lock::key::{ClientId, Key, RequestId};
use lock::manager::keyspace_changes::Removal;
use lock::value::fence::Fence;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use super::ffi::blocked::BlockedId;
use super::slots::Slots;

/// A noted change.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The key was removed, replaced or renamed; the latest fence of the lock that it held.
    KeyRemoved(Key, Fence),
    /// Locks have gone from keys of the database: behind so many events they are not noted one by one.
    ManyRemoved(i32),
    /// A lock has gone from a key that no request waits for.
    LockLeft,
    /// A lock has gone from the key; its latest holder, the fence of that grant, and the reason.
    HoldRemoved(Key, Owner, Fence, Removal),
    /// RESTORE has brought a lock to the key.
    KeyTouched(Key),
    /// Any key of the database, or of all, may have changed.
    DbChanged(Option<i32>),
    /// These slots of the cluster belong to another node now.
    SlotsLeft(Slots),
    /// The connection has ended.
    ClientGone(ClientId),
    /// The reply with the grant was written to the client.
    GrantDelivered(RequestId),
    /// The client had gone before its grant was written.
    GrantUndelivered(RequestId),
    /// `CLIENT UNBLOCK` has answered the blocked client.
    Unblocked(BlockedId),
    /// The server has unblocked the client: its connection ended, or `CLIENT UNBLOCK … ERROR`, or a demotion.
    Disconnected(BlockedId),
    /// The server became a replica.
    Demoted,
    /// The server started, loaded its data or became the primary.
    Began {
        /// When.
        since: Instant,
        /// `lock.grace` at that time: a later change begins no grace.
        grace_ms: u64,
    },
    /// The wall clock was set.
    ClockSet,
    /// A setting was changed.
    Configured,
}
