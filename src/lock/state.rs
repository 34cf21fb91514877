//! One lock: who holds it, and who else it would let in.
//!
//! | family      | admits a newcomer when                     | the holder itself may                                |
//! | ----------- | ------------------------------------------ | ---------------------------------------------------- |
//! | mutex       | nobody holds it                            | ask again: the same grant                            |
//! | reentrant   | nobody holds it                            | go deeper                                            |
//! | rw, READ    | nobody writes                              | go deeper; the writer may read as well               |
//! | rw, WRITE   | nobody holds it                            | go deeper; the only reader may upgrade (a new grant) |
//! | semaphore   | the permits out and asked for fit LIMIT    | take more under the same rule                        |
//!
//! Mutex and reentrant mutex have one holder, whose deadline is the key's own time to live and stands nowhere else: such a
//! lock is `Sole` and 64 bytes. The others have any number, each with a deadline of its own: a `Crowd`. The queue is not here.

use super::claim::{Ask, AskRef, Claim, Count, Kind, Mode, Refusal};
use super::crowd::{fewer, more, weigh_permits, Crowd, Family};
use super::fence::Fence;
use super::members::{Holder, Members};
use super::outcome::{Hold, Receipt, Released, Verdict};
use super::owner::Owner;
use super::time::{At, Deadline, Lease};

/// The stored value of a key.
#[derive(Clone, Debug)]
pub enum Lock {
    /// A mutex or reentrant mutex.
    Sole(Sole),
    /// A read/write lock or semaphore.
    Crowd(Box<Crowd>),
    /// Between a release and what follows in the same step: a hand-off or the end of the key. Never left in a key.
    Vacant,
}

/// The one holder of a mutex or reentrant mutex. Its deadline is the key's time to live.
#[derive(Clone, Debug)]
pub struct Sole {
    owner: Owner,
    fence: Fence,
    lease: Lease,
    holds: u32,
    is_reentrant: bool,
}

/// The first grant on a free key. The lock itself is made where it is going to stay, and not copied on the way.
#[derive(Clone, Copy, Debug)]
pub struct First<'a> {
    ask: AskRef<'a>,
    fence: Fence,
    now: At,
}

impl<'a> First<'a> {
    /// A refusal where the claim could never be granted.
    #[inline]
    pub fn new(ask: AskRef<'a>, fence: Fence, now: At) -> Result<First<'a>, Refusal> {
        Lock::Vacant.weigh(ask.owner.as_bytes(), &ask.claim)?;
        Ok(First { ask, fence, now })
    }

    pub fn owner(&self) -> &'a [u8] {
        self.ask.owner.as_bytes()
    }

    /// When the key ends.
    pub fn until(&self) -> Deadline {
        self.ask.lease.from(self.now)
    }

    pub fn receipt(&self) -> Receipt {
        Receipt { fence: self.fence, before: 0, holds: self.ask.claim.amount() }
    }

    /// The lock with this one holder.
    #[inline]
    pub fn lock(&self) -> Lock {
        let First { ask, fence, now } = *self;
        match ask.claim {
            Claim::Mutex | Claim::Reentrant(_) => Lock::Sole(Sole {
                owner: ask.owner.to_owner(),
                fence,
                lease: ask.lease,
                holds: ask.claim.amount(),
                is_reentrant: !matches!(ask.claim, Claim::Mutex),
            }),
            Claim::Rw(..) | Claim::Permits { .. } => Lock::Crowd(Box::new(Crowd::of_one(&ask.to_ask(), fence, now))),
        }
    }
}

