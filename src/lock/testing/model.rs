//! A second implementation of the contract, written from its text and independently of the rules: lists, no indexes,
//! and one function that applies the rules of the contract until nothing changes.
//!
//! Cases that the contract leaves open, and how the model decides them:
//! - If a request has several errors, those of its keys come first, in order, then MAXWAITERS, then DEADLOCK.
//! - A request for a key of an owner's own MLOCK does not go before that MLOCK.
//! - An MLOCK that must be reevaluated, because its owner lost one of its keys, is reevaluated when nothing else can be
//!   served, and not at all if its owner has the key again by then. Of several, the first in the queue comes first.
//! - If something other than a request completes a deadlock (RENAME, or a smaller LIMIT that came with a grant), it
//!   stays open whether requests that are queued later get DEADLOCK.
//! - If granting a retry that resumes its position ahead of others would deadlock another request of its owner, it gets
//!   DEADLOCK, even if it would be granted at once.
//! - HSET … 0, and HINCRBY to 0, on a free key do not create a lock: an error here.
//! - KEEPTTL with another token in the last millisecond of the key: the new holder gets one more millisecond.
//! - A retry with a token that several clients share resumes the foremost reserved position.
//! - If the wall clock passes the PXAT of a waiting SET, it gets nil when it is first in the queue, and no position is
//!   reserved.
//! - A wait that times out in the same millisecond in which a lease expires has timed out, and a reserved position has
//!   ended.
//! - Of requests that end together, the older one ends first, and its position is the first to be dropped if too many
//!   are reserved.
//! - Of several requests of one owner, a request for a hold that the owner already has is granted first, then the
//!   requests for one key by position.
//! - A waiter keeps the rank that it had when it was queued: if its owner becomes a reader later, it does not go to the
//!   head. A position reserved for a request of the other rank is not resumed.
//! - The LIMIT of a semaphore that RENAME or RESTORE stores is the newest one of its key.
//! - An undelivered grant is revoked when no other waiter can be served. The fencing token and lease of an older hold
//!   stay.
//! - MLOCK.RELEASE releases each of its keys, which also completes COALESCE requests. The flag of the newest retry
//!   counts.
//! - In deadlock detection, a COALESCE request waits like any other.
//! - LOCK.CANCEL counts reserved positions. More permits of a semaphore keep the owner's fencing token.
//! - A reserved position that LOCK.CANCEL ends counts as cancelled. One that a release with COALESCE ends counts as
//!   timed out. One that ends because the key or the server has become something else is not counted.
//! - If the server refuses writes when a session's renewal is due, it is retried after 10 ms, and no other renewal
//!   runs before that.
//! - When the wall clock is set, a lease that has expired by the new time has ended, even a session's. Then every other
//!   lease of a live session that has an expiry is renewed at once, and its next renewal is due after a third of it.
//! - If several leases are due for renewal at one time and a time slice ends before all of them are renewed, a grant
//!   may come first. Then the later of the old deadline and that of the grant counts (the simulator plays such renewals
//!   in one slice).
//!
//! For tests on a server, also:
//! - Requesting more permits than the request's own LIMIT is an error, whatever is under the key.
//! - If two keys of a waiter become something else in one event-loop iteration, it stays open which of the two errors
//!   it gets.
//! - What a hand-off in a transaction causes at other keys of an MLOCK may happen at the end of the transaction.
//! - An immediate effect takes up to 2 ms (a timer created in a timer's callback fires with the next one). Within 10 ms
//!   the server notices that writes are accepted again, and that PEXPIRE has shortened a lease with waiters (a lease
//!   that has expired before that, because the clock was set, ends then). It notices a set wall clock with its next
//!   cron: a session that has started since is renewed then as well.
//! - A key expires after the last millisecond of its time to live, or with it (the active expiry of Redis 8).
//! - An expired key or an ended holder that is still stored may come back when the wall clock is set back, like any key
//!   of the server.
//! - The lease expiry and EXPIRE of a lock without waiters are noticed when a command of the module accesses the lock.
//!   In the schedules, such a command precedes each EXPIRE, RENAME and RESTORE.

