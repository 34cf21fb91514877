//! What the rules need from the server: keys that store locks, clients that get replies, and the time of the decision.
//!
//! The server is one host and the tests' simulator is another. The rules cannot tell them apart.

#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use crate::key::{ClientId, KeyRef, RequestId};
use crate::value::fence::Fence;
use crate::value::holders::Slot;
use crate::value::lock::{FirstGrant, Lock};
use crate::value::outcome::KeyError;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Now, Timestamp};

/// All inputs of a decision. Separate fields, so that clients can get replies while a key is open.
#[derive(Debug)]
pub struct Host<'a, K, C> {
    /// Where locks are stored.
    pub keys: K,
    /// The clients that wait for a reply.
    pub clients: C,
    /// When the decision is made.
    pub now: &'a Now,
}

/// A keyspace. The entry borrows the keyspace, so only one key is open at a time.
pub trait Keys {
    /// An open key.
    type Entry<'e>: Entry
    where
        Self: 'e;

    /// Opens a key for reading and writing. An expired key reads as free.
    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> Self::Entry<'e>;

    /// Whether a waiter may be granted this key now.
    fn write_check(&mut self, key: KeyRef<'_>) -> WriteCheck;
}

/// An open key.
pub trait Entry {
    /// What is under the key.
    fn content(&mut self) -> Content<'_>;

    /// If the lock expired when the key was opened: the owner and the fencing token of the latest grant. Returned once.
    fn take_expired(&mut self) -> Option<(Owner, Fence)>;

    /// The key's own deadline. Call it only if the key is not free, because Redis 8.2 crashes on a free one.
    fn until(&self) -> Deadline;

    /// The lock under the key, if there is one, and the key's own deadline.
    fn lock_and_until(&mut self) -> Option<(&mut Lock, Deadline)> {
        self.content().lock()?;
        let until = self.until();
        Some((self.content().lock()?, until))
    }

    /// Stores the lock of the first grant under a free key.
    fn create(&mut self, first: &FirstGrant<'_>);

    /// Reports that the lock was changed in place. `until` is the key's new deadline; `None` keeps the current one.
    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>);

    /// Removes a key whose lock has no holder left.
    fn remove(&mut self);
}

/// The clients of queued requests.
pub trait Clients {
    /// Whether the client of a request may still be granted these keys after it has waited for `waited_ms`. Called
    /// right before the grant.
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool;

    /// Replies to the waiting client with the outcome of its request.
    fn reply(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery;
}

/// The client whose request is being decided.
pub trait Park: Clients {
    /// Whether the client may wait. In a transaction or a script it gets its reply at once. Called only if the request
    /// would wait.
    fn may_wait(&self) -> bool;

    /// Blocks the client for its queued request, which can get its reply from now on. False if this client cannot wait.
    fn park(&mut self, request: RequestId) -> bool;

    /// If the request waits on this client's own connection: ends that wait without a reply. False if the request waits
    /// on another connection.
    fn detach_own(&mut self, request: RequestId) -> bool;
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

/// Whether a waiter may be granted a key now. A grant to a waiter runs outside of its client's command, so the server
/// has not checked whether it accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCheck {
    /// The grant may be written.
    Allowed,
    /// The server refuses writes for now; retry later.
    Refused,
    /// The key's slot is migrating or belongs to another server, so its waiters must resend their requests.
    SlotMoved,
}

/// What changed in a stored lock, for replicas, WATCH and the key's time to live.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'a> {
    /// This owner's hold is new or has changed. In a mutex it replaces the previous hold.
    Hold(&'a [u8]),
    /// This owner's lease is longer or shorter; nothing else changed.
    Renew(&'a [u8]),
    /// This owner's hold has ended.
    Drop(&'a [u8]),
    /// All holders whose leases had expired by this time are removed: one effect, however many they are.
    Ended(Timestamp),
    /// The semaphore's limit.
    Limit,
    /// A client has changed the key's deadline, so no lease may end later than the key.
    Clamp,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The request holds the lock.
    Granted {
        /// The fencing token.
        fence: Fence,
        /// How many holds of the requested mode, or permits, the owner has now.
        holds: u32,
        /// The slot, if the request asked for one.
        slot: Option<Slot>,
    },
    /// COALESCE: the holder has done the work and released the lock.
    Done {
        /// The fencing token of the released hold.
        fence: Fence,
    },
    /// BLOCK timed out.
    TimedOut,
    /// LOCK.CANCEL.
    Cancelled,
    /// The same request was sent again on another connection.
    Superseded,
    /// The value that is now under the key can never be granted to the request.
    Impossible(KeyError),
    /// The owner lost a key of its multi-key request, and waiting for that key would deadlock.
    Deadlock,
    /// The key's slot is migrating: the client resends the request, and the cluster redirects it.
    TryAgain,
    /// The server became a replica.
    Demoted,
    /// The client has lost its permission for a key of the request.
    NotPermitted,
}

/// Whether the reply reached the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It did, or the host cannot observe delivery.
    Done,
    /// It did not, because no client waits for this request any more. A grant is revoked.
    Failed,
    /// Not known yet. `LockManager::delivered` confirms it; `LockManager::undelivered` or the end of this connection
    /// refutes it.
    Pending(ClientId),
}
