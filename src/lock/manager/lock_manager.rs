//! State of the lock manager that is not stored with a key.
//!
//! This folder only decides: the [`Host`](crate::host::Host) stores, replicates and replies. What cannot be decided at
//! once, because no write is allowed where it was noticed or because the turn is over, is recorded in `due` and decided
//! by [`LockManager::drain`]. Every unexpected change takes this one path.

use std::collections::BTreeMap;

use super::deliveries::Deliveries;
use super::due::{Due, Sweeps};
use super::endings::Endings;
use super::grace::Grace;
use super::observer::{Observe, Occurrences, Statistics, WaitTimes};
use super::session_bindings::{BindingId, Bindings};
use super::timer_set::{Timer, TimerSet};
use super::to_try::ToTry;
use crate::host::{Content, Entry};
use crate::key::{ClientId, KeyRef};
use crate::queue::deadlock::Edge;
use crate::queue::queues::WaitQueues;
use crate::queue::request::QueueId;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::{Family, InvalidClaim};
use crate::value::fence::FenceClock;
use crate::value::lock::Lock;
use crate::value::outcome::KeyError;
use crate::value::time::{Instant, Now, Timestamp};

/// All state that is not stored with a key.
#[derive(Clone, Debug, Default)]
pub struct LockManager {
    /// The source of fences.
    pub fences: FenceClock,
    /// The settings.
    pub limits: Limits,
    /// Counters since the start.
    pub statistics: Statistics,
    /// Events that the shell has not taken yet.
    pub occurrences: Occurrences,
    /// How long waits and holds lasted.
    pub wait_times: WaitTimes,
    pub(super) grace: Grace,
    pub(super) queues: WaitQueues,
    pub(super) bindings: Bindings,
    /// By the monotonic clock.
    pub(super) timers: TimerSet<Timer, Instant>,
    /// By the wall clock: when a lease may have ended on a key that requests wait for.
    pub(super) lease_ends: TimerSet<QueueId, Timestamp>,
    /// Requests that end, but are not answered or removed from their queues yet.
    pub(super) endings: Endings,
    /// Wait queues to be served as soon as writes are allowed.
    pub(super) due: Due<QueueId>,
    /// Walks over many wait queues; each queue is served.
    pub(super) sweeps: Sweeps,
    /// The wait queue that was inspected last in this round.
    pub(super) inspected: Option<QueueId>,
    pub(super) to_try: ToTry,
    /// Connections that ended, with their bound holds that have still to be ended, the oldest last.
    pub(super) ended: BTreeMap<ClientId, Vec<BindingId>>,
    pub(super) deliveries: Deliveries,
}

/// The settings that the lock manager knows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait, and places that may be kept.
    pub max_waiters: usize,
    /// As `max_waiters`, for one key; `None`: no limit per key.
    pub max_waiters_per_key: Option<usize>,
    /// Milliseconds that a place is kept; 0: no place is kept.
    pub keep_place_ms: u64,
    /// What is recorded in [`LockManager::occurrences`].
    pub observe: Observe,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_waiters: 10_000, max_waiters_per_key: None, keep_place_ms: 1_000, observe: Observe::default() }
    }
}

/// Why a request gets an error. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    /// A key cannot be granted to the request.
    Key(KeyError),
    /// Waiting would never end: the cycle of owners and keys in the wait-for graph.
    Deadlock(Vec<Edge>),
    /// The server or a key has the maximum of waiters.
    MaxWaiters(WaiterLimit),
    /// The server has just started or become the primary: locks may have been lost while their holders still work.
    Grace,
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> LockError {
        LockError::Key(error)
    }
}

impl LockManager {
    /// The wait queues.
    pub fn queues(&self) -> &WaitQueues {
        &self.queues
    }

    /// The bindings of holds to connections.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// True if events of connections and keys matter: a request waits, a hold is bound to a connection, or a grant is
    /// on its way.
    pub fn has_waiters_or_sessions(&self) -> bool {
        !self.queues.is_empty() || self.queues.has_done() || !self.bindings.is_empty() || !self.deliveries.is_empty()
    }

    /// While requests wait for it, a free key keeps the family of its queue.
    pub(super) fn check_family_of_queue(&self, key: KeyRef<'_>, family: Family) -> Result<(), InvalidClaim> {
        match self.queues.of_key(key).filter(|queue| queue.waiters() > 0 && queue.family != family) {
            Some(queue) => Err(InvalidClaim::WrongFamily(queue.family)),
            None => Ok(()),
        }
    }

    /// The lock under the key, after [`LockManager::settle`]; `None` if the key is free.
    ///
    /// # Errors
    /// The key holds a value of another type, or a lock of another family.
    pub(super) fn lock_of_family<'e, E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &'e mut E,
        family: Family,
    ) -> Result<Option<&'e mut Lock>, KeyError> {
        self.settle(now, key, entry);
        match entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Free => {
                self.check_family_of_queue(key, family)?;
                Ok(None)
            }
            Content::Lock(lock) => match lock.family() {
                Some(other) if other != family => Err(InvalidClaim::WrongFamily(other).into()),
                _ => Ok(Some(lock)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::key::ClientId;
    use crate::manager::fixture::Fixture;
    use crate::value::claim::{Claim, Portion};
    use crate::value::time::Lease;

    #[test]
    fn events_matter_while_requests_wait_holds_are_bound_or_grants_are_in_flight() {
        let mut fixture = Fixture::of(&[("a", Claim::Mutex)]);
        assert!(!fixture.manager.has_waiters_or_sessions(), "a hold that is neither bound nor waited for");
        fixture.acquire("b", Claim::Mutex, None, Lease::Persist);
        assert!(fixture.manager.has_waiters_or_sessions(), "b waits");
        fixture.release("a", Portion::Mutex).unwrap();
        assert!(
            fixture.manager.queues().is_empty() && fixture.manager.has_waiters_or_sessions(),
            "the grant to b is in flight"
        );
        fixture.manager.delivered(fixture.server.inbox.answers[0].0);
        assert!(!fixture.manager.has_waiters_or_sessions(), "b has received the grant");
        fixture.acquire_all("c", &[b"l"], Claim::Mutex, Some(ClientId(7)), Lease::Persist);
        assert!(fixture.manager.has_waiters_or_sessions(), "the hold of c is bound");
    }
}