use super::contract::*;

/// A deadline: on the wall clock for leases and keys, on the monotonic clock for all others. `Never` is the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Until {
    /// At the end of this millisecond.
    At(Ms),
    /// It never expires.
    Never,
}

/// A holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The owner.
    pub owner: Name,
    /// The grant that determines the fencing token.
    pub grant: Grant,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// A count in a hash that has been reduced to 0. Its owner still holds the lock.
    pub stays_at_0: bool,
    /// Read holds.
    pub reads: u32,
    /// The number of its one permit, if it has a slot.
    pub slot: Option<u32>,
    /// The length of the lease, as last requested; `None` for PERSIST.
    pub lease: Option<Ms>,
    /// When the lease expires.
    pub until: Until,
    /// The connection that it is bound to, and when its next renewal is due.
    pub session: Option<(u64, Until)>,
    /// Whether `LOCK.*` made the latest grant.
    pub is_native: bool,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Its type.
    pub kind: Kind,
    /// A semaphore's LIMIT.
    pub limit: u32,
    /// When the key expires.
    pub until: Until,
    /// The holders.
    pub holders: Vec<Holder>,
}

/// The value under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A value of another type.
    Foreign,
    /// A lock.
    Lock(Lock),
}

/// A queued request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request as sent.
    pub asked: Acquire,
    /// When BLOCK times out.
    pub until: Until,
    /// When the wait began, on the monotonic clock. A wait that is split over several requests is one wait.
    pub since: Ms,
    /// A reader's request to write.
    pub is_upgrade: bool,
    /// A sequence number: the order in which positions were assigned.
    pub arrival: u64,
    /// PXAT: when its lease expires, on the wall clock.
    pub lease_deadline: Option<Ms>,
    /// For a reserved position: when its client left (a sequence number), and when the position is dropped.
    pub detached: Option<(u64, Ms)>,
    /// The keys of an MLOCK that its owner held when this was last checked.
    pub held: Vec<Name>,
}

/// A grant to a client that has disconnected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UndeliveredGrant {
    pub owner: Name,
    pub claim: Claim,
    pub grant: Grant,
    /// Holds before and after, by key.
    pub held: Vec<(Name, u32, u32)>,
}

/// Waits that ended without a reply to the waiting request, or with a reply of another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SilentEnds {
    /// The reserved position ended unused, or there was none.
    pub timed_out: u64,
    /// LOCK.CANCEL ended the reserved position.
    pub cancelled: u64,
    /// The reply to a retry was the grant.
    pub granted: u64,
}

/// A server as the contract describes it.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The server's clocks.
    pub now: Clocks,
    /// The maximum number of waiting requests, and of reserved positions.
    pub max_waiters: usize,
    /// The maximum for one key; `None` if there is no limit per key.
    pub max_waiters_per_key: Option<usize>,
    /// How long a position is reserved.
    pub keep_place: Ms,
    pub(super) values: Vec<(Name, Value)>,
    /// In the order of their positions.
    pub(super) requests: Vec<Request>,
    /// The newest LIMIT of each semaphore, even if its key is free.
    pub(super) limits: Vec<(Name, u32)>,
    pub(super) refuses_writes: bool,
    /// No session is renewed before this time, because writes were refused.
    pub renewals_postponed_until: Option<Ms>,
    /// When the grace period began and when it ends.
    pub(super) grace: Option<(Ms, Ms)>,
    /// The numbers of requests that a smaller LIMIT has made impossible.
    pub(super) over_limit: Vec<u64>,
    /// Ended connections with holds that have not been removed yet.
    pub(super) gone: Vec<u64>,
    /// Requests of clients that have disconnected, before the server has noticed it.
    pub(super) disconnected_unnoticed: Vec<u64>,
    pub(super) undelivered: Vec<UndeliveredGrant>,
    pub(super) replies: Vec<(u64, WaitReply)>,
    pub(super) silent_ends: SilentEnds,
    pub(super) grants: u64,
    /// The connections on which requests were granted, by grant: a repeated request may come on another one.
    pub(super) granted_on: Vec<(Grant, u64)>,
    pub(super) detachments: u64,
    /// How many MLOCKs were reevaluated.
    pub(super) reevaluated: u64,
    pub(super) arrivals: u64,
}

