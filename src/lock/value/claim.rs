//! What a request claims, and what a release gives back, for each of the four families of locks.

use super::owner::OwnerRef;
use super::time::Lease;

/// The largest LIMIT, and the most PERMITS.
pub const MAX_PERMITS: u32 = 1_000_000;

/// The family of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// One holder, once.
    Mutex,
    /// One holder, any number of times.
    Reentrant,
    /// Many readers or one writer.
    ReadWrite,
    /// Permits, up to a limit.
    Semaphore,
}

impl Family {
    /// All of them, in their order.
    pub const ALL: [Family; 4] = [Family::Mutex, Family::Reentrant, Family::ReadWrite, Family::Semaphore];

    /// The name that clients see as `kind`.
    pub fn word(self) -> &'static str {
        match self {
            Family::Mutex => "mutex",
            Family::Reentrant => "reentrant",
            Family::ReadWrite => "rw",
            Family::Semaphore => "semaphore",
        }
    }

    /// Whether a lock of the family has one holder at a time.
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Family::Mutex | Family::Reentrant)
    }
}

/// One `T` for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByFamily<T>(pub [T; Family::ALL.len()]);

impl<T> ByFamily<T> {
    /// The value of a family.
    #[inline(always)]
    pub fn of(&self, family: Family) -> &T {
        &self.0[family as usize]
    }

    /// The value of a family, mutable.
    #[inline(always)]
    pub fn of_mut(&mut self, family: Family) -> &mut T {
        &mut self.0[family as usize]
    }

    /// Makes one value for each family.
    pub fn make(mut make: impl FnMut(Family) -> T) -> ByFamily<T> {
        ByFamily(Family::ALL.map(&mut make))
    }
}

/// By which commands a hold was granted. A native hold is never taken over by a client that does not know the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `LOCK.*`.
    #[default]
    Native,
    /// Commands that `lock.adopt` translates.
    Adopted,
}

/// How a read/write lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusively.
    Write,
}

/// A number of holds or permits, relative or absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This many more (acquire) or fewer (release) than now.
    Step(u32),
    /// Exactly this many afterwards: safe to resend.
    Exactly(u32),
}

impl Count {
    /// The number that the request names.
    #[inline]
    pub fn number(self) -> u32 {
        match self {
            Count::Step(n) | Count::Exactly(n) => n,
        }
    }

    /// The holds after an acquire.
    pub(super) fn added_to(self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            Count::Step(n) => held.checked_add(n).ok_or(InvalidClaim::TooManyHolds),
            Count::Exactly(n) if n < held => Err(InvalidClaim::HoldsMore(held)),
            Count::Exactly(n) => Ok(n),
        }
    }

    /// The holds after a release.
    #[inline]
    pub(super) fn taken_from(self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            Count::Step(n) => held.checked_sub(n).ok_or(InvalidClaim::HoldsFewer(held)),
            Count::Exactly(n) if n > held => Err(InvalidClaim::HoldsFewer(held)),
            Count::Exactly(n) => Ok(n),
        }
    }
}

/// What a request claims of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The mutex.
    Mutex,
    /// The mutex, for a client that does not know the module. Its token may be a constant: a holder with the same token
    /// bars it as any other, it supersedes no request, and its wait, which is bounded, closes no deadlock.
    AdoptedMutex,
    /// Holds of a reentrant mutex.
    Reentrant(Count),
    /// The same, for a client that does not know the module. It is granted at once or not at all.
    AdoptedReentrant(Count),
    /// Holds of a read/write lock in a mode.
    ReadWrite(Mode, Count),
    /// Permits of a semaphore.
    Permits {
        /// At most this many are out; 1 or more.
        limit: u32,
        /// How many are claimed.
        count: Count,
    },
    /// One permit of a semaphore, and a number that no other holder has.
    Slot {
        /// As for permits.
        limit: u32,
    },
}

impl Claim {
    /// The family that the claim belongs to.
    #[inline]
    pub fn family(&self) -> Family {
        match self {
            Claim::Mutex | Claim::AdoptedMutex => Family::Mutex,
            Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => Family::Reentrant,
            Claim::ReadWrite(..) => Family::ReadWrite,
            Claim::Permits { .. } | Claim::Slot { .. } => Family::Semaphore,
        }
    }

