//! Whether two owners were certain at the same time to hold what only one may hold.

use std::collections::HashMap;

use crate::history::{Action, History, Operation, Outcome};
use crate::judge::holds::Hold;
use crate::lock::Mode;

/// Holds of one key that were certain at the same time although they exclude each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlap {
    /// A hold that began during the others.
    pub last: Hold,
    pub others: Vec<Hold>,
}

/// The holds that were lost before their lease expired.
pub fn lost(holds: &[Hold]) -> Vec<&Hold> {
    holds.iter().filter(|hold| hold.is_lost).collect()
}

/// Every hold that began while a hold lasted that excludes it or that it excludes, or when no permit was left; once for
/// each such key.
pub fn overlaps(holds: &[Hold]) -> Vec<Overlap> {
    let mut overlaps = Vec::new();
    let mut lasting: HashMap<String, Vec<&Hold>> = HashMap::new();
    // In the order in which they began. A hold that was never certain overlaps with none.
    let certain = holds.iter().filter(|hold| hold.from < hold.until);
    for (hold, key) in certain.flat_map(|hold| hold.keys().into_iter().map(move |key| (hold, key))) {
        let others = lasting.entry(key).or_default();
        others.retain(|other| other.until > hold.from);
        let conflicting: Vec<Hold> = match hold.mode {
            Mode::Permit { limit } if others.len() < limit => Vec::new(),
            Mode::Read => others.iter().filter(|other| other.mode != Mode::Read).map(|&other| other.clone()).collect(),
            _ => others.iter().map(|&other| other.clone()).collect(),
        };
        if !conflicting.is_empty() {
            overlaps.push(Overlap { last: hold.clone(), others: conflicting });
        }
        others.push(hold);
    }
    overlaps
}

/// Actions that an owner was allowed as a holder while another one was certain to hold the lock exclusively; one
/// sentence each.
pub fn intrusions(history: &History, holds: &[Hold]) -> Vec<String> {
    let mut exclusive: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in holds.iter().filter(|hold| hold.mode.is_exclusive()) {
        exclusive.entry(&hold.key).or_default().push(hold);
    }
    let mut wrong = Vec::new();
    for operation in history.operations() {
        if !is_act_of_holder(operation) {
            continue;
        }
        let others = exclusive.get(operation.key.as_str()).map(Vec::as_slice).unwrap_or_default();
        let is_within = |hold: &&&Hold| {
            hold.owner != operation.owner && hold.from < operation.invoked && operation.returned < hold.until
        };
        if let Some(hold) = others.iter().find(is_within) {
            wrong.push(format!("{operation:?} while another held it: {hold:?}"));
        }
    }
    wrong
}

/// Whether the server treated the owner as a holder.
fn is_act_of_holder(operation: &Operation) -> bool {
    match operation.action {
        Action::Renew { .. } | Action::Release { .. } | Action::Write { .. } => operation.outcome == Outcome::Done,
        Action::Read => matches!(operation.outcome, Outcome::Value(_)),
        _ => false,
    }
}

