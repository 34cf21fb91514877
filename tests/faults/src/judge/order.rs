//! First come, first served: a request further back in a queue is granted later, and so is a request that arrived
//! afterwards.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::history::{Action, History, Outcome};

/// A request that was granted, after waiting without interruption.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    owner: &'a str,
    fence: i64,
    /// When its owner first sent the request: from then on it may have a position in the queue.
    first_requested: Duration,
    invoked: Duration,
}

/// The overtaken requests of a queue; one sentence each. Needs the snapshots of an [`Observer`](crate::Observer) of a
/// single server.
///
/// Only requests count that began before the snapshot and were granted themselves: a request that timed out or lost its
/// connection was not waiting, and the queue skips it.
pub fn overtaken(history: &History) -> Vec<String> {
    let queues = queues(history);
    let mut wrong = Vec::new();
    for look in history.looks() {
        let Some(queue) = queues.get(look.key.as_str()) else { continue };
        let waiters = look.waiters.iter().filter_map(|owner| queue.by_owner.get(owner.as_str()));
        let waiters: Vec<&Request> = waiters.filter(|request| request.invoked < look.invoked).collect();
        let next_to_each_other = waiters.windows(2).map(|pair| (pair[0], pair[1]));
        let last = waiters.iter().max_by_key(|request| request.fence).copied();
        for (first, second) in next_to_each_other.chain(last.zip(queue.first_after(look.returned))) {
            if first.fence > second.fence {
                let owners = (second.owner, first.owner);
                wrong.push(format!("{} overtook {} ({second:?}, {first:?}) in {look:?}", owners.0, owners.1));
            }
        }
    }
    wrong
}

/// The requests of one key.
#[derive(Default)]
struct Queue<'a> {
    by_owner: HashMap<&'a str, Request<'a>>,
    /// By the time when their owners first sent them: each with the smallest fencing token of itself and all later
    /// ones.
    newcomers: Vec<(Duration, Request<'a>)>,
}

impl<'a> Queue<'a> {
    /// The request that was granted first, of all that were sent after this time.
    fn first_after(&self, time: Duration) -> Option<&Request<'a>> {
        let first = self.newcomers.partition_point(|(first_requested, _)| *first_requested <= time);
        self.newcomers.get(first).map(|(_, request)| request)
    }
}

fn queues(history: &History) -> HashMap<&str, Queue<'_>> {
    let mut first_requested: HashMap<(&str, &str), Duration> = HashMap::new();
    let mut queues: HashMap<&str, Queue> = HashMap::new();
    for operation in history.operations() {
        let Action::Acquire { .. } = operation.action else { continue };
        let first_requested = *first_requested.entry((&operation.key, &operation.owner)).or_insert(operation.invoked);
        if let Outcome::Granted { fence } = operation.outcome {
            let request = Request { owner: &operation.owner, fence, first_requested, invoked: operation.invoked };
            queues.entry(&operation.key).or_default().by_owner.entry(&operation.owner).or_insert(request);
        }
    }
    for queue in queues.values_mut() {
        let mut requests: Vec<Request> = queue.by_owner.values().copied().collect();
        requests.sort_by_key(|request| Reverse(request.first_requested));
        let mut first: Option<Request> = None;
        for request in requests {
            let earliest = first.filter(|first| first.fence < request.fence).unwrap_or(request);
            first = Some(earliest);
            queue.newcomers.push((request.first_requested, earliest));
        }
        queue.newcomers.reverse();
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Look, Operation, ServerTime};
    use crate::judge::planted::*;

    /// At 20 ms `a` and `b` wait, `a` first; the requests are granted as listed.
    fn found(operations: impl IntoIterator<Item = Operation>) -> usize {
        let waiters = ["a", "b"].map(String::from).to_vec();
        let look = Look { key: "k".into(), invoked: ms(20), returned: ms(21), waiters };
        overtaken(&planted(operations).observed(vec![look], ServerTime::default())).len()
    }

    #[test]
    fn queue_order_is_accepted() {
        assert_eq!(found([acquire("a", 0..30, 1), acquire("b", 1..40, 2), acquire("c", 25..50, 3)]), 0);
    }

    #[test]
    fn a_waiter_granted_before_the_one_ahead_is_detected() {
        assert_eq!(found([acquire("a", 0..30, 2), acquire("b", 1..40, 1), acquire("c", 25..50, 3)]), 1);
    }

    #[test]
    fn a_new_request_granted_before_a_waiter_is_detected() {
        assert_eq!(found([acquire("a", 0..30, 1), acquire("b", 1..40, 3), acquire("c", 25..50, 2)]), 1);
    }

    #[test]
    fn a_request_that_is_not_waiting_may_be_skipped() {
        // The request of `a` in the snapshot ended, and another one was granted.
        assert_eq!(found([acquire("a", 25..60, 3), acquire("b", 1..40, 2), acquire("c", 50..70, 4)]), 0);
    }

    #[test]
    fn a_retry_that_resumes_its_position_is_not_a_new_request() {
        let mut lost = acquire("c", 5..15, 0);
        lost.outcome = Outcome::Unknown;
        let retry = acquire("c", 25..28, 1);
        let others = [acquire("a", 0..30, 2), acquire("b", 1..40, 3)];
        assert_eq!(found(others.clone().into_iter().chain([lost, retry.clone()])), 0);
        assert_eq!(found(others.into_iter().chain([retry])), 1);
    }
}
