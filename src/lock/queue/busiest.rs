//! Which keys are the most waited for. Nothing is kept for this question: waits cost nothing more because somebody may
//! ask it, and the keys that are waited for are no more than the waiters.

use std::cmp::Reverse;

use super::queues::WaitQueues;
use super::wait_queue::WaitQueue;
use crate::value::time::Instant;

/// A key that is waited for.
#[derive(Clone, Copy, Debug)]
pub struct BusyQueue<'a> {
    /// Its queue, in which somebody waits.
    pub queue: &'a WaitQueue,
    /// Since when the one waits that waits longest.
    pub since: Instant,
}

/// At most `count` queues, one or more: those with the most waiters first, then those in which somebody waits longest.
/// A kept place is no waiter.
pub fn busiest(queues: &WaitQueues, count: usize) -> Vec<BusyQueue<'_>> {
    let mut all: Vec<_> = queues.iter().map(|(_, queue)| queue).filter(|queue| queue.waiters() > 0).collect();
    let last = count.saturating_sub(1);
    if last < all.len() {
        // How long they wait is asked only where it may matter.
        let (_, fewest, _) = all.select_nth_unstable_by_key(last, |queue| Reverse(queue.waiters()));
        let fewest = fewest.waiters();
        all.retain(|queue| queue.waiters() >= fewest);
    }
    let with_since = |queue| Some(BusyQueue { queue, since: waits_since(queues, queue)? });
    let mut all: Vec<_> = all.into_iter().filter_map(with_since).collect();
    let order = |busy: &BusyQueue<'_>| (Reverse(busy.queue.waiters()), busy.since);
    if last < all.len() {
        all.select_nth_unstable_by_key(last, order);
        all.truncate(count);
    }
    all.sort_by_key(order);
    all
}

/// Who stands first need not have waited longest: a retry waits since it came, at the place of the older one.
fn waits_since(queues: &WaitQueues, queue: &WaitQueue) -> Option<Instant> {
    queue.present().filter_map(|(_, id)| queues.request(id)).map(|request| request.since).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fixture::{names, Fixture};
    use crate::queue::request::{Place, Rank};
    use crate::value::claim::{Claim, Count, Mode};

    const MUTEX: Claim = Claim::Mutex;

    /// The names of the keys, the number of their waiters and since when they wait.
    fn told(fixture: &Fixture, count: usize) -> Vec<(String, usize, u64)> {
        let of = |busy: &BusyQueue<'_>| {
            (busy.queue.key.name.escape_ascii().to_string(), busy.queue.waiters(), busy.since.ms())
        };
        busiest(&fixture.queues, count).iter().map(of).collect()
    }

    #[test]
    fn most_waiters_come_first_then_the_longest_wait() {
        let mut fixture = Fixture::default();
        let (k, l, m) = ("k".to_string(), "l".to_string(), "m".to_string());
        assert_eq!(told(&fixture, 10), []);
        for (now_ms, owner, keys) in [(1, "a", "k"), (2, "b", "l"), (3, "c", "lm"), (4, "d", "m"), (5, "e", "m")] {
            fixture.server.keyspace.now_ms = now_ms;
            fixture.wait(owner, keys, MUTEX);
        }
        let all = [(m, 3, 3), (l, 2, 2), (k, 1, 1)];
        assert_eq!(told(&fixture, 3), all);
        assert_eq!(told(&fixture, 1000), all);
        assert_eq!(told(&fixture, 2), all[..2]);
        assert_eq!(told(&fixture, 1), all[..1]);
        // In "n" as many wait as in "l", but not for as long.
        fixture.wait("f", "n", MUTEX);
        fixture.wait("g", "n", MUTEX);
        assert_eq!(told(&fixture, 2), all[..2]);
    }

    #[test]
    fn a_kept_place_is_no_waiter_and_the_longest_wait_need_not_be_the_first() {
        let mut fixture = Fixture::default();
        fixture.server.keyspace.now_ms = 5;
        let away = fixture.wait("a", "k", MUTEX);
        fixture.server.keyspace.now_ms = 7;
        fixture.wait("b", "k", MUTEX);
        fixture.wait("c", "l", MUTEX);
        fixture.server.keyspace.now_ms = 9;
        let write = Claim::ReadWrite(Mode::Write, Count::Step(1));
        let first = Place { rank: Rank::Upgrade, arrival: 99 };
        fixture.wait_at("d", &names("l"), write, first);
        fixture.queues.keep_place(away);
        assert_eq!(told(&fixture, 10), [("l".to_string(), 2, 7), ("k".to_string(), 1, 7)]);
        let alone = fixture.wait("e", "m", MUTEX);
        fixture.queues.keep_place(alone);
        assert_eq!(told(&fixture, 10).len(), 2);
    }

    /// Whatever is left out on the way to the answer.
    #[test]
    fn it_is_what_a_sort_of_all_says() {
        let mut fixture = Fixture::default();
        for number in 0..300_u64 {
            fixture.server.keyspace.now_ms = 1 + number * 7919 % 100;
            let key = format!("{}", number * number % 67);
            let last = fixture.queues.last_place(Rank::Normal);
            fixture.wait_at(&format!("o{number}"), &[key.as_bytes()], MUTEX, last);
        }
        let rank = |(_, waiters, since): &(String, usize, u64)| (Reverse(*waiters), *since);
        let all = told(&fixture, 1000);
        assert!(all.is_sorted_by_key(rank) && all.len() == fixture.queues.iter().count());
        for count in 1..=all.len() {
            let some = told(&fixture, count);
            let ranks = |told: &[(String, usize, u64)]| told.iter().map(rank).collect::<Vec<_>>();
            assert_eq!(ranks(&some), ranks(&all[..count]), "{count}");
        }
    }
}