    /// The mode shown for a holder of this claim: exclusive, read, write or permits.
    pub fn mode_word(&self) -> &'static str {
        match self {
            Claim::Mutex | Claim::AdoptedMutex | Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => "exclusive",
            Claim::ReadWrite(Mode::Read, _) => "read",
            Claim::ReadWrite(Mode::Write, _) => "write",
            Claim::Permits { .. } | Claim::Slot { .. } => "permits",
        }
    }

    /// How many holds or permits it names.
    #[inline]
    pub fn count(&self) -> Count {
        match self {
            Claim::Mutex | Claim::AdoptedMutex | Claim::Slot { .. } => Count::Exactly(1),
            Claim::Reentrant(count)
            | Claim::AdoptedReentrant(count)
            | Claim::ReadWrite(_, count)
            | Claim::Permits { count, .. } => *count,
        }
    }

    /// By which commands a hold of this claim is granted.
    #[inline]
    pub fn origin(&self) -> Origin {
        match self {
            Claim::AdoptedMutex | Claim::AdoptedReentrant(_) => Origin::Adopted,
            _ => Origin::Native,
        }
    }

    /// The same claim, for a client that does not know the module.
    pub(crate) fn adopted(self) -> Claim {
        match self {
            Claim::Mutex => Claim::AdoptedMutex,
            Claim::Reentrant(count) => Claim::AdoptedReentrant(count),
            _ => self,
        }
    }

    /// The LIMIT that it brings.
    pub fn limit(&self) -> Option<u32> {
        match self {
            Claim::Permits { limit, .. } | Claim::Slot { limit } => Some(*limit),
            _ => None,
        }
    }

    /// True if the permits that this claim asks for and the `held` permits of its owner exceed LIMIT, whatever other
    /// owners hold.
    pub(crate) fn never_fits(&self, held: u32, limit: u32) -> bool {
        let Claim::Permits { count, .. } = self else { return false };
        match count {
            Count::Step(more) => held.saturating_add(*more) > limit,
            Count::Exactly(permits) => *permits > limit,
        }
    }

    /// The same claim under another LIMIT.
    pub fn under_limit(self, limit: Option<u32>) -> Claim {
        match (self, limit) {
            (Claim::Permits { count, .. }, Some(limit)) => Claim::Permits { limit, count },
            (Claim::Slot { .. }, Some(limit)) => Claim::Slot { limit },
            _ => self,
        }
    }

    /// Whether it asks to read.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Claim::ReadWrite(Mode::Read, _))
    }

    /// Whether it repeats `other`: the same mode and number; the limit may be a newer one.
    pub fn is_retry_of(&self, other: &Claim) -> bool {
        match (self, other) {
            (Claim::Permits { count, .. }, Claim::Permits { count: before, .. }) => count == before,
            (Claim::Slot { .. }, Claim::Slot { .. }) => true,
            _ => self == other,
        }
    }
}

/// The part of a lock that one owner holds, or would hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
    /// Whether its one permit is a slot.
    pub has_slot: bool,
}

impl Share {
    /// Whether a claim by its owner waits for nothing: it reenters, is held already, or is refused (as permits in
    /// addition to a slot are).
    pub fn covers(self, claim: &Claim) -> bool {
        match claim {
            Claim::ReadWrite(Mode::Read, _) => self.holds > 0 || self.reads > 0,
            Claim::Mutex
            | Claim::Reentrant(_)
            | Claim::AdoptedReentrant(_)
            | Claim::ReadWrite(Mode::Write, _)
            | Claim::Slot { .. } => self.holds > 0,
            Claim::AdoptedMutex => false,
            Claim::Permits { .. } if self.has_slot => true,
            Claim::Permits { count: Count::Exactly(n), .. } => *n <= self.holds,
            Claim::Permits { count: Count::Step(_), .. } => false,
        }
    }

    /// The share after a grant of this claim.
    pub fn with(self, claim: &Claim) -> Share {
        if let (Claim::Permits { .. }, true) = (claim, self.has_slot) {
            return self;
        }
        let added = |held: u32| match claim.count() {
            Count::Step(n) => held.saturating_add(n),
            Count::Exactly(n) => held.max(n),
        };
        match claim.is_read() {
            true => Share { reads: added(self.reads), ..self },
            false => {
                let is_slot = matches!(claim, Claim::Slot { .. }) && self.holds == 0;
                Share { holds: added(self.holds), has_slot: self.has_slot || is_slot, ..self }
            }
        }
    }
}

/// The part of a hold that a release gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// The mutex.
    Mutex,
    /// Holds of a reentrant mutex.
    Reentrant(Count),
    /// Holds of a read/write lock in a mode.
    ReadWrite(Mode, Count),
    /// Permits of a semaphore.
    Permits(Count),
}

impl Portion {
    /// The family that the portion belongs to.
    #[inline]
    pub fn family(&self) -> Family {
        match self {
            Portion::Mutex => Family::Mutex,
            Portion::Reentrant(_) => Family::Reentrant,
            Portion::ReadWrite(..) => Family::ReadWrite,
            Portion::Permits(_) => Family::Semaphore,
        }
    }

    /// What remains of `held` holds.
    #[inline(always)]
    pub(super) fn taken_from(&self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            Portion::Mutex => Ok(0),
            Portion::Reentrant(count) | Portion::ReadWrite(_, count) | Portion::Permits(count) => {
                count.taken_from(held)
            }
        }
    }
}

/// Owner, claim and lease of a request. The owner's bytes are borrowed and copied only where they are stored.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// The owner of the hold.
    pub owner: OwnerRef<'a>,
    /// What it claims.
    pub claim: Claim,
    /// The lease, from the grant on.
    pub lease: Lease,
}

