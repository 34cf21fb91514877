//! A queued request: its claim, when it was queued, when it times out, and its position in the wait queues of its keys.

use std::num::NonZeroU64;

use super::position::QueuePosition;
use crate::key::{ClientId, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, LockRequest};
use crate::value::owner::Owner;
use crate::value::time::{Instant, Lease, Timestamp};

/// The wait queue of a key, as long as it exists. Ids are not reused.
#[derive(Clone, Default, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(super) u64);

impl QueueId {
    #[cfg(test)]
    pub(crate) fn numbered(number: u64) -> QueueId {
        QueueId(number)
    }

    /// Less than every id in use.
    pub(super) const FIRST: QueueId = QueueId(0);
    /// Greater than every id in use.
    pub(super) const LAST: QueueId = QueueId(u64::MAX);
}

/// An owner in one database, as long as it has requests. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub(super) u64);

/// A request that is about to be queued, as deadlock detection sees it.
#[derive(Clone, Debug)]
pub struct NewRequest<'a> {
    /// The database of its keys.
    pub db: i32,
    /// Distinct. More than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// The owner, the claim and the lease.
    pub request: LockRequest<'a>,
    /// Its owner, looked up once when the request arrived. `None` if the owner has no queued request.
    pub owner_id: Option<OwnerId>,
    /// Its position in the queues. A retry resumes or supersedes the position of the request that it repeats.
    pub position: QueuePosition,
    /// The queued request that it replaces: the one that it repeats, or itself if it is reevaluated.
    pub replaces: Option<RequestId>,
}

impl<'a> NewRequest<'a> {
    /// A key of the request.
    pub fn key(&self, name: &'a [u8]) -> KeyRef<'a> {
        KeyRef { db: self.db, name }
    }

    /// The owner's name.
    pub fn owner(&self) -> &'a [u8] {
        self.request.owner.as_bytes()
    }
}

/// A request that is being queued.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Owner, claim, lease, keys and position.
    pub new: NewRequest<'a>,
    /// When the wait began. A retry continues the wait of the request that it repeats.
    pub since: Instant,
    /// When the wait times out; `None` if never.
    pub until: Option<Instant>,
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// Whether its position may be reserved when its client leaves. False for a token that the server generated.
    pub may_detach: bool,
    /// Whether a release of the key completes it (COALESCE). Only for a request for one mutex.
    pub coalesces: bool,
    /// The absolute deadline of the lease; `None` if the lease is a duration from the grant on.
    pub lease_deadline: Option<Timestamp>,
}

/// A request that is queued, or whose position is reserved while its client has left.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    /// The owner that requests the hold.
    pub owner: Owner,
    /// The claim: mode, and permits or holds.
    pub claim: Claim,
    /// The lease, which starts with the grant.
    pub lease: Lease,
    /// The database of its keys.
    pub db: i32,
    /// The wait queues of its keys, in the order of the request.
    pub queues: OneOrMany<QueueId>,
    /// Its position in each of them.
    pub position: QueuePosition,
    /// When the wait began. A retry continues the wait of the request that it repeats.
    pub since: Instant,
    /// When the wait times out or the reserved position ends; `None` if never.
    pub until: Option<Instant>,
    /// The connection that sent the request, to which SESSION binds the grant.
    pub session: Option<ClientId>,
    /// Whether its position may be reserved when its client leaves. False for a token that the server generated.
    pub may_detach: bool,
    /// Whether a release of the key completes it (COALESCE). Only for a request for one mutex.
    pub coalesces: bool,
    /// The absolute deadline of the lease; `None` if the lease is a duration from the grant on.
    pub lease_deadline: Option<Timestamp>,
    /// The id of its owner.
    pub owner_id: OwnerId,
    /// The queue under which its owner lists it: the smallest of `queues`.
    pub(super) listed_under: QueueId,
    /// Whether its owner may have other requests. An owner that waits for nothing else is assumed to release the lock
    /// once it is granted.
    pub(super) may_have_other_waits: bool,
    /// For a multi-key request: the queue that blocked it when it was last tried. Changes of its other keys cannot
    /// serve it before that queue changes.
    pub blocked_on: Option<QueueId>,
    /// When its client left (a sequence number), while the position is reserved.
    pub(super) detached: Option<u64>,
}

/// Whether the owner of a removed request has other requests, queued or with reserved positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It has others.
    Some,
    /// It has no others.
    None,
}

impl QueuedRequest {
    /// The owner, the claim and the lease.
    pub fn request(&self) -> LockRequest<'_> {
        LockRequest { owner: self.owner.as_ref(), claim: self.claim, lease: self.lease }
    }

    /// The lease of a grant at this time; `None` if it would already have expired.
    pub fn lease_from(&self, now: Timestamp) -> Option<Lease> {
        match self.lease_deadline {
            None => Some(self.lease),
            Some(ends) => NonZeroU64::new(ends.ms_since(now)).map(Lease::Ms),
        }
    }

    /// Whether its client waits. A reserved position is not a waiter.
    pub fn is_present(&self) -> bool {
        self.detached.is_none()
    }

    /// Whether it waits for multiple keys at once.
    pub fn has_multiple_keys(&self) -> bool {
        self.queues.len() > 1
    }

    /// Whether the request is in this queue.
    pub fn is_in(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }
}
