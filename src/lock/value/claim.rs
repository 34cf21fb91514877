//! What a request claims and what a release returns, for each of the four lock types.

use super::owner::OwnerRef;
use super::time::Lease;

/// The largest LIMIT and the largest PERMITS.
pub const MAX_PERMITS: u32 = 1_000_000;

/// The type of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockType {
    /// One holder, which holds it once.
    Mutex,
    /// One holder, which may hold it any number of times.
    Reentrant,
    /// Many readers or one writer.
    ReadWrite,
    /// Permits, up to a limit.
    Semaphore,
}

impl LockType {
    /// All lock types, in their order.
    pub const ALL: [LockType; 4] = [LockType::Mutex, LockType::Reentrant, LockType::ReadWrite, LockType::Semaphore];

    /// The name that clients see as `kind`.
    pub fn name(self) -> &'static str {
        match self {
            LockType::Mutex => "mutex",
            LockType::Reentrant => "reentrant",
            LockType::ReadWrite => "rw",
            LockType::Semaphore => "semaphore",
        }
    }

    /// Whether a lock of this type has one holder at a time.
    pub const fn is_exclusive(self) -> bool {
        matches!(self, LockType::Mutex | LockType::Reentrant)
    }
}

/// One `T` for each lock type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByLockType<T>(pub [T; LockType::ALL.len()]);

impl<T> ByLockType<T> {
    /// The value for a lock type.
    #[inline(always)]
    pub fn of(&self, lock_type: LockType) -> &T {
        &self.0[lock_type as usize]
    }

    /// The value for a lock type, mutable.
    #[inline(always)]
    pub fn of_mut(&mut self, lock_type: LockType) -> &mut T {
        &mut self.0[lock_type as usize]
    }

    /// Makes one value for each lock type.
    pub fn make(mut make: impl FnMut(LockType) -> T) -> ByLockType<T> {
        ByLockType(LockType::ALL.map(&mut make))
    }
}

/// Which commands granted a hold. A client without the module's commands never preempts a native hold.
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
    /// This many more (acquire) or fewer (release) than the owner has now.
    Delta(u32),
    /// Exactly this many afterwards, which makes the request safe to resend.
    Exactly(u32),
}

impl Count {
    /// The number in the request.
    #[inline]
    pub fn number(self) -> u32 {
        match self {
            Count::Delta(n) | Count::Exactly(n) => n,
        }
    }

    /// The holds after an acquire.
    pub(super) fn added_to(self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            Count::Delta(n) => held.checked_add(n).ok_or(InvalidClaim::TooManyHolds),
            Count::Exactly(n) if n < held => Err(InvalidClaim::HoldsMore(held)),
            Count::Exactly(n) => Ok(n),
        }
    }

    /// The holds after a release.
    #[inline]
    pub(super) fn taken_from(self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            Count::Delta(n) => held.checked_sub(n).ok_or(InvalidClaim::HoldsFewer(held)),
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
    /// The mutex, for an adopted command. Its token may be a constant, so a holder with the same token excludes it like
    /// any other holder, it supersedes no request, and its wait, which is bounded, cannot complete a deadlock.
    AdoptedMutex,
    /// Holds of a reentrant mutex.
    Reentrant(Count),
    /// Holds of a reentrant mutex, for an adopted command. They are granted at once or not at all.
    AdoptedReentrant(Count),
    /// Holds of a read/write lock in a mode.
    ReadWrite(Mode, Count),
    /// Permits of a semaphore.
    Permits {
        /// The maximum number of permits held together; 1 or more.
        limit: u32,
        /// How many permits are claimed.
        count: Count,
    },
    /// One permit of a semaphore, with a number that no other holder has.
    Slot {
        /// As for `Permits`.
        limit: u32,
    },
}

impl Claim {
    /// The lock type of the claim.
    #[inline]
    pub fn lock_type(&self) -> LockType {
        match self {
            Claim::Mutex | Claim::AdoptedMutex => LockType::Mutex,
            Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => LockType::Reentrant,
            Claim::ReadWrite(..) => LockType::ReadWrite,
            Claim::Permits { .. } | Claim::Slot { .. } => LockType::Semaphore,
        }
    }

