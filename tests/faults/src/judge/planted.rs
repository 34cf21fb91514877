//! Constructed histories for the tests of the judges: one key `k`, times in milliseconds.

use std::ops::Range;
use std::time::Duration;

use crate::history::{Action, History, Operation, Outcome};
use crate::lock::Mode;

/// The lease of every request.
pub const LEASE: Duration = Duration::from_secs(1);

pub fn planted(operations: impl IntoIterator<Item = Operation>) -> History {
    History::new(operations.into_iter().collect())
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn acquire(owner: &str, time: Range<u64>, fence: i64) -> Operation {
    acquire_as(Mode::Mutex, owner, time, fence)
}

pub fn acquire_as(mode: Mode, owner: &str, time: Range<u64>, fence: i64) -> Operation {
    operation(owner, time, Action::Acquire { mode, lease: LEASE, block: None }, Outcome::Granted { fence })
}

pub fn renew(owner: &str, time: Range<u64>, outcome: Outcome) -> Operation {
    operation(owner, time, Action::Renew { mode: Mode::Mutex, lease: LEASE }, outcome)
}

pub fn release(owner: &str, time: Range<u64>) -> Operation {
    operation(owner, time, Action::Release { mode: Mode::Mutex }, Outcome::Done)
}

pub fn operation(owner: &str, time: Range<u64>, action: Action, outcome: Outcome) -> Operation {
    Operation {
        client: 0,
        key: "k".into(),
        owner: owner.into(),
        action,
        invoked: ms(time.start),
        returned: ms(time.end),
        outcome,
    }
}
