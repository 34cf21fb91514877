//! Counters since the start: plain additions, no decision. INFO's section `lock` shows them.

use super::occurrence::EndedBy;
use crate::host::WaitOutcome;
use crate::value::claim::{ByFamily, Family};

/// Counters since the start. A request is counted once, whatever the number of its keys; the end or renewal of a hold
/// once for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// What the fast path did. It is added to the rest when the counters are read: an uncontended request pays for one
    /// addition.
    pub(super) uncontended: ByFamily<Uncontended>,
    /// How many more keys hold a lock than at the start, by the slow path. The host counts keys that others remove.
    pub(super) stored: ByFamily<i64>,
    pub(super) granted_at_once: u64,
    /// Requests granted after they had waited.
    pub grants_after_wait: u64,
    /// Requests that were not granted and did not wait.
    pub not_granted: u64,
    /// Waits that timed out.
    pub wait_timeouts: u64,
    /// Waits that LOCK.CANCEL ended.
    pub cancelled: u64,
    /// Waits that the same request, sent again, took over.
    pub superseded: u64,
    /// Waits with COALESCE that a release answered.
    pub coalesced: u64,
    /// Requests refused because they would have waited for ever.
    pub deadlocks: u64,
    /// Requests refused because the server or a key had the maximum of waiters.
    pub max_waiters_refusals: u64,
    /// Requests refused because of the grace.
    pub grace_refusals: u64,
    given_back: u64,
    /// Leases that started again, by a request or because a session's connection lives.
    pub renewals: u64,
    /// Leases that the lock manager found to have ended.
    pub leases_expired: u64,
    /// Holds that LOCK.BREAK ended.
    pub broken: u64,
    /// Grants taken back because they were not received.
    pub undelivered_grants: u64,
    /// Commands that LOCK.EXEC ran.
    pub execs: u64,
    /// LOCK.EXEC by an owner that did not hold the lock.
    pub execs_not_held: u64,
}

/// What the fast path did with locks of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uncontended {
    /// Free keys that were granted.
    pub granted: u64,
    /// Keys that became free.
    pub freed: u64,
    /// Releases of some holds, but not of all.
    pub fewer: u64,
}

impl Statistics {
    /// Requests granted at once, including requests sent again that got the grant they had.
    pub fn grants_immediate(&self) -> u64 {
        self.granted_at_once + self.uncontended.0.iter().map(|counted| counted.granted).sum::<u64>()
    }

    /// Releases of all holds or of some, and holds that ended with their connections.
    pub fn releases(&self) -> u64 {
        self.given_back + self.uncontended.0.iter().map(|counted| counted.freed + counted.fewer).sum::<u64>()
    }

    /// How many more keys hold a lock than at the start, by what the lock manager did; negative if others stored the
    /// locks that it removed.
    pub fn stored(&self) -> ByFamily<i64> {
        let by_uncontended =
            |family| self.uncontended.of(family).granted as i64 - self.uncontended.of(family).freed as i64;
        ByFamily::make(|family| by_uncontended(family) + self.stored.of(family))
    }

    /// A key held a lock of the family `before`, and holds one of the family `after` now.
    pub(super) fn count_stored(&mut self, before: Option<Family>, after: Option<Family>) {
        before.into_iter().for_each(|family| *self.stored.of_mut(family) -= 1);
        after.into_iter().for_each(|family| *self.stored.of_mut(family) += 1);
    }

    /// Counts the outcome that a waiting client gets.
    pub(super) fn count_outcome(&mut self, outcome: WaitOutcome) {
        match outcome {
            WaitOutcome::Granted { .. } => self.grants_after_wait += 1,
            WaitOutcome::Done { .. } => self.coalesced += 1,
            WaitOutcome::TimedOut => self.wait_timeouts += 1,
            WaitOutcome::Cancelled => self.cancelled += 1,
            WaitOutcome::Superseded => self.superseded += 1,
            WaitOutcome::Impossible(_) | WaitOutcome::TryAgain | WaitOutcome::Demoted | WaitOutcome::NotPermitted => {}
        }
    }

    /// A hold has ended, or some of it was given back.
    pub(super) fn count_end(&mut self, by: EndedBy) {
        match by {
            EndedBy::Released | EndedBy::Disconnected => self.given_back += 1,
            EndedBy::LeaseEnd | EndedBy::Expired => self.leases_expired += 1,
            EndedBy::Broken => self.broken += 1,
            // A grant of several keys is counted once, where it is taken back.
            EndedBy::Undelivered | EndedBy::Removed => {}
        }
    }
}
