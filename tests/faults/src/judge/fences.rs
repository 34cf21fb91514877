//! Whether fencing tokens order the grants: none is assigned twice, and a later grant has a larger one.

use std::collections::HashMap;
use std::time::Duration;

use crate::judge::holds::Hold;

/// The grants whose fencing tokens are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All keys are on one server, or on one after the other.
    Server,
    /// Keys may be on multiple servers at the same time.
    Key,
}

/// Errors in the fencing tokens; one sentence each.
pub fn fences(holds: &[Hold], scope: Scope) -> Vec<String> {
    [duplicate_fences(holds, scope), decreasing_fences(holds, scope)].concat()
}

/// Grants that share a fencing token.
pub fn duplicate_fences(holds: &[Hold], scope: Scope) -> Vec<String> {
    in_each(holds, scope, repeated)
}

/// Grants that were requested after a larger fencing token was seen.
pub fn decreasing_fences(holds: &[Hold], scope: Scope) -> Vec<String> {
    in_each(holds, scope, decreasing)
}

fn in_each(holds: &[Hold], scope: Scope, judge: fn(&[&Hold], &mut Vec<String>)) -> Vec<String> {
    let mut scopes: HashMap<String, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        let names = match scope {
            Scope::Server => vec![String::new()],
            Scope::Key => hold.keys(),
        };
        names.into_iter().for_each(|name| scopes.entry(name).or_default().push(hold));
    }
    let mut wrong = Vec::new();
    scopes.values().for_each(|holds| judge(holds, &mut wrong));
    wrong
}

fn repeated(holds: &[&Hold], wrong: &mut Vec<String>) {
    let mut seen: HashMap<i64, &Hold> = HashMap::new();
    for hold in holds {
        if let Some(first) = seen.insert(hold.fence, hold) {
            wrong.push(format!("the fence of {} was given before to {}", name(hold), name(first)));
        }
    }
}

fn decreasing(holds: &[&Hold], wrong: &mut Vec<String>) {
    let mut by_asking = holds.to_vec();
    by_asking.sort_by_key(|hold| hold.requested_at);
    // `holds` are in the order in which they were read.
    let mut read = holds.iter().peekable();
    let mut greatest: Option<&Hold> = None;
    for hold in by_asking {
        while let Some(earlier) = read.next_if(|earlier| earlier.from < hold.requested_at) {
            if greatest.is_none_or(|greatest| greatest.fence < earlier.fence) {
                greatest = Some(earlier);
            }
        }
        if let Some(earlier) = greatest.filter(|earlier| earlier.fence > hold.fence) {
            wrong.push(format!("{} came after {}, with a smaller fence", name(hold), name(earlier)));
        }
    }
}

fn name(hold: &Hold) -> String {
    let ms = |time: Duration| time.as_millis();
    format!(
        "{} of {} ({}, asked for at {} ms, read at {} ms)",
        hold.key,
        hold.owner,
        hold.fence,
        ms(hold.requested_at),
        ms(hold.from)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::holds::holds;
    use crate::judge::planted::*;

    #[test]
    fn growing_fences_are_accepted() {
        let history = planted([acquire("a", 0..10, 1), release("a", 20..30), acquire("b", 15..40, 2)]);
        assert_eq!(found(&history), 0);
        // The earlier request may be granted later.
        assert_eq!(found(&planted([acquire("a", 0..50, 2), acquire("b", 10..20, 1)])), 0);
    }

    #[test]
    fn a_duplicate_fence_is_detected() {
        assert_eq!(found(&planted([acquire("a", 0..10, 5), acquire("b", 5..20, 5)])), 1);
    }

    #[test]
    fn a_retry_with_the_same_fence_is_not_a_second_grant() {
        assert_eq!(found(&planted([acquire("a", 0..10, 5), acquire("a", 20..30, 5)])), 0);
    }

    #[test]
    fn a_fence_that_goes_back_is_detected_even_across_keys() {
        let mut elsewhere = acquire("b", 20..30, 4);
        elsewhere.key = "other".into();
        let history = planted([acquire("a", 0..10, 5), elsewhere]);
        assert_eq!(found(&history), 1);
        assert!(fences(&holds(&history), Scope::Key).is_empty(), "if keys may be on multiple servers");
        assert_eq!(fences(&holds(&planted([acquire("a", 0..10, 5), acquire("b", 20..30, 4)])), Scope::Key).len(), 1);
    }

    fn found(history: &crate::history::History) -> usize {
        fences(&holds(history), Scope::Server).len()
    }
}
