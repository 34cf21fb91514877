//! What the rules count, since the start: plain additions where it happens. INFO's section `lock` shows it.

use super::acquire::{AcquireRequest, Acquired};
use super::lock_manager::{LockError, LockManager};
use super::occurrence::{EndedBy, GrantChange, Occurrence, RenewedBy, Waited};
use crate::host::WaitOutcome;
use crate::key::{Key, KeyRef};
use crate::value::by_family::ByFamily;
use crate::value::claim::{Family, LockRequest};
use crate::value::fence::Fence;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;
use crate::value::time::Now;

/// Counts since the start. Requests are counted once, whatever the number of their keys; ends and renewals of holds
/// once for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// What the short road did. Whoever asks adds it to the rest: an uncontended request pays for one addition.
    pub(super) alone: ByFamily<Alone>,
    /// How many more keys hold a lock than before, by what the long road did. Those that others remove the host knows.
    pub(super) stored: ByFamily<i64>,
    granted_at_once: u64,
    /// Requests granted after they had waited.
    pub grants_after_wait: u64,
    /// Requests that were not granted and did not wait.
    pub not_granted: u64,
    /// Waits whose time ran out.
    pub wait_timeouts: u64,
    /// Waits that LOCK.CANCEL ended.
    pub cancelled: u64,
    /// Waits that the same request, sent again, took over.
    pub superseded: u64,
    /// Requests refused because their waiting would never have ended.
    pub deadlocks: u64,
    /// Requests refused because too many wait already.
    pub max_waiters_refusals: u64,
    /// Requests refused because of the grace.
    pub grace_refusals: u64,
    given_back: u64,
    /// Leases that started again, by a request or because a session's connection lives.
    pub renewals: u64,
    /// Leases whose end the rules noticed.
    pub leases_expired: u64,
    /// Holds that LOCK.BREAK ended.
    pub broken: u64,
    /// Grants taken back because nobody received them.
    pub undelivered_grants: u64,
    /// Commands that LOCK.EXEC ran.
    pub execs: u64,
    /// LOCK.EXEC by an owner that did not hold the lock.
    pub execs_not_held: u64,
}

/// What the short road did with locks of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alone {
    /// Keys that were free and are granted.
    pub granted: u64,
    /// Keys that are free again.
    pub freed: u64,
    /// Holds that were given back, but not all of them.
    pub fewer: u64,
}

impl Statistics {
    /// Requests granted at once, also those that were sent again and got the grant that they had.
    pub fn grants_immediate(&self) -> u64 {
        self.granted_at_once + self.alone.0.iter().map(|alone| alone.granted).sum::<u64>()
    }

    /// Holds given back, all of them or some; and those that ended with their connections.
    pub fn releases(&self) -> u64 {
        self.given_back + self.alone.0.iter().map(|alone| alone.freed + alone.fewer).sum::<u64>()
    }

    /// How many more keys hold a lock than at the start, by what the rules have done; fewer, where others stored them.
    pub fn stored(&self) -> ByFamily<i64> {
        let by_alone = |family| self.alone.of(family).granted as i64 - self.alone.of(family).freed as i64;
        ByFamily::make(|family| by_alone(family) + self.stored.of(family))
    }

    /// A key held this before, and holds that now.
    pub(super) fn count_stored(&mut self, before: Option<Family>, after: Option<Family>) {
        before.into_iter().for_each(|family| *self.stored.of_mut(family) -= 1);
        after.into_iter().for_each(|family| *self.stored.of_mut(family) += 1);
    }

    /// The answer to a request to acquire that took the long road.
    pub(super) fn count_answer(&mut self, answer: &Result<Acquired, LockError>) {
        match answer {
            Ok(Acquired::Granted(_)) => self.granted_at_once += 1,
            Ok(Acquired::NotGranted) => self.not_granted += 1,
            Err(LockError::Deadlock(_)) => self.deadlocks += 1,
            Err(LockError::MaxWaiters(_)) => self.max_waiters_refusals += 1,
            Err(LockError::Grace) => self.grace_refusals += 1,
            Ok(Acquired::Queued(_)) | Err(LockError::Key(_)) => {}
        }
    }

    /// A client that waited is told this.
    pub(super) fn count_outcome(&mut self, outcome: WaitOutcome) {
        match outcome {
            WaitOutcome::Granted { .. } => self.grants_after_wait += 1,
            WaitOutcome::TimedOut => self.wait_timeouts += 1,
            WaitOutcome::Cancelled => self.cancelled += 1,
            WaitOutcome::Superseded => self.superseded += 1,
            WaitOutcome::Impossible(_) | WaitOutcome::TryAgain | WaitOutcome::Demoted => {}
        }
    }

    fn count_end(&mut self, by: EndedBy) {
        match by {
            EndedBy::Released | EndedBy::Disconnected => self.given_back += 1,
            EndedBy::LeaseEnd | EndedBy::Expired => self.leases_expired += 1,
            EndedBy::Broken => self.broken += 1,
            // A grant of several keys is counted once, where it is taken back.
            EndedBy::Undelivered | EndedBy::Removed => {}
        }
    }
}

