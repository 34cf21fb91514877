//! Rounds of inspections: they find what other commands did to keys without an event.
//!
//! No event tells that EXPIRE made a lease shorter, or what a command made of a free key. So all keys that requests
//! wait for, and all locks with several holders, are opened in rounds, a few at a time. Like an event, an inspection
//! decides nothing: it marks queues and locks as due, and `drain` and `tick` read their keys. A key that has not
//! changed costs nothing more, even if thousands of requests wait for it.

use std::ops::Bound;

use super::lock_manager::LockManager;
use crate::host::{Content, Entry, Gate, Host, Keys};
use crate::queue::request::QueueId;

impl LockManager {
    /// Goes on with the round, or begins the next: inspects at most `most` keys of each kind.
    pub fn inspect_some<K: Keys, C>(&mut self, host: &mut Host<'_, K, C>, most: usize) {
        for _ in 0..most {
            let Some((id, queue)) = self.queues.next_from(self.next_inspected()) else { break };
            self.inspected = Some(id);
            let (key, is_waited_for) = (queue.key.clone(), queue.waiters() > 0);
            if self.has_changed_unnoticed(&mut host.keys.open(key.as_ref()), id) {
                self.queues.holders_may_differ(id);
                if is_waited_for {
                    self.due.insert(id);
                }
            }
        }
        if self.queues.next_from(self.next_inspected()).is_none() {
            self.inspected = None;
            self.queues.end_round();
        }
        self.inspect_shared(host, most);
    }

    fn next_inspected(&self) -> Bound<QueueId> {
        self.inspected.map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// Inspects locks with several holders, waited for or not. After EXPIRE has made a key's life shorter, each of its
    /// holders ends no later than that, even if another EXPIRE or PERSIST follows. Not bounded by the turn: so few keys
    /// take microseconds.
    fn inspect_shared<K: Keys, C>(&mut self, host: &mut Host<'_, K, C>, most: usize) {
        for _ in 0..most {
            let Some(key) = self.shared_leases.next_to_inspect() else { return };
            let key = key.as_ref();
            // The gate costs a call of the server: it is read only if there is something to write.
            if !matches!(host.keys.open(key).lock_and_until(), Some((lock, until)) if lock.outlives_key(until)) {
                continue;
            }
            match host.keys.gate(key) {
                Gate::Open => self.shared_leases.settle_now(key),
                Gate::Closed => return,
                Gate::Elsewhere => {}
            }
        }
        self.shared_leases.end_round_if_over();
    }

    /// True if the key differs from what its queue has seen: another value, or a lease that ends sooner.
    fn has_changed_unnoticed<E: Entry>(&self, entry: &mut E, queue: QueueId) -> bool {
        let seen = self.queues.get(queue).and_then(|queue| queue.seen);
        match entry.lock_and_until() {
            None => seen.is_some() || matches!(entry.content(), Content::Foreign),
            Some((lock, until)) => {
                let end = lock.first_deadline(until).timestamp();
                lock.fence() != seen || end.is_some_and(|end| !self.lease_ends.fires_by(queue, end.plus_ms(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::host::simulated::Stored;
    use crate::host::WaitOutcome;
    use crate::key::Key;
    use crate::manager::fixture::{key, Fixture};
    use crate::manager::lock_manager::LockError;
    use crate::value::claim::Claim;
    use crate::value::fence::Fence;
    use crate::value::outcome::KeyError;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    /// Inspects all keys once, two at a time. Returns how many have changed.
    fn inspect(fixture: &mut Fixture) -> usize {
        let now = fixture.server.now();
        for _ in 0..fixture.manager.queues().len().div_ceil(2) {
            fixture.manager.inspect_some(&mut fixture.server.host(&now), 2);
        }
        let changed = fixture.manager.due.len();
        fixture.drain();
        changed
    }

    #[test]
    fn a_round_finds_a_lease_that_was_made_shorter() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(9_000).unwrap());
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        let set_deadline = |fixture: &mut Fixture, when| match fixture.server.keyspace.primary.get_mut(&key()) {
            Some(Stored::Lock(_, until)) => *until = when,
            other => panic!("{other:?}"),
        };
        assert_eq!(inspect(&mut fixture), 0);
        for (when, changed, fires) in [
            (Deadline::At(Timestamp::from_ms(1_200)), 1, 1_201),
            (Deadline::At(Timestamp::from_ms(1_199)), 1, 1_200),
            // A timer that fires too early finds the new deadline.
            (Deadline::At(Timestamp::from_ms(1_900)), 0, 1_200),
            (Deadline::Never, 0, 1_200),
        ] {
            set_deadline(&mut fixture, when);
            assert_eq!((inspect(&mut fixture), fixture.next_timer()), (changed, Some(fires)), "{when:?}");
        }
    }

    #[test]
    fn a_round_finds_a_free_key_that_got_a_value_and_a_key_that_was_freed() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let free = Key::new(0, b"free");
        fixture.acquire_all("b", &[b"k", b"free"], MUTEX, None, Lease::Persist);
        fixture.acquire("c", MUTEX, None, Lease::Persist);
        assert_eq!(inspect(&mut fixture), 0);
        assert!(fixture.server.inbox.answers.is_empty());
        fixture.server.keyspace.primary.insert(free.clone(), Stored::Foreign);
        assert_eq!(inspect(&mut fixture), 1);
        let answers: Vec<_> = fixture.server.inbox.answers.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(answers, [WaitOutcome::Impossible(KeyError::WrongType)]);
        fixture.server.keyspace.primary.remove(&key());
        assert_eq!((inspect(&mut fixture), fixture.holders()), (1, "c".into()));
    }

    #[test]
    fn a_lock_renamed_to_a_free_key_closes_a_deadlock_before_a_round_finds_it() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("b", &[b"held by b"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("c", &[b"held by c"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"free", b"held by c"], MUTEX, None, Lease::Persist);
        // RENAME k free
        let lock = fixture.server.keyspace.primary.remove(&key()).unwrap();
        fixture.server.keyspace.primary.insert(Key::new(0, b"free"), lock);
        fixture.manager.key_removed(key().as_ref(), Fence::new(u64::MAX >> 11).unwrap());
        let asked = fixture.try_acquire("a", &[b"held by b"], MUTEX);
        assert!(matches!(asked, Err(LockError::Deadlock(_))), "{asked:?}");
    }

    #[test]
    fn a_round_goes_on_where_it_stopped_until_all_keys_were_inspected() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("b", &[b"k", b"l", b"m"], MUTEX, None, Lease::Persist);
        for name in [b"l", b"m"] {
            fixture.server.keyspace.primary.insert(Key::new(0, name), Stored::Foreign);
        }
        fixture.server.keyspace.primary.remove(&key());
        let now = fixture.server.now();
        for due in [2, 3, 3] {
            fixture.manager.inspect_some(&mut fixture.server.host(&now), 2);
            assert_eq!(fixture.manager.due.len(), due);
        }
    }
}
