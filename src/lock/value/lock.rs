//! One lock: its holders, and the requests that it admits.
//!
//! | lock type | admits another owner when                    | the holder itself may                              |
//! | --------- | -------------------------------------------- | -------------------------------------------------- |
//! | mutex     | it has no holder                             | request it again: the same grant                   |
//! | reentrant | it has no holder                             | reenter                                            |
//! | rw, READ  | it has no writer                             | reenter; the writer may also read                  |
//! | rw, WRITE | it has no holder                             | reenter; the only reader may upgrade (a new grant) |
//! | semaphore | the held and the requested permits fit LIMIT | take more under the same rule; with a slot: only   |
//! |           |                                              | request that slot again                            |
//!
//! A mutex or reentrant mutex has one holder, whose deadline is the key's own time to live. Such a lock is `Exclusive`
//! and takes 64 bytes. The others are `Shared`: any number of holders, each with its own deadline. The lock knows
//! nothing of the wait queue.

use super::claim::{Claim, InvalidClaim, LockRequest, LockType, Mode, Origin, ReleaseAmount};
use super::exclusive::Exclusive;
use super::fence::Fence;
use super::holders::{Holder, Slot};
use super::outcome::{Admission, Grant, Hold, LiveHolders, Released};
use super::owner::Owner;
use super::shared::{permits_admission, Shared};
use super::time::{Deadline, Lease, Now, Timestamp};

/// The stored value of a key.
#[derive(Clone, Debug)]
pub enum Lock {
    /// A mutex or reentrant mutex.
    Exclusive(Exclusive),
    /// A read/write lock or semaphore.
    Shared(Box<Shared>),
    /// A mutex or reentrant mutex between its release and its hand-off or the removal of the key in the same step.
    /// Never left in a key. A `Shared` lock without holders is vacant too, and is never left in a key either.
    Vacant,
}

/// The first grant on a free key. The lock is built where it is stored, without an intermediate copy.
#[derive(Clone, Copy, Debug)]
pub struct FirstGrant<'a> {
    request: LockRequest<'a>,
    fence: Fence,
    now: Timestamp,
}

impl<'a> FirstGrant<'a> {
    /// Fails without consuming a fencing token if the claim could never be granted.
    #[inline(always)]
    pub fn new<E: From<InvalidClaim>>(
        request: LockRequest<'a>,
        now: Timestamp,
        fence: impl FnOnce() -> Result<Fence, E>,
    ) -> Result<FirstGrant<'a>, E> {
        admission_to_vacant(&request.claim)?;
        Ok(FirstGrant { request, fence: fence()?, now })
    }

    /// The owner's bytes.
    #[inline]
    pub fn owner(&self) -> &'a [u8] {
        self.request.owner.as_bytes()
    }

    /// When the key expires.
    #[inline]
    pub fn until(&self) -> Deadline {
        self.request.lease.from(self.now)
    }

    /// The grant.
    #[inline]
    pub fn grant(&self) -> Grant {
        let FirstGrant { request, fence, .. } = self;
        let slot = matches!(request.claim, Claim::Slot { .. }).then_some(Slot::FIRST);
        Grant { fence: *fence, holds_before: 0, holds: request.claim.count().number(), slot }
    }

    /// The lock with this holder.
    #[inline]
    pub fn lock(&self) -> Lock {
        let FirstGrant { request, fence, now } = self;
        match request.claim {
            Claim::Mutex | Claim::AdoptedMutex | Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => {
                Lock::Exclusive(Exclusive::of_request(request, *fence))
            }
            Claim::ReadWrite(..) | Claim::Permits { .. } | Claim::Slot { .. } => {
                let mut shared = Shared::new(request.claim.limit(), *fence);
                shared.admit(request, *fence, *now).expect("any claim by a first holder can be counted");
                Lock::Shared(Box::new(shared))
            }
        }
    }
}

/// Lock type and holders.
impl Lock {
    /// The lock type; `None` for [`Lock::Vacant`].
    pub fn lock_type(&self) -> Option<LockType> {
        match self {
            Lock::Exclusive(exclusive) => Some(exclusive.lock_type()),
            Lock::Shared(shared) => Some(shared.lock_type()),
            Lock::Vacant => None,
        }
    }

