//! The results of admission, grant and release, and the hold of one owner.

use super::claim::{InvalidClaim, Origin, Share};
use super::fence::Fence;
use super::holders::Slot;
use super::owner::Owner;
use super::time::{Deadline, Lease, Timestamp};

/// Whether the present holders of a lock admit a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The owner holds it already, or reenters: granted ahead of all waiters.
    AlreadyHeld,
    /// No holder blocks it: granted when it is first in the queue.
    Admit,
    /// A holder blocks it.
    Wait,
}

/// A grant: enough to reply, and to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence that the owner has now.
    pub fence: Fence,
    /// Holds of the mode asked for, or permits, before.
    pub holds_before: u32,
    /// Holds of the mode asked for, or permits, after.
    pub holds: u32,
    /// The slot, for a claim to one.
    pub slot: Option<Slot>,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// This owner does not hold it (in that mode).
    NotHeld,
    /// It holds as much as before: the release was sent again.
    Same(u32),
    /// It still holds the lock, with that many holds of the mode or permits left.
    Fewer(u32),
    /// It holds the lock no longer.
    Gone,
}

/// Why a key cannot be granted to a request, whatever its holders are. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key holds a value of another type.
    WrongType,
    /// The claim is invalid for the lock as it is: another family, a smaller LIMIT, more holds than it names.
    Invalid(InvalidClaim),
    /// No fence is left below 2^53.
    NoFence,
}

impl From<InvalidClaim> for KeyError {
    fn from(invalid: InvalidClaim) -> KeyError {
        KeyError::Invalid(invalid)
    }
}

impl Hold<'_> {
    /// The share of its owner. A count of 0 holds the lock as any other.
    pub fn share(&self) -> Share {
        let holds = if self.reads == 0 { self.holds.max(1) } else { self.holds };
        Share { holds, reads: self.reads, has_slot: self.slot.is_some() }
    }

    /// How long it has been held. A fence is the time of its grant in microseconds, unless the clock was set back
    /// since.
    pub fn age_ms(&self, now: Timestamp) -> u64 {
        now.ms_since(Timestamp::from_ms(self.fence.get() / 1000))
    }
}

/// The holders of a lock with leases that are not over, for replies.
#[derive(Clone, Debug)]
pub struct LiveHolders<'a> {
    /// The hold with the smallest fence.
    pub first: Hold<'a>,
    /// The number of live holders, at least one.
    pub number: usize,
}

/// The hold of one owner, for replies.
#[derive(Clone, Debug)]
pub struct Hold<'a> {
    /// The holder.
    pub owner: &'a Owner,
    /// The fence of its latest grant that was not merely a reentry.
    pub fence: Fence,
    /// The length of the lease, as last asked for.
    pub lease: Lease,
    /// When the lease ends.
    pub until: Deadline,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
    /// The number of its one permit, if it asked for a slot.
    pub slot: Option<Slot>,
    /// By which commands it was granted; a shared lock is always native.
    pub origin: Origin,
}
