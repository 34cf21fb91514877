//! A queued request: what it wants, since when and for how long it waits, and its place in the wait queues of its keys.

use crate::key::ClientId;
use crate::one_or_many::OneOrMany;
use crate::value::claim::{Claim, LockRequest};
use crate::value::owner::Owner;
use crate::value::time::{Instant, Lease};

/// The wait queue of a key, for as long as it exists; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(super) u64);

impl QueueId {
    pub(super) const FIRST: QueueId = QueueId(0);
    pub(super) const LAST: QueueId = QueueId(u64::MAX);
}

/// An owner of one database, for as long as it waits or holds what is waited for; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub(super) u64);

impl OwnerId {
    /// Before every owner.
    pub const FIRST: OwnerId = OwnerId(0);
    /// Behind every owner.
    pub const LAST: OwnerId = OwnerId(u64::MAX);
}

/// Where a request stands: the same in the wait queues of all its keys, so that requests for several keys cannot cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Before or behind others, whenever they came.
    pub rank: Rank,
    /// A running number.
    pub arrival: u64,
}

impl Place {
    /// Before every request.
    pub(super) const FIRST: Place = Place { rank: Rank::Upgrade, arrival: 0 };
}

/// Who stands before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// A reader that wants to write stands before all others.
    Upgrade,
    /// In the order of arrival.
    Normal,
}

impl Rank {
    /// The rank of a request, by whether it is an upgrade.
    pub fn of_upgrade(is_upgrade: bool) -> Rank {
        if is_upgrade {
            Rank::Upgrade
        } else {
            Rank::Normal
        }
    }
}

/// A request that is about to queue.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Who wants what, for how long.
    pub request: LockRequest<'a>,
    /// The database of its keys.
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// Where it shall stand.
    pub place: Place,
    /// Now.
    pub since: Instant,
    /// When the client stops waiting; `None`: never.
    pub until: Option<Instant>,
    /// The connection that the grant is bound to.
    pub session: Option<ClientId>,
    /// Whether it may keep its place when it goes away: not for a token that the server made.
    pub may_come_back: bool,
    /// Whether a release of the key answers it. Only of a request for one mutex.
    pub coalesces: bool,
}

/// A request that is queued, or keeps its place while its client is away.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    /// Who shall hold.
    pub owner: Owner,
    /// What it shall hold.
    pub claim: Claim,
    /// For how long, from the grant on.
    pub lease: Lease,
    /// The database of its keys.
    pub db: i32,
    /// The wait queues of its keys, in the order of the request.
    pub queues: OneOrMany<QueueId>,
    /// Where it stands in each of them.
    pub place: Place,
    /// When it was queued.
    pub since: Instant,
    /// When the client stops waiting; `None`: never.
    pub until: Option<Instant>,
    /// The connection that asked, to which SESSION binds the grant.
    pub session: Option<ClientId>,
    /// Whether it may keep its place when it goes away: not for a token that the server made.
    pub may_come_back: bool,
    /// Whether a release of the key answers it (COALESCE). Only of a request for one mutex.
    pub coalesces: bool,
    /// Its owner's number.
    pub(super) owner_id: OwnerId,
    /// The queue under which the requests of its owner are found: the smallest of `queues`.
    pub(super) listed_under: QueueId,
    /// Whether its owner may have other requests: one that waits for nothing else gives back what it gets as soon as it
    /// is served.
    pub(super) may_wait_elsewhere: bool,
    /// Of a request for several keys: the queue in which it had to wait when it was tried last. What happens to its
    /// other keys does not matter before something happens there.
    pub blocked_on: Option<QueueId>,
    /// Since which departure (a running number) its client is away.
    pub(super) away: Option<u64>,
}

/// Whether the owner of a request that has left has others, queued or with a kept place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It has.
    Some,
    /// It has not.
    None,
}

impl QueuedRequest {
    /// Who wants what, for how long.
    pub fn request(&self) -> LockRequest<'_> {
        LockRequest { owner: self.owner.as_ref(), claim: self.claim, lease: self.lease }
    }

    /// Whether its client is there and waits; a kept place is no waiter.
    pub fn is_present(&self) -> bool {
        self.away.is_none()
    }

    /// Whether it waits for several keys at once.
    pub fn has_several_keys(&self) -> bool {
        self.queues.len() > 1
    }

    /// Whether it stands in this queue.
    pub fn stands_in(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }
}