    /// The mode that clients see for a holder of this claim: exclusive, read, write or permits.
    pub fn mode_name(&self) -> &'static str {
        match self {
            Claim::Mutex | Claim::AdoptedMutex | Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => "exclusive",
            Claim::ReadWrite(Mode::Read, _) => "read",
            Claim::ReadWrite(Mode::Write, _) => "write",
            Claim::Permits { .. } | Claim::Slot { .. } => "permits",
        }
    }

    /// How many holds or permits it asks for.
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

    /// Which commands grant a hold of this claim.
    #[inline]
    pub fn origin(&self) -> Origin {
        match self {
            Claim::AdoptedMutex | Claim::AdoptedReentrant(_) => Origin::Adopted,
            _ => Origin::Native,
        }
    }

    /// The same claim for an adopted command.
    pub(crate) fn adopted(self) -> Claim {
        match self {
            Claim::Mutex => Claim::AdoptedMutex,
            Claim::Reentrant(count) => Claim::AdoptedReentrant(count),
            _ => self,
        }
    }

    /// The LIMIT in the claim.
    pub fn limit(&self) -> Option<u32> {
        match self {
            Claim::Permits { limit, .. } | Claim::Slot { limit } => Some(*limit),
            _ => None,
        }
    }

    /// Whether the claimed permits together with the `held` permits of the owner exceed LIMIT, whatever other owners
    /// hold.
    pub(crate) fn never_fits(&self, held: u32, limit: u32) -> bool {
        let Claim::Permits { count, .. } = self else { return false };
        match count {
            Count::Delta(more) => held.saturating_add(*more) > limit,
            Count::Exactly(permits) => *permits > limit,
        }
    }

    /// The same claim with another LIMIT.
    pub fn under_limit(self, limit: Option<u32>) -> Claim {
        match (self, limit) {
            (Claim::Permits { count, .. }, Some(limit)) => Claim::Permits { limit, count },
            (Claim::Slot { .. }, Some(limit)) => Claim::Slot { limit },
            _ => self,
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Claim::ReadWrite(Mode::Read, _))
    }

    /// Whether it repeats `other`: the same mode and number. The limit may differ.
    pub fn is_retry_of(&self, other: &Claim) -> bool {
        match (self, other) {
            (Claim::Permits { count, .. }, Claim::Permits { count: before, .. }) => count == before,
            (Claim::Slot { .. }, Claim::Slot { .. }) => true,
            _ => self == other,
        }
    }
}

/// The part of a lock that one owner holds or would hold.
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
    /// Whether a claim by this owner never waits: it reenters, is already held, or is refused (such as permits in
    /// addition to a slot).
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
            Claim::Permits { count: Count::Delta(_), .. } => false,
        }
    }

    /// The share after a grant of this claim.
    pub fn with(self, claim: &Claim) -> Share {
        if let (Claim::Permits { .. }, true) = (claim, self.has_slot) {
            return self;
        }
        let added = |held: u32| match claim.count() {
            Count::Delta(n) => held.saturating_add(n),
            Count::Exactly(n) => held.max(n),
        };
        if claim.is_read() {
            Share { reads: added(self.reads), ..self }
        } else {
            let is_slot = matches!(claim, Claim::Slot { .. }) && self.holds == 0;
            Share { holds: added(self.holds), has_slot: self.has_slot || is_slot, ..self }
        }
    }
}

/// What a release returns: a part of a hold, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAmount {
    /// The mutex.
    Mutex,
    /// Holds of a reentrant mutex.
    Reentrant(Count),
    /// Holds of a read/write lock in a mode.
    ReadWrite(Mode, Count),
    /// Permits of a semaphore.
    Permits(Count),
}

impl ReleaseAmount {
    /// The lock type that it applies to.
    #[inline]
    pub fn lock_type(&self) -> LockType {
        match self {
            ReleaseAmount::Mutex => LockType::Mutex,
            ReleaseAmount::Reentrant(_) => LockType::Reentrant,
            ReleaseAmount::ReadWrite(..) => LockType::ReadWrite,
            ReleaseAmount::Permits(_) => LockType::Semaphore,
        }
    }

    /// What remains of `held` holds.
    #[inline(always)]
    pub(super) fn taken_from(&self, held: u32) -> Result<u32, InvalidClaim> {
        match self {
            ReleaseAmount::Mutex => Ok(0),
            ReleaseAmount::Reentrant(count) | ReleaseAmount::ReadWrite(_, count) | ReleaseAmount::Permits(count) => {
                count.taken_from(held)
            }
        }
    }
}

/// The owner, the claim and the lease of a request. The owner's bytes are borrowed, and copied only where they are
/// stored.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// The owner of the hold.
    pub owner: OwnerRef<'a>,
    /// What it claims.
    pub claim: Claim,
    /// The lease, which starts with the grant.
    pub lease: Lease,
}

