//! No lost wake-ups: no request keeps waiting while the lock is free, and none waits longer than it asked to.
//!
//! Time is the server's own, as read by an [`Observer`](crate::Observer): without its readings nothing is detected.

use std::collections::HashMap;
use std::time::Duration;

use crate::history::{Action, History, Operation, Outcome};

/// How much time a server may take for a hand-off or a reply that is due: far more than it needs, but less than the
/// second after which a quiet server (`hz 1`) finds an expired key by itself.
const SLACK: Duration = Duration::from_millis(700);

/// Requests that a server forgot; one sentence each.
pub fn forgotten(history: &History) -> Vec<String> {
    let mut keys: HashMap<&str, Vec<&Operation>> = HashMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut wrong: Vec<String> = overdue(history).collect();
    for operations in keys.values() {
        waiting_on(history, operations, &mut wrong);
    }
    wrong
}

/// Requests that got a reply long after their BLOCK had timed out.
fn overdue(history: &History) -> impl Iterator<Item = String> + '_ {
    history.operations().iter().filter_map(|request| {
        let Action::Acquire { block: Some(block), .. } = request.action else { return None };
        let late = history.server_time().between(request.invoked + block, request.returned);
        let has_reply = request.outcome != Outcome::Unknown;
        (has_reply && late > SLACK).then(|| format!("replied {late:?} after its timeout: {request:?}"))
    })
}

/// Requests that waited although the lock of an exclusive holder was free and was granted to no request.
fn waiting_on(history: &History, operations: &[&Operation], wrong: &mut Vec<String>) {
    let requests: Vec<(&Operation, Duration)> = operations
        .iter()
        .filter_map(|request| match request.action {
            Action::Acquire { lease, .. } => Some((*request, lease)),
            _ => None,
        })
        .collect();
    for end in ends(operations) {
        let later = requests.iter().filter(|(request, _)| match request.outcome {
            Outcome::Granted { fence } => fence > end.fence,
            _ => false,
        });
        let next = later.map(|(request, _)| request.returned).min().unwrap_or(Duration::MAX);
        // Another client may have been granted it without having read that.
        let may_be_held = requests.iter().any(|(request, lease)| {
            request.outcome == Outcome::Unknown && request.invoked < next && request.returned + *lease > end.from
        });
        if may_be_held {
            continue;
        }
        let waiters = requests.iter().filter(|(request, _)| {
            matches!(request.action, Action::Acquire { block: Some(_), .. })
                && request.invoked < end.from
                && request.returned > end.to
        });
        for (waiter, _) in waiters {
            let idle = history.server_time().between(end.to, waiter.returned.min(next));
            if idle > SLACK {
                wrong.push(format!("the lock was free for {idle:?} after the end of {}: {waiter:?}", end.owner));
            }
        }
    }
}

/// The end of an exclusive hold, which lies between two times since the history began.
struct End<'a> {
    owner: &'a str,
    fence: i64,
    from: Duration,
    to: Duration,
}

/// Releases, and expiry of leases whose clients died.
fn ends<'a>(operations: &[&'a Operation]) -> Vec<End<'a>> {
    let mut owners: HashMap<&str, Vec<&'a Operation>> = HashMap::new();
    for operation in operations {
        owners.entry(&operation.owner).or_default().push(operation);
    }
    owners.into_values().filter_map(|operations| end(&operations)).collect()
}