    /// The lock type, if the lock has a holder.
    pub fn held_lock_type(&self) -> Option<LockType> {
        self.lock_type().filter(|_| !self.is_vacant())
    }

    /// Whether it has no holder.
    #[inline]
    pub fn is_vacant(&self) -> bool {
        match self {
            Lock::Exclusive(_) => false,
            Lock::Shared(shared) => shared.holders.is_empty(),
            Lock::Vacant => true,
        }
    }

    /// Whether more than one owner holds it.
    #[inline]
    pub fn has_multiple_holders(&self) -> bool {
        matches!(self, Lock::Shared(shared) if shared.holders.len() > 1)
    }

    /// Whether each holder has its own deadline.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self, Lock::Shared(_))
    }

    /// A semaphore's limit.
    pub fn semaphore_limit(&self) -> Option<u32> {
        match self {
            Lock::Shared(shared) => shared.semaphore_limit(),
            _ => None,
        }
    }

    /// Sets a semaphore's limit. Returns whether that changed anything.
    pub fn set_limit(&mut self, limit: u32) -> bool {
        match self {
            Lock::Shared(shared) => shared.set_limit(limit),
            _ => false,
        }
    }

    /// The fencing token of the latest grant; `None` for [`Lock::Vacant`].
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Lock::Exclusive(exclusive) => Some(exclusive.fence),
            Lock::Shared(shared) => Some(shared.fence),
            Lock::Vacant => None,
        }
    }

    /// The hold of this owner. `key_until` is the key's own deadline, which is also the deadline of a mutex holder.
    pub fn hold(&self, owner: &[u8], key_until: Deadline) -> Option<Hold<'_>> {
        match self {
            Lock::Exclusive(exclusive) => exclusive.is_held_by(owner).then(|| exclusive.hold(key_until)),
            Lock::Shared(shared) => shared.holders.position(owner).map(|position| shared.hold(position, key_until)),
            Lock::Vacant => None,
        }
    }

    /// The fencing token of this owner's grant, if it holds the lock.
    pub fn fence_of(&self, owner: &[u8]) -> Option<Fence> {
        match self {
            Lock::Exclusive(exclusive) => exclusive.is_held_by(owner).then_some(exclusive.fence),
            Lock::Shared(shared) => shared.holders.get(owner).map(|holder| holder.fence),
            Lock::Vacant => None,
        }
    }

    /// The current holder with the greatest fencing token, and that token.
    pub fn latest_holder(&self) -> Option<(&Owner, Fence)> {
        match self {
            Lock::Exclusive(exclusive) => Some((&exclusive.owner, exclusive.fence)),
            Lock::Shared(shared) => {
                let latest = shared.holders.as_slice().iter().max_by_key(|holder| holder.fence)?;
                Some((&latest.owner, latest.fence))
            }
            Lock::Vacant => None,
        }
    }

    /// Whether this owner holds it.
    #[inline]
    pub fn is_held_by(&self, owner: &[u8]) -> bool {
        match self {
            Lock::Exclusive(exclusive) => exclusive.is_held_by(owner),
            Lock::Shared(shared) => shared.holders.position(owner).is_some(),
            Lock::Vacant => false,
        }
    }

    /// Every hold, oldest grant first. Iterates over all and sorts, so it is only for replies and dumps.
    pub fn holds(&self, key_until: Deadline) -> Vec<Hold<'_>> {
        let mut holds: Vec<_> = self.each_hold(key_until).collect();
        holds.sort_by_key(|hold| hold.fence);
        holds
    }

    /// Every hold, in no particular order. `until` is the key's own deadline.
    fn each_hold(&self, until: Deadline) -> impl Iterator<Item = Hold<'_>> {
        let (one, shared) = match self {
            Lock::Exclusive(exclusive) => (Some(exclusive.hold(until)), None),
            Lock::Shared(shared) => (None, Some(shared)),
            Lock::Vacant => (None, None),
        };
        one.into_iter().chain(shared.into_iter().flat_map(move |shared| shared.holds(until)))
    }

    /// The owners that hold it, in no particular order.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let (one, shared) = match self {
            Lock::Exclusive(exclusive) => (Some(&exclusive.owner), &[][..]),
            Lock::Shared(shared) => (None, shared.holders.as_slice()),
            Lock::Vacant => (None, &[][..]),
        };
        one.into_iter().chain(shared.iter().map(|holder| &holder.owner))
    }

    /// Whether `LOCK.*` granted it to its holder or one of its holders. False while vacant.
    pub fn is_held_natively(&self) -> bool {
        match self {
            Lock::Exclusive(exclusive) => exclusive.origin == Origin::Native,
            Lock::Shared(shared) => !shared.holders.is_empty(),
            Lock::Vacant => false,
        }
    }

    /// How many times this owner holds a mutex or reentrant mutex; `None` if it does not.
    pub fn exclusive_holds(&self, owner: &[u8]) -> Option<u32> {
        match self {
            Lock::Exclusive(exclusive) if exclusive.is_held_by(owner) => Some(exclusive.hold(Deadline::Never).holds),
            _ => None,
        }
    }

    /// Sets how many times the holder of a reentrant mutex holds it, which may be 0.
    pub fn set_exclusive_holds(&mut self, holds: u32) {
        if let Lock::Exclusive(exclusive) = self {
            exclusive.set_holds(holds);
        }
    }

    /// The number of holders.
    pub fn holders(&self) -> usize {
        match self {
            Lock::Exclusive(_) => 1,
            Lock::Shared(shared) => shared.holders.len(),
            Lock::Vacant => 0,
        }
    }

    /// The holder of a mutex or reentrant mutex.
    pub fn exclusive_owner(&self) -> Option<&Owner> {
        match self {
            Lock::Exclusive(exclusive) => Some(&exclusive.owner),
            _ => None,
        }
    }

    /// Bytes of memory that the lock takes, including its owners.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Lock>()
            + match self {
                Lock::Exclusive(exclusive) => exclusive.owner.heap_bytes(),
                Lock::Shared(shared) => size_of::<Shared>() + shared.holders.heap_bytes(),
                Lock::Vacant => 0,
            }
    }
}