/// Actions that owners were allowed as holders after they had released the lock; one sentence each.
pub fn acts_after_release(history: &History) -> Vec<String> {
    let mut owners: HashMap<(&str, &str), Vec<&Operation>> = HashMap::new();
    for operation in history.operations() {
        owners.entry((&operation.key, &operation.owner)).or_default().push(operation);
    }
    // A request with a lost reply may be granted after a later one was released.
    owners.retain(|_, operations| {
        operations.iter().all(|it| !matches!((&it.action, &it.outcome), (Action::Acquire { .. }, Outcome::Unknown)))
    });
    let acts = owners.values().flat_map(|operations| {
        let is_release = |it: &&Operation| matches!(it.action, Action::Release { .. });
        let is_end = |it: &&Operation| is_release(it) && matches!(it.outcome, Outcome::Done | Outcome::NotHeld);
        let end = operations.iter().position(is_end).unwrap_or(operations.len());
        operations.iter().skip(end + 1).filter(|it| is_act_of_holder(it))
    });
    acts.map(|act| format!("after its release: {act:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::holds::holds;
    use crate::judge::planted::*;

    #[test]
    fn two_holders_of_a_mutex_are_detected() {
        assert_eq!(found([acquire("a", 0..10, 1), acquire("b", 20..30, 2), release("a", 40..50)]), [["b", "a"]]);
    }

    #[test]
    fn one_after_the_other_is_not_an_overlap() {
        assert!(found([acquire("a", 0..10, 1), release("a", 20..40), acquire("b", 15..21, 2)]).is_empty());
        assert!(found([acquire("a", 0..10, 1), acquire("b", 900..1_000, 2)]).is_empty(), "the lease ended");
    }

    #[test]
    fn a_writer_together_with_readers_is_detected() {
        let [a, b] = [("a", 1), ("b", 2)].map(|(owner, fence)| acquire_as(Mode::Read, owner, 0..10, fence));
        let writer = acquire_as(Mode::Write, "w", 20..30, 3);
        assert!(found([a.clone(), b.clone()]).is_empty());
        assert_eq!(found([a.clone(), b, writer.clone()]), [["w", "a", "b"]]);
        assert_eq!(found([writer, acquire_as(Mode::Read, "a", 40..50, 4)]), [["a", "w"]]);
    }

    #[test]
    fn one_permit_too_many_is_detected() {
        let permit = |owner, fence| acquire_as(Mode::Permit { limit: 2 }, owner, 0..10, fence);
        assert!(found([permit("a", 1), permit("b", 2)]).is_empty());
        assert_eq!(found([permit("a", 1), permit("b", 2), permit("c", 3)]), [["c", "a", "b"]]);
    }

    #[test]
    fn a_mutex_of_a_pair_is_held_with_the_pair() {
        let both = acquire_as(Mode::Both, "a", 0..10, 1);
        let mut companion = acquire("b", 20..30, 2);
        companion.key = "k:too".into();
        assert_eq!(found([both.clone(), companion.clone()]), [["b", "a"]]);
        assert_eq!(found([both.clone(), acquire("b", 20..30, 2)]), [["b", "a"]]);
        assert_eq!(found([companion, acquire_as(Mode::Both, "a", 40..50, 3)]), [["a", "b"]]);
        assert_eq!(found([both, acquire_as(Mode::Both, "c", 20..30, 2)]), [["c", "a"], ["c", "a"]]);
    }

    #[test]
    fn a_write_while_another_owner_holds_is_detected() {
        let late = |time| operation("a", time, Action::Write { value: 1 }, Outcome::Done);
        let found = |write| {
            let history = planted([acquire("b", 0..10, 2), release("b", 50..60), write]);
            intrusions(&history, &holds(&history)).len()
        };
        assert_eq!(found(late(20..30)), 1);
        assert_eq!(found(late(5..30)), 0, "it may have come before");
        assert_eq!(found(late(45..55)), 0, "it may have come after");
    }

    #[test]
    fn a_write_after_the_release_is_detected() {
        let late = |outcome| operation("a", 30..40, Action::Write { value: 1 }, outcome);
        let found = |history: &[Operation]| acts_after_release(&planted(history.to_vec())).len();
        let [grant, end] = [acquire("a", 0..10, 1), release("a", 20..25)];
        assert_eq!(found(&[grant.clone(), end.clone(), late(Outcome::Done)]), 1);
        assert_eq!(found(&[grant.clone(), end.clone(), late(Outcome::NotHeld)]), 0);
        assert_eq!(found(&[grant.clone(), late(Outcome::Done), release("a", 50..55)]), 0);
        let mut lost = acquire("a", 0..1, 1);
        lost.outcome = Outcome::Unknown;
        assert_eq!(found(&[lost, grant, end, late(Outcome::Done)]), 0, "the lost request may have been granted again");
    }

    fn found<const N: usize>(operations: [Operation; N]) -> Vec<Vec<String>> {
        let overlaps = overlaps(&holds(&planted(operations)));
        let owners = |overlap: &Overlap| {
            let all = std::iter::once(&overlap.last).chain(&overlap.others);
            all.map(|hold| hold.owner.clone()).collect()
        };
        overlaps.iter().map(owners).collect()
    }
}
