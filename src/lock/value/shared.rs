//! The holders of a read/write lock or semaphore, each with its own lease, and the requests that they admit.

use super::claim::{Claim, Count, InvalidClaim, LockRequest, LockType, Mode, Origin, ReleaseAmount, Share};
use super::fence::Fence;
use super::holders::{Holder, Holders, Record};
use super::outcome::{Admission, Grant, Hold, Released};
use super::time::{Deadline, Timestamp};

/// The holders of a read/write lock or semaphore.
#[derive(Clone, Debug)]
pub struct Shared {
    rule: SharingRule,
    /// The fence of the latest grant.
    pub(super) fence: Fence,
    pub(super) holders: Holders,
}

/// Which holders may share the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharingRule {
    /// Any number of readers, or one writer.
    ReadWrite,
    /// Permits up to a limit.
    Permits {
        limit: u32,
        /// Permits that are held. More than `limit` after LIMIT was lowered, until enough are released.
        in_use: u64,
    },
}

impl Record {
    /// Exclusive or write holds or permits, and read holds.
    fn counts(&self) -> (u32, u32) {
        (self.holds, self.reads)
    }

    /// Whether this hold of a read/write lock excludes the claim of that owner.
    fn excludes(&self, owner: &[u8], claim: &Claim) -> bool {
        self.owner.as_bytes() != owner && (self.holds > 0 || !claim.is_read())
    }
}

impl Shared {
    /// A lock without holders. A semaphore has a limit, a read/write lock has none.
    pub(super) fn new(semaphore_limit: Option<u32>, fence: Fence) -> Shared {
        let rule = semaphore_limit.map_or(SharingRule::ReadWrite, |limit| SharingRule::Permits { limit, in_use: 0 });
        Shared { rule, fence, holders: Holders::default() }
    }

    pub(super) fn lock_type(&self) -> LockType {
        match self.rule {
            SharingRule::ReadWrite => LockType::ReadWrite,
            SharingRule::Permits { .. } => LockType::Semaphore,
        }
    }

    pub(super) fn semaphore_limit(&self) -> Option<u32> {
        match self.rule {
            SharingRule::ReadWrite => None,
            SharingRule::Permits { limit, .. } => Some(limit),
        }
    }

    /// Sets a semaphore's limit. Returns whether it changed.
    pub(super) fn set_limit(&mut self, new: u32) -> bool {
        match &mut self.rule {
            SharingRule::Permits { limit, .. } if new > 0 => std::mem::replace(limit, new) != new,
            _ => false,
        }
    }

    /// Whether a holder has an expired lease.
    pub(super) fn has_expired_holders(&self, now: Timestamp) -> bool {
        let first = self.holders.first_to_expire().and_then(|position| self.holders.as_slice().get(position));
        first.is_some_and(|holder| holder.until.has_passed(now))
    }

    /// Removes and returns the holders with expired leases.
    pub(super) fn remove_expired(&mut self, now: Timestamp) -> Vec<Holder> {
        let expired = self.holders.remove_expired(now);
        if let SharingRule::Permits { in_use, .. } = &mut self.rule {
            *in_use -= expired.iter().map(|holder| u64::from(holder.holds)).sum::<u64>();
        }
        expired
    }

    /// A single holder expires with the key; several expire no later than the key. Returns whether anything changed.
    pub(super) fn clamp(&mut self, key_until: Deadline) -> bool {
        let before = self.last_deadline();
        if self.holders.len() == 1 {
            self.holders.change(0, |holder| holder.until = key_until);
            return before != Some(key_until);
        }
        while let Some(last) = self.holders.last_to_expire() {
            if self.holders.as_slice()[last].until <= key_until {
                break;
            }
            self.holders.change(last, |holder| holder.until = key_until);
        }
        before > Some(key_until)
    }

    pub(super) fn first_deadline(&self, key_until: Deadline) -> Deadline {
        let first = self.holders.first_to_expire().and_then(|position| self.holders.as_slice().get(position));
        first.map_or(key_until, |holder| self.until(holder, key_until))
    }

    pub(super) fn last_deadline(&self) -> Option<Deadline> {
        let last = self.holders.last_to_expire().and_then(|position| self.holders.as_slice().get(position));
        last.map(|holder| holder.until)
    }

