//! The results of admission, grant and release, and the hold of one owner.

use super::claim::{InvalidClaim, Origin, Share};
use super::fence::Fence;
use super::holders::Slot;
use super::owner::Owner;
use super::time::{Deadline, Lease, Timestamp};

/// Whether the current holders of a lock admit a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The owner already holds it, or reenters. Granted ahead of all waiters.
    AlreadyHeld,
    /// No holder blocks it. Granted when it is first in the queue.
    Admit,
    /// A holder blocks it.
    Wait,
}

/// A grant, with all that is needed to reply and to revoke it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The owner's fencing token.
    pub fence: Fence,
    /// How many holds of the requested mode, or permits, the owner had before.
    pub holds_before: u32,
    /// How many it has now.
    pub holds: u32,
    /// The slot, if the claim asked for one.
    pub slot: Option<Slot>,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// This owner does not hold it (in that mode).
    NotHeld,
    /// It holds as much as before, because the release was resent.
    Same(u32),
    /// It still holds the lock, with this many holds of the mode or permits left.
    Fewer(u32),
    /// It holds the lock no longer.
    Gone,
}

/// Why a key cannot be granted to a request, independently of its holders. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key holds a value of another type.
    WrongType,
    /// The claim is invalid for the lock as it is: another lock type, a smaller LIMIT, or more holds than the request
    /// allows.
    Invalid(InvalidClaim),
    /// No fencing token is left below 2^53.
    NoFence,
}

impl From<InvalidClaim> for KeyError {
    fn from(invalid: InvalidClaim) -> KeyError {
        KeyError::Invalid(invalid)
    }
}

impl Hold<'_> {
    /// The share of its owner. A count of 0 still holds the lock.
    pub fn share(&self) -> Share {
        let holds = if self.reads == 0 { self.holds.max(1) } else { self.holds };
        Share { holds, reads: self.reads, has_slot: self.slot.is_some() }
    }

    /// How long it has been held. A fencing token is the time of its grant in microseconds, unless the clock was set
    /// back since.
    pub fn age_ms(&self, now: Timestamp) -> u64 {
        now.ms_since(Timestamp::from_ms(self.fence.get() / 1000))
    }
}

/// The holders of a lock whose leases have not expired, for replies.
#[derive(Clone, Debug)]
pub struct LiveHolders<'a> {
    /// The hold with the smallest fencing token.
    pub first: Hold<'a>,
    /// The number of live holders; at least one.
    pub number: usize,
}

/// The hold of one owner, for replies.
#[derive(Clone, Debug)]
pub struct Hold<'a> {
    /// The holder.
    pub owner: &'a Owner,
    /// The fencing token of its latest grant that was not just a reentry.
    pub fence: Fence,
    /// The length of the lease, as last requested.
    pub lease: Lease,
    /// When the lease expires.
    pub until: Deadline,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
    /// The number of its one permit, if it has a slot.
    pub slot: Option<Slot>,
    /// Which commands granted it. A shared lock is always native.
    pub origin: Origin,
}