/// Whether a lock admits a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// The owner already holds it: granted ahead of all waiters.
    Has,
    /// No holder blocks it.
    Admits,
    /// A holder blocks it.
    Blocked,
}

/// Commands.
impl Model {
    /// Plays a command; the outcomes of waits are in [`Model::take_replies`].
    pub fn play(&mut self, command: &Command) -> Outcome {
        self.expire();
        let outcome = match command {
            Command::Acquire(asked) => self.acquire(asked),
            Command::Release { keys, owner, claim, failed } => self.release(keys, owner, *claim, *failed),
            Command::Renew { keys, owner, kind, lease } => self.renew(keys, owner, *kind, *lease),
            Command::Break { key, owner } => self.break_holds(key, *owner),
            Command::Cancel { key, owner } => self.cancel(key, owner),
            Command::TakeOver { client, pairs, lease } => self.preempt_mutexes(*client, pairs, *lease),
            Command::Count { client, key, owner, change } => self.change_count(*client, key, owner, *change),
        };
        self.serve_all();
        outcome.unwrap_or_else(Outcome::Refused)
    }

    fn acquire(&mut self, asked: &Acquire) -> Result<Outcome, Refusal> {
        let Acquire { keys, owner, claim, .. } = asked;
        let limit = asked.claim.limit().unwrap_or(0);
        let says = keys.iter().map(|key| self.say(key, owner, *claim, limit)).collect::<Result<Vec<_>, _>>()?;
        let find_same = |requests: &[Request]| requests.iter().position(|other| other.is_retried_by(asked));
        let is_absolute = *claim == Claim::Adopted { is_absolute: true };
        let lease_deadline = asked.lease.filter(|_| is_absolute).map(|lease| self.now.wall + lease);
        let is_upgrade = self.is_upgrade(keys[0], owner, *claim);
        if let Some(kept) = find_same(&self.requests).filter(|kept| self.requests[*kept].detached.is_some()) {
            if self.requests[kept].is_upgrade && !is_upgrade {
                self.end_upgrade(kept);
            }
        }
        let same = find_same(&self.requests);
        let retried = same.filter(|_| asked.block.is_some());
        let keeps_position = |request: &Request| request.detached.is_none() || request.is_upgrade == is_upgrade;
        let kept = retried.filter(|retried| keeps_position(&self.requests[*retried]));
        let mut position = kept.unwrap_or_else(|| self.new_position(keys, owner, is_upgrade));
        let has_all = says.iter().all(|say| *say == Say::Has);
        let is_first = keys.iter().zip(&says).all(|(key, say)| match say {
            Say::Has => true,
            Say::Admits => self.is_first(key, position),
            _ => false,
        });
        let is_granted = has_all || is_first && self.grace_admits(keys, owner);
        // If the request is granted at once, ahead of others, that may deadlock another request of its owner.
        let is_kept_first = kept.filter(|_| is_granted && !has_all);
        if is_kept_first.is_some_and(|kept| self.would_deadlock(&self.with_retry(kept, asked), kept)) {
            return Err(Refusal::Deadlock);
        }
        if is_granted {
            // A grant to the same request ends a reserved position, even if it has no BLOCK.
            if let Some(same) = same.filter(|same| asked.block.is_some() || self.requests[*same].detached.is_some()) {
                self.supersede(same, asked.client);
                self.silent_ends.granted += 1;
            }
            let (grant, counts) = self.grant(asked, limit);
            return Ok(Outcome::Granted(grant, counts[0].2));
        }
        let Some(block) = asked.block else {
            return if is_first { Err(Refusal::Grace) } else { Ok(Outcome::NotGranted) };
        };
        let is_newcomer = retried.is_none_or(|retried| self.requests[retried].detached.is_some());
        if is_newcomer && !self.has_room_for_one_more(keys) {
            return Err(Refusal::MaxWaiters);
        }
        let until = if block == 0 { Until::Never } else { Until::At(self.now.monotonic + block) };
        self.arrivals += 1;
        let since = retried.map_or(self.now.monotonic, |retried| self.requests[retried].since);
        let (arrival, held) = (self.arrivals, self.held_of(asked));
        let request =
            Request { asked: asked.clone(), until, since, is_upgrade, arrival, lease_deadline, detached: None, held };
        let mut requests = self.requests.clone();
        match (kept, retried) {
            (Some(kept), _) => {
                let Request { is_upgrade, arrival, .. } = requests[kept];
                requests[kept] = Request { is_upgrade, arrival, ..request };
            }
            (None, None) => requests.insert(position, request),
            (None, Some(retried)) => {
                requests.remove(retried);
                position -= usize::from(retried < position);
                requests.insert(position, request);
            }
        }
        if self.would_deadlock(&requests, position) {
            return Err(Refusal::Deadlock);
        }
        if let Some(retried) = retried {
            self.supersede(retried, asked.client);
        }
        self.requests = requests;
        if let Some(limit) = claim.limit() {
            self.set_limit(keys[0], limit);
        }
        Ok(Outcome::Queued)
    }

