//! What the rules need from the server: keys to store locks in, clients to reply to, the time of the decision.
//!
//! The server is one host, the simulator of the tests another. The rules cannot tell them apart.

#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use crate::key::{ClientId, KeyRef, RequestId};
use crate::value::fence::Fence;
use crate::value::holders::Slot;
use crate::value::lock::{FirstGrant, Lock};
use crate::value::outcome::KeyError;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Now, Timestamp};

/// All inputs of a decision. Separate fields, so that clients can be answered while a key is open.
#[derive(Debug)]
pub struct Host<'a, K, C> {
    /// Where locks are stored.
    pub keys: K,
    /// The clients that wait for a reply.
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

    /// Opens a key for reading and writing. An expired key is free.
    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> Self::Entry<'e>;

    /// Whether waiters of this key may be granted it.
    fn gate(&mut self, key: KeyRef<'_>) -> Gate;
}

/// An open key.
pub trait Entry {
    /// What is under the key.
    fn content(&mut self) -> Content<'_>;

    /// If the lock under the key expired when the key was opened: the holder of the latest grant, and its fence.
    /// Returned once.
    fn take_expired(&mut self) -> Option<(Owner, Fence)>;

    /// The key's own deadline. Call it only for a key that is not free: Redis 8.2 crashes on a free one.
    fn until(&self) -> Deadline;

    /// The lock under the key, if there is one, and the key's own deadline.
    fn lock_and_until(&mut self) -> Option<(&mut Lock, Deadline)> {
        self.content().lock()?;
        let until = self.until();
        Some((self.content().lock()?, until))
    }

    /// Stores the lock of a first grant under a free key.
    fn create(&mut self, first: &FirstGrant<'_>);

    /// The lock was changed in place; `until` is the key's new deadline, `None` leaves it.
    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>);

    /// Removes the key: it has no holder left.
    fn remove(&mut self);
}

/// The clients of queued requests.
pub trait Clients {
    /// Whether the client of a request may still be granted these keys after it has waited for `waited_ms`. Called
    /// right before the grant.
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool;

    /// Replies to the waiting client with the outcome of its request.
    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery;
}

/// The client of the request that is being decided.
pub trait Park: Clients {
    /// Whether the client may wait; in a transaction or a script it gets its reply at once. Called only if the request
    /// would wait.
    fn may_wait(&self) -> bool;

    /// The client's request was queued: it can be answered from now on. False if this client cannot wait.
    fn park(&mut self, request: RequestId) -> bool;

    /// If the request waits on the connection of this client: takes it out without an answer. False: another
    /// connection waits for the answer.
    fn take_over(&mut self, request: RequestId) -> bool;
}

/// The value under a key.
#[derive(Debug)]
pub enum Content<'a> {
    /// Nothing.
    Free,
    /// A lock.
    Lock(&'a mut Lock),
    /// A value of another type.
    Foreign,
}

impl<'a> Content<'a> {
    /// The lock, if it is one.
    #[inline]
    pub fn lock(self) -> Option<&'a mut Lock> {
        match self {
            Content::Lock(lock) => Some(lock),
            Content::Free | Content::Foreign => None,
        }
    }
}

/// Whether a waiter may be granted a key now: no command of its client is running, which the server would have accepted
/// or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// The server refuses writes for now: ask again later.
    Closed,
    /// The key's slot is moving, or belongs to another server: its waiters have to send their requests again.
    Elsewhere,
}

/// What changed in a stored lock, for replicas, watchers and the key's time to live.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'a> {
    /// This owner's hold is new or different. In a mutex it replaces the one before.
    Hold(&'a [u8]),
    /// This owner's lease is longer or shorter, and nothing else changed.
    Renew(&'a [u8]),
    /// This owner's hold has ended.
    Drop(&'a [u8]),
    /// The holders whose leases were over at this time have ended: one effect, however many there were.
    Ended(Timestamp),
    /// The semaphore's limit.
    Limit,
    /// A client has set the key's deadline: no lease ends later than the key.
    Clamp,
}

/// How a request that waited came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The request holds the lock.
    Granted {
        /// The fence of the grant.
        fence: Fence,
        /// Holds of the mode asked for, or permits.
        holds: u32,
        /// The slot, for a request that asks for one.
        slot: Option<Slot>,
    },
    /// The work was done (COALESCE): the holder has released the lock.
    Done {
        /// The fence of the released hold.
        fence: Fence,
    },
    /// BLOCK ran out.
    TimedOut,
    /// LOCK.CANCEL.
    Cancelled,
    /// The same request was sent again, on another connection.
    Superseded,
    /// The request can never be granted on what the key has become.
    Impossible(KeyError),
    /// The owner has lost a key of its request for several keys, and to wait for it would never end.
    Deadlock,
    /// The key's slot moves: send the request again, the cluster redirects it.
    TryAgain,
    /// The server became a replica.
    Demoted,
    /// The client has lost its permission for the keys of the request.
    NotPermitted,
}

/// Whether the outcome was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was, or delivery cannot be observed.
    Done,
    /// It was not: no client waits for this request any more. A grant is taken back.
    Failed,
    /// To be confirmed by `LockManager::delivered`, or refuted by `LockManager::undelivered` or the end of this
    /// connection.
    Pending(ClientId),
}