/// Where the rules tell what has happened.
impl LockManager {
    /// An owner holds a key by a request for it.
    #[inline]
    pub(super) fn note_grant(
        &mut self,
        key: KeyRef<'_>,
        request: &LockRequest<'_>,
        grant: Grant,
        waited: Option<Waited>,
        change: GrantChange,
    ) {
        let observe = &self.limits.observe;
        let is_long = waited.zip(observe.waits_ms).is_some_and(|(waited, ms)| waited.ms >= ms);
        if observe.changes && change == GrantChange::Anything || is_long {
            let (key, owner) = (key.to_key(), request.owner.to_owner());
            // Its own request leaves the queue after this.
            let waiters = self.waiters_of(key.as_ref()) - usize::from(waited.is_some());
            self.occurrences.note(Occurrence::Granted {
                key,
                owner,
                claim: request.claim,
                grant,
                change,
                waited,
                waiters,
            });
        }
    }

    /// An owner that held a key since the grant with this fence holds it no more.
    pub(super) fn note_end(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], fence: Fence, by: EndedBy) {
        self.statistics.count_end(by);
        self.tell_end(now, key, owner, fence, by);
    }

    /// The same without counting it.
    pub(super) fn tell_end(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], fence: Fence, by: EndedBy) {
        let waiters = self.waiters_of(key);
        let observe = self.limits.observe;
        let is_unasked_for = match by {
            EndedBy::Released | EndedBy::Disconnected => false,
            EndedBy::LeaseEnd | EndedBy::Expired | EndedBy::Removed => waiters > 0,
            EndedBy::Broken | EndedBy::Undelivered => true,
        };
        let is_measured = waiters > 0 || self.samples.wants_hold;
        // Most ends need no clock.
        if !(is_measured || is_unasked_for || observe.changes || observe.holds_ms.is_some()) {
            return;
        }
        let held_ms = fence.us_before(now.us()) / 1000;
        if is_measured {
            self.samples.held(held_ms);
        }
        let is_asked_for = observe.changes || observe.holds_ms.is_some_and(|ms| held_ms >= ms);
        if is_asked_for || is_unasked_for && self.occurrences.takes_unasked() {
            let session = self.bindings.client_of(key, owner);
            let (key, owner) = (key.to_key(), holder(owner));
            self.occurrences.note(Occurrence::Ended { key, owner, by, fence, held_ms, waiters, session });
        }
    }

    /// The server has evicted a key, which this owner held since the grant with this fence.
    pub fn evicted(&mut self, now: &Now, key: KeyRef<'_>, owner: Owner, fence: Fence) {
        let (held_ms, waiters) = (fence.us_before(now.us()) / 1000, self.waiters_of(key));
        let session = self.bindings.client_of(key, owner.as_bytes());
        self.occurrences.note(Occurrence::Evicted { key: key.to_key(), owner, held_ms, waiters, session });
    }

    /// A request was refused, if it was for a reason that is rare.
    #[inline]
    pub(super) fn note_refusal(&mut self, request: &AcquireRequest<'_>, answer: &Result<Acquired, LockError>) {
        let Err(error) = answer else { return };
        let Some(name) = request.names.first() else { return };
        let about = || (Key::new(request.db, name), request.request.owner.to_owner());
        match error {
            LockError::Deadlock(cycle) => {
                let (key, owner) = about();
                let (cycle, waiters) = (cycle.clone(), self.waiters_of(key.as_ref()));
                self.occurrences.note(Occurrence::DeadlockRefused { key, owner, cycle, waiters });
            }
            LockError::MaxWaiters(limit) => {
                let (key, owner) = about();
                self.occurrences.note(Occurrence::MaxWaitersRefused { key, owner, limit: *limit });
            }
            LockError::Key(_) | LockError::Grace => {}
        }
    }

    fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        self.queues.of_key(key).map_or(0, |queue| queue.waiters())
    }

    /// An owner has given back some of what it holds.
    pub(super) fn note_fewer(&mut self, key: KeyRef<'_>, owner: &[u8], by: EndedBy) {
        self.statistics.count_end(by);
        if self.limits.observe.changes {
            self.occurrences.note(Occurrence::Fewer { key: key.to_key(), owner: holder(owner) });
        }
    }

    /// A lease started again.
    pub(super) fn note_renewal(&mut self, key: KeyRef<'_>, owner: &[u8], by: RenewedBy) {
        self.statistics.renewals += 1;
        if self.limits.observe.changes {
            self.occurrences.note(Occurrence::Renewed { key: key.to_key(), owner: holder(owner), by });
        }
    }
}

fn holder(owner: &[u8]) -> Owner {
    Owner::new(owner).expect("who holds has the name of an owner")
}

#[cfg(test)]
mod tests;
