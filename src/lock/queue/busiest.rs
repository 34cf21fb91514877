//! The keys with the most waiters. This query has no index, because an index would make every wait more expensive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::queues::WaitQueues;
use super::request::QueueId;
use super::wait_queue::WaitQueue;
use crate::value::time::Instant;
use std::collections::BTreeSet;

/// A key with waiters.
#[derive(Clone, Copy, Debug)]
pub struct BusyQueue<'a> {
    /// Its queue, which has at least one waiter.
    pub queue: &'a WaitQueue,
    /// When its longest waiter was queued.
    pub since: Instant,
}

/// At most `count` queues (one or more), ordered by the number of waiters, then by the longest wait. A reserved
/// position is not a waiter.
pub fn busiest(queues: &WaitQueues, count: usize) -> Vec<BusyQueue<'_>> {
    let by_waiters = queues.iter().map(|(id, queue)| (Reverse(queue.waiters()), id));
    let mut all: Vec<_> = by_waiters.filter(|(Reverse(waiters), _)| *waiters > 0).collect();
    let mut found = match count.checked_sub(1).filter(|last| *last < all.len()) {
        None => with_longest_wait(queues, all),
        Some(last) => {
            let (_, (Reverse(fewest), _), _) = all.select_nth_unstable_by_key(last, |(waiters, _)| *waiters);
            let fewest = *fewest;
            all.truncate(count);
            all.retain(|(Reverse(waiters), _)| *waiters > fewest);
            let mut found = with_longest_wait(queues, all);
            found.extend(longest_with(queues, fewest).take(count - found.len()));
            found
        }
    };
    found.sort_by_key(|busy| (Reverse(busy.queue.waiters()), busy.since));
    found
}

/// The queues, each with its longest wait. The head need not be the longest waiter, because an upgrade, or a request of
/// a holder placed before an MLOCK, is ahead of earlier requests.
fn with_longest_wait(queues: &WaitQueues, ids: Vec<(Reverse<usize>, QueueId)>) -> Vec<BusyQueue<'_>> {
    let busy = |id| {
        let queue = queues.get(id)?;
        let since = queue.present().filter_map(|(_, id)| queues.request(id)).map(|request| request.since).min()?;
        Some(BusyQueue { queue, since })
    };
    ids.into_iter().filter_map(|(_, id)| busy(id)).collect()
}

/// The queues with this many waiters, the longest wait first. It iterates over requests rather than queues, because
/// multi-key requests may create many more queues than there are requests.
fn longest_with(queues: &WaitQueues, waiters: usize) -> impl Iterator<Item = BusyQueue<'_>> {
    let present = queues.requests().filter(|(_, request)| request.is_present());
    let mut oldest: BinaryHeap<_> = present.map(|(id, request)| Reverse((request.since, id))).collect();
    let requests = std::iter::from_fn(move || oldest.pop()).filter_map(|Reverse((_, id))| queues.request(id));
    let mut seen = BTreeSet::default();
    requests.flat_map(move |request| {
        let queues_of_request = request.queues.iter().filter_map(|id| Some((*id, queues.get(*id)?)));
        let new = queues_of_request.filter(|(id, queue)| queue.waiters() == waiters && seen.insert(*id));
        new.map(|(_, queue)| BusyQueue { queue, since: request.since }).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fixture::{names, Fixture};
    use crate::queue::position::{QueuePosition, Rank};
    use crate::value::claim::{Claim, Count, Mode};

    const MUTEX: Claim = Claim::Mutex;

    /// The names of the keys, the number of waiters, and when the longest waiter was queued.
    fn busiest_keys(fixture: &Fixture, count: usize) -> Vec<(String, usize, u64)> {
        let of = |busy: &BusyQueue<'_>| {
            (busy.queue.key.name.escape_ascii().to_string(), busy.queue.waiters(), busy.since.ms())
        };
        busiest(&fixture.queues, count).iter().map(of).collect()
    }

    #[test]
    fn most_waiters_come_first_then_the_longest_wait() {
        let mut fixture = Fixture::default();
        let (k, l, m) = ("k".to_string(), "l".to_string(), "m".to_string());
        assert_eq!(busiest_keys(&fixture, 10), []);
        for (now_ms, owner, keys) in [(1, "a", "k"), (2, "b", "l"), (3, "c", "lm"), (4, "d", "m"), (5, "e", "m")] {
            fixture.server.keyspace.now_ms = now_ms;
            fixture.wait(owner, keys, MUTEX);
        }
        let all = [(m, 3, 3), (l, 2, 2), (k, 1, 1)];
        assert_eq!(busiest_keys(&fixture, 3), all);
        assert_eq!(busiest_keys(&fixture, 1000), all);
        assert_eq!(busiest_keys(&fixture, 2), all[..2]);
        assert_eq!(busiest_keys(&fixture, 1), all[..1]);
        // "n" has as many waiters as "l", but a shorter wait.
        fixture.wait("f", "n", MUTEX);
        fixture.wait("g", "n", MUTEX);
        assert_eq!(busiest_keys(&fixture, 2), all[..2]);
    }

    #[test]
    fn a_reserved_position_is_no_waiter_and_the_longest_wait_need_not_be_the_first() {
        let mut fixture = Fixture::default();
        fixture.server.keyspace.now_ms = 5;
        let detached = fixture.wait("a", "k", MUTEX);
        fixture.server.keyspace.now_ms = 7;
        fixture.wait("b", "k", MUTEX);
        fixture.wait("c", "l", MUTEX);
        fixture.server.keyspace.now_ms = 9;
        let write = Claim::ReadWrite(Mode::Write, Count::Delta(1));
        let first = QueuePosition::last(Rank::Upgrade, 99);
        fixture.wait_at("d", &names("l"), write, first);
        fixture.queues.reserve_position(detached, Instant::from_ms(60_000));
        assert_eq!(busiest_keys(&fixture, 10), [("l".to_string(), 2, 7), ("k".to_string(), 1, 7)]);
        let alone = fixture.wait("e", "m", MUTEX);
        fixture.queues.reserve_position(alone, Instant::from_ms(60_000));
        assert_eq!(busiest_keys(&fixture, 10).len(), 2);
    }

    /// The shortcuts of `busiest` do not change its result.
    #[test]
    fn the_result_is_that_of_a_full_sort() {
        let mut fixture = Fixture::default();
        for number in 0..300_u64 {
            fixture.server.keyspace.now_ms = 1 + number * 7919 % 100;
            let key = format!("{}", number * number % 67);
            let last = fixture.queues.last_position(Rank::Normal);
            fixture.wait_at(&format!("o{number}"), &[key.as_bytes()], MUTEX, last);
        }
        let rank = |(_, waiters, since): &(String, usize, u64)| (Reverse(*waiters), *since);
        let all = busiest_keys(&fixture, 1000);
        assert!(all.is_sorted_by_key(rank) && all.len() == fixture.queues.iter().count());
        for count in 1..=all.len() + 1 {
            let some = busiest_keys(&fixture, count);
            let ranks = |keys: &[(String, usize, u64)]| keys.iter().map(rank).collect::<Vec<_>>();
            assert_eq!(ranks(&some), ranks(&all[..count.min(all.len())]), "{count}");
        }
    }
}