impl Lock {
    /// The family; `None` while vacant.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Lock::Sole(sole) if sole.is_reentrant => Some(Kind::Reentrant),
            Lock::Sole(_) => Some(Kind::Mutex),
            Lock::Crowd(crowd) => Some(crowd.kind()),
            Lock::Vacant => None,
        }
    }

    /// Nobody holds it.
    pub fn is_vacant(&self) -> bool {
        match self {
            Lock::Sole(_) => false,
            Lock::Crowd(crowd) => crowd.members.is_empty(),
            Lock::Vacant => true,
        }
    }

    /// How many may hold it: 1, a semaphore's limit, 0 for a read/write lock.
    pub fn limit(&self) -> u32 {
        match self {
            Lock::Crowd(crowd) => crowd.limit(),
            _ => 1,
        }
    }

    /// Sets a semaphore's limit; whether that changed anything.
    pub fn set_limit(&mut self, new: u32) -> bool {
        match self {
            Lock::Crowd(crowd) => match &mut crowd.family {
                Family::Semaphore { limit, .. } if *limit != new && new > 0 => {
                    *limit = new;
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The fence of the latest grant; `None` while vacant.
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Lock::Sole(sole) => Some(sole.fence),
            Lock::Crowd(crowd) => Some(crowd.fence),
            Lock::Vacant => None,
        }
    }

    /// The latest grant on the key was this one, though its holder may have gone.
    pub fn raise_fence(&mut self, fence: Fence) {
        if let Lock::Crowd(crowd) = self {
            crowd.fence = crowd.fence.max(fence);
        }
    }

    /// How this owner holds it. `key_until` is the key's own deadline, which a mutex' holder has.
    pub fn hold(&self, owner: &[u8], key_until: Deadline) -> Option<Hold<'_>> {
        match self {
            Lock::Sole(sole) => Some(sole.hold(key_until)).filter(|h| h.owner.as_bytes() == owner),
            Lock::Crowd(crowd) => crowd.members.get(owner).map(|h| crowd.hold(h, key_until)),
            Lock::Vacant => None,
        }
    }

    /// Whether this owner holds it.
    pub fn is_held_by(&self, owner: &[u8]) -> bool {
        match self {
            Lock::Sole(sole) => sole.owner.as_bytes() == owner,
            Lock::Crowd(crowd) => crowd.members.position(owner).is_some(),
            Lock::Vacant => false,
        }
    }

    /// Every hold, oldest grant first. Walks and sorts: for replies and dumps.
    pub fn holds(&self, key_until: Deadline) -> Vec<Hold<'_>> {
        match self {
            Lock::Sole(sole) => vec![sole.hold(key_until)],
            Lock::Crowd(crowd) => {
                let mut holds: Vec<_> = crowd.members.as_slice().iter().map(|h| crowd.hold(h, key_until)).collect();
                holds.sort_by_key(|h| h.fence);
                holds
            }
            Lock::Vacant => Vec::new(),
        }
    }

    /// Every hold as it is stored, oldest grant first: a mutex' deadline is the key's and not among them, the others' are their own.
    pub fn stored_holds(&self) -> Vec<Hold<'_>> {
        let mut holds = self.holds(Deadline::Never);
        if let Lock::Crowd(crowd) = self {
            for hold in &mut holds {
                hold.until = crowd.members.get(hold.owner.as_bytes()).map_or(hold.until, |h| h.until);
            }
        }
        holds
    }

    /// The owners that hold it, in no particular order; `None` where there are more than `few`.
    pub fn owners_if_few(&self, few: usize) -> Option<Vec<Owner>> {
        match self {
            Lock::Sole(sole) => Some(vec![sole.owner.clone()]),
            Lock::Crowd(crowd) if crowd.members.len() > few => None,
            Lock::Crowd(crowd) => Some(crowd.members.as_slice().iter().map(|h| h.owner.clone()).collect()),
            Lock::Vacant => Some(Vec::new()),
        }
    }

    /// The one holder of a mutex or reentrant mutex.
    pub fn sole_owner(&self) -> Option<&Owner> {
        match self {
            Lock::Sole(sole) => Some(&sole.owner),
            _ => None,
        }
    }

    /// When the key has to end: with the last of its holders. `None` for a mutex, whose holder ends with the key.
    pub fn last_deadline(&self) -> Option<Deadline> {
        match self {
            Lock::Crowd(crowd) => {
                crowd.members.last_to_end().and_then(|at| crowd.members.as_slice().get(at)).map(|h| h.until)
            }
            _ => None,
        }
    }

    /// The next end of a lease: something may be free then.
    pub fn first_deadline(&self, key_until: Deadline) -> Deadline {
        match self {
            Lock::Crowd(crowd) => {
                let first = crowd.members.first_to_end().and_then(|at| crowd.members.as_slice().get(at));
                first.map_or(key_until, |h| crowd.hold(h, key_until).until)
            }
            _ => key_until,
        }
    }

    /// Takes out the holders whose leases have ended, after [`Lock::clamp`]. Only a crowd has any: a mutex ends with its key.
    pub fn settle(&mut self, now: At) -> Vec<Owner> {
        match self {
            Lock::Crowd(crowd) => crowd.settle(now),
            _ => Vec::new(),
        }
    }

    /// Takes over what EXPIRE, PERSIST and the like did to the key: one holder ends with it, several end no later. Reads no clock:
    /// replicas do it too. Whether that changed anything.
    pub fn clamp(&mut self, key_until: Deadline) -> bool {
        match self {
            Lock::Crowd(crowd) => crowd.clamp(key_until),
            _ => false,
        }
    }

    /// What the lock says of a claim by this owner, after [`Lock::settle`]. The queue is asked elsewhere.
    pub fn weigh(&self, owner: &[u8], claim: &Claim) -> Result<Verdict, Refusal> {
        match (self, claim) {
            (Lock::Vacant, Claim::Permits { limit, count }) => weigh_permits(0, 0, *limit, *count),
            (Lock::Vacant, _) => Ok(Verdict::Admit),
            (Lock::Sole(sole), Claim::Mutex) if !sole.is_reentrant => Ok(sole.verdict(owner)),
            (Lock::Sole(sole), Claim::Reentrant(count)) if sole.is_reentrant => {
                if sole.owner.as_bytes() == owner {
                    more(sole.holds, *count)?;
                }
                Ok(sole.verdict(owner))
            }
            (Lock::Crowd(crowd), claim) if crowd.kind() == claim.kind() => crowd.weigh(owner, claim),
            _ => Err(Refusal::WrongKind(self.kind().unwrap_or(claim.kind()))),
        }
    }

    /// The fence that a grant of this claim keeps: the owner's own, unless it upgrades or is new.
    pub fn kept_fence(&self, owner: &[u8], claim: &Claim) -> Option<Fence> {
        match self {
            Lock::Sole(sole) => (sole.owner.as_bytes() == owner).then_some(sole.fence),
            Lock::Crowd(crowd) => {
                let holder = crowd.members.get(owner)?;
                let upgrades = matches!(claim, Claim::Rw(Mode::Write, _)) && holder.holds == 0;
                (!upgrades).then_some(holder.fence)
            }
            Lock::Vacant => None,
        }
    }

    /// Whether this claim is a reader's wish to write: it waits at the head of the queue.
    pub fn is_upgrade(&self, owner: &[u8], claim: &Claim) -> bool {
        match (self, claim) {
            (Lock::Crowd(crowd), Claim::Rw(Mode::Write, _)) => {
                crowd.members.get(owner).is_some_and(|h| h.holds == 0 && h.reads > 0)
            }
            _ => false,
        }
    }

    /// Grants what [`Lock::weigh`] found admissible. Returns the receipt, and the deadline that the key gets.
    pub fn admit(&mut self, ask: &Ask, fence: Fence, now: At, key_until: Deadline) -> (Receipt, Deadline) {
        let asked = ask.lease.from(now);
        match self {
            Lock::Sole(sole) if sole.owner == ask.owner => {
                let before = sole.holds;
                if let Claim::Reentrant(count) = ask.claim {
                    sole.holds = more(before, count).unwrap_or(before);
                }
                sole.lease = ask.lease;
                sole.fence = fence;
                (Receipt { fence, before, holds: sole.holds }, asked.max(key_until))
            }
            Lock::Crowd(crowd) => {
                let receipt = crowd.admit(ask, fence, now);
                (receipt, self.last_deadline().unwrap_or(asked))
            }
            Lock::Sole(_) | Lock::Vacant => {
                *self = First { ask: ask.as_ref(), fence, now }.lock();
                (Receipt { fence, before: 0, holds: ask.claim.amount() }, asked)
            }
        }
    }

    /// Gives back what `claim` names. Leaves the lock vacant when the last holder goes.
    pub fn release(&mut self, owner: &[u8], claim: &Claim) -> Result<Released, Refusal> {
        match (&mut *self, claim) {
            (Lock::Vacant, _) => Ok(Released::NotHeld),
            (Lock::Sole(sole), Claim::Mutex | Claim::Reentrant(_)) if sole.is_reentrant == (*claim != Claim::Mutex) => {
                if sole.owner.as_bytes() != owner {
                    return Ok(Released::NotHeld);
                }
                let left = match claim {
                    Claim::Reentrant(count) => fewer(sole.holds, *count)?,
                    _ => 0,
                };
                if left == 0 {
                    *self = Lock::Vacant;
                    return Ok(Released::Gone);
                }
                let released = if left == sole.holds { Released::Same(left) } else { Released::Fewer(left) };
                sole.holds = left;
                Ok(released)
            }
            (Lock::Crowd(crowd), claim) if crowd.kind() == claim.kind() => crowd.release(owner, claim),
            _ => Err(Refusal::WrongKind(self.kind().unwrap_or(claim.kind()))),
        }
    }

    /// Takes all holds from this owner; whether it had any. Leaves the lock vacant when it was the last holder.
    pub fn evict(&mut self, owner: &[u8]) -> bool {
        match self {
            Lock::Sole(sole) if sole.owner.as_bytes() == owner => {
                *self = Lock::Vacant;
                true
            }
            Lock::Crowd(crowd) => crowd.members.position(owner).map(|at| crowd.take_out(at)).is_some(),
            _ => false,
        }
    }

    /// Takes a grant back that nobody received, if nothing came after it: the owner has again what it had before.
    pub fn take_back(&mut self, owner: &[u8], claim: &Claim, receipt: &Receipt) -> Released {
        let current = match self {
            Lock::Sole(sole) if sole.owner.as_bytes() == owner => Some((sole.fence, sole.holds)),
            Lock::Crowd(crowd) => crowd
                .members
                .get(owner)
                .map(|h| (h.fence, if matches!(claim, Claim::Rw(Mode::Read, _)) { h.reads } else { h.holds })),
            _ => None,
        };
        if current != Some((receipt.fence, receipt.holds)) {
            return Released::NotHeld;
        }
        let count = Count::Exactly(receipt.before);
        let back = match *claim {
            Claim::Mutex if receipt.before > 0 => return Released::Same(receipt.before),
            Claim::Mutex => Claim::Mutex,
            Claim::Reentrant(_) => Claim::Reentrant(count),
            Claim::Rw(mode, _) => Claim::Rw(mode, count),
            Claim::Permits { limit, .. } => Claim::Permits { limit, count },
        };
        self.release(owner, &back).unwrap_or(Released::NotHeld)
    }

    /// Starts the owner's lease again from now, with `lease` or the length it had. Returns the deadline that the key gets;
    /// `None` when this owner does not hold it.
    pub fn renew(&mut self, owner: &[u8], lease: Option<Lease>, now: At) -> Option<Deadline> {
        match self {
            Lock::Sole(sole) => {
                if sole.owner.as_bytes() != owner {
                    return None;
                }
                sole.lease = lease.unwrap_or(sole.lease);
                Some(sole.lease.from(now))
            }
            Lock::Crowd(crowd) => {
                let at = crowd.members.position(owner)?;
                crowd.members.change(at, |h| {
                    h.lease = lease.unwrap_or(h.lease);
                    h.until = h.lease.from(now);
                });
                self.last_deadline()
            }
            Lock::Vacant => None,
        }
    }

    /// The lock that these parts describe, if they make one: for a dump that may hold anything.
    pub fn from_parts(kind: Kind, limit: u32, fence: Fence, mut holders: Vec<Holder>) -> Option<Lock> {
        if holders.is_empty() || !holders.iter().all(|h| h.is_sound(kind, limit) && h.fence <= fence) {
            return None;
        }
        if matches!(kind, Kind::Mutex | Kind::Reentrant) {
            let only = holders.pop().filter(|_| holders.is_empty())?;
            return (only.fence == fence).then(|| sole(kind, only));
        }
        if kind == Kind::Rw && holders.len() > 1 && holders.iter().any(|h| h.holds > 0) {
            return None;
        }
        let mut crowd = Crowd { family: Family::of(kind, limit), fence, members: Members::default() };
        for holder in holders {
            if crowd.members.position(holder.owner.as_bytes()).is_some() {
                return None;
            }
            crowd.put(holder);
        }
        Some(Lock::Crowd(Box::new(crowd)))
    }

    /// Replication: this owner now holds it so, whatever was there before. A mutex has this one holder then, and so has a
    /// read/write lock where one of them writes. False: these are no parts of such a lock, and nothing was changed.
    pub fn apply_hold(&mut self, kind: Kind, limit: u32, holder: Holder) -> bool {
        if !holder.is_sound(kind, limit) {
            return false;
        }
        if matches!(kind, Kind::Mutex | Kind::Reentrant) {
            *self = sole(kind, holder);
            return true;
        }
        if self.kind() != Some(kind) {
            let crowd = Crowd { family: Family::of(kind, limit), fence: holder.fence, members: Members::default() };
            *self = Lock::Crowd(Box::new(crowd));
        }
        self.set_limit(limit);
        if let Lock::Crowd(crowd) = self {
            if let Some(at) = crowd.members.position(holder.owner.as_bytes()) {
                crowd.take_out(at);
            }
            // No master sends that; a file may hold anything.
            let writes = kind == Kind::Rw && (holder.holds > 0 || crowd.members.as_slice().iter().any(|h| h.holds > 0));
            while writes && !crowd.members.is_empty() {
                crowd.take_out(0);
            }
            crowd.put(holder);
        }
        true
    }

    /// Bytes of memory that the lock takes, its owners' included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Lock>()
            + match self {
                Lock::Sole(sole) => sole.owner.heap_bytes(),
                Lock::Crowd(crowd) => size_of::<Crowd>() + crowd.members.heap_bytes(),
                Lock::Vacant => 0,
            }
    }
}

