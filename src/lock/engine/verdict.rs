//! What a request gets from a lock. All verdicts for acquire, hand-off and adopted commands are decided here and
//! carried out elsewhere. Nothing is changed here.

use super::lock_manager::LockError;
use super::open_key::OpenKey;
use super::step::Engine;
use crate::host::{Content, Entry, Keys, WaitOutcome, WriteCheck};
use crate::key::{Key, KeyRef, RequestId};
use crate::queue::request::{NewRequest, QueueId, QueuedRequest};
use crate::queue::wait_queue::{Precedence, WaitQueue};
use crate::value::claim::{InvalidClaim, LockRequest};
use crate::value::lock::Lock;
use crate::value::outcome::{Admission, KeyError};
use crate::value::time::Deadline;

/// What a request gets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its owner already holds what it asks for: it is granted ahead of all waiters.
    Reenters,
    /// It is first and the lock admits it: it is granted.
    Admits,
    /// It waits for a holder, or for a request ahead of it.
    Waits,
    /// Only the grace period prevents the grant.
    Withheld,
}

/// What a multi-key request gets now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VerdictOfAll {
    /// All keys are granted. Contains the queues of the keys that its owner does not hold yet.
    Admits(Vec<QueueId>),
    /// It waits for the key of this queue.
    Waits(QueueId),
    /// Only the grace period prevents the grant.
    Withheld,
    /// The server refuses writes.
    WritesRefused,
    /// It can never be granted.
    Never(WaitOutcome),
}

/// The error for a request that LIMIT can never admit.
const OVER_LIMIT_ERROR: KeyError = KeyError::Invalid(InvalidClaim::OverLimit);
/// The outcome for a wait that LIMIT can never admit.
pub(super) const OVER_LIMIT: WaitOutcome = WaitOutcome::Impossible(OVER_LIMIT_ERROR);

impl Verdict {
    fn of(admission: Admission) -> Verdict {
        match admission {
            Admission::AlreadyHeld => Verdict::Reenters,
            Admission::Admit => Verdict::Admits,
            Admission::Wait => Verdict::Waits,
        }
    }

    /// Replaces `Admits` with this verdict if the condition holds.
    fn replace_admits(self, verdict: Verdict, condition: impl FnOnce() -> bool) -> Verdict {
        if self == Verdict::Admits && condition() {
            verdict
        } else {
            self
        }
    }

    /// Whether the request is granted.
    pub fn grants(self) -> bool {
        matches!(self, Verdict::Reenters | Verdict::Admits)
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Whether the lock under the key admits the claim, regardless of its wait queue.
    ///
    /// # Errors
    /// The lock can never admit it.
    pub fn admission(&mut self, request: &LockRequest<'_>) -> Result<Admission, KeyError> {
        match self.entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Lock(lock) => Ok(lock.admission(request.owner.as_bytes(), &request.claim)?),
            Content::Free => {
                self.manager.waits.queues.check_lock_type(self.key, request.claim.lock_type())?;
                Ok(Lock::Vacant.admission(request.owner.as_bytes(), &request.claim)?)
            }
        }
    }

    /// What a waiter for this key alone gets.
    ///
    /// # Errors
    /// It can never be granted.
    pub fn verdict(&mut self, request: &LockRequest<'_>, precedence: Precedence) -> Result<Verdict, KeyError> {
        let admission = self.admission(request)?;
        // The owner has acquired permits since the request was queued. At the head, the request would block all others.
        if admission == Admission::Wait && precedence == Precedence::First && self.never_fits(request) {
            return Err(OVER_LIMIT_ERROR);
        }
        let verdict = Verdict::of(admission).replace_admits(Verdict::Waits, || precedence == Precedence::Behind);
        Ok(verdict.replace_admits(Verdict::Withheld, || self.is_withheld(request.owner.as_bytes())))
    }

    /// Whether a grace period is running and the owner does not hold the key.
    fn is_withheld(&mut self, owner: &[u8]) -> bool {
        let is_held = self.entry.content().lock().is_some_and(|lock| lock.is_held_by(owner));
        !is_held && self.manager.grace.is_running(self.now)
    }

    /// Whether the permits of the request exceed LIMIT together with the permits that its owner holds. A stored hold
    /// that has ended does not count.
    fn never_fits(&mut self, request: &LockRequest<'_>) -> bool {
        let owner = request.owner.as_bytes();
        let lock = self.entry.content().lock().filter(|_| !self.manager.has_ended(self.key, owner));
        let hold = lock.and_then(|lock| lock.hold(owner, Deadline::Never));
        let held = hold.map_or(0, |hold| hold.holds);
        request.claim.limit().is_some_and(|limit| request.claim.never_fits(held, limit))
    }

