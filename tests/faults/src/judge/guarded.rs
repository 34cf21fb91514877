//! The effect of fencing tokens on the resource outside the server.

use std::collections::HashMap;

use crate::history::{Action, History, Outcome};
use crate::judge::holds::Hold;

/// Writes that were accepted after a write with a larger fencing token; one sentence each.
pub fn decreasing_writes(history: &History) -> Vec<String> {
    let accepted: Vec<_> = history
        .operations()
        .iter()
        .filter_map(|operation| match operation.action {
            Action::WriteByFence { fence, .. } if operation.outcome == Outcome::Done => Some((operation, fence)),
            _ => None,
        })
        .collect();
    let mut by_end = accepted.clone();
    by_end.sort_by_key(|(operation, _)| operation.returned);
    let mut ended = by_end.into_iter().peekable();
    let mut greatest: HashMap<&str, i64> = HashMap::new();
    let mut wrong = Vec::new();
    for (operation, fence) in accepted {
        while let Some((earlier, fence)) = ended.next_if(|(earlier, _)| earlier.returned < operation.invoked) {
            let greatest = greatest.entry(&earlier.key).or_insert(fence);
            *greatest = fence.max(*greatest);
        }
        if greatest.get(operation.key.as_str()).is_some_and(|greatest| *greatest > fence) {
            wrong.push(format!("a write by the smaller fence {fence} was accepted: {operation:?}"));
        }
    }
    wrong
}

/// Holders whose write was rejected while they were certain to hold: a larger fencing token had been assigned.
pub fn holders_refused(history: &History, holds: &[Hold]) -> Vec<String> {
    let by_fence: HashMap<(&str, i64), &Hold> =
        holds.iter().map(|hold| ((hold.key.as_str(), hold.fence), hold)).collect();
    let is_early = |operation: &&crate::history::Operation| match operation.action {
        Action::WriteByFence { fence, .. } if operation.outcome == Outcome::NotHeld => {
            by_fence.get(&(operation.key.as_str(), fence)).is_some_and(|hold| operation.returned < hold.until)
        }
        _ => false,
    };
    let refused = history.operations().iter().filter(is_early);
    refused.map(|operation| format!("a holder was refused: {operation:?}")).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::history::Operation;
    use crate::judge::holds::holds;
    use crate::judge::planted::*;

    fn write(owner: &str, time: Range<u64>, fence: i64, outcome: Outcome) -> Operation {
        operation(owner, time, Action::WriteByFence { fence, value: 0 }, outcome)
    }

    #[test]
    fn a_write_with_a_smaller_fence_is_detected() {
        let first = write("a", 0..1, 5, Outcome::Done);
        let back = |time| decreasing_writes(&planted([first.clone(), write("b", time, 4, Outcome::Done)])).len();
        assert_eq!(back(2..3), 1);
        assert_eq!(back(0..3), 0, "at the same time either may be first");
        assert!(decreasing_writes(&planted([first.clone(), write("b", 2..3, 6, Outcome::Done)])).is_empty());
        assert!(decreasing_writes(&planted([first, write("b", 2..3, 4, Outcome::NotHeld)])).is_empty());
    }

    #[test]
    fn a_rejected_holder_is_detected() {
        let refused = |time| {
            let history = planted([acquire("a", 0..1, 5), write("a", time, 5, Outcome::NotHeld)]);
            holders_refused(&history, &holds(&history)).len()
        };
        assert_eq!(refused(10..11), 1);
        assert_eq!(refused(1_000..1_001), 0, "its lease has ended");
    }
}
