//! What a lock says of a claim, what a grant gave, what a release did, and how one owner holds a lock.

use super::claim::{InvalidClaim, Share};
use super::fence::Fence;
use super::owner::Owner;
use super::slots::Slot;
use super::time::{Deadline, Lease, Timestamp};

/// What the lock says of a claim, with its present holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The owner holds it already, or reenters: granted whoever waits.
    AlreadyHeld,
    /// No holder is in the way: granted when its turn has come.
    Admit,
    /// A holder is in the way.
    Wait,
}

/// What was granted: enough to reply to it and to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence that the owner has now.
    pub fence: Fence,
    /// Holds of the mode asked for, or permits, before.
    pub holds_before: u32,
    /// The same after.
    pub holds: u32,
    /// Of a claim to a slot: which.
    pub slot: Option<Slot>,
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// This owner does not hold it (in that mode).
    NotHeld,
    /// It holds as much as before: a release sent again.
    Same(u32),
    /// It still holds the lock, with that many holds of the mode or permits left.
    Fewer(u32),
    /// It is no holder any more.
    Gone,
}

/// Why a key cannot be granted to a request, whoever holds it. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key holds a value of another type.
    WrongType,
    /// The claim makes no sense on the lock as it is: another family, a smaller LIMIT, more holds than it names.
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
    /// What its owner holds.
    pub fn share(&self) -> Share {
        Share { holds: self.holds, reads: self.reads, has_slot: self.slot.is_some() }
    }

    /// How long it has been held. A fence is the time of its grant in microseconds, as far as the clock was not set
    /// back since.
    pub fn age_ms(&self, now: Timestamp) -> u64 {
        now.ms_since(Timestamp::from_ms(self.fence.get() / 1000))
    }
}

/// Those who hold a lock and whose leases are not over, for replies.
#[derive(Clone, Debug)]
pub struct LiveHolders<'a> {
    /// The first: the one with the smallest fence.
    pub first: Hold<'a>,
    /// How many they are, one at least.
    pub number: usize,
}

/// How the lock is held by one owner, for replies.
#[derive(Clone, Debug)]
pub struct Hold<'a> {
    /// The holder.
    pub owner: &'a Owner,
    /// Of its latest grant that was not merely reentered.
    pub fence: Fence,
    /// The length last asked for.
    pub lease: Lease,
    /// When it ends.
    pub until: Deadline,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
    /// The number of the one permit, where it was asked for.
    pub slot: Option<Slot>,
}
