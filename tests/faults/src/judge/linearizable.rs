//! Whether the register that only holders may write is linearizable: its reads and writes have an order that fits their
//! times.
//!
//! The search is exponential, so a history is split where the value is known: after an access that overlaps with no
//! other.

use std::collections::BTreeMap;
use std::time::Duration;

use todc_utils::linearizability::history::Action::{Call, Response};
use todc_utils::{History as Accesses, Specification, WGLChecker};

use crate::history::{Action, History, Operation, Outcome};

/// A window is cut at the first opportunity after this many accesses.
const WINDOW: usize = 24;

/// One access to the register of a key.
#[derive(Clone, Debug)]
struct Access {
    action: Register,
    from: Duration,
    /// For a write with a lost reply: when it could no longer happen.
    to: Duration,
    is_certain: bool,
}

/// The sequential register, and its operations.
#[derive(Clone, Copy, Debug)]
enum Register {
    Write(Option<u64>),
    Read(Option<u64>),
}

impl Specification for Register {
    type State = Option<u64>;
    type Operation = Register;

    fn init() -> Option<u64> {
        None
    }

    fn apply(operation: &Register, state: &Option<u64>) -> (bool, Option<u64>) {
        match operation {
            Register::Write(value) => (true, *value),
            Register::Read(value) => (value == state, *state),
        }
    }
}

impl Register {
    /// The value of the register after the operation.
    fn value(self) -> Option<u64> {
        match self {
            Register::Write(value) | Register::Read(value) => value,
        }
    }
}

/// The windows of a history in which a register was not linearizable; one sentence each.
pub fn not_linearizable(history: &History) -> Vec<String> {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut wrong = Vec::new();
    for (key, operations) in keys {
        let mut before = None;
        for window in windows(accesses(&operations)) {
            if !is_linearizable(before, &window) {
                wrong.push(format!("the register of {key} was {before:?}, and then no order explains {window:#?}"));
            }
            before = window.last().expect("a window has accesses").action.value();
        }
    }
    wrong
}

/// The accesses to one register, in the order of the requests.
fn accesses(operations: &[&Operation]) -> Vec<Access> {
    let access = |operation: &&Operation| {
        let (action, is_certain) = match (&operation.action, &operation.outcome) {
            (Action::Write { value }, Outcome::Done) => (Register::Write(Some(*value)), true),
            (Action::Write { value }, Outcome::Unknown) => (Register::Write(Some(*value)), false),
            (Action::Read, Outcome::Value(value)) => (Register::Read(*value), true),
            _ => return None,
        };
        let to = if is_certain { operation.returned } else { impossible_from(operation, operations) };
        Some(Access { action, from: operation.invoked, to, is_certain })
    };
    operations.iter().filter_map(access).collect()
}

/// Only holders write, so a write with a lost reply happens before the next owner sees its grant, or never.
fn impossible_from(write: &Operation, operations: &[&Operation]) -> Duration {
    let grants = operations.iter().filter_map(|operation| match operation.outcome {
        Outcome::Granted { fence } => Some((*operation, fence)),
        _ => None,
    });
    let own = grants.clone().find(|(grant, _)| grant.owner == write.owner).map(|(_, fence)| fence);
    let later = grants.filter(|(grant, fence)| grant.returned > write.invoked && own.is_some_and(|own| *fence > own));
    later.map(|(grant, _)| grant.returned).min().unwrap_or(Duration::MAX)
}

/// Splits after accesses that overlap with no other.
fn windows(accesses: Vec<Access>) -> Vec<Vec<Access>> {
    let mut windows = vec![Vec::new()];
    let mut over = Duration::ZERO;
    let mut accesses = accesses.into_iter().peekable();
    while let Some(access) = accesses.next() {
        let is_alone = access.from > over && accesses.peek().is_some_and(|next| next.from > access.to);
        over = over.max(access.to);
        let is_cut = is_alone && access.is_certain;
        let window = windows.last_mut().expect("there is one");
        window.push(access);
        if is_cut && window.len() >= WINDOW {
            windows.push(Vec::new());
        }
    }
    windows.retain(|window| !window.is_empty());
    windows
}

