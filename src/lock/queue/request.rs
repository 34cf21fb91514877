//! A queued request: its claim, when it was queued, when it times out, and its place in the wait queues of its keys.

use std::num::NonZeroU64;

use super::place::Place;
use crate::key::{ClientId, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, LockRequest};
use crate::value::owner::Owner;
use crate::value::time::{Instant, Lease, Timestamp};

/// The wait queue of a key, for as long as it exists. Ids are not reused.
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

/// An owner of one database, for as long as it has requests. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub(super) u64);

/// A request that is about to queue, as the deadlock search judges it.
#[derive(Clone, Debug)]
pub struct NewRequest<'a> {
    /// The database of its keys.
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// Owner, claim and lease.
    pub request: LockRequest<'a>,
    /// Its owner, looked up by name when the request came; `None`: no request of it is queued.
    pub owner_id: Option<OwnerId>,
    /// The place that it gets in the queues. A retry takes over the place of the request that it repeats.
    pub place: Place,
    /// The queued request that it replaces: the one that it repeats, or itself if it is decided anew.
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

/// A request that queues now.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Owner, claim, lease, keys and place.
    pub new: NewRequest<'a>,
    /// When the wait began: now, or with the first of the requests into which the client has cut its wait.
    pub since: Instant,
    /// When the client stops waiting; `None`: never.
    pub until: Option<Instant>,
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// Whether it may keep its place when its client leaves: not with a token that the server made.
    pub may_come_back: bool,
    /// Whether a release of the key answers it (COALESCE). Only for a request for one mutex.
    pub coalesces: bool,
    /// When its lease ends, whenever it begins; `None`: the lease is a length of time.
    pub lease_ends: Option<Timestamp>,
}

/// A request that is queued, or keeps its place while its client is away.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    /// The owner of the hold that it asks for.
    pub owner: Owner,
    /// The claim: mode, and permits or holds.
    pub claim: Claim,
    /// The lease, from the grant on.
    pub lease: Lease,
    /// The database of its keys.
    pub db: i32,
    /// The wait queues of its keys, in the order of the request.
    pub queues: OneOrMany<QueueId>,
    /// Its place in each of them.
    pub place: Place,
    /// When the wait began: with the first of the requests into which the client has cut it.
    pub since: Instant,
    /// When the client stops waiting, or the kept place ends; `None`: never.
    pub until: Option<Instant>,
    /// The connection that asked, to which SESSION binds the grant.
    pub session: Option<ClientId>,
    /// Whether it may keep its place when its client leaves: not with a token that the server made.
    pub may_come_back: bool,
    /// Whether a release of the key answers it (COALESCE). Only for a request for one mutex.
    pub coalesces: bool,
    /// When its lease ends, whenever it begins; `None`: the lease is a length of time.
    pub lease_ends: Option<Timestamp>,
    /// The id of its owner.
    pub owner_id: OwnerId,
    /// The queue under which its owner lists it: the smallest of `queues`.
    pub(super) listed_under: QueueId,
    /// Whether its owner may have other requests. An owner that waits for nothing else is assumed to release the lock
    /// once it is granted.
    pub(super) may_wait_elsewhere: bool,
    /// For a request for several keys: the queue that blocked it when it was last tried. Changes of its other keys
    /// cannot serve it until that queue changes.
    pub blocked_on: Option<QueueId>,
    /// The departure (a running number) of its client, while the client is away.
    pub(super) away: Option<u64>,
}

/// Whether the owner of a removed request has other requests, queued or with a kept place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It has others.
    Some,
    /// It has no others.
    None,
}

impl QueuedRequest {
    /// Owner, claim and lease.
    pub fn request(&self) -> LockRequest<'_> {
        LockRequest { owner: self.owner.as_ref(), claim: self.claim, lease: self.lease }
    }

    /// The lease of a grant at this time; `None`: it would have ended.
    pub fn lease_from(&self, now: Timestamp) -> Option<Lease> {
        match self.lease_ends {
            None => Some(self.lease),
            Some(ends) => NonZeroU64::new(ends.ms_since(now)).map(Lease::Ms),
        }
    }

    /// Whether its client waits; a kept place is no waiter.
    pub fn is_present(&self) -> bool {
        self.away.is_none()
    }

    /// Whether it waits for several keys at once.
    pub fn has_several_keys(&self) -> bool {
        self.queues.len() > 1
    }

    /// Whether it is in this queue.
    pub fn stands_in(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }
}
