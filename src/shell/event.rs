//! What happens where nothing may be written or decided: callbacks note it, and the next turn applies it.

use lock::key::{ClientId, Key, RequestId};
use lock::manager::occurrence::EndedBy;
use lock::value::fence::Fence;
use lock::value::lock::SeveralEnds;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use super::ffi::blocked::BlockedId;
use super::slots::Slots;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The key was removed, replaced or renamed; the latest fence of the lock that it held.
    KeyRemoved(Key, Fence),
    /// The lock that has gone from the key was held by this owner the last, since the grant with this fence.
    HoldRemoved(Key, Owner, Fence, EndedBy),
    /// The server has evicted the key, which this owner held, since the grant with this fence.
    Evicted(Key, Owner, Fence),
    /// RESTORE has brought a lock to the key.
    KeyTouched(Key),
    /// A lock with several holders came to the key.
    SeveralHold(Key, SeveralEnds),
    /// The database is empty, or all are.
    DbFlushed(Option<i32>),
    /// Two databases have changed places.
    DbsSwapped(i32, i32),
    /// Any key of the database, or of all, may have changed.
    DbChanged(Option<i32>),
    /// These slots of the cluster belong to another node now.
    SlotsLeft(Slots),
    /// The connection has ended.
    ClientGone(ClientId),
    /// The reply that it was granted the lock was given to the client, which may yet be closed in this turn.
    GrantTold(ClientId, RequestId),
    /// The client had gone before that.
    GrantUndelivered(RequestId),
    /// The turn of the server in which grants were told is over.
    TurnOver,
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
        /// `lock.grace` as it was then: a change afterwards begins none.
        grace_ms: u64,
    },
    /// Somebody has set the wall clock.
    ClockSet,
    /// A setting was changed.
    Configured,
}
