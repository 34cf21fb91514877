//! What has happened: counters (`Statistics`), wait times (`WaitTimes`) and records (`Occurrence`). The shell turns
//! them into INFO fields, percentiles, events and log entries. There are no callbacks: the lock manager stores the
//! data, and the shell takes it at the end of the event-loop iteration. Nothing is decided here.
//!
//! Rare occurrences are always recorded. Those of ordinary requests are recorded only if [`Observe`] asks for them. The
//! fast path (`uncontended`) records nothing, so requests that must be recorded do not take it.

use super::lock_error::LockError;
use super::session_bindings::Bindings;
use crate::host::WaitOutcome;
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::queue::deadlock::Edge;
use crate::queue::queues::WaitQueues;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::{ByLockType, LockRequest, LockType};
use crate::value::fence::Fence;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;
use crate::value::time::{Now, Timestamp};

/// Statistics, occurrences, and the settings that select what is recorded.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// Counters since the start.
    pub statistics: Statistics,
    /// Occurrences that the shell has not taken yet.
    pub occurrences: Occurrences,
    /// How long waits lasted.
    pub wait_times: WaitTimes,
    /// What is recorded in addition to rare occurrences.
    pub settings: Observe,
}

impl Observer {
    /// Counts a request that is refused with an error, and records it if the error is rare.
    pub(super) fn refused(&mut self, waits: &WaitQueues, key: KeyRef<'_>, owner: &Owner, error: &LockError) {
        match error {
            LockError::Deadlock(cycle) => {
                self.statistics.deadlocks += 1;
                self.deadlock_refused(waits, key, owner, cycle.clone());
            }
            LockError::MaxWaiters(limit) => {
                self.statistics.max_waiters_refusals += 1;
                let (key, owner) = (key.to_key(), owner.clone());
                self.occurrences.record(Occurrence::MaxWaitersRefused { key, owner, limit: *limit });
            }
            LockError::Grace => self.statistics.grace_refusals += 1,
            LockError::Key(_) => {}
        }
    }

    /// Records a request that is refused with DEADLOCK, with one of its keys.
    pub(super) fn deadlock_refused(&mut self, waits: &WaitQueues, key: KeyRef<'_>, owner: &Owner, cycle: Vec<Edge>) {
        let (waiters, key, owner) = (waits.waiters_of(key), key.to_key(), owner.clone());
        self.occurrences.record(Occurrence::DeadlockRefused { key, owner, cycle, waiters });
    }

    /// Counts a grant made by a command, not by a hand-off. `waited` is the wait that the grant ends.
    pub(super) fn count_grant(&mut self, waited: Option<Waited>) {
        match waited {
            None => self.statistics.granted_at_once += 1,
            Some(waited) => {
                self.statistics.grants_after_wait += 1;
                self.wait_times.record(waited.ms);
            }
        }
    }

    /// Counts and records that a hold was protected from an adopted client.
    pub(super) fn protected(&mut self, waiters: usize, key: KeyRef<'_>, owner: &Owner) {
        self.statistics.adopted_protected += 1;
        self.occurrences.record(Occurrence::Protected { key: key.to_key(), owner: owner.clone(), waiters });
    }

    /// Records that a request was granted a key.
    #[inline]
    pub(super) fn granted(
        &mut self,
        waits: &WaitQueues,
        key: KeyRef<'_>,
        request: &LockRequest<'_>,
        grant: Grant,
        waited: Option<Waited>,
        change: GrantChange,
    ) {
        let is_long = waited.zip(self.settings.waits_ms).is_some_and(|(waited, ms)| waited.ms >= ms);
        if self.settings.changes && change == GrantChange::Anything || is_long {
            let (key, owner) = (key.to_key(), request.owner.to_owner());
            // The granted request leaves the queue after this.
            let leaves = waited.is_some_and(|waited| waits.is_present(waited.request));
            let waiters = waits.waiters_of(key.as_ref()) - usize::from(leaves);
            self.occurrences.record(Occurrence::Granted { key, owner, grant, change, waited, waiters });
        }
    }