    /// The waiters that can never fit the queue's limit, counting what their owners already hold.
    pub fn over_limit(&mut self, queue: QueueId) -> Vec<RequestId> {
        let queues = &self.manager.waits.queues;
        let Some((queue, limit)) = queues.get(queue).and_then(|queue| Some((queue, queue.limit?))) else {
            return Vec::new();
        };
        let mut never_fits = |id: &RequestId| {
            let Some(queued) = queues.request(*id) else { return false };
            let owner = queued.owner.as_bytes();
            let lock = self.entry.content().lock().filter(|_| !self.manager.has_ended(self.key, owner));
            let hold = lock.and_then(|lock| lock.live_hold(owner, self.now.timestamp()));
            queued.claim.never_fits(hold.map_or(0, |hold| hold.holds), limit)
        };
        queue.present().map(|(_, id)| id).filter(|id| never_fits(id)).collect()
    }
}

impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// The combined admission of all locks: `Wait` if any lock returns it, otherwise `Admit` if any lock returns it.
    pub(super) fn admission_to_all(
        &mut self,
        db: i32,
        names: &[&[u8]],
        request: &LockRequest<'_>,
    ) -> Result<Admission, KeyError> {
        let mut all = Admission::AlreadyHeld;
        for name in names {
            match self.open(KeyRef { db, name }).admission(request)? {
                Admission::Wait => all = Admission::Wait,
                Admission::Admit if all == Admission::AlreadyHeld => all = Admission::Admit,
                _ => {}
            }
        }
        Ok(all)
    }

    /// What a new request gets, given the admission by its locks.
    ///
    /// # Errors
    /// A grace period is running, and the request does not wait.
    pub(super) fn verdict_of_new(
        &mut self,
        new: &NewRequest<'_>,
        admission: Admission,
        waits: bool,
    ) -> Result<Verdict, LockError> {
        let verdict = Verdict::of(admission).replace_admits(Verdict::Waits, || !self.is_first(new));
        match verdict.replace_admits(Verdict::Withheld, || self.withholds(new.db, new.names, new.owner())) {
            Verdict::Withheld if !waits => Err(LockError::Grace),
            verdict => Ok(verdict),
        }
    }

    /// What a waiter for multiple keys gets. `queue` is the one that is being served, or that has blocked it.
    pub(super) fn verdict_of_all(&mut self, queue: QueueId, queued: &QueuedRequest, keys: &[Key]) -> VerdictOfAll {
        debug_assert_eq!(queued.queues.len(), keys.len(), "a waiter keeps the queues of all its keys open");
        // Begin with the key that blocked the request: if many keys are released one after another, only two are opened
        // each time.
        let blocked = queued.queues.iter().position(|other| *other == queue).unwrap_or_default();
        let mut admitting = Vec::new();
        for index in (blocked..keys.len()).chain(0..blocked) {
            let other = queued.queues[index];
            match self.open(keys[index].as_ref()).admission(&queued.request()) {
                Ok(Admission::AlreadyHeld) => {}
                Ok(Admission::Admit) => admitting.push(other),
                Ok(Admission::Wait) => return VerdictOfAll::Waits(other),
                Err(error) => return VerdictOfAll::Never(WaitOutcome::Impossible(error)),
            }
        }
        // The keys share a slot, but a migration moves each key separately.
        match keys
            .iter()
            .map(|key| self.host.keys.write_check(key.as_ref()))
            .find(|write_check| *write_check != WriteCheck::Allowed)
        {
            None | Some(WriteCheck::Allowed) => {}
            Some(WriteCheck::Refused) => return VerdictOfAll::WritesRefused,
            Some(WriteCheck::SlotMoved) => return VerdictOfAll::Never(WaitOutcome::TryAgain),
        }
        let queues = self.manager.queues();
        let is_behind = |other: &QueueId| queues.get(*other).is_some_and(|queue| !queue.is_first(&queued.position));
        if let Some(blocking) = admitting.iter().copied().find(is_behind) {
            return VerdictOfAll::Waits(blocking);
        }
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        if self.withholds(queued.db, &names, queued.owner.as_bytes()) {
            VerdictOfAll::Withheld
        } else {
            VerdictOfAll::Admits(admitting)
        }
    }

    /// Whether no request is ahead on any key that the owner does not hold yet.
    fn is_first(&mut self, new: &NewRequest<'_>) -> bool {
        let queues = self.manager.queues();
        let is_behind = |queue: &WaitQueue| !queue.is_first(&new.position);
        let behind = new.names.iter().map(|name| new.key(name));
        let mut behind = behind.filter(|key| queues.of_key(*key).is_some_and(is_behind));
        let mut holders = self.manager.holders(&mut self.host.keys, self.host.now);
        behind.all(|key| new.names.len() > 1 && holders.is_held_by(key, new.owner()))
    }

    /// Whether a grace period is running and the owner does not hold all of the keys.
    fn withholds(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) -> bool {
        self.manager.grace.is_running(self.host.now) && !self.holds_all(db, names, owner)
    }
}