    /// The queued requests, with a retry in the position of the request that it repeats.
    fn with_retry(&self, kept: usize, asked: &Acquire) -> Vec<Request> {
        let mut requests = self.requests.clone();
        requests[kept] = Request { asked: asked.clone(), detached: None, ..requests[kept].clone() };
        requests
    }

    /// A multi-key request counts for each of its keys.
    fn has_room_for_one_more(&self, keys: &[Name]) -> bool {
        let waiters = self.requests.iter().filter(|request| request.detached.is_none()).count();
        let most = self.max_waiters_per_key.unwrap_or(usize::MAX);
        waiters < self.max_waiters && keys.iter().all(|key| self.waiters(key).count() < most)
    }

    /// The older request, if its client still waits, gets -UNBLOCKED. A retry of the same client supersedes nothing.
    fn supersede(&mut self, retried: usize, client: u64) {
        let old = self.requests.remove(retried);
        if old.detached.is_none() && old.asked.client != client {
            self.replies.push((old.asked.number, WaitReply::Superseded));
        }
    }

    fn release(&mut self, keys: &[Name], owner: Name, claim: Claim, failed: bool) -> Result<Outcome, Refusal> {
        keys.iter().try_for_each(|key| self.check_kind(key, claim.kind()))?;
        let mut released = 0;
        for key in keys {
            let Some(holder) = self.holder(key, owner) else { continue };
            let (held, grant) = (*holder.count(claim), holder.grant);
            let left = match claim.holds() {
                _ if claim == Claim::Mutex => 0,
                // DEL, HDEL or RLOCK.RELEASE ends it.
                _ if holder.stays_at_0 => 0,
                _ if held == 0 => return Ok(Outcome::NotHeld),
                Holds::By(fewer) => held.checked_sub(fewer).ok_or(Refusal::Invalid)?,
                Holds::Exactly(left) if left > held => return Err(Refusal::Invalid),
                Holds::Exactly(left) => left,
            };
            if left < held || holder.stays_at_0 {
                *holder.count(claim) = left;
                holder.stays_at_0 = false;
                self.holders_changed(key);
                if !failed && claim == Claim::Mutex {
                    self.complete_coalescing(key, grant);
                }
            }
            if keys.len() == 1 {
                return Ok(Outcome::Released(left));
            }
            released += 1;
        }
        Ok(if keys.len() == 1 { Outcome::NotHeld } else { Outcome::Released(released) })
    }

    /// When the holder releases the lock, every COALESCE request for the key, at any position, gets `[nil, fence]` and
    /// leaves the queue. Reserved positions end as well.
    fn complete_coalescing(&mut self, key: Name, grant: Grant) {
        let is_meant = |request: &Request| request.asked.coalesce && request.asked.keys.contains(&key);
        let meant = self.requests.iter().filter(|request| is_meant(request) && request.detached.is_none());
        let replies: Vec<_> = meant.map(|request| (request.asked.number, WaitReply::Done(grant))).collect();
        self.replies.extend(replies);
        let kept = self.requests.iter().filter(|request| is_meant(request) && request.detached.is_some());
        self.silent_ends.timed_out += kept.count() as u64;
        self.requests.retain(|request| !is_meant(request));
    }

