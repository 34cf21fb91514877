//! What a request asks for and what a release gives back, in the words of the four families.

use super::owner::{Owner, OwnerRef};
use super::time::Lease;

/// The family of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Reentrant,
    Rw,
    Semaphore,
}

impl Kind {
    /// The word that clients see.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Reentrant => "reentrant",
            Kind::Rw => "rw",
            Kind::Semaphore => "semaphore",
        }
    }
}

/// How a read/write lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    Write,
}

/// How many holds or permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// That many more (acquire) or fewer (release) than now.
    Step(u32),
    /// Exactly that many afterwards: safe to resend.
    Exactly(u32),
}

/// What is asked of a lock, or given back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Mutex,
    Reentrant(Count),
    Rw(Mode, Count),
    /// Permits of a semaphore of which at most `limit` are out. A release has no say in the limit and leaves it 0.
    Permits {
        limit: u32,
        count: Count,
    },
}

impl Claim {
    /// The family that the claim belongs to.
    pub fn kind(&self) -> Kind {
        match self {
            Claim::Mutex => Kind::Mutex,
            Claim::Reentrant(_) => Kind::Reentrant,
            Claim::Rw(..) => Kind::Rw,
            Claim::Permits { .. } => Kind::Semaphore,
        }
    }

    /// How a holder of this claim is shown: exclusive, read, write or permits.
    pub fn mode_word(&self) -> &'static str {
        match self {
            Claim::Mutex | Claim::Reentrant(_) => "exclusive",
            Claim::Rw(Mode::Read, _) => "read",
            Claim::Rw(Mode::Write, _) => "write",
            Claim::Permits { .. } => "permits",
        }
    }

    /// How many holds or permits it names.
    pub fn amount(&self) -> u32 {
        match self {
            Claim::Mutex => 1,
            Claim::Reentrant(count) | Claim::Rw(_, count) | Claim::Permits { count, .. } => match count {
                Count::Step(n) | Count::Exactly(n) => *n,
            },
        }
    }

    /// Whether `other` is the same request sent again: the same mode and number; the limit may be a newer one.
    pub fn is_retry_of(&self, other: &Claim) -> bool {
        match (self, other) {
            (Claim::Permits { count, .. }, Claim::Permits { count: before, .. }) => count == before,
            _ => self == other,
        }
    }
}

/// A claim by somebody for some time.
#[derive(Clone, Debug)]
pub struct Ask {
    pub owner: Owner,
    pub claim: Claim,
    pub lease: Lease,
}

/// A claim as it comes in: the owner's bytes are the client's, and are copied only where they are kept.
#[derive(Clone, Copy, Debug)]
pub struct AskRef<'a> {
    pub owner: OwnerRef<'a>,
    pub claim: Claim,
    pub lease: Lease,
}

impl Ask {
    /// The same, borrowed.
    pub fn as_ref(&self) -> AskRef<'_> {
        AskRef { owner: self.owner.as_ref(), claim: self.claim, lease: self.lease }
    }
}

impl AskRef<'_> {
    /// A copy to keep.
    pub fn to_ask(self) -> Ask {
        Ask { owner: self.owner.to_owner(), claim: self.claim, lease: self.lease }
    }
}

/// Why a request makes no sense on the lock as it is. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key holds a lock of that other family.
    WrongKind(Kind),
    /// `HOLDS n` to acquire, with more than n held: an acquire never takes away.
    HoldsMore(u32),
    /// `HOLDS n` to release, with fewer than n held, or more permits given back than held: a release never adds.
    HoldsFewer(u32),
    /// More than 2^32 - 1 holds.
    TooManyHolds,
    /// More permits than LIMIT would let out.
    OverLimit,
}