/// Why a request is invalid for the lock as it is. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidClaim {
    /// The key holds a lock of this other family.
    WrongFamily(Family),
    /// `HOLDS n` to acquire while more than n are held: an acquire never takes holds away.
    HoldsMore(u32),
    /// `HOLDS n` to release while fewer than n are held, or more permits given back than held: a release never adds.
    HoldsFewer(u32),
    /// More than 2^32 - 1 holds.
    TooManyHolds,
    /// More permits than LIMIT.
    OverLimit,
    /// An owner that holds permits without a slot asks for a slot.
    HoldsPermits,
    /// An owner that holds a slot asks for permits.
    HoldsSlot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_adds_or_sets_and_never_takes_away() {
        let cases = [
            (Count::Step(2), 3, Ok(5)),
            (Count::Step(1), u32::MAX, Err(InvalidClaim::TooManyHolds)),
            (Count::Exactly(3), 3, Ok(3)),
            (Count::Exactly(4), 3, Ok(4)),
            (Count::Exactly(2), 3, Err(InvalidClaim::HoldsMore(3))),
        ];
        for (count, held, after) in cases {
            assert_eq!(count.added_to(held), after, "{count:?} added to {held}");
        }
    }

    #[test]
    fn a_count_takes_away_or_sets_and_never_adds() {
        let cases = [
            (Count::Step(2), 3, Ok(1)),
            (Count::Step(3), 3, Ok(0)),
            (Count::Step(4), 3, Err(InvalidClaim::HoldsFewer(3))),
            (Count::Exactly(0), 3, Ok(0)),
            (Count::Exactly(3), 3, Ok(3)),
            (Count::Exactly(4), 3, Err(InvalidClaim::HoldsFewer(3))),
        ];
        for (count, held, after) in cases {
            assert_eq!(count.taken_from(held), after, "{count:?} taken from {held}");
        }
        assert_eq!(Portion::Mutex.taken_from(1), Ok(0));
    }

    #[test]
    fn a_claim_and_a_portion_have_family_mode_and_count() {
        let count = Count::Step(2);
        let rows = [
            (Claim::Mutex, Portion::Mutex, Family::Mutex, "mutex", "exclusive", Count::Exactly(1)),
            (Claim::Reentrant(count), Portion::Reentrant(count), Family::Reentrant, "reentrant", "exclusive", count),
            (
                Claim::ReadWrite(Mode::Read, count),
                Portion::ReadWrite(Mode::Read, count),
                Family::ReadWrite,
                "rw",
                "read",
                count,
            ),
            (
                Claim::ReadWrite(Mode::Write, count),
                Portion::ReadWrite(Mode::Write, count),
                Family::ReadWrite,
                "rw",
                "write",
                count,
            ),
            (
                Claim::Permits { limit: 3, count },
                Portion::Permits(count),
                Family::Semaphore,
                "semaphore",
                "permits",
                count,
            ),
        ];
        for (claim, portion, family, word, mode, count) in rows {
            assert_eq!((claim.family(), portion.family(), claim.count()), (family, family, count), "{claim:?}");
            assert_eq!((claim.family().word(), claim.mode_word()), (word, mode), "{claim:?}");
            assert_eq!(claim.is_read(), mode == "read", "{claim:?}");
            let is_semaphore = family == Family::Semaphore;
            assert_eq!(claim.limit(), is_semaphore.then_some(3), "{claim:?}");
            let slot = Claim::Slot { limit: 3 };
            assert_eq!((slot.limit(), slot.under_limit(Some(9))), (Some(3), Claim::Slot { limit: 9 }));
            let under_another = if is_semaphore { Claim::Permits { limit: 9, count } } else { claim };
            assert_eq!((claim.under_limit(Some(9)), claim.under_limit(None)), (under_another, claim));
        }
        assert_eq!((Count::Step(2).number(), Count::Exactly(3).number()), (2, 3));
    }

    #[test]
    fn a_retry_has_the_same_mode_and_number() {
        let permits = |limit, n| Claim::Permits { limit, count: Count::Step(n) };
        assert!(permits(5, 2).is_retry_of(&permits(3, 2)), "the limit may be a newer one");
        assert!(!permits(5, 2).is_retry_of(&permits(5, 1)));
        let read = Claim::ReadWrite(Mode::Read, Count::Step(1));
        let slot = |limit| Claim::Slot { limit };
        assert!(slot(5).is_retry_of(&slot(3)));
        assert!(!slot(5).is_retry_of(&Claim::Permits { limit: 5, count: Count::Exactly(1) }));
        assert!(!Claim::Permits { limit: 5, count: Count::Exactly(1) }.is_retry_of(&slot(5)));
        assert!(read.is_retry_of(&read));
        assert!(!read.is_retry_of(&Claim::ReadWrite(Mode::Write, Count::Step(1))));
        assert!(!Claim::Reentrant(Count::Step(1)).is_retry_of(&Claim::Reentrant(Count::Exactly(1))));
    }
}
