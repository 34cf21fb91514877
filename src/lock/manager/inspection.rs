//! Rounds in which waited-for keys are inspected that may have changed unnoticed.
//!
//! No event tells what a transaction did that was queued before anybody waited, or which command makes something of a
//! free key. So all that may be concerned is inspected, a few keys at a time. Like an event an inspection decides
//! nothing: it marks queues as due, and the drain reads their keys. Those who wait are asked only where a key has
//! become something else: thousands may wait for one.

use super::lock_manager::LockManager;
use crate::key::Key;
use crate::shrink;

/// Which keys a round inspects; the later one has those of the one before too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Round {
    /// Those that held no lock when they were inspected last: they may have become something.
    UnheldKeys,
    /// All that are waited for: leases may have become shorter.
    AllKeys,
}

impl LockManager {
    /// Whether somebody waits for a key that held no lock when it was inspected last. The next
    /// round finds out who has left meanwhile.
    #[inline]
    pub fn waits_for_unheld(&self) -> bool {
        !self.unheld.is_empty()
    }

    /// Those of these keys that have the name, in any database.
    pub fn unheld_named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = Key> + 'a {
        let is_unheld = |key: &Key| self.queues.id_of(key.as_ref()).is_some_and(|queue| self.unheld.contains(&queue));
        self.queues.keys_named(name).filter(is_unheld)
    }

    /// Begins a round, if none is under way.
    pub fn begin_round(&mut self, round: Round) {
        if self.is_round_over() {
            self.unheld.retain(|queue| self.queues.get(*queue).is_some());
            self.to_inspect = match round {
                Round::UnheldKeys => self.unheld.iter().copied().collect(),
                Round::AllKeys => self.queues.iter().map(|(id, _)| id).collect(),
            };
        }
    }

    /// Goes on with a round: so many keys are inspected by the drain that follows.
    pub fn inspect_some(&mut self, most: usize) {
        let rest = self.to_inspect.len().saturating_sub(most);
        for queue in self.to_inspect.drain(rest..) {
            if self.queues.get(queue).is_some_and(|queue| queue.waiters() > 0) {
                self.due.insert(queue);
            }
        }
        shrink::vec(&mut self.to_inspect);
    }

    /// Whether all keys of the round were inspected.
    pub fn is_round_over(&self) -> bool {
        self.to_inspect.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::simulated::Stored;
    use crate::host::WaitOutcome;
    use crate::manager::fixture::{key, Fixture};
    use crate::value::claim::Claim;
    use crate::value::outcome::KeyError;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    fn inspect(fixture: &mut Fixture, round: Round) {
        fixture.manager.begin_round(round);
        while !fixture.manager.is_round_over() {
            fixture.manager.inspect_some(1);
            fixture.drain();
        }
    }

    #[test]
    fn a_round_finds_the_lease_that_became_shorter() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(9_000).unwrap());
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        match fixture.server.keyspace.primary.get_mut(&key()) {
            Some(Stored::Lock(_, until)) => *until = Deadline::At(Timestamp::from_ms(1_200)),
            other => panic!("{other:?}"),
        }
        inspect(&mut fixture, Round::UnheldKeys);
        assert_eq!(fixture.next_timer(), Some(10_001), "it is held");
        inspect(&mut fixture, Round::AllKeys);
        assert_eq!(fixture.next_timer(), Some(1_201));
    }

    #[test]
    fn a_round_of_unheld_keys_tells_what_a_free_key_has_become() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("b", &[b"k", b"free"], MUTEX, None, Lease::Persist);
        assert!(fixture.manager.waits_for_unheld());
        let free = Key::new(0, b"free");
        let unheld = |name: &[u8]| fixture.manager.unheld_named(name).collect::<Vec<_>>();
        assert_eq!((unheld(b"free"), unheld(b"k")), (vec![free.clone()], vec![]));
        inspect(&mut fixture, Round::UnheldKeys);
        assert!(fixture.server.inbox.answers.is_empty() && fixture.manager.waits_for_unheld());
        fixture.server.keyspace.primary.insert(free, Stored::Foreign);
        inspect(&mut fixture, Round::UnheldKeys);
        let answers: Vec<_> = fixture.server.inbox.answers.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(answers, [WaitOutcome::Impossible(KeyError::WrongType)]);
        inspect(&mut fixture, Round::AllKeys);
        assert!(!fixture.manager.waits_for_unheld(), "nobody waits any more");
    }

    #[test]
    fn a_round_goes_on_where_it_was_until_all_were_inspected() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("b", &[b"k", b"l", b"m"], MUTEX, None, Lease::Persist);
        fixture.manager.begin_round(Round::AllKeys);
        fixture.manager.inspect_some(2);
        assert_eq!((fixture.manager.due.len(), fixture.manager.is_round_over()), (2, false));
        fixture.manager.begin_round(Round::UnheldKeys);
        fixture.manager.inspect_some(2);
        assert_eq!((fixture.manager.due.len(), fixture.manager.is_round_over()), (3, true));
    }
}
