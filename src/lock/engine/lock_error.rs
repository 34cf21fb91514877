//! Why a request is refused with an error.

use crate::queue::deadlock::Edge;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::outcome::KeyError;

/// Why a request is refused with an error. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    /// A key cannot be granted to the request.
    Key(KeyError),
    /// Waiting would deadlock: the cycle of owners and keys in the wait-for graph.
    Deadlock(Vec<Edge>),
    /// The server or a key has the maximum number of waiters.
    MaxWaiters(WaiterLimit),
    /// The server has just started or was promoted: locks may have been lost while their holders are still working.
    Grace,
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> LockError {
        LockError::Key(error)
    }
}
