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
use crate::queue::holders::{EndedHolds, Holders};
use crate::queue::queues::WaitQueues;
use crate::value::fence::{Fence, FenceClock};
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// Decides every request, and everything that follows without a request.
///
/// A lock is a value under a key, and its holders are in it. A request opens the key, and what has ended by then is
/// taken out first (`open`). The lock says whether it admits the request; it is granted if no earlier request
/// waits for the key. Otherwise it gets a place in the wait queue of each of its keys, once and for all, unless a
/// search of the wait-for graph shows that it would wait for ever. The end of a hold serves the head of the queue while
/// the key is still open: the lock is never free in between. What must not be decided where it is noticed, because the
/// server allows no write there or the turn is over, goes into the backlog, and the drain opens the keys and decides by
/// what it finds. Every unexpected change takes this one road.
///
/// State is owned by tables that know nothing of keys and clients: `Waits` (queues, places, timers, backlog),
/// [`Bindings`] (sessions), `Deliveries`, [`Observer`]. A decision needs several of them, the keys and the clients:
/// it is a method of [`Turn`](super::turn::Turn), which has the lock manager and the [`Host`](crate::host::Host), or of
/// `OpenKey`, which has them while a key is open. The calls, in the order in which they come:
///
/// 1. **Events**, which only mark what is due and need no host: [`LockManager::key_removed`] and the others of
///    `keyspace_changes`, [`LockManager::leave`], [`LockManager::end_session`], [`LockManager::undelivered`],
///    [`LockManager::begin_grace`].
/// 2. **Requests**: [`LockManager::acquire_uncontended`] and [`LockManager::release_uncontended`] where the key is not
///    waited for; otherwise [`LockManager::turn`], and of it `acquire`, `release`, `renew`, `break_holds`, `cancel` and
///    what adopted commands ask.
/// 3. **Time**, when [`LockManager::next_timer`] has come: `tick` and `drain` of a turn; now and then `inspect_some`.
/// 4. **What has happened**: [`LockManager::observer`]; and [`LockManager::take_sooner`], [`LockManager::has_due`] tell
///    the host when to come again.
#[derive(Clone, Debug, Default)]
pub struct LockManager {
    /// The source of fences.
    pub fences: FenceClock,
    /// The settings.
    pub limits: Limits,
    /// What has happened.
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

    /// True if events of connections and keys matter: a request waits, a hold is bound to a connection, or a grant is
    /// on its way.
    pub fn has_waiters_or_sessions(&self) -> bool {
        let queues = self.queues();
        !queues.is_empty() || queues.has_done() || !self.bindings.is_empty() || !self.deliveries.is_empty()
    }

    /// True if `drain` has something to do.
    pub fn has_due(&self) -> bool {
        !self.waits.backlog.is_empty()
            || self.queues().has_done()
            || self.bindings.has_any_ended()
            || self.deliveries.has_lost()
    }

    /// True if the connection that this hold is bound to has ended, or its client disconnected before the grant counted
    /// as received. LOCK.HELD, LOCK.EXEC, LOCK.INFO, LOCK.SCAN, LOCK.TOP and the deadlock search treat such a hold as
    /// ended, though the drain has still to write that.
    pub fn has_ended(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        let client = || self.bindings.client_of(key, owner);
        self.deliveries.is_lost(key, owner)
            || self.bindings.has_any_ended() && client().is_some_and(|client| self.bindings.is_ended(client))
    }

    /// The holders of keys, without holds that have ended with their connections.
    pub(super) fn holders<'a, K: Keys>(&'a self, keys: &'a mut K, now: &Now) -> Holders<'a, K> {
        Holders::new(keys, self, now.timestamp())
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
