//! Compares the statistics of the rules with the replies by the contract, and with the keys that hold locks.

use super::contract::{Outcome, Refusal, WaitReply};
use super::model::SilentEnds;
use super::rules::Rules;
use crate::engine::observer::Statistics;
use crate::host::simulated::Stored;
use crate::value::claim::{ByLockType, LockType};

/// The replies to clients since the server started, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    grants_immediate: u64,
    grants_after_wait: u64,
    not_granted: u64,
    wait_timeouts: u64,
    cancelled: u64,
    superseded: u64,
    coalesced: u64,
    deadlocks: u64,
    max_waiters_refusals: u64,
    grace_refusals: u64,
}

impl Counted {
    /// Counts the reply to a command.
    pub fn reply(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Granted(..) => self.grants_immediate += 1,
            Outcome::TakenOver(grants) => self.grants_immediate += u64::from(grants),
            Outcome::Counted(now, before) if before.is_none_or(|before| before <= now) => self.grants_immediate += 1,
            Outcome::NotGranted => self.not_granted += 1,
            Outcome::Refused(Refusal::Deadlock) => self.deadlocks += 1,
            Outcome::Refused(Refusal::MaxWaiters) => self.max_waiters_refusals += 1,
            Outcome::Refused(Refusal::Grace) => self.grace_refusals += 1,
            _ => {}
        }
    }

    /// Counts the reply to a waiter.
    pub fn wait_reply(&mut self, reply: WaitReply) {
        match reply {
            WaitReply::Granted(..) => self.grants_after_wait += 1,
            // The wait continues if its position is reserved. The model counts the waits that do not.
            WaitReply::TimedOut => {}
            WaitReply::Cancelled => self.cancelled += 1,
            WaitReply::Superseded => self.superseded += 1,
            WaitReply::Done(_) => self.coalesced += 1,
            WaitReply::Refused(Refusal::Deadlock) => self.deadlocks += 1,
            WaitReply::Refused(_) | WaitReply::TryAgain | WaitReply::Demoted => {}
        }
    }

    /// Checks that the rules have counted the same, including the waits that ended without a reply.
    pub fn check(&self, rules: &Rules, silent: SilentEnds) {
        let expected = Counted {
            grants_immediate: self.grants_immediate - silent.granted,
            grants_after_wait: self.grants_after_wait + silent.granted,
            wait_timeouts: silent.timed_out,
            cancelled: self.cancelled + silent.cancelled,
            ..self.clone()
        };
        let statistics = &rules.manager.observer.statistics;
        let Statistics { grants_after_wait, not_granted, wait_timeouts, cancelled, superseded, deadlocks, .. } =
            *statistics;
        let counted = Counted {
            grants_immediate: statistics.grants_immediate(),
            grants_after_wait,
            not_granted,
            wait_timeouts,
            cancelled,
            superseded,
            coalesced: statistics.coalesced,
            deadlocks,
            max_waiters_refusals: statistics.max_waiters_refusals,
            grace_refusals: statistics.grace_refusals,
        };
        assert_eq!(counted, expected, "statistics, and replies");
        check_stored(rules);
    }
}

/// The number of stored locks is the number stored minus removed, by the rules and the server together.
fn check_stored(rules: &Rules) {
    let mut stored = ByLockType::default();
    for value in rules.server.keyspace.primary.values() {
        if let Stored::Lock(lock, _) = value {
            *stored.of_mut(lock.held_lock_type().expect("no vacant lock is stored")) += 1;
        }
    }
    let (by_rules, by_others) = (rules.manager.observer.statistics.stored(), rules.server.keyspace.stored_by_others);
    let counted = ByLockType::make(|lock_type: LockType| by_rules.of(lock_type) + by_others.of(lock_type));
    assert_eq!(counted, stored, "keys that hold a lock");
}
