//! Records of what has happened: the shell makes events, log entries and log lines of them. Data, no callbacks: the
//! lock manager records them, and the shell takes them when the turn is over.
//!
//! Rare occurrences are always recorded. Occurrences of ordinary requests are recorded only if [`Observe`] asks for
//! them; the fast path (`uncontended`) records nothing, so it must not be taken then.

use crate::key::{ClientId, Key, RequestId};
use crate::queue::deadlock::Edge;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;

/// What is recorded beyond the rare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Every grant, renewal and end.
    pub changes: bool,
    /// Ends of holds that lasted this many milliseconds or longer.
    pub holds_ms: Option<u64>,
    /// Grants to requests that waited this many milliseconds or longer.
    pub waits_ms: Option<u64>,
}

impl Observe {
    /// True if every uncontended request has to be recorded: it takes the slow path then. For long holds alone this is
    /// false: the fast path leaves each of them to the slow path.
    pub fn needs_slow_path(&self) -> bool {
        self.changes
    }
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// An owner was granted a key: anew, more of it, or what it held with another deadline. A request for several keys
    /// brings one record for each.
    Granted {
        /// The key.
        key: Key,
        /// The new holder.
        owner: Owner,
        /// What it holds. As many holds before as after: the same request was sent again.
        grant: Grant,
        /// What the grant has changed.
        change: GrantChange,
        /// `None`: granted at once. Otherwise granted by a hand-off, and how long the request had waited.
        waited: Option<Waited>,
        /// The number of other requests that wait for the key.
        waiters: usize,
    },
    /// An owner started its lease again.
    Renewed {
        /// The key.
        key: Key,
        /// The holder.
        owner: Owner,
    },
    /// An owner has given back some of its holds or permits, and keeps the rest.
    Fewer {
        /// The key.
        key: Key,
        /// The holder.
        owner: Owner,
    },
    /// An owner no longer holds a key.
    Ended {
        /// The key.
        key: Key,
        /// The owner. For a removed key with several holders: the one with the latest grant.
        owner: Owner,
        /// The cause.
        by: EndedBy,
        /// Milliseconds since that grant, by the wall clock.
        held_ms: u64,
        /// The number of requests that wait for the key.
        waiters: usize,
        /// The connection that the hold was bound to.
        session: Option<ClientId>,
    },
    /// The server has evicted a key.
    Evicted {
        /// The key.
        key: Key,
        /// The holder; of several the one with the latest grant.
        owner: Owner,
        /// Milliseconds since that grant.
        held_ms: u64,
        /// The number of requests that wait for the key.
        waiters: usize,
        /// The connection that the hold was bound to.
        session: Option<ClientId>,
    },
    /// A request was refused: it would have waited for ever.
    DeadlockRefused {
        /// The first of its keys.
        key: Key,
        /// The owner of the request.
        owner: Owner,
        /// The cycle in the wait-for graph that the request would have closed.
        cycle: Vec<Edge>,
        /// The number of requests that wait for the key.
        waiters: usize,
    },
    /// A request was refused: the server or a key has the maximum of waiters.
    MaxWaitersRefused {
        /// The first of its keys.
        key: Key,
        /// The owner of the request.
        owner: Owner,
        /// Whether the limit of the server or of a key was reached.
        limit: WaiterLimit,
    },
    /// A grace began: no new owner is granted a lock.
    GraceBegan {
        /// Its length in milliseconds.
        ms: u64,
    },
    /// The grace is over.
    GraceEnded,
}

/// What a grant has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// Holders, holds or deadlines.
    Anything,
    /// Nothing: the request was sent again, and its lease ends no later.
    Nothing,
}

/// The wait before a grant by a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The request that waited; the same for all keys.
    pub request: RequestId,
    /// Milliseconds from its queueing to the grant.
    pub ms: u64,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its owner released it.
    Released,
    /// The connection that it was bound to has ended.
    Disconnected,
    /// Its lease has ended: the lock manager took the hold out.
    LeaseEnd,
    /// Its lease has ended, and with it the key, which the server removed.
    Expired,
    /// LOCK.BREAK.
    Broken,
    /// The grant was not received.
    Undelivered,
    /// The key was deleted, evicted, overwritten or renamed.
    Removed,
}

/// The most records between two takes.
const MOST: usize = 10_000;

/// The most records, between two takes, of ends that happened unasked, for example thousands of leases that end at
/// once. `statistics` counts all of them.
const MOST_UNASKED: usize = 1_000;

/// The records that were not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Occurrences {
    all: Vec<Occurrence>,
    unasked: usize,
}

impl Occurrences {
    pub(super) fn note(&mut self, occurrence: Occurrence) {
        if self.all.len() < MOST {
            self.all.push(occurrence);
        }
    }

    /// True if one more end that happened unasked is to be recorded.
    pub(super) fn takes_unasked(&mut self) -> bool {
        let is_taken = self.unasked < MOST_UNASKED;
        self.unasked += 1;
        is_taken
    }

    /// True if there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes all records, the oldest first.
    pub fn take(&mut self) -> Vec<Occurrence> {
        self.unasked = 0;
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_not_taken_are_bounded() {
        let mut occurrences = Occurrences::default();
        for _ in 0..MOST + 3 {
            occurrences.note(Occurrence::GraceEnded);
        }
        assert_eq!((occurrences.take().len(), occurrences.is_empty()), (MOST, true));
    }

    #[test]
    fn ends_that_happened_unasked_are_recorded_up_to_a_limit_in_each_turn() {
        let mut occurrences = Occurrences::default();
        for _ in 0..2 {
            let taken = (0..MOST_UNASKED + 3).filter(|_| occurrences.takes_unasked()).count();
            assert_eq!(taken, MOST_UNASKED);
            occurrences.take();
        }
    }
}