    /// Records that an owner renewed its lease. Renewals of sessions are only counted.
    pub(super) fn renewed(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.settings.changes {
            self.occurrences.record(Occurrence::Renewed { key: key.to_key(), owner: holder(owner) });
        }
    }

    /// Counts and records that an owner has released a part of its hold.
    pub(super) fn partially_released(&mut self, key: KeyRef<'_>, owner: &[u8], by: EndedBy) {
        self.statistics.count_end(by);
        if self.settings.changes {
            self.occurrences.record(Occurrence::PartiallyReleased { key: key.to_key(), owner: holder(owner) });
        }
    }

    /// Records that an owner no longer holds a key. `fence` is the fencing token of its grant. The caller counts it.
    #[allow(clippy::too_many_arguments)] // Two tables are read, and only if the end is recorded.
    pub(super) fn ended(
        &mut self,
        waits: &WaitQueues,
        bindings: &Bindings,
        now: &Now,
        key: KeyRef<'_>,
        owner: &[u8],
        fence: Fence,
        by: EndedBy,
    ) {
        let settings = self.settings;
        let is_unsolicited = match by {
            EndedBy::Released | EndedBy::Disconnected => false,
            EndedBy::LeaseExpired(_) | EndedBy::Expired => waits.waiters_of(key) > 0,
            EndedBy::Broken | EndedBy::Undelivered => true,
        };
        // Reading the clock is only needed for ends that are recorded, which most are not.
        if !(is_unsolicited || settings.changes || settings.holds_ms.is_some()) {
            return;
        }
        let ended_us = match by {
            EndedBy::LeaseExpired(end) => end.ms().saturating_mul(1000).min(now.us()),
            _ => now.us(),
        };
        let held_ms = fence.us_before(ended_us) / 1000;
        let is_asked_for = settings.changes || settings.holds_ms.is_some_and(|ms| held_ms >= ms);
        if is_asked_for || is_unsolicited && self.occurrences.admit_unsolicited() {
            let (waiters, session) = (waits.waiters_of(key), bindings.client_of(key, owner));
            let (key, owner) = (key.to_key(), holder(owner));
            self.occurrences.record(Occurrence::Ended { key, owner, fence, by, held_ms, waiters, session });
        }
    }
}

fn holder(owner: &[u8]) -> Owner {
    Owner::new(owner).expect("a holder has a valid owner name")
}

/// Counters since the start. A request is counted once, however many keys it has; the end or renewal of a hold is
/// counted once for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The counters of the fast path. Reading the statistics adds them to the others, so that an uncontended request
    /// costs one addition.
    pub(super) uncontended: ByLockType<Uncontended>,
    /// The change in the number of keys with a lock since the start, caused by the slow path. The host counts the keys
    /// that the server removes.
    pub(super) stored: ByLockType<i64>,
    pub(super) granted_at_once: u64,
    /// Waits that ended with a grant.
    pub grants_after_wait: u64,
    /// Requests that were not granted and did not wait.
    pub not_granted: u64,
    /// Waits that timed out: BLOCK timed out, and no retry resumed the reserved position.
    pub wait_timeouts: u64,
    /// Waits cancelled by LOCK.CANCEL.
    pub cancelled: u64,
    /// Requests superseded by a retry on another connection.
    pub superseded: u64,
    /// Waits with COALESCE that a release completed.
    pub coalesced: u64,
    /// Requests refused because they would have deadlocked.
    pub deadlocks: u64,
    /// Requests refused because the server or a key had the maximum number of waiters.
    pub max_waiters_refusals: u64,
    /// Requests refused during a grace period.
    pub grace_refusals: u64,
    released: u64,
    /// Leases renewed, by a request or because a session's connection is alive.
    pub renewals: u64,
    /// Lease expiries that the lock manager has processed.
    pub leases_expired: u64,
    /// Holds broken by LOCK.BREAK.
    pub broken: u64,
    /// Grants revoked because they were not delivered.
    pub undelivered_grants: u64,
    /// Effects of a primary or an append-only file that this version could not read.
    pub effects_not_applied: u64,
    /// Commands that LOCK.EXEC ran.
    pub execs: u64,
    /// LOCK.EXEC by an owner that did not hold the lock.
    pub execs_not_held: u64,
    /// Grants to adopted commands.
    pub adopted_acquires: u64,
    /// Adopted commands that were refused.
    pub adopted_refusals: u64,
    /// Attempts of adopted clients to end native holds.
    pub adopted_protected: u64,
}