    fn renew(&mut self, keys: &[Name], owner: Name, kind: Kind, lease: Option<Option<Ms>>) -> Result<Outcome, Refusal> {
        keys.iter().try_for_each(|key| self.check_kind(key, kind))?;
        let holds_all = keys.iter().all(|key| self.holder(key, owner).is_some());
        if holds_all {
            keys.iter().for_each(|key| self.start_lease_again(key, owner, lease));
        }
        Ok(Outcome::Renewed(holds_all))
    }

    pub(super) fn start_lease_again(&mut self, key: Name, owner: Name, lease: Option<Option<Ms>>) {
        let now = self.now;
        let Some(holder) = self.holder(key, owner) else { return };
        holder.lease = lease.unwrap_or(holder.lease);
        holder.until = holder.lease.map_or(Until::Never, |lease| Until::At(now.wall + lease));
        holder.renew_after_a_third(now.monotonic);
        self.holders_changed(key);
    }

    fn break_holds(&mut self, key: Name, owner: Option<Name>) -> Result<Outcome, Refusal> {
        let lock = match self.value_mut(key) {
            None => return Ok(Outcome::Broken(0)),
            Some(Value::Foreign) => return Err(Refusal::WrongType),
            Some(Value::Lock(lock)) => lock,
        };
        let before = lock.holders.len();
        lock.holders.retain(|holder| owner.is_some_and(|owner| holder.owner != owner));
        let broken = before - lock.holders.len();
        if broken > 0 {
            self.holders_changed(key);
        }
        Ok(Outcome::Broken(broken as u32))
    }

    fn cancel(&mut self, key: Name, owner: Name) -> Result<Outcome, Refusal> {
        if let Some(Value::Foreign) = self.value(key) {
            return Err(Refusal::WrongType);
        }
        let is_meant = |request: &Request| request.asked.owner == owner && request.asked.keys.contains(&key);
        let cancelled: Vec<_> = self.requests.iter().filter(|request| is_meant(request)).cloned().collect();
        self.requests.retain(|request| !is_meant(request));
        for request in cancelled.iter().filter(|request| request.detached.is_none()) {
            self.replies.push((request.asked.number, WaitReply::Cancelled));
        }
        self.silent_ends.cancelled += cancelled.iter().filter(|request| request.detached.is_some()).count() as u64;
        Ok(Outcome::Cancelled(!cancelled.is_empty()))
    }

    /// The token holds the lock afterwards: the same token renews, and another one replaces the holder with a new
    /// fencing token. Only a held key is preempted: a free one is granted as by LOCK.ACQUIRE, or nothing changes.
    fn preempt_mutexes(
        &mut self,
        client: u64,
        pairs: &[(Name, Name)],
        lease: Option<Option<Ms>>,
    ) -> Result<Outcome, Refusal> {
        pairs.iter().try_for_each(|(key, _)| self.check_kind(key, Kind::Mutex))?;
        let is_free = |model: &Model, key: Name| model.value(key).is_none();
        let asks = |key: Name, owner: Name| Acquire {
            number: 0,
            client,
            keys: vec![key],
            owner,
            claim: Claim::Mutex,
            lease: lease.unwrap_or(None),
            block: None,
            session: false,
            coalesce: false,
            notify: false,
        };
        let (free, held): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(|(key, _)| is_free(self, key));
        // SET, SETEX, PSETEX, MSET and SET … IFEQ with another token return -TRYAGAIN.
        if held.iter().any(|(key, owner)| !self.holds(key, owner) && self.is_held_natively(key)) {
            return Ok(Outcome::Protected);
        }
        if free.iter().any(|(key, owner)| !self.may_be_granted_free(key, owner)) {
            return Ok(Outcome::NotNow);
        }
        for (key, owner) in &free {
            self.grant_free(&asks(key, owner));
            self.is_adopted(key, owner);
        }
        let mut grants = free.len() as u32;
        for (key, owner) in held {
            if self.holds(key, owner) {
                if lease.is_some() {
                    self.start_lease_again(key, owner, lease);
                }
                self.confirm_hold(key, owner);
                continue;
            }
            let now = self.now.wall;
            let Some(Value::Lock(lock)) = self.value_mut(key) else { continue };
            let left = match lock.until {
                Until::At(last) => Some(last.saturating_sub(now).max(1)),
                Until::Never => None,
            };
            lock.holders.clear();
            self.grant(&Acquire { lease: lease.unwrap_or(left), ..asks(key, owner) }, 0);
            self.is_adopted(key, owner);
            grants += 1;
        }
        Ok(Outcome::TakenOver(grants))
    }

