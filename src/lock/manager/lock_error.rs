//! Why a request gets an error.

use crate::queue::deadlock::Edge;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::outcome::KeyError;

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