/// The counters of the fast path for one lock type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uncontended {
    /// Free keys that were granted.
    pub granted: u64,
    /// Keys that became free.
    pub freed: u64,
    /// Releases of some holds, but not all.
    pub reduced: u64,
}

impl Statistics {
    /// Requests granted at once, including repeated requests that got their existing grant.
    pub fn grants_immediate(&self) -> u64 {
        self.granted_at_once + self.uncontended.0.iter().map(|counted| counted.granted).sum::<u64>()
    }

    /// Releases of all holds or of some, and holds that ended with their connections.
    pub fn releases(&self) -> u64 {
        self.released + self.uncontended.0.iter().map(|counted| counted.freed + counted.reduced).sum::<u64>()
    }

    /// The change in the number of keys with a lock since the start, caused by the lock manager. Negative if it removed
    /// locks that it has not stored, for example restored ones.
    pub fn stored(&self) -> ByLockType<i64> {
        let by_uncontended =
            |lock_type| self.uncontended.of(lock_type).granted as i64 - self.uncontended.of(lock_type).freed as i64;
        ByLockType::make(|lock_type| by_uncontended(lock_type) + self.stored.of(lock_type))
    }

    /// A key held a lock of the type `before`, and now holds one of the type `after`.
    pub(super) fn count_stored(&mut self, before: Option<LockType>, after: Option<LockType>) {
        if let Some(lock_type) = before {
            *self.stored.of_mut(lock_type) -= 1;
        }
        if let Some(lock_type) = after {
            *self.stored.of_mut(lock_type) += 1;
        }
    }

    /// Counts the outcome of a wait.
    pub(super) fn count_outcome(&mut self, outcome: WaitOutcome) {
        match outcome {
            WaitOutcome::Granted { .. } => self.grants_after_wait += 1,
            WaitOutcome::Done { .. } => self.coalesced += 1,
            WaitOutcome::TimedOut => self.wait_timeouts += 1,
            WaitOutcome::Cancelled => self.cancelled += 1,
            WaitOutcome::Superseded => self.superseded += 1,
            WaitOutcome::Deadlock => self.deadlocks += 1,
            WaitOutcome::Impossible(_) | WaitOutcome::TryAgain | WaitOutcome::Demoted | WaitOutcome::NotPermitted => {}
        }
    }

    /// Reserved positions beyond the maximum have ended, so their waits count as timed out.
    pub(super) fn count_ended_positions(&mut self, ended: u64) {
        self.wait_timeouts += ended;
    }

    /// A hold has ended, or a part of it was released.
    pub(super) fn count_end(&mut self, by: EndedBy) {
        match by {
            EndedBy::Released | EndedBy::Disconnected => self.released += 1,
            EndedBy::LeaseExpired(_) | EndedBy::Expired => self.leases_expired += 1,
            EndedBy::Broken => self.broken += 1,
            // A grant of multiple keys is counted once, where it is revoked.
            EndedBy::Undelivered => {}
        }
    }
}

/// What is recorded in addition to rare occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Every grant, renewal and end.
    pub changes: bool,
    /// Ends of holds that lasted this many milliseconds or longer.
    pub holds_ms: Option<u64>,
    /// Grants to requests that waited this many milliseconds or longer.
    pub waits_ms: Option<u64>,
}

