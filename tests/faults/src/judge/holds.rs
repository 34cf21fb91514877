//! The holds of each owner, and how long each is certain.

use std::collections::HashMap;
use std::time::Duration;

use crate::history::{Action, History, Operation, Outcome};
use crate::lock::{companion, Mode};

/// A server stores deadlines in whole milliseconds of the wall clock; clients here use the monotonic clock.
const CLOCK_SLACK: Duration = Duration::from_millis(5);

/// One grant, and the time for which its owner could be certain of it. All times are since the history began.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub key: String,
    pub owner: String,
    pub mode: Mode,
    pub fence: i64,
    /// When the first request was sent that may have led to the grant: this one, or an earlier one with a lost reply.
    pub requested_at: Duration,
    /// When the grant was read.
    pub from: Duration,
    /// When a release was sent, the lease may have expired (counted from before the request was sent), or a reply said
    /// that the owner holds nothing, whichever was first. Not after `from` if the reply took longer than the lease.
    pub until: Duration,
    /// A reply said that the owner does not hold the lock although its lease could not have expired.
    pub is_lost: bool,
}

impl Hold {
    /// Every key that is held.
    pub fn keys(&self) -> Vec<String> {
        match self.mode {
            Mode::Both => vec![self.key.clone(), companion(&self.key)],
            _ => vec![self.key.clone()],
        }
    }
}

/// Every grant of a history, in the order in which they were read.
pub fn holds(history: &History) -> Vec<Hold> {
    let mut owners: HashMap<(&str, &str), Owner> = HashMap::new();
    for operation in history.operations() {
        owners.entry((&operation.key, &operation.owner)).or_default().follow(operation);
    }
    let mut holds: Vec<Hold> = owners.into_values().flat_map(|owner| owner.holds).collect();
    holds.sort_by_key(|hold| (hold.from, hold.fence));
    holds
}

/// What one owner knows about one key.
///
/// | after | knows |
/// | --- | --- |
/// | Granted | holds it until the lease expires |
/// | Renew Done | holds it until the new lease expires |
/// | a release was sent | nothing, until it is granted again |
/// | NotHeld, NotGranted | holds nothing |
/// | Refused, Unknown | what it knew before |
#[derive(Default)]
struct Owner {
    /// When the first request with a lost reply was sent.
    requested_at: Option<Duration>,
    holds: Vec<Hold>,
    /// Whether the last of `holds` has not ended yet as far as the owner knows; then its `until` is the deadline.
    is_holding: bool,
}

impl Owner {
    fn follow(&mut self, operation: &Operation) {
        match (&operation.action, &operation.outcome) {
            (Action::Acquire { mode, lease, .. }, outcome) => match outcome {
                Outcome::Granted { fence } => self.granted(operation, *mode, *lease, *fence),
                Outcome::NotGranted => self.record_not_held(operation.returned),
                Outcome::Unknown => _ = self.requested_at.get_or_insert(operation.invoked),
                _ => {}
            },
            (Action::Renew { lease, .. }, Outcome::Done) if self.is_holding => {
                self.last().until = deadline(operation, *lease);
            }
            (Action::Release { .. }, outcome) if self.is_holding => match outcome {
                Outcome::NotHeld => {
                    self.record_not_held(operation.returned);
                    self.end_at(operation.invoked);
                }
                // A refusal changes nothing.
                Outcome::Refused(_) => {}
                _ => {
                    self.is_holding = false;
                    self.end_at(operation.invoked);
                }
            },
            (Action::WriteByFence { .. }, _) => {}
            (_, Outcome::NotHeld) => self.record_not_held(operation.returned),
            _ => {}
        }
    }

    fn granted(&mut self, operation: &Operation, mode: Mode, lease: Duration, fence: i64) {
        if self.is_holding && self.last().fence == fence {
            // A safe retry: the later deadline applies.
            let last = self.last();
            last.until = last.until.max(deadline(operation, lease));
            return;
        }
        // A new fencing token while it still held: that hold was lost without a reply that says so.
        self.record_not_held(operation.returned);
        self.holds.push(Hold {
            key: operation.key.clone(),
            owner: operation.owner.clone(),
            mode,
            fence,
            requested_at: self.requested_at.unwrap_or(operation.invoked),
            from: operation.returned,
            until: deadline(operation, lease),
            is_lost: false,
        });
        self.is_holding = true;
    }

    fn record_not_held(&mut self, replied_at: Duration) {
        if !self.is_holding {
            return;
        }
        self.is_holding = false;
        let last = self.last();
        last.is_lost = replied_at < last.until;
        self.end_at(replied_at);
    }

    fn end_at(&mut self, end: Duration) {
        let last = self.last();
        last.until = last.until.min(end);
    }

    fn last(&mut self) -> &mut Hold {
        self.holds.last_mut().expect("a holder was granted the lock")
    }
}

/// The earliest time at which the lease of this operation can expire.
fn deadline(operation: &Operation, lease: Duration) -> Duration {
    operation.invoked + lease.saturating_sub(CLOCK_SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::planted::*;

    #[test]
    fn a_hold_is_certain_from_its_reply_to_its_release() {
        let history = planted([acquire("a", 0..10, 7), release("a", 50..60)]);
        assert_eq!(certain(&history), [(ms(10), ms(50), false)]);
    }

    #[test]
    fn a_lease_counts_from_before_its_request() {
        let history = planted([acquire("a", 0..10, 7)]);
        assert_eq!(certain(&history), [(ms(10), LEASE - CLOCK_SLACK, false)]);
        let history = planted([acquire("a", 0..10, 7), renew("a", 20..30, Outcome::Done)]);
        assert_eq!(certain(&history), [(ms(10), ms(20) + LEASE - CLOCK_SLACK, false)]);
        let history = planted([acquire("a", 0..10, 7), renew("a", 20..30, Outcome::Unknown)]);
        assert_eq!(certain(&history), [(ms(10), LEASE - CLOCK_SLACK, false)]);
    }

    #[test]
    fn an_early_reply_that_nothing_is_held_is_a_lost_hold() {
        let history = planted([acquire("a", 0..10, 7), renew("a", 20..30, Outcome::NotHeld)]);
        assert_eq!(certain(&history), [(ms(10), ms(30), true)]);
        let history = planted([acquire("a", 0..10, 7), renew("a", 20..1_100, Outcome::NotHeld)]);
        assert_eq!(certain(&history), [(ms(10), LEASE - CLOCK_SLACK, false)], "the lease had ended");
        let history = planted([acquire("a", 0..10, 7), acquire("a", 20..30, 8)]);
        assert_eq!(certain(&history)[0], (ms(10), ms(30), true), "another fence is another grant");
    }

    #[test]
    fn a_retried_release_that_finds_nothing_is_not_a_loss() {
        let mut lost_reply = release("a", 20..30);
        lost_reply.outcome = Outcome::Unknown;
        let mut retry = release("a", 40..50);
        retry.outcome = Outcome::NotHeld;
        assert_eq!(certain(&planted([acquire("a", 0..10, 7), lost_reply, retry])), [(ms(10), ms(20), false)]);
    }

    fn certain(history: &History) -> Vec<(Duration, Duration, bool)> {
        holds(history).into_iter().map(|hold| (hold.from, hold.until, hold.is_lost)).collect()
    }
}
