//! What the rules need of the world around them: keys to store locks in, clients to answer, the time of the decision.
//!
//! The server is one host, the simulator of the tests another. The rules never know which.

#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use crate::key::{KeyRef, RequestId};
use crate::value::fence::Fence;
use crate::value::lock::{FirstGrant, Lock};
use crate::value::outcome::KeyError;
use crate::value::owner::Owner;
use crate::value::slots::Slot;
use crate::value::time::{Deadline, Now};

/// All that a decision works with. The parts are apart, so that clients can be answered while a key is open.
#[derive(Debug)]
pub struct Host<'a, K, C> {
    /// Where locks are stored.
    pub keys: K,
    /// Who waits for an answer.
    pub clients: C,
    /// When the decision is made.
    pub now: &'a Now,
}

/// A keyspace. One key is open at a time: the entry borrows the keyspace.
pub trait Keys {
    /// An open key.
    type Entry<'e>: Entry
    where
        Self: 'e;

    /// Opens a key for reading and writing. A key whose time to live is over is free.
    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> Self::Entry<'e>;

    /// Whether waiters of this key may be granted it.
    fn gate(&mut self, key: KeyRef<'_>) -> Gate;
}

/// An open key.
pub trait Entry {
    /// What is under the key.
    fn content(&mut self) -> Content<'_>;

    /// The key is free because the lock that was there expired when the key was opened: the holder of the latest grant,
    /// and its fence. Told once.
    fn take_expired(&mut self) -> Option<(Owner, Fence)>;

    /// The key's own deadline. Only of a key that is not free: Redis 8.2 ends when it is asked for that of a free one.
    fn until(&self) -> Deadline;

    /// The lock under the key, if there is one, and the key's own deadline.
    fn lock_and_until(&mut self) -> Option<(&mut Lock, Deadline)> {
        let until = match self.content() {
            Content::Lock(_) => self.until(),
            Content::Free | Content::Foreign => return None,
        };
        match self.content() {
            Content::Lock(lock) => Some((lock, until)),
            Content::Free | Content::Foreign => None,
        }
    }

    /// Stores the lock of a first grant under a key that is free.
    fn create(&mut self, first: &FirstGrant<'_>);

    /// The lock was changed in place; `until` is the key's new deadline, `None` leaves it.
    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>);

    /// Removes the key: nobody holds it.
    fn remove(&mut self);
}

/// Those whose requests are queued.
pub trait Clients {
    /// Whether the client of a request may still be granted these keys, after it has waited for so long; asked right
    /// before the grant.
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool;

    /// Tells the one who waits how its request ended.
    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery;
}

/// The client whose request is decided.
pub trait Park: Clients {
    /// Whether it may wait; in a transaction or a script it gets its answer at once. Asked only where it would wait.
    fn may_wait(&self) -> bool;

    /// The client's request was queued: it can be answered from now on. False: this client cannot wait.
    fn park(&mut self, request: RequestId) -> bool;
}

/// What is under a key.
#[derive(Debug)]
pub enum Content<'a> {
    /// Nothing.
    Free,
    /// A lock.
    Lock(&'a mut Lock),
    /// A value of another type.
    Foreign,
}

/// Whether a waiter may be granted a key now, when no client's command asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// The server refuses writes for now: ask again later.
    Closed,
    /// The key's slot is not, or not stably, this server's: its waiters have to ask again.
    Elsewhere,
}

/// What changed in a stored lock, for replicas, watchers and the key's time to live.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'a> {
    /// This owner's hold is new or different. In a mutex it replaces the one before.
    Hold(&'a [u8]),
    /// This owner's lease is longer or shorter, and nothing else changed.
    Renew(&'a [u8]),
    /// This owner holds it no more.
    Drop(&'a [u8]),
    /// The semaphore's limit.
    Limit,
    /// No holder ends later than the key, as clients have set its deadline.
    Clamp,
}

/// How a request that waited came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// It holds the lock.
    Granted {
        /// Of the grant.
        fence: Fence,
        /// Holds of the mode asked for, or permits.
        holds: u32,
        /// Of a request for a slot: which.
        slot: Option<Slot>,
    },
    /// The work was done (COALESCE): the holder has released the lock.
    Done {
        /// Of the hold that was released.
        fence: Fence,
    },
    /// BLOCK ran out.
    TimedOut,
    /// LOCK.CANCEL.
    Cancelled,
    /// The same request came again.
    Superseded,
    /// The request can never be granted on what the key has become.
    Impossible(KeyError),
    /// The key's slot moves: ask again, the cluster will say where.
    TryAgain,
    /// The server became a replica.
    Demoted,
    /// The client may not be granted what it asked for any more.
    NotPermitted,
}

/// Whether the outcome was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was, or nobody can tell.
    Done,
    /// It was not: nobody waits by this request. A grant is taken back.
    Failed,
    /// To be confirmed by `LockManager::delivered` or refuted by `LockManager::undelivered`.
    Pending,
}