/// How the hold of one owner ended, if known.
fn end<'a>(operations: &[&'a Operation]) -> Option<End<'a>> {
    let mut end: Option<End> = None;
    for operation in operations {
        match (&operation.action, &operation.outcome) {
            (Action::Release { .. }, Outcome::Done) => {
                return end.map(|end| End { from: operation.invoked, to: operation.returned, ..end });
            }
            // A retried release does not show when the lock was released.
            (Action::Release { .. }, _) => return None,
            (Action::Acquire { mode, lease, .. }, Outcome::Granted { fence }) if mode.is_exclusive() => {
                let [from, to] = [operation.invoked, operation.returned].map(|time| time + *lease);
                end = Some(End { owner: &operation.owner, fence: *fence, from, to });
            }
            (Action::Renew { lease, .. }, Outcome::Done | Outcome::Unknown) => {
                // A release with a lost reply may not have happened.
                end = end.map(|end| End { to: operation.returned + *lease, ..end });
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ServerTime;
    use crate::judge::planted::*;
    use std::ops::Range;

    fn wait(owner: &str, time: Range<u64>, outcome: Outcome) -> Operation {
        let mut request = acquire(owner, time, 2);
        request.action =
            Action::Acquire { mode: crate::lock::Mode::Mutex, lease: LEASE, block: Some(Duration::from_secs(5)) };
        request.outcome = outcome;
        request
    }

    /// Judges with a server that works all the time except for the given milliseconds.
    fn judged(operations: impl IntoIterator<Item = Operation>, stopped: Range<u64>) -> usize {
        let readings = (0..20_000).step_by(5).map(|now| {
            let lost = now.clamp(stopped.start, stopped.end) - stopped.start;
            (ms(now), ms(now - lost))
        });
        forgotten(&planted(operations).observed(Vec::new(), ServerTime::new(readings.collect()))).len()
    }

    fn held_until_100() -> [Operation; 2] {
        [acquire("a", 0..10, 1), release("a", 95..100)]
    }

    #[test]
    fn an_immediate_hand_off_is_accepted() {
        let [grant, release] = held_until_100();
        assert_eq!(judged([grant, release, wait("b", 20..101, Outcome::Granted { fence: 2 })], 0..0), 0);
    }

    #[test]
    fn a_waiter_woken_late_is_detected() {
        let [grant, released] = held_until_100();
        let waiter = wait("b", 20..3_000, Outcome::Granted { fence: 2 });
        assert_eq!(judged([grant.clone(), released.clone(), waiter.clone()], 0..0), 1);
        assert_eq!(judged([grant.clone(), released.clone(), waiter.clone()], 200..2_900), 0, "the server was paused");
        let held_in_between = [acquire("c", 80..102, 3), release("c", 2_900..2_995)];
        let all = [grant.clone(), released.clone(), waiter.clone()].into_iter().chain(held_in_between);
        assert_eq!(judged(all, 0..0), 0);
        let lost = wait("c", 80..102, Outcome::Unknown);
        assert_eq!(judged([grant, released, waiter, lost], 0..0), 0, "it may have been granted");
    }

    #[test]
    fn a_waiter_not_woken_by_lease_expiry_is_detected() {
        let waiter = |returned| wait("b", 20..returned, Outcome::Granted { fence: 2 });
        assert_eq!(judged([acquire("a", 0..10, 1), waiter(1_015)], 0..0), 0);
        assert_eq!(judged([acquire("a", 0..10, 1), waiter(3_000)], 0..0), 1);
        let renewal = renew("a", 800..810, Outcome::Unknown);
        assert_eq!(judged([acquire("a", 0..10, 1), renewal, waiter(2_500)], 0..0), 0, "it may have been renewed");
    }

    #[test]
    fn a_waiter_never_woken_is_detected() {
        let [grant, release] = held_until_100();
        assert_eq!(judged([grant, release, wait("b", 20..5_021, Outcome::NotGranted)], 0..0), 1);
    }

    #[test]
    fn a_reply_long_after_its_timeout_is_detected() {
        assert_eq!(judged([wait("b", 0..5_010, Outcome::NotGranted)], 0..0), 0);
        assert_eq!(judged([wait("b", 0..7_000, Outcome::NotGranted)], 0..0), 1);
        assert_eq!(judged([wait("b", 0..7_000, Outcome::NotGranted)], 4_000..6_900), 0, "the server was paused");
    }
}