    /// The hold of the holder at `position`.
    pub(super) fn hold(&self, position: usize, key_until: Deadline) -> Hold<'_> {
        let holder = &self.holders.as_slice()[position];
        Hold {
            owner: &holder.owner,
            fence: holder.fence,
            lease: holder.lease,
            until: self.until(holder, key_until),
            holds: holder.holds,
            reads: holder.reads,
            slot: self.holders.slot(position),
            origin: Origin::Native,
        }
    }

    /// Every hold, in no particular order.
    pub(super) fn holds(&self, key_until: Deadline) -> impl Iterator<Item = Hold<'_>> {
        (0..self.holders.len()).map(move |position| self.hold(position, key_until))
    }

    /// When the lease of this holder expires. A single holder expires with the key; one of several may expire before
    /// it.
    fn until(&self, holder: &Record, key_until: Deadline) -> Deadline {
        if self.holders.len() == 1 {
            key_until
        } else {
            holder.until.min(key_until)
        }
    }

    pub(super) fn admission(&self, owner: &[u8], claim: &Claim) -> Result<Admission, InvalidClaim> {
        let own = self.holders.position(owner);
        let (holds, reads) = own.map_or((0, 0), |own| self.holders.as_slice()[own].counts());
        let has_slot = own.is_some_and(|own| self.holders.slot(own).is_some());
        match (claim, self.rule) {
            (Claim::ReadWrite(mode, count), SharingRule::ReadWrite) => {
                let held = match mode {
                    Mode::Read => reads,
                    Mode::Write => holds,
                };
                count.added_to(held)?;
                let share = Share { holds, reads, has_slot };
                Ok(match (share.covers(claim), self.is_excluded(owner, claim)) {
                    (true, _) => Admission::AlreadyHeld,
                    (false, true) => Admission::Wait,
                    (false, false) => Admission::Admit,
                })
            }
            (Claim::Slot { .. }, SharingRule::Permits { .. }) if holds > 0 && !has_slot => {
                Err(InvalidClaim::HoldsPermits)
            }
            (Claim::Slot { limit }, SharingRule::Permits { in_use, .. }) => {
                permits_admission(holds, in_use, *limit, claim.count())
            }
            (Claim::Permits { .. }, SharingRule::Permits { .. }) if has_slot => Err(InvalidClaim::HoldsSlot),
            (Claim::Permits { limit, count }, SharingRule::Permits { in_use, .. }) => {
                permits_admission(holds, in_use, *limit, *count)
            }
            _ => Err(InvalidClaim::WrongLockType(self.lock_type())),
        }
    }

    /// Whether a holder of a read/write lock excludes the claim. Checking the first two holders is enough: a writer is
    /// the only holder, and of two readers at least one is another owner.
    fn is_excluded(&self, owner: &[u8], claim: &Claim) -> bool {
        self.holders.as_slice().iter().take(2).any(|holder| holder.excludes(owner, claim))
    }

    /// Grants what [`Shared::admission`] found admissible.
    pub(super) fn admit(
        &mut self,
        request: &LockRequest<'_>,
        fence: Fence,
        now: Timestamp,
    ) -> Result<Grant, InvalidClaim> {
        let own = self.holders.position(request.owner.as_bytes());
        let held = own.and_then(|position| self.holders.as_slice().get(position));
        let reads = request.claim.is_read();
        let holds_before = held.map_or(0, |holder| if reads { holder.reads } else { holder.holds });
        let holds = request.claim.count().added_to(holds_before)?;
        let slot = match (request.claim, own.and_then(|own| self.holders.slot(own))) {
            // Fewer than LIMIT permits are held, so the smallest free slot is below LIMIT.
            (Claim::Slot { .. }, None) => Some(self.holders.free_slot().ok_or(InvalidClaim::OverLimit)?),
            (_, kept) => kept,
        };
        if let (SharingRule::Permits { limit, .. }, Some(new)) = (&mut self.rule, request.claim.limit()) {
            *limit = new;
        }
        let mut holder = match own {
            Some(position) => self.take_out(position),
            None => Holder {
                owner: request.owner.to_owner(),
                fence,
                lease: request.lease,
                until: request.lease.from(now),
                holds: 0,
                reads: 0,
                slot,
                origin: Origin::Native,
            },
        };
        *(if reads { &mut holder.reads } else { &mut holder.holds }) = holds;
        holder.fence = fence;
        holder.lease = request.lease;
        holder.until = holder.until.max(request.lease.from(now));
        self.put(holder);
        Ok(Grant { fence, holds_before, holds, slot })
    }

    /// Releases a part of a hold. [`Released::Gone`] removes the owner, which may have been the last holder.
    pub(super) fn release(&mut self, owner: &[u8], amount: &ReleaseAmount) -> Result<Released, InvalidClaim> {
        if amount.lock_type() != self.lock_type() {
            return Err(InvalidClaim::WrongLockType(self.lock_type()));
        }
        let Some(position) = self.holders.position(owner) else { return Ok(Released::NotHeld) };
        let holder = &self.holders.as_slice()[position];
        let reads = matches!(amount, ReleaseAmount::ReadWrite(Mode::Read, _));
        let (held, other) = if reads { (holder.reads, holder.holds) } else { (holder.holds, holder.reads) };
        if held == 0 {
            return Ok(Released::NotHeld);
        }
        let left = amount.taken_from(held)?;
        if left == held {
            return Ok(Released::Same(left));
        }
        let mut holder = self.take_out(position);
        if left == 0 && other == 0 {
            return Ok(Released::Gone);
        }
        *(if reads { &mut holder.reads } else { &mut holder.holds }) = left;
        self.put(holder);
        Ok(Released::Fewer(left))
    }

    /// The position of the holder that has the same slot as `holder`.
    pub(super) fn holder_of_slot(&self, holder: &Holder) -> Option<usize> {
        holder.slot.and_then(|slot| self.holders.position_of_slot(slot))
    }

    pub(super) fn take_out(&mut self, position: usize) -> Holder {
        let holder = self.holders.remove(position);
        if let SharingRule::Permits { in_use, .. } = &mut self.rule {
            *in_use -= u64::from(holder.holds);
        }
        holder
    }

    pub(super) fn put(&mut self, holder: Holder) {
        if let SharingRule::Permits { in_use, .. } = &mut self.rule {
            *in_use += u64::from(holder.holds);
        }
        self.fence = self.fence.max(holder.fence);
        self.holders.push(holder);
    }
}

/// Whether a semaphore admits a claim by an owner that holds `held` of the `in_use` held permits.
pub(super) fn permits_admission(held: u32, in_use: u64, limit: u32, count: Count) -> Result<Admission, InvalidClaim> {
    let wanted = count.added_to(held)?;
    if count.number() > limit {
        return Err(InvalidClaim::OverLimit);
    }
    let fits = in_use - u64::from(held) + u64::from(wanted) <= u64::from(limit);
    Ok(match (wanted == held, fits) {
        (true, _) => Admission::AlreadyHeld,
        (false, true) => Admission::Admit,
        (false, false) => Admission::Wait,
    })
}
