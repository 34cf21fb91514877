//! The holders of a read/write lock or semaphore: any number, each with a lease of its own, and whom else they let in.

use super::claim::{Ask, Claim, Count, Kind, Mode, Refusal};
use super::fence::Fence;
use super::members::{Holder, Members};
use super::outcome::{Hold, Receipt, Released, Verdict};
use super::owner::Owner;
use super::time::{At, Deadline};

/// The holders of a read/write lock or semaphore.
#[derive(Clone, Debug)]
pub struct Crowd {
    pub(super) family: Family,
    /// Of the latest grant.
    pub(super) fence: Fence,
    pub(super) members: Members,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Rw,
    Semaphore {
        limit: u32,
        /// Permits that are out; more than the limit while a smaller one drains.
        out: u64,
    },
}

impl Family {
    pub(super) fn of(kind: Kind, limit: u32) -> Family {
        match kind {
            Kind::Semaphore => Family::Semaphore { limit, out: 0 },
            _ => Family::Rw,
        }
    }
}

impl Crowd {
    /// With one holder.
    pub(super) fn of_one(ask: &Ask, fence: Fence, now: At) -> Crowd {
        let limit = match ask.claim {
            Claim::Permits { limit, .. } => limit,
            _ => 0,
        };
        let mut crowd = Crowd { family: Family::of(ask.claim.kind(), limit), fence, members: Members::default() };
        crowd.admit(ask, fence, now);
        crowd
    }