    /// The owner holds a reentrant mutex this many times. A count of 0 stays. A second owner, and a count below 0, is
    /// an error.
    fn change_count(&mut self, client: u64, key: Name, owner: Name, change: Change) -> Result<Outcome, Refusal> {
        self.check_kind(key, Kind::Reentrant)?;
        let changed = |count: u32| match change {
            Change::By(by) => u32::try_from(i64::from(count) + by).map_err(|_| Refusal::Invalid),
            Change::To(count) => Ok(count),
        };
        if self.value(key).is_some() {
            let Some(holder) = self.holder(key, owner) else { return Ok(Outcome::HeldByAnother) };
            let before = holder.holds;
            holder.holds = changed(before)?;
            holder.stays_at_0 = holder.holds == 0;
            let now = holder.holds;
            self.confirm_hold(key, owner);
            return Ok(Outcome::Counted(now, Some(before)));
        }
        let count = changed(0)?;
        if count == 0 {
            return Err(Refusal::Invalid);
        }
        if !self.may_be_granted_free(key, owner) {
            return Ok(Outcome::NotNow);
        }
        let (keys, claim) = (vec![key], Claim::Reentrant(Holds::Exactly(count)));
        let (session, coalesce, notify) = (false, false, false);
        let asked =
            Acquire { number: 0, client, keys, owner, claim, lease: None, block: None, session, coalesce, notify };
        self.grant_free(&asked);
        self.is_adopted(key, owner);
        Ok(Outcome::Counted(count, None))
    }

    fn is_held_natively(&self, key: Name) -> bool {
        matches!(self.value(key), Some(Value::Lock(lock)) if lock.holders.iter().any(|holder| holder.is_native))
    }

    /// The owner was granted the key by a command that lock.adopt translates.
    fn is_adopted(&mut self, key: Name, owner: Name) {
        if let Some(holder) = self.holder(key, owner) {
            holder.is_native = false;
        }
    }

    fn may_be_granted_free(&self, key: Name, owner: Name) -> bool {
        self.is_first(key, self.new_position(&[key], owner, false)) && self.grace_admits(&[key], owner)
    }

    /// A grant to the same request ends its reserved position.
    fn grant_free(&mut self, asked: &Acquire) {
        let is_same = |other: &Request| other.is_retried_by(asked) && other.detached.is_some();
        if let Some(same) = self.requests.iter().position(is_same) {
            self.supersede(same, asked.client);
            self.silent_ends.granted += 1;
        }
        self.grant(asked, 0);
    }

    /// A free key with waiters keeps the lock type of its queue.
    fn check_kind(&self, key: Name, kind: Kind) -> Result<(), Refusal> {
        match self.value(key) {
            Some(Value::Foreign) => Err(Refusal::WrongType),
            Some(Value::Lock(lock)) if lock.kind != kind => Err(Refusal::WrongKind),
            Some(Value::Lock(_)) => Ok(()),
            None => match self.waiters(key).next() {
                Some(first) if first.asked.claim.kind() != kind => Err(Refusal::WrongKind),
                _ => Ok(()),
            },
        }
    }
}