/// The one-holder lock of that kind.
fn sole(kind: Kind, holder: Holder) -> Lock {
    Lock::Sole(Sole {
        owner: holder.owner,
        fence: holder.fence,
        lease: holder.lease,
        holds: holder.holds,
        is_reentrant: kind == Kind::Reentrant,
    })
}

impl Sole {
    fn verdict(&self, owner: &[u8]) -> Verdict {
        if self.owner.as_bytes() == owner {
            Verdict::Deeper
        } else {
            Verdict::Wait
        }
    }

    fn hold(&self, key_until: Deadline) -> Hold<'_> {
        Hold { owner: &self.owner, fence: self.fence, lease: self.lease, until: key_until, holds: self.holds, reads: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Mutex), Just(Kind::Reentrant), Just(Kind::Rw), Just(Kind::Semaphore)]
    }

    fn holder() -> impl Strategy<Value = Holder> {
        (0..4u8, 1..99u64, 0..3u32, 0..3u32).prop_map(|(name, fence, holds, reads)| Holder {
            owner: Owner::new(&[b'a' + name]).unwrap(),
            fence: Fence::new(fence).unwrap(),
            lease: Lease::Persist,
            until: Deadline::Never,
            holds,
            reads,
        })
    }

    proptest! {
        /// Effects come from files too: whatever they say, what they leave can be stored and loaded again.
        #[test]
        fn any_effects_leave_a_lock_that_can_be_loaded(
            effects in prop::collection::vec((kind(), 0..3u32, holder(), any::<bool>()), 1..30)
        ) {
            let mut lock = Lock::Vacant;
            for (kind, limit, holder, drops) in effects {
                let owner = holder.owner.clone();
                lock.set_limit(limit);
                match drops {
                    true => _ = lock.evict(owner.as_bytes()),
                    false => _ = lock.apply_hold(kind, limit, holder),
                }
                let stored = lock.stored_holds().into_iter().map(|hold| Holder {
                    owner: hold.owner.clone(),
                    fence: hold.fence,
                    lease: hold.lease,
                    until: hold.until,
                    holds: hold.holds,
                    reads: hold.reads,
                });
                let loaded = |kind| Lock::from_parts(kind, lock.limit(), lock.fence().unwrap(), stored.collect());
                prop_assert!(lock.is_vacant() || lock.kind().and_then(loaded).is_some(), "{:?}", lock);
            }
        }
    }
}