/// Why a request is invalid for the lock as it is. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidClaim {
    /// The key holds a lock of this other type.
    WrongLockType(LockType),
    /// An acquire with `HOLDS n` while the owner holds more than n. An acquire never reduces a count.
    HoldsMore(u32),
    /// A release with `HOLDS n` while the owner holds fewer than n, or of more permits than it holds. A release never
    /// increases a count.
    HoldsFewer(u32),
    /// More than 2^32 - 1 holds.
    TooManyHolds,
    /// More permits than LIMIT allows.
    OverLimit,
    /// The owner holds permits without a slot and asks for a slot.
    HoldsPermits,
    /// The owner holds a slot and asks for permits.
    HoldsSlot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_count_adds_or_sets_and_never_reduces() {
        let cases = [
            (Count::Delta(2), 3, Ok(5)),
            (Count::Delta(1), u32::MAX, Err(InvalidClaim::TooManyHolds)),
            (Count::Exactly(3), 3, Ok(3)),
            (Count::Exactly(4), 3, Ok(4)),
            (Count::Exactly(2), 3, Err(InvalidClaim::HoldsMore(3))),
        ];
        for (count, held, after) in cases {
            assert_eq!(count.added_to(held), after, "{count:?} added to {held}");
        }
    }

    #[test]
    fn a_released_count_reduces_or_sets_and_never_adds() {
        let cases = [
            (Count::Delta(2), 3, Ok(1)),
            (Count::Delta(3), 3, Ok(0)),
            (Count::Delta(4), 3, Err(InvalidClaim::HoldsFewer(3))),
            (Count::Exactly(0), 3, Ok(0)),
            (Count::Exactly(3), 3, Ok(3)),
            (Count::Exactly(4), 3, Err(InvalidClaim::HoldsFewer(3))),
        ];
        for (count, held, after) in cases {
            assert_eq!(count.taken_from(held), after, "{count:?} taken from {held}");
        }
        assert_eq!(ReleaseAmount::Mutex.taken_from(1), Ok(0));
    }

    #[test]
    fn a_claim_and_a_release_amount_have_lock_type_mode_and_count() {
        let count = Count::Delta(2);
        let rows = [
            (Claim::Mutex, ReleaseAmount::Mutex, LockType::Mutex, "mutex", "exclusive", Count::Exactly(1)),
            (
                Claim::Reentrant(count),
                ReleaseAmount::Reentrant(count),
                LockType::Reentrant,
                "reentrant",
                "exclusive",
                count,
            ),
            (
                Claim::ReadWrite(Mode::Read, count),
                ReleaseAmount::ReadWrite(Mode::Read, count),
                LockType::ReadWrite,
                "rw",
                "read",
                count,
            ),
            (
                Claim::ReadWrite(Mode::Write, count),
                ReleaseAmount::ReadWrite(Mode::Write, count),
                LockType::ReadWrite,
                "rw",
                "write",
                count,
            ),
            (
                Claim::Permits { limit: 3, count },
                ReleaseAmount::Permits(count),
                LockType::Semaphore,
                "semaphore",
                "permits",
                count,
            ),
        ];
        for (claim, amount, lock_type, word, mode, count) in rows {
            assert_eq!(
                (claim.lock_type(), amount.lock_type(), claim.count()),
                (lock_type, lock_type, count),
                "{claim:?}"
            );
            assert_eq!((claim.lock_type().name(), claim.mode_name()), (word, mode), "{claim:?}");
            assert_eq!(claim.is_read(), mode == "read", "{claim:?}");
            let is_semaphore = lock_type == LockType::Semaphore;
            assert_eq!(claim.limit(), is_semaphore.then_some(3), "{claim:?}");
            let slot = Claim::Slot { limit: 3 };
            assert_eq!((slot.limit(), slot.under_limit(Some(9))), (Some(3), Claim::Slot { limit: 9 }));
            let under_another = if is_semaphore { Claim::Permits { limit: 9, count } } else { claim };
            assert_eq!((claim.under_limit(Some(9)), claim.under_limit(None)), (under_another, claim));
        }
        assert_eq!((Count::Delta(2).number(), Count::Exactly(3).number()), (2, 3));
    }

    #[test]
    fn a_retry_has_the_same_mode_and_number() {
        let permits = |limit, n| Claim::Permits { limit, count: Count::Delta(n) };
        assert!(permits(5, 2).is_retry_of(&permits(3, 2)), "the limit may be a newer one");
        assert!(!permits(5, 2).is_retry_of(&permits(5, 1)));
        let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
        let slot = |limit| Claim::Slot { limit };
        assert!(slot(5).is_retry_of(&slot(3)));
        assert!(!slot(5).is_retry_of(&Claim::Permits { limit: 5, count: Count::Exactly(1) }));
        assert!(!Claim::Permits { limit: 5, count: Count::Exactly(1) }.is_retry_of(&slot(5)));
        assert!(read.is_retry_of(&read));
        assert!(!read.is_retry_of(&Claim::ReadWrite(Mode::Write, Count::Delta(1))));
        assert!(!Claim::Reentrant(Count::Delta(1)).is_retry_of(&Claim::Reentrant(Count::Exactly(1))));
    }
}
