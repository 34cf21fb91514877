//! What the rules need of the world around them: stored locks, and somebody who carries out what was decided.
//!
//! The server is one world, the simulator of the tests another. The rules never know which.

use super::claim::Refusal;
use super::fence::Fence;
use super::queue::{KeyRef, RequestId};
use super::state::{First, Lock};
use super::time::Deadline;

/// What is under a key. A key whose time to live is over is free.
pub enum Found<'a> {
    Free,
    Lock(&'a mut Lock),
    /// A value of another type.
    Foreign,
}

/// Whether a waiter may be granted a key now, when no client's command asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// The server refuses writes for now: look again later.
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
    /// The holders' deadlines follow what was done to the key's own.
    Clamp,
}

/// How a request that waited came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Granted {
        fence: Fence,
        holds: u32,
    },
    TimedOut,
    Cancelled,
    /// The same request came again.
    Superseded,
    /// The key became a value of another type.
    WrongType,
    /// The request makes no sense on what the lock has become: another family, a smaller LIMIT, more holds than it names.
    Refused(Refusal),
    /// The key's slot moves: ask again, the cluster will say where.
    TryAgain,
    /// The server became a replica.
    Demoted,
    /// No fence is left below 2^53.
    NoFence,
}

/// Whether the one who waited surely heard the news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Done,
    /// To be confirmed by `Desk::delivered` or refuted by `Desk::undelivered`.
    Pending,
}

pub trait World {
    /// What is under the key.
    fn find(&mut self, key: KeyRef<'_>) -> Found<'_>;

    /// The deadline of a key that was found.
    fn until(&mut self, key: KeyRef<'_>) -> Deadline;

    /// Stores the lock of a first grant under a key that was found free.
    fn create(&mut self, key: KeyRef<'_>, first: First<'_>);

    /// The lock under the key was changed in place; `until` is the key's new deadline, `None` leaves it.
    fn update(&mut self, key: KeyRef<'_>, effect: Effect<'_>, until: Option<Deadline>);

    /// Removes the key: nobody holds it.
    fn remove(&mut self, key: KeyRef<'_>);

    /// Whether waiters of this key may be granted it.
    fn gate(&mut self, key: KeyRef<'_>) -> Gate;

    /// Tells the one who waits.
    fn answer(&mut self, request: RequestId, news: News) -> Delivery;
}

/// Whether the owner holds every one of the keys.
pub fn holds_all<W: World>(world: &mut W, db: i32, names: &[&[u8]], owner: &[u8]) -> bool {
    names.iter().all(|name| matches!(world.find(KeyRef { db, name }), Found::Lock(lock) if lock.is_held_by(owner)))
}