/// Deadlines.
impl Lock {
    /// When the key must expire: with the last of its holders. `None` for a mutex, which expires with its key.
    pub fn last_deadline(&self) -> Option<Deadline> {
        match self {
            Lock::Shared(shared) => shared.last_deadline(),
            _ => None,
        }
    }

    /// Whether a removed lock may have expired. The deadline of a mutex was in its key and is lost, so only the length
    /// of the lease since the grant is known, not its renewals.
    pub fn may_have_expired(&self, now: &Now) -> bool {
        match self {
            Lock::Exclusive(exclusive) => match exclusive.hold(Deadline::Never).lease {
                Lease::Ms(ms) => exclusive.fence.us_before(now.us()) / 1000 >= ms.get(),
                Lease::Persist => false,
            },
            Lock::Shared(shared) => shared.last_deadline().is_some_and(|last| last.has_passed(now.timestamp())),
            Lock::Vacant => false,
        }
    }

    /// When the next lease expires.
    pub fn first_deadline(&self, key_until: Deadline) -> Deadline {
        match self {
            Lock::Shared(shared) => shared.first_deadline(key_until),
            _ => key_until,
        }
    }

    /// Removes and returns the holders with expired leases; call [`Lock::clamp`] first. Returns none for a mutex, which
    /// expires with its key.
    pub fn remove_expired(&mut self, now: Timestamp) -> Vec<Holder> {
        match self {
            Lock::Shared(shared) => shared.remove_expired(now),
            _ => Vec::new(),
        }
    }

    /// Whether [`Lock::remove_expired`] would remove any holder.
    pub fn has_expired_holders(&self, now: Timestamp) -> bool {
        match self {
            Lock::Shared(shared) => shared.has_expired_holders(now),
            _ => false,
        }
    }

