//! What a lock says of a claim, what a grant gave and a release did, and how a hold is told.

use super::fence::Fence;
use super::owner::Owner;
use super::time::{Deadline, Lease};

/// What the lock says of a claim, with its present holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The owner has it already or goes deeper: admitted whoever waits.
    Deeper,
    /// No holder is in the way: admitted when its turn has come.
    Admit,
    /// A holder is in the way.
    Wait,
}

/// What a grant gave, enough to reply to it and to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub fence: Fence,
    /// Holds of the mode asked for, or permits, before and after.
    pub before: u32,
    pub holds: u32,
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

/// How the lock is held by one owner, for replies.
#[derive(Clone, Debug)]
pub struct Hold<'a> {
    pub owner: &'a Owner,
    pub fence: Fence,
    pub lease: Lease,
    pub until: Deadline,
    pub holds: u32,
    pub reads: u32,
}