impl Observe {
    /// Whether every uncontended request must be recorded, and so takes the slow path. False if only long holds are
    /// recorded: the fast path leaves each of these to the slow path.
    pub fn needs_slow_path(&self) -> bool {
        self.changes
    }
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// An owner was granted a key: as a new holder, with more holds, or with another deadline. A multi-key request
    /// produces one record for each key.
    Granted {
        /// The key.
        key: Key,
        /// The new holder.
        owner: Owner,
        /// What it holds. If the count is the same as before, the request was repeated.
        grant: Grant,
        /// What the grant has changed.
        change: GrantChange,
        /// The wait that the grant ends; `None` if it was granted at once.
        waited: Option<Waited>,
        /// The number of other requests that wait for the key.
        waiters: usize,
    },
    /// An owner renewed its lease.
    Renewed {
        /// The key.
        key: Key,
        /// The holder.
        owner: Owner,
    },
    /// An owner has released a part of its hold.
    PartiallyReleased {
        /// The key.
        key: Key,
        /// The holder.
        owner: Owner,
    },
    /// An owner no longer holds a key.
    Ended {
        /// The key.
        key: Key,
        /// The owner. For an expired key with several holders: the one with the latest grant.
        owner: Owner,
        /// The fencing token of its grant.
        fence: Fence,
        /// The cause.
        by: EndedBy,
        /// Milliseconds since that grant, by the wall clock.
        held_ms: u64,
        /// The number of requests that wait for the key.
        waiters: usize,
        /// The connection that the hold was bound to.
        session: Option<ClientId>,
    },
    /// A request was refused because it would have deadlocked.
    DeadlockRefused {
        /// The first of its keys.
        key: Key,
        /// The owner of the request.
        owner: Owner,
        /// The cycle in the wait-for graph that the request would have completed.
        cycle: Vec<Edge>,
        /// The number of requests that wait for the key.
        waiters: usize,
    },
    /// A request was refused because the server or a key has the maximum number of waiters.
    MaxWaitersRefused {
        /// The first of its keys.
        key: Key,
        /// The owner of the request.
        owner: Owner,
        /// Whether the limit of the server or of a key was reached.
        limit: WaiterLimit,
    },
    /// An adopted client tried to end a native hold.
    Protected {
        /// The key.
        key: Key,
        /// The holder.
        owner: Owner,
        /// The number of requests that wait for the key.
        waiters: usize,
    },
    /// A grace period began: no new owner is granted a lock.
    GraceBegan {
        /// Its length in milliseconds.
        ms: u64,
    },
    /// The grace period ended.
    GraceEnded,
}

/// What a grant changed of the lock's holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// Holders, holds or deadlines.
    Anything,
    /// Nothing: the request was repeated, and its lease expires no later than before.
    Nothing,
}

/// The wait that a grant has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The request that waited; the same for all keys.
    pub request: RequestId,
    /// Milliseconds from the start of the wait to the grant.
    pub ms: u64,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its owner released it.
    Released,
    /// The connection that it was bound to ended.
    Disconnected,
    /// Its lease in a shared lock expired at the end of this millisecond. The lock manager removed the hold then or
    /// later.
    LeaseExpired(Timestamp),
    /// Its lease expired, and the server removed the key.
    Expired,
    /// LOCK.BREAK.
    Broken,
    /// The grant was not delivered.
    Undelivered,
}

/// The maximum number of records, and of wait times, that are kept until the shell takes them.
const MAX_RECORDS: usize = 10_000;

/// The maximum number of unsolicited ends that are kept until the shell takes them, for example when thousands of
/// leases expire at once. `statistics` counts all of them.
const MAX_UNSOLICITED: usize = 1_000;

/// The records that were not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Occurrences {
    all: Vec<Occurrence>,
    unsolicited: usize,
}

impl Occurrences {
    pub(super) fn record(&mut self, occurrence: Occurrence) {
        if self.all.len() < MAX_RECORDS {
            self.all.push(occurrence);
        }
    }

    /// Counts an unsolicited end. Returns whether it is to be recorded.
    pub(super) fn admit_unsolicited(&mut self) -> bool {
        let is_taken = self.unsolicited < MAX_UNSOLICITED;
        self.unsolicited += 1;
        is_taken
    }

    /// Whether there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes all records, the oldest first.
    pub fn take(&mut self) -> Vec<Occurrence> {
        self.unsolicited = 0;
        std::mem::take(&mut self.all)
    }
}

/// The wait times, in milliseconds, of granted requests that were not taken yet. The shell computes percentiles from
/// them.
#[derive(Clone, Debug, Default)]
pub struct WaitTimes(Vec<u64>);

impl WaitTimes {
    /// Records a request that was granted after waiting for `ms`.
    pub(super) fn record(&mut self, ms: u64) {
        if self.0.len() < MAX_RECORDS {
            self.0.push(ms);
        }
    }