    /// Whether a holder is stored with a later deadline than the key's, because EXPIRE has shortened the leases.
    pub fn outlives_key(&self, key_until: Deadline) -> bool {
        self.has_multiple_holders() && self.last_deadline() > Some(key_until)
    }

    /// Applies the effect of EXPIRE, PERSIST and related commands on the key: a single holder expires with the key, and
    /// several expire no later than the key. Reads no clock, because replicas do this too. Returns whether anything
    /// changed.
    pub fn clamp(&mut self, key_until: Deadline) -> bool {
        match self {
            Lock::Shared(shared) => shared.clamp(key_until),
            _ => false,
        }
    }

    /// Restarts the owner's lease from now, with `lease` or its previous length. Returns the key's new deadline; `None`
    /// if this owner does not hold the lock.
    pub fn renew(&mut self, owner: &[u8], lease: Option<Lease>, now: Timestamp) -> Option<Deadline> {
        match self {
            Lock::Exclusive(exclusive) => exclusive.is_held_by(owner).then(|| exclusive.renew(lease, now)),
            Lock::Shared(shared) => {
                let position = shared.holders.position(owner)?;
                shared.holders.change(position, |holder| {
                    holder.lease = lease.unwrap_or(holder.lease);
                    holder.until = holder.lease.from(now);
                });
                shared.last_deadline()
            }
            Lock::Vacant => None,
        }
    }
}

/// Admission and release.
impl Lock {
    /// Whether the holders admit a claim by this owner. Call [`Lock::remove_expired`] first. The queue is checked
    /// elsewhere.
    pub fn admission(&self, owner: &[u8], claim: &Claim) -> Result<Admission, InvalidClaim> {
        match self {
            Lock::Exclusive(exclusive) => exclusive.admission(owner, claim),
            Lock::Shared(shared) => shared.admission(owner, claim),
            Lock::Vacant => admission_to_vacant(claim),
        }
    }