fn is_linearizable(before: Option<u64>, window: &[Access]) -> bool {
    let first = Register::Write(before);
    let mut ordered = Vec::new();
    for (index, access) in window.iter().enumerate() {
        // A write that may never have happened ends last, so that no read has to be explained by it.
        let end = if access.is_certain { access.to } else { Duration::MAX };
        // An access that ends when another begins overlaps with it.
        ordered.push(((access.from, 0), (index + 1, Call(access.action))));
        ordered.push(((end, 1), (index + 1, Response(access.action))));
    }
    ordered.sort_by_key(|(time, _)| *time);
    let actions = ordered.into_iter().map(|(_, action)| action);
    let all = [(0, Call(first)), (0, Response(first))].into_iter().chain(actions).collect();
    WGLChecker::<Register>::is_linearizable(Accesses::from_actions(all))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::judge::planted::*;

    fn write(owner: &str, time: Range<u64>, value: u64) -> Operation {
        operation(owner, time, Action::Write { value }, Outcome::Done)
    }

    fn lost_write(owner: &str, time: Range<u64>, value: u64) -> Operation {
        operation(owner, time, Action::Write { value }, Outcome::Unknown)
    }

    fn read(owner: &str, time: Range<u64>, value: Option<u64>) -> Operation {
        operation(owner, time, Action::Read, Outcome::Value(value))
    }

    fn is_right(operations: impl IntoIterator<Item = Operation>) -> bool {
        not_linearizable(&planted(operations)).is_empty()
    }

    #[test]
    fn reads_see_the_last_write() {
        assert!(is_right([read("a", 0..1, None), write("a", 2..3, 7), read("b", 4..5, Some(7))]));
        assert!(!is_right([write("a", 2..3, 7), write("b", 4..5, 8), read("b", 6..7, Some(7))]));
        assert!(!is_right([write("a", 2..3, 7), read("b", 4..5, None)]));
    }

    #[test]
    fn writes_at_the_same_time_come_in_either_order() {
        assert!(is_right([write("a", 2..9, 7), write("b", 4..5, 8), read("b", 10..11, Some(7))]));
        assert!(is_right([write("a", 2..9, 7), write("b", 4..5, 8), read("b", 10..11, Some(8))]));
    }

    #[test]
    fn a_write_with_a_lost_reply_may_have_happened_or_not() {
        assert!(is_right([write("a", 0..1, 6), lost_write("a", 2..3, 7), read("a", 4..5, Some(6))]));
        assert!(is_right([write("a", 0..1, 6), lost_write("a", 2..3, 7), read("a", 4..5, Some(7))]));
        let never_written = [write("a", 0..1, 6), lost_write("a", 2..3, 7), read("a", 4..5, Some(9))];
        assert!(!is_right(never_written));
        let seen_and_lost = [lost_write("a", 2..3, 7), read("a", 4..5, Some(7)), read("a", 6..7, None)];
        assert!(!is_right(seen_and_lost));
    }

    /// A hundred windows, then one that is not linearizable.
    #[test]
    fn a_long_history_is_judged_window_by_window() {
        let iteration = |n: u64| {
            let owner = n.to_string();
            [write(&owner, 10 * n..10 * n + 2, n), read(&owner, 10 * n + 3..10 * n + 4, Some(n))]
        };
        let right: Vec<Operation> = (1..1_200).flat_map(iteration).collect();
        assert_eq!(windows(accesses(&right.iter().collect::<Vec<_>>())).len(), 100);
        assert!(is_right(right.clone()));
        for wrong in [13, 600, 1_199] {
            let mut wrong_history = right.clone();
            wrong_history.push(read("late", 10 * wrong + 5..10 * wrong + 6, Some(wrong - 1)));
            assert!(!is_right(wrong_history), "{wrong}");
        }
    }

    #[test]
    fn a_lost_write_delays_the_cut_until_it_can_no_longer_happen() {
        let mut operations: Vec<Operation> = vec![acquire("a", 0..1, 1), lost_write("a", 2..3, 7)];
        operations.extend((2..40).map(|n| read("a", 10 * n..10 * n + 1, None)));
        operations.push(acquire("b", 500..510, 2));
        let late = [read("b", 520..521, None), read("b", 530..531, None)];
        operations.extend(late);
        let cut = windows(accesses(&operations.iter().collect::<Vec<_>>()));
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [40, 1]);
        operations.push(read("b", 540..541, Some(7)));
        assert!(!is_right(operations), "it cannot happen after the next grant");
    }
}
