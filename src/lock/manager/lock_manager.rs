//! What the rules remember that is not stored with a key.
//!
//! Nothing is done in this folder but to decide: the [`Host`](crate::host::Host) stores, replicates and answers. What
//! cannot be decided at once, because no write is allowed where it was noticed or because the turn is over, is put down
//! in `due` and decided by [`LockManager::drain`]. One road for every surprise.

use std::collections::{BTreeMap, VecDeque};

use super::deliveries::Deliveries;
use super::due::Due;
use super::endings::Endings;
use super::grace::Grace;
use super::occurrence::{Observe, Occurrences};
use super::overtaking::Overtaking;
use super::samples::Samples;
use super::session_bindings::{BindingId, Bindings, Slot};
use super::shared_leases::SharedLeases;
use super::statistics::Statistics;
use super::sweep::Sweeps;
use super::timer_set::TimerSet;
use crate::key::{ClientId, KeyRef, RequestId};
use crate::queue::edge::Edge;
use crate::queue::queues::WaitQueues;
use crate::queue::request::{OwnerId, QueueId};
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::{Family, InvalidClaim};
use crate::value::fence::FenceClock;
use crate::value::outcome::KeyError;
use crate::value::time::{Instant, Timestamp};

/// Everything of the rules that is not stored with a key.
#[derive(Clone, Debug, Default)]
pub struct LockManager {
    /// Where fences come from.
    pub fences: FenceClock,
    /// The settings.
    pub limits: Limits,
    /// What was counted since the start.
    pub statistics: Statistics,
    /// What is to be told to whoever observes.
    pub occurrences: Occurrences,
    /// How long waits and holds lasted.
    pub samples: Samples,
    pub(super) grace: Grace,
    pub(super) queues: WaitQueues,
    pub(super) bindings: Bindings,
    /// By the clock that nobody sets.
    pub(super) timers: TimerSet<Timer, Instant>,
    /// By the same: when a third of a lease may be over that is bound to a connection. A timer is not moved when its
    /// binding goes and another comes to its slot: one that fires too early finds that nothing is due.
    pub(super) renewals: TimerSet<Slot, Instant>,
    /// The server refused writes: nothing is renewed before.
    pub(super) renewals_put_off: Option<Instant>,
    /// By the wall clock: when a lease may have ended on a key that is waited for.
    pub(super) lease_ends: TimerSet<QueueId, Timestamp>,
    /// The locks with several holders.
    pub(super) shared_leases: SharedLeases,
    /// Requests that end, and are still to be told or taken out of their queues.
    pub(super) endings: Endings,
    /// Wait queues to be served as soon as somebody may write.
    pub(super) due: Due<QueueId>,
    /// Walks over many wait queues, each of which is served.
    pub(super) sweeps: Sweeps,
    /// The wait queue that was inspected last in this round.
    pub(super) inspected: Option<QueueId>,
    /// Owners that have come to hold the key of a queue: their requests are tried again.
    pub(super) to_try: Due<(QueueId, OwnerId)>,
    /// The one of them whose requests are being tried.
    pub(super) trying: Option<Trying>,
    pub(super) overtaking: Overtaking,
    /// Connections that ended, with what is bound to them and still to be taken from them, the oldest last.
    pub(super) ended: BTreeMap<ClientId, Vec<BindingId>>,
    pub(super) deliveries: Deliveries,
}

/// An owner whose requests are tried again, since it has come to hold the key of a queue.
#[derive(Clone, Debug)]
pub(super) struct Trying {
    pub queue: QueueId,
    pub owner: OwnerId,
    /// The requests that are left.
    pub requests: VecDeque<RequestId>,
    /// One that was tried and has to wait.
    pub stuck: Option<RequestId>,
}

/// The settings that the rules know.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait, and places that may be kept.
    pub max_waiters: usize,
    /// The same for one key; `None`: no limit of its own.
    pub max_waiters_per_key: Option<usize>,
    /// Milliseconds that a place is kept; 0: not at all.
    pub keep_place_ms: u64,
    /// What is put down in [`LockManager::occurrences`].
    pub observe: Observe,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_waiters: 10_000, max_waiters_per_key: None, keep_place_ms: 1_000, observe: Observe::default() }
    }
}

/// What happens by itself at a time, whatever is done to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A client has waited long enough.
    WaitEnds(RequestId),
    /// A client stayed away too long.
    PlaceEnds(RequestId),
    /// The grace is over.
    GraceIsOver,
}

/// Why a request is answered with an error. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    /// A key cannot be granted to it.
    Key(KeyError),
    /// Waiting would never end: who waits for whom, on which key.
    Deadlock(Vec<Edge>),
    /// As many requests as may wait do so already.
    MaxWaiters(WaiterLimit),
    /// The server has just started or become the primary: nobody knows yet who held what.
    Grace,
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> LockError {
        LockError::Key(error)
    }
}

impl LockManager {
    /// Who waits.
    pub fn queues(&self) -> &WaitQueues {
        &self.queues
    }

    /// Which holds are bound to which connection.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Whether what happens to connections and keys matters to anybody: somebody waits, a hold is bound to a
    /// connection, or a grant is on its way.
    pub fn concerns_anybody(&self) -> bool {
        !self.queues.is_empty() || self.queues.has_done() || !self.bindings.is_empty() || !self.deliveries.is_empty()
    }

    /// While anyone waits, a free key keeps the queue's family.
    pub(super) fn check_family_of_queue(&self, key: KeyRef<'_>, family: Family) -> Result<(), InvalidClaim> {
        match self.queues.of_key(key).filter(|queue| queue.waiters() > 0 && queue.family != family) {
            Some(queue) => Err(InvalidClaim::WrongFamily(queue.family)),
            None => Ok(()),
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
    fn events_matter_to_who_waits_to_bound_holds_and_to_grants_on_their_way() {
        let mut fixture = Fixture::of(&[("a", Claim::Mutex)]);
        assert!(!fixture.manager.concerns_anybody(), "it holds, and that is all");
        fixture.acquire("b", Claim::Mutex, None, Lease::Persist);
        assert!(fixture.manager.concerns_anybody(), "b waits");
        fixture.release("a", Portion::Mutex).unwrap();
        assert!(fixture.manager.queues().is_empty() && fixture.manager.concerns_anybody(), "b may not have been told");
        fixture.manager.delivered(fixture.server.inbox.answers[0].0);
        assert!(!fixture.manager.concerns_anybody(), "b was told");
        fixture.acquire_all("c", &[b"l"], Claim::Mutex, Some(ClientId(7)), Lease::Persist);
        assert!(fixture.manager.concerns_anybody(), "the hold of c is bound");
    }
}
