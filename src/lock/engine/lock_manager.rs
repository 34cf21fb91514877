//! The lock manager: all state that is not stored with a key, and the tables that own it.

use super::deliveries::Deliveries;
use super::grace::Grace;
pub use super::limits::Limits;
pub use super::lock_error::LockError;
use super::observer::Observer;
use super::session_bindings::Bindings;
use super::waits::Waits;
use crate::host::Keys;
use crate::key::KeyRef;
use crate::queue::holders::{EndedHolds, HolderLookup};
use crate::queue::queues::WaitQueues;
use crate::value::fence::{Fence, FenceClock};
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// Decides every request, and everything that happens without a request.
///
/// A lock is a value under a key and contains its holders. A request opens the key, which first removes the holds that
/// have ended (`open`). The lock decides whether it admits the request, which is granted if no earlier request waits
/// for the key. Otherwise deadlock detection runs: the request is refused if it would deadlock, and else queued at one
/// position for all of its keys. When a hold ends, the head of the queue is served while the key is still open, so the
/// lock is never free in between. Work goes into the backlog if the server allows no write where its cause is noticed,
/// or if the time slice is spent. The drain then opens the keys and decides from their current values. All changes from
/// outside the module are handled this way.
///
/// State is owned by tables that know nothing of keys and clients: `Waits` (queues, positions, timers, backlog),
/// [`Bindings`] (sessions), `Deliveries`, [`Observer`]. A decision that needs several of them, the keys and the clients
/// is a method of [`Engine`](super::step::Engine), which has the lock manager and the [`Host`](crate::host::Host), or
/// of `OpenKey`, which has them while a key is open. The calls, in order:
///
/// 1. **Events**, which need no host and only mark what is due: [`LockManager::key_removed`] and the others of
///    `keyspace_changes`, [`LockManager::leave`], [`LockManager::end_session`], [`LockManager::undelivered`],
///    [`LockManager::begin_grace`].
/// 2. **Requests**: [`LockManager::acquire_uncontended`] and [`LockManager::release_uncontended`] if no request waits
///    for the key; otherwise [`LockManager::with_host`] and its `acquire`, `release`, `renew`, `break_holds`, `cancel`,
///    and the methods for adopted commands.
/// 3. **Timers**, at [`LockManager::next_timer`]: `tick` and `drain`, and from time to time `inspect_some`.
/// 4. **Results**: [`LockManager::observer`] reports what has happened; from [`LockManager::take_needs_rearm`] and
///    [`LockManager::has_due`] the host knows when to call again.
#[derive(Clone, Debug, Default)]
pub struct LockManager {
    /// The source of fencing tokens.
    pub fences: FenceClock,
    /// The settings.
    pub limits: Limits,
    /// Statistics and occurrences.
    pub observer: Observer,
    pub(super) grace: Grace,
    pub(super) waits: Waits,
    pub(super) bindings: Bindings,
    pub(super) deliveries: Deliveries,
}

impl LockManager {
    /// The wait queues.
    pub fn queues(&self) -> &WaitQueues {
        &self.waits.queues
    }

    /// The bindings of holds to connections.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Whether events of connections and keys matter: a request waits, a hold is bound to a connection, or a grant is
    /// in flight.
    pub fn has_waiters_or_sessions(&self) -> bool {
        let queues = self.queues();
        !queues.is_empty() || queues.has_done() || !self.bindings.is_empty() || !self.deliveries.is_empty()
    }

    /// Whether `drain` has something to do.
    pub fn has_due(&self) -> bool {
        !self.waits.backlog.is_empty()
            || self.queues().has_done()
            || self.bindings.has_any_ended()
            || self.deliveries.has_undelivered()
    }

    /// Whether the connection that this hold is bound to has ended, or its client disconnected before the grant was
    /// delivered. LOCK.HELD, LOCK.EXEC, LOCK.INFO, LOCK.SCAN, LOCK.TOP and deadlock detection treat such a hold as
    /// ended, although the drain has not written that yet.
    pub fn has_ended(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        let client = || self.bindings.client_of(key, owner);
        self.deliveries.is_undelivered(key, owner)
            || self.bindings.has_any_ended() && client().is_some_and(|client| self.bindings.is_ended(client))
    }

    /// The holders of keys, without holds that have ended with their connections.
    pub(super) fn holders<'a, K: Keys>(&'a self, keys: &'a mut K, now: &Now) -> HolderLookup<'a, K> {
        HolderLookup::new(keys, self, now.timestamp())
    }

    #[inline]
    pub(super) fn next_fence(&mut self, now: &Now) -> Result<Fence, KeyError> {
        self.fences.next(now.us()).ok_or(KeyError::NoFence)
    }
}

impl EndedHolds for LockManager {
    fn has_ended(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        LockManager::has_ended(self, key, owner)
    }
}