/// Admission.
impl Model {
    /// Whether the lock under the key admits the claim, with this LIMIT.
    pub(super) fn say(&self, key: Name, owner: Name, claim: Claim, limit: u32) -> Result<Say, Refusal> {
        self.check_kind(key, claim.kind())?;
        let holders = match self.value(key) {
            Some(Value::Lock(lock)) => &lock.holders[..],
            _ => &[],
        };
        let mine = holders.iter().find(|holder| holder.owner == owner);
        let held = mine.map_or(0, |mine| *mine.clone().count(claim));
        // An owner holds either one slot or permits without a slot. Both is an error.
        let is_slot = matches!(claim, Claim::Slot(_));
        if claim.kind() == Kind::Semaphore && mine.is_some_and(|mine| mine.slot.is_some() != is_slot) {
            return Err(Refusal::Invalid);
        }
        let wanted = match claim.holds() {
            _ if claim.kind() == Kind::Mutex => 1,
            Holds::By(more) => held + more,
            Holds::Exactly(exactly) if exactly < held => return Err(Refusal::Invalid),
            Holds::Exactly(exactly) => exactly,
        };
        let others = || holders.iter().filter(|holder| holder.owner != owner);
        let is_blocked = match claim {
            // Never a retry: the token that holds the lock is refused too, as by SET.
            Claim::Adopted { .. } => !holders.is_empty(),
            Claim::Mutex | Claim::Reentrant(_) | Claim::Read(_) if mine.is_some() => return Ok(Say::Has),
            Claim::Write(_) if held > 0 => return Ok(Say::Has),
            Claim::Mutex | Claim::Reentrant(_) | Claim::Write(_) => others().next().is_some(),
            Claim::Read(_) => others().any(|other| other.holds > 0),
            Claim::Permits(..) | Claim::Slot(_) => {
                let (Holds::By(number) | Holds::Exactly(number)) = claim.holds();
                let out: u32 = others().map(|other| other.holds).sum();
                if number > limit {
                    return Err(Refusal::Invalid);
                }
                if wanted == held {
                    return Ok(Say::Has);
                }
                out + wanted > limit
            }
        };
        Ok(if is_blocked { Say::Blocked } else { Say::Admits })
    }

    /// Whether no request waits for the key ahead of this position.
    pub(super) fn is_first(&self, key: Name, position: usize) -> bool {
        !self.requests.iter().take(position).any(|ahead| ahead.waits_for(key))
    }

    /// The position of a new request. The request of an owner that holds one of the keys of a queued MLOCK goes just
    /// before the first such MLOCK in its queue. A detached MLOCK does not count. An upgrade is first in any case.
    pub(super) fn new_position(&self, keys: &[Name], owner: Name, is_upgrade: bool) -> usize {
        if is_upgrade {
            return self.requests.iter().take_while(|request| request.is_upgrade).count();
        }
        let is_such = |other: &Request| {
            let Acquire { keys: wanted, owner: of, .. } = &other.asked;
            wanted.len() > 1
                && *of != owner
                && keys.iter().any(|key| other.waits_for(key))
                && wanted.iter().any(|key| self.holds(key, owner))
        };
        self.requests.iter().position(is_such).unwrap_or(self.requests.len())
    }

    /// The keys of an MLOCK that its owner holds.
    pub(super) fn held_of(&self, asked: &Acquire) -> Vec<Name> {
        let Acquire { keys, owner, .. } = asked;
        keys.iter().filter(|key| keys.len() > 1 && self.holds(key, owner)).copied().collect()
    }

    pub(super) fn is_upgrade(&self, key: Name, owner: Name, claim: Claim) -> bool {
        let Some(Value::Lock(lock)) = self.value(key) else { return false };
        let is_reader = |holder: &Holder| holder.owner == owner && holder.holds == 0 && holder.reads > 0;
        matches!(claim, Claim::Write(_)) && lock.holders.iter().any(is_reader)
    }

    pub(super) fn grace_admits(&self, keys: &[Name], owner: Name) -> bool {
        self.grace.is_none() || keys.iter().all(|key| self.holds(key, owner))
    }
}

impl Claim {
    /// The LIMIT in the claim.
    pub(super) fn limit(self) -> Option<u32> {
        match self {
            Claim::Permits(limit, _) | Claim::Slot(limit) => Some(limit),
            _ => None,
        }
    }
}