    /// Whether there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all of them. The allocation is kept.
    pub fn take(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::fence::Fence;

    #[test]
    fn every_end_of_a_hold_is_counted_by_its_reason() {
        use EndedBy::{Broken, Disconnected, Expired, LeaseExpired, Released, Undelivered};
        let mut statistics = Statistics::default();
        let lease_end = LeaseExpired(Timestamp::from_ms(1_000));
        for by in [Released, Released, Disconnected, lease_end, lease_end, Expired, Broken, Broken, Undelivered] {
            statistics.count_end(by);
        }
        let found = (statistics.releases(), statistics.leases_expired, statistics.broken);
        assert_eq!(found, (3, 3, 2));

        *statistics.uncontended.of_mut(LockType::Mutex) = Uncontended { granted: 7, freed: 4, reduced: 2 };
        assert_eq!((statistics.releases(), statistics.grants_immediate()), (9, 7));
    }

    #[test]
    fn records_that_are_not_taken_are_bounded() {
        let mut occurrences = Occurrences::default();
        for _ in 0..MAX_RECORDS + 3 {
            occurrences.record(Occurrence::GraceEnded);
        }
        assert!(!occurrences.is_empty());
        assert_eq!((occurrences.take().len(), occurrences.is_empty()), (MAX_RECORDS, true));
    }

    #[test]
    fn unsolicited_ends_are_recorded_up_to_a_limit_in_each_iteration() {
        let mut occurrences = Occurrences::default();
        for _ in 0..2 {
            let taken = (0..MAX_UNSOLICITED + 3).filter(|_| occurrences.admit_unsolicited()).count();
            assert_eq!(taken, MAX_UNSOLICITED);
            occurrences.take();
        }
    }

    #[test]
    fn keys_that_hold_a_lock_are_counted_by_lock_type_whatever_stored_it() {
        let mut statistics = Statistics::default();
        *statistics.uncontended.of_mut(LockType::Mutex) = Uncontended { granted: 7, freed: 4, reduced: 2 };
        for (before, after) in [
            (None, Some(LockType::Mutex)),
            (None, Some(LockType::Mutex)),
            (Some(LockType::Mutex), None),
            (Some(LockType::Semaphore), Some(LockType::Reentrant)),
        ] {
            statistics.count_stored(before, after);
        }
        let stored = statistics.stored();
        let of = |lock_type| *stored.of(lock_type);
        assert_eq!((of(LockType::Mutex), of(LockType::Semaphore), of(LockType::Reentrant)), (4, -1, 1));
    }

    #[test]
    fn every_outcome_of_a_wait_has_its_own_counter() {
        let fence = Fence::new(5).unwrap();
        let mut statistics = Statistics::default();
        for (times, outcome) in [
            (2, WaitOutcome::Granted { fence, holds: 1, slot: None }),
            (3, WaitOutcome::Done { fence }),
            (4, WaitOutcome::TimedOut),
            (5, WaitOutcome::Cancelled),
            (6, WaitOutcome::Superseded),
            (7, WaitOutcome::TryAgain),
        ] {
            (0..times).for_each(|_| statistics.count_outcome(outcome));
        }
        let Statistics { grants_after_wait, coalesced, wait_timeouts, cancelled, superseded, .. } = statistics;
        assert_eq!((grants_after_wait, coalesced, wait_timeouts, cancelled, superseded), (2, 3, 4, 5, 6));
    }

    #[test]
    fn uncontended_requests_take_the_slow_path_if_every_change_is_recorded() {
        let observe = |changes| Observe { changes, holds_ms: Some(5), waits_ms: Some(5) };
        assert!(observe(true).needs_slow_path() && !observe(false).needs_slow_path());
    }

    #[test]
    fn wait_times_that_are_not_taken_are_bounded() {
        let mut waits = WaitTimes::default();
        assert!(waits.is_empty());
        for ms in 0..MAX_RECORDS as u64 + 3 {
            waits.record(ms);
        }
        assert_eq!((waits.is_empty(), waits.take().count(), waits.is_empty()), (false, MAX_RECORDS, true));
    }
}
