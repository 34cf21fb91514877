//! The holder of a mutex or reentrant mutex. Its deadline is the key's own time to live and is stored nowhere else, so
//! EXPIRE, PTTL and the lease cannot disagree.

use super::claim::{Claim, InvalidClaim, LockRequest, LockType, Origin, ReleaseAmount};
use super::fence::Fence;
use super::holders::Holder;
use super::outcome::{Admission, Grant, Hold, Released};
use super::owner::Owner;
use super::time::{Deadline, Lease, Timestamp};

/// The holder of a mutex or reentrant mutex.
#[derive(Clone, Debug)]
pub struct Exclusive {
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    lease: Lease,
    holds: u32,
    is_reentrant: bool,
    pub(super) origin: Origin,
}

impl Exclusive {
    /// The lock after its first grant.
    #[inline]
    pub(super) fn of_request(request: &LockRequest<'_>, fence: Fence) -> Exclusive {
        Exclusive {
            owner: request.owner.to_owner(),
            fence,
            lease: request.lease,
            holds: request.claim.count().number(),
            is_reentrant: request.claim.lock_type() == LockType::Reentrant,
            origin: request.claim.origin(),
        }
    }

    /// The lock from a file, a dump or an effect.
    pub(super) fn of_holder(lock_type: LockType, holder: Holder) -> Exclusive {
        Exclusive {
            owner: holder.owner,
            fence: holder.fence,
            lease: holder.lease,
            holds: holder.holds,
            is_reentrant: lock_type == LockType::Reentrant,
            origin: holder.origin,
        }
    }

    #[inline]
    pub(super) fn lock_type(&self) -> LockType {
        if self.is_reentrant {
            LockType::Reentrant
        } else {
            LockType::Mutex
        }
    }

    #[inline(always)]
    pub(super) fn is_held_by(&self, owner: &[u8]) -> bool {
        self.owner.as_bytes() == owner
    }

    pub(super) fn hold(&self, key_until: Deadline) -> Hold<'_> {
        let Exclusive { owner, fence, lease, holds, origin, .. } = self;
        let (fence, lease, holds, origin) = (*fence, *lease, *holds, *origin);
        Hold { owner, fence, lease, until: key_until, holds, reads: 0, slot: None, origin }
    }

    pub(super) fn admission(&self, owner: &[u8], claim: &Claim) -> Result<Admission, InvalidClaim> {
        self.check_lock_type(claim.lock_type())?;
        if !self.is_held_by(owner) || *claim == Claim::AdoptedMutex {
            return Ok(Admission::Wait);
        }
        if let Claim::Reentrant(count) | Claim::AdoptedReentrant(count) = claim {
            count.added_to(self.holds)?;
        }
        Ok(Admission::AlreadyHeld)
    }

    /// Grants the lock to its holder again. Also returns the key's new deadline, which is never earlier than the old
    /// one.
    pub(super) fn reenter(
        &mut self,
        request: &LockRequest<'_>,
        fence: Fence,
        now: Timestamp,
        key_until: Deadline,
    ) -> Result<(Grant, Deadline), InvalidClaim> {
        let holds_before = self.holds;
        if let Claim::Reentrant(count) | Claim::AdoptedReentrant(count) = request.claim {
            self.holds = count.added_to(holds_before)?;
        }
        self.lease = request.lease;
        self.fence = fence;
        self.origin = request.claim.origin();
        let grant = Grant { fence, holds_before, holds: self.holds, slot: None };
        Ok((grant, request.lease.from(now).max(key_until)))
    }

    /// Releases a part of the hold. After [`Released::Gone`] there is no holder, and the caller drops the lock.
    #[inline(always)]
    pub(super) fn release(&mut self, owner: &[u8], amount: &ReleaseAmount) -> Result<Released, InvalidClaim> {
        self.check_lock_type(amount.lock_type())?;
        if !self.is_held_by(owner) {
            return Ok(Released::NotHeld);
        }
        // A count of 0 (`engine/counted_holds`) leaves nothing to release but the lock itself.
        let left = if self.holds == 0 { 0 } else { amount.taken_from(self.holds)? };
        if left == 0 {
            return Ok(Released::Gone);
        }
        let before = std::mem::replace(&mut self.holds, left);
        Ok(if left == before { Released::Same(left) } else { Released::Fewer(left) })
    }

    pub(super) fn set_holds(&mut self, holds: u32) {
        self.holds = holds;
    }

    pub(super) fn renew(&mut self, lease: Option<Lease>, now: Timestamp) -> Deadline {
        self.lease = lease.unwrap_or(self.lease);
        self.lease.from(now)
    }

    #[inline]
    fn check_lock_type(&self, asked: LockType) -> Result<(), InvalidClaim> {
        if asked == self.lock_type() {
            Ok(())
        } else {
            Err(InvalidClaim::WrongLockType(self.lock_type()))
        }
    }
}
