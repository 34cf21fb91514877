//! Which connections were granted locks by a SET of `lock.adopt`, and which are blocked in one. With `lock.adopt-wait`
//! a connection that holds a lock must not wait for itself; the stored lock does not tell the connection.

use lock::key::ClientId;
use lock::value::fence::Fence;

use super::ffi::blocked::BlockedId;
use super::main_state::MAIN;

/// At most so many grants are remembered, the latest. A connection whose grant is forgotten may wait for itself once:
/// for `lock.adopt-wait`.
const MOST: usize = 10_000;

/// The connection was granted a lock with this fence.
pub fn note(fence: Fence, client: ClientId) {
    let mut grants = MAIN.adopt.granted.borrow_mut();
    grants.insert(fence, client);
    while grants.len() > MOST {
        grants.pop_first();
    }
}

/// Whether the connection was granted the lock with this fence.
pub fn is_by(fence: Fence, client: ClientId) -> bool {
    MAIN.adopt.granted.borrow().get(&fence) == Some(&client)
}

/// A client waits in a SET.
pub fn begin_to_wait(blocked: BlockedId) {
    MAIN.adopt.waiting.borrow_mut().insert(blocked);
}

/// It waits no more.
pub fn end_to_wait(blocked: BlockedId) {
    let mut waiting = MAIN.adopt.waiting.borrow_mut();
    if !waiting.is_empty() {
        waiting.remove(&blocked);
    }
}

/// Whether this client waits in a SET.
pub fn is_waiting(blocked: BlockedId) -> bool {
    MAIN.adopt.waiting.borrow().contains(&blocked)
}