    /// The hold of this owner, unless its lease has expired.
    pub fn live_hold(&self, owner: &[u8], now: Timestamp) -> Option<Hold<'_>> {
        self.hold(owner, Deadline::Never).filter(|hold| !hold.until.has_passed(now))
    }

    /// The holds whose leases have not expired, in no particular order.
    pub fn live_holds(&self, now: Timestamp) -> impl Iterator<Item = Hold<'_>> {
        self.each_hold(Deadline::Never).filter(move |hold| !hold.until.has_passed(now))
    }

    /// The live holder with the smallest fencing token, and the number of live holders; `None` if there are none.
    /// `until` is the key's own deadline. Iterates over all, so it is only for replies.
    pub fn live(&self, until: Deadline, is_live: impl Fn(&Hold<'_>) -> bool) -> Option<LiveHolders<'_>> {
        let live = self.each_hold(until).filter(|hold| is_live(hold));
        live.fold(None, |live, hold| {
            Some(match live {
                None => LiveHolders { first: hold, number: 1 },
                Some(LiveHolders { first, number }) => {
                    let first = if hold.fence < first.fence { hold } else { first };
                    LiveHolders { first, number: number + 1 }
                }
            })
        })
    }

    /// The owner's current fencing token, if a grant of this claim keeps it. `None` for an upgrade or a new holder.
    pub fn kept_fence(&self, owner: &[u8], claim: &Claim) -> Option<Fence> {
        match self {
            Lock::Exclusive(exclusive) => exclusive.is_held_by(owner).then_some(exclusive.fence),
            Lock::Shared(shared) => {
                let holder = shared.holders.get(owner)?;
                (!self.is_upgrade(owner, claim)).then_some(holder.fence)
            }
            Lock::Vacant => None,
        }
    }

    /// Whether this is an upgrade: the claim of a reader to write, which waits at the head of the queue.
    pub fn is_upgrade(&self, owner: &[u8], claim: &Claim) -> bool {
        match (self, claim) {
            (Lock::Shared(shared), Claim::ReadWrite(Mode::Write, _)) => {
                shared.holders.get(owner).is_some_and(|holder| holder.holds == 0 && holder.reads > 0)
            }
            _ => false,
        }
    }

    /// Grants what [`Lock::admission`] found admissible. Returns the grant and the key's new deadline.
    pub fn admit(
        &mut self,
        request: &LockRequest<'_>,
        fence: Fence,
        now: Timestamp,
        key_until: Deadline,
    ) -> Result<(Grant, Deadline), InvalidClaim> {
        match self {
            Lock::Exclusive(exclusive) if exclusive.is_held_by(request.owner.as_bytes()) => {
                exclusive.reenter(request, fence, now, key_until)
            }
            Lock::Shared(shared) => {
                let grant = shared.admit(request, fence, now)?;
                Ok((grant, shared.last_deadline().unwrap_or_else(|| request.lease.from(now))))
            }
            Lock::Exclusive(_) | Lock::Vacant => {
                let first = FirstGrant { request: *request, fence, now };
                *self = first.lock();
                Ok((first.grant(), first.until()))
            }
        }
    }

    /// Releases a part of a hold. Leaves the lock vacant if no holder remains.
    #[inline(always)]
    pub fn release(&mut self, owner: &[u8], amount: &ReleaseAmount) -> Result<Released, InvalidClaim> {
        match self {
            Lock::Exclusive(exclusive) => {
                let released = exclusive.release(owner, amount)?;
                if released == Released::Gone {
                    *self = Lock::Vacant;
                }
                Ok(released)
            }
            Lock::Shared(shared) => shared.release(owner, amount),
            Lock::Vacant => Ok(Released::NotHeld),
        }
    }

    /// Removes all holds of this owner. Leaves the lock vacant if it was the last holder.
    pub fn remove_holder(&mut self, owner: &[u8]) -> Released {
        match self {
            Lock::Exclusive(exclusive) if exclusive.is_held_by(owner) => {
                *self = Lock::Vacant;
                Released::Gone
            }
            Lock::Shared(shared) => match shared.holders.position(owner) {
                Some(position) => {
                    shared.take_out(position);
                    Released::Gone
                }
                None => Released::NotHeld,
            },
            _ => Released::NotHeld,
        }
    }

    /// Removes all holds of every owner.
    pub fn evict_all(&mut self) -> Released {
        if std::mem::replace(self, Lock::Vacant).is_vacant() {
            Released::NotHeld
        } else {
            Released::Gone
        }
    }

    /// Revokes an undelivered grant if nothing has changed since: the owner then holds what it held before.
    pub fn revoke(&mut self, owner: &[u8], claim: &Claim, grant: &Grant) -> Result<Released, InvalidClaim> {
        let held = self.hold(owner, Deadline::Never);
        let holds_now = held.map(|hold| (hold.fence, if claim.is_read() { hold.reads } else { hold.holds }));
        if holds_now != Some((grant.fence, grant.holds)) {
            return Ok(Released::NotHeld);
        }
        let as_before = super::claim::Count::Exactly(grant.holds_before);
        let amount = match *claim {
            Claim::Mutex if grant.holds_before > 0 => return Ok(Released::Same(grant.holds_before)),
            Claim::Mutex | Claim::AdoptedMutex => ReleaseAmount::Mutex,
            Claim::Reentrant(_) | Claim::AdoptedReentrant(_) => ReleaseAmount::Reentrant(as_before),
            Claim::ReadWrite(mode, _) => ReleaseAmount::ReadWrite(mode, as_before),
            Claim::Permits { .. } | Claim::Slot { .. } => ReleaseAmount::Permits(as_before),
        };
        self.release(owner, &amount)
    }
}

/// Whether a lock without holders admits a claim.
#[inline]
fn admission_to_vacant(claim: &Claim) -> Result<Admission, InvalidClaim> {
    match claim {
        Claim::Permits { limit, .. } | Claim::Slot { limit } => permits_admission(0, 0, *limit, claim.count()),
        Claim::Mutex
        | Claim::AdoptedMutex
        | Claim::Reentrant(_)
        | Claim::AdoptedReentrant(_)
        | Claim::ReadWrite(..) => Ok(Admission::Admit),
    }
}

#[cfg(test)]
mod tests;
