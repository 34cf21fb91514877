//! The lock manager counts and records what has happened.

use super::acquire::{AcquireRequest, Acquired};
use super::lock_manager::{LockError, LockManager};
use super::observer::{EndedBy, GrantChange, Occurrence, Waited};
use crate::key::{Key, KeyRef};
use crate::queue::deadlock::Edge;
use crate::queue::request::QueuedRequest;
use crate::value::claim::LockRequest;
use crate::value::fence::Fence;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;
use crate::value::time::Now;

impl LockManager {
    /// Counts the answer to a request to acquire that took the slow path.
    pub(super) fn count_answer(&mut self, answer: &Result<Acquired, LockError>) {
        let counted = &mut self.statistics;
        match answer {
            Ok(Acquired::NotGranted) => counted.not_granted += 1,
            Err(LockError::Deadlock(_)) => counted.deadlocks += 1,
            Err(LockError::MaxWaiters(_)) => counted.max_waiters_refusals += 1,
            Err(LockError::Grace) => counted.grace_refusals += 1,
            // Grants are counted where they are made.
            Ok(Acquired::Granted(_) | Acquired::Queued(_)) | Err(LockError::Key(_)) => {}
        }
    }

    /// Counts a grant made by a command, not by a hand-off. `waited`: the wait that the grant ends.
    pub(super) fn count_grant(&mut self, waited: Option<Waited>) {
        match waited {
            None => self.statistics.granted_at_once += 1,
            Some(waited) => {
                self.statistics.grants_after_wait += 1;
                self.wait_times.note(waited.ms);
            }
        }
    }

    /// Records that a request was granted a key.
    #[inline]
    pub(super) fn record_grant(
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
            // The granted request leaves the queue after this.
            let granted = waited.and_then(|waited| self.queues.request(waited.request));
            let leaves = granted.is_some_and(QueuedRequest::is_present);
            let waiters = self.waiters_of(key.as_ref()) - usize::from(leaves);
            self.occurrences.note(Occurrence::Granted { key, owner, grant, change, waited, waiters });
        }
    }

    /// Counts and records that an owner no longer holds a key that it held since the grant with this fence.
    pub(super) fn count_and_record_end(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], fence: Fence, by: EndedBy) {
        self.statistics.count_end(by);
        self.record_end(now, key, owner, fence, by);
    }

    /// As `count_and_record_end`, without counting it.
    pub(super) fn record_end(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], fence: Fence, by: EndedBy) {
        let observe = self.limits.observe;
        let is_unasked_for = match by {
            EndedBy::Released | EndedBy::Disconnected => false,
            EndedBy::LeaseEnd(_) | EndedBy::Expired => self.waiters_of(key) > 0,
            EndedBy::Broken | EndedBy::Undelivered => true,
        };
        // Most ends need no clock.
        if !(is_unasked_for || observe.changes || observe.holds_ms.is_some()) {
            return;
        }
        let ended_us = match by {
            EndedBy::LeaseEnd(end) => end.ms().saturating_mul(1000).min(now.us()),
            _ => now.us(),
        };
        let held_ms = fence.us_before(ended_us) / 1000;
        let is_asked_for = observe.changes || observe.holds_ms.is_some_and(|ms| held_ms >= ms);
        if is_asked_for || is_unasked_for && self.occurrences.takes_unasked() {
            let (waiters, session) = (self.waiters_of(key), self.bindings.client_of(key, owner));
            let (key, owner) = (key.to_key(), holder(owner));
            self.occurrences.note(Occurrence::Ended { key, owner, by, held_ms, waiters, session });
        }
    }

    /// Records the refusal of a request, if its reason is rare.
    #[inline]
    pub(super) fn record_refusal(&mut self, request: &AcquireRequest<'_>, answer: &Result<Acquired, LockError>) {
        let Err(error) = answer else { return };
        let Some(name) = request.names.first() else { return };
        let about = || (Key::new(request.db, name), request.request.owner.to_owner());
        match error {
            LockError::Deadlock(cycle) => {
                let (key, owner) = about();
                self.record_deadlock(key.as_ref(), &owner, cycle.clone());
            }
            LockError::MaxWaiters(limit) => {
                let (key, owner) = about();
                self.occurrences.note(Occurrence::MaxWaitersRefused { key, owner, limit: *limit });
            }
            LockError::Key(_) | LockError::Grace => {}
        }
    }

    /// Records a request that gets DEADLOCK, with one of its keys.
    pub(super) fn record_deadlock(&mut self, key: KeyRef<'_>, owner: &Owner, cycle: Vec<Edge>) {
        let (waiters, key, owner) = (self.waiters_of(key), key.to_key(), owner.clone());
        self.occurrences.note(Occurrence::DeadlockRefused { key, owner, cycle, waiters });
    }

    fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        self.queues.of_key(key).map_or(0, |queue| queue.waiters())
    }

    /// Counts and records that an owner has given back some of what it holds.
    pub(super) fn count_and_record_fewer(&mut self, key: KeyRef<'_>, owner: &[u8], by: EndedBy) {
        self.statistics.count_end(by);
        if self.limits.observe.changes {
            self.occurrences.note(Occurrence::Fewer { key: key.to_key(), owner: holder(owner) });
        }
    }

    /// Records that an owner started its lease again. Renewals of sessions are only counted.
    pub(super) fn record_renewal(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.limits.observe.changes {
            self.occurrences.note(Occurrence::Renewed { key: key.to_key(), owner: holder(owner) });
        }
    }
}

fn holder(owner: &[u8]) -> Owner {
    Owner::new(owner).expect("a holder has a valid owner name")
}

#[cfg(test)]
mod tests;