    pub(super) fn kind(&self) -> Kind {
        match self.family {
            Family::Rw => Kind::Rw,
            Family::Semaphore { .. } => Kind::Semaphore,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        match self.family {
            Family::Rw => 0,
            Family::Semaphore { limit, .. } => limit,
        }
    }

    pub(super) fn settle(&mut self, now: At) -> Vec<Owner> {
        let mut gone = Vec::new();
        while let Some(at) = self.members.first_to_end().filter(|at| self.members.as_slice()[*at].until.is_over(now)) {
            gone.push(self.take_out(at).owner);
        }
        gone
    }

    pub(super) fn clamp(&mut self, key_until: Deadline) -> bool {
        let before = self.members.last_to_end().map(|at| self.members.as_slice()[at].until);
        if self.members.len() == 1 {
            self.members.change(0, |h| h.until = key_until);
            return before != Some(key_until);
        }
        while let Some(at) = self.members.last_to_end().filter(|at| self.members.as_slice()[*at].until > key_until) {
            self.members.change(at, |h| h.until = key_until);
        }
        before > Some(key_until)
    }

    pub(super) fn hold<'a>(&self, holder: &'a Holder, key_until: Deadline) -> Hold<'a> {
        let until = if self.members.len() == 1 { key_until } else { holder.until.min(key_until) };
        Hold {
            owner: &holder.owner,
            fence: holder.fence,
            lease: holder.lease,
            until,
            holds: holder.holds,
            reads: holder.reads,
        }
    }

    pub(super) fn weigh(&self, owner: &[u8], claim: &Claim) -> Result<Verdict, Refusal> {
        let own = self.members.get(owner);
        let (writes, reads) = own.map_or((0, 0), |h| (h.holds, h.reads));
        let others = self.members.len() - usize::from(own.is_some());
        match (claim, self.family) {
            (Claim::Rw(Mode::Read, count), _) => {
                more(reads, *count)?;
                let foreign_writer = others == 1 && self.members.as_slice().iter().any(|h| h.holds > 0);
                Ok(match (writes > 0 || reads > 0, foreign_writer) {
                    (true, _) => Verdict::Deeper,
                    (false, true) => Verdict::Wait,
                    (false, false) => Verdict::Admit,
                })
            }
            (Claim::Rw(Mode::Write, count), _) => {
                more(writes, *count)?;
                Ok(match (writes > 0, others) {
                    (true, _) => Verdict::Deeper,
                    (false, 0) => Verdict::Admit,
                    (false, _) => Verdict::Wait,
                })
            }
            (Claim::Permits { limit, count }, Family::Semaphore { out, .. }) => {
                weigh_permits(writes, out, *limit, *count)
            }
            _ => Err(Refusal::WrongKind(self.kind())),
        }
    }

    pub(super) fn admit(&mut self, ask: &Ask, fence: Fence, now: At) -> Receipt {
        if let Claim::Permits { limit: new, .. } = ask.claim {
            if let Family::Semaphore { limit, .. } = &mut self.family {
                *limit = new;
            }
        }
        let own = self.members.position(ask.owner.as_bytes());
        let mut holder = match own {
            Some(at) => self.take_out(at),
            None => Holder {
                owner: ask.owner.clone(),
                fence,
                lease: ask.lease,
                until: ask.lease.from(now),
                holds: 0,
                reads: 0,
            },
        };
        let count = match ask.claim {
            Claim::Rw(_, count) | Claim::Permits { count, .. } | Claim::Reentrant(count) => count,
            Claim::Mutex => Count::Exactly(1),
        };
        let held = if matches!(ask.claim, Claim::Rw(Mode::Read, _)) { &mut holder.reads } else { &mut holder.holds };
        let before = *held;
        *held = more(before, count).unwrap_or(before);
        let receipt = Receipt { fence, before, holds: *held };
        holder.fence = fence;
        holder.lease = ask.lease;
        holder.until = holder.until.max(ask.lease.from(now));
        self.put(holder);
        receipt
    }

    pub(super) fn release(&mut self, owner: &[u8], claim: &Claim) -> Result<Released, Refusal> {
        let Some(at) = self.members.position(owner) else { return Ok(Released::NotHeld) };
        let holder = &self.members.as_slice()[at];
        let is_read = matches!(claim, Claim::Rw(Mode::Read, _));
        let (held, other) = if is_read { (holder.reads, holder.holds) } else { (holder.holds, holder.reads) };
        if held == 0 {
            return Ok(Released::NotHeld);
        }
        let left = match claim {
            Claim::Rw(_, count) | Claim::Permits { count, .. } => fewer(held, *count)?,
            _ => return Err(Refusal::WrongKind(self.kind())),
        };
        if left == held {
            return Ok(Released::Same(left));
        }
        let mut holder = self.take_out(at);
        if left == 0 && other == 0 {
            return Ok(Released::Gone);
        }
        *(if is_read { &mut holder.reads } else { &mut holder.holds }) = left;
        self.put(holder);
        Ok(Released::Fewer(left))
    }

    pub(super) fn take_out(&mut self, at: usize) -> Holder {
        let holder = self.members.remove(at);
        if let Family::Semaphore { out, .. } = &mut self.family {
            *out -= u64::from(holder.holds);
        }
        holder
    }

    pub(super) fn put(&mut self, holder: Holder) {
        if let Family::Semaphore { out, .. } = &mut self.family {
            *out += u64::from(holder.holds);
        }
        self.fence = self.fence.max(holder.fence);
        self.members.push(holder);
    }
}

pub(super) fn weigh_permits(held: u32, out: u64, limit: u32, count: Count) -> Result<Verdict, Refusal> {
    let wanted = more(held, count)?;
    if count_of(count) > limit {
        return Err(Refusal::OverLimit);
    }
    let fits = out - u64::from(held) + u64::from(wanted) <= u64::from(limit);
    Ok(match (wanted == held, fits) {
        (true, _) => Verdict::Deeper,
        (false, true) => Verdict::Admit,
        (false, false) => Verdict::Wait,
    })
}

pub(super) fn count_of(count: Count) -> u32 {
    match count {
        Count::Step(n) | Count::Exactly(n) => n,
    }
}

/// The holds after an acquire.
pub(super) fn more(held: u32, count: Count) -> Result<u32, Refusal> {
    match count {
        Count::Step(n) => held.checked_add(n).ok_or(Refusal::TooManyHolds),
        Count::Exactly(n) if n < held => Err(Refusal::HoldsMore(held)),
        Count::Exactly(n) => Ok(n),
    }
}

/// The holds after a release.
pub(super) fn fewer(held: u32, count: Count) -> Result<u32, Refusal> {
    match count {
        Count::Step(n) => held.checked_sub(n).ok_or(Refusal::HoldsFewer(held)),
        Count::Exactly(n) if n > held => Err(Refusal::HoldsFewer(held)),
        Count::Exactly(n) => Ok(n),
    }
}
