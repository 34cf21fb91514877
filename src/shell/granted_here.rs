//! Which connections were granted mutexes on keys of `lock.adopt`, and which are blocked in a SET. With
//! `lock.adopt-wait` a connection that holds a lock must not wait for itself; the stored lock does not tell the
//! connection.

use lock::key::ClientId;
use lock::value::fence::Fence;

use super::ffi::blocked::BlockedId;
use super::main_state::MAIN;
use super::settings;

/// At most so many grants are remembered, the latest. A connection whose grant is forgotten may wait for itself once:
/// for `lock.adopt-wait`.
const MOST: usize = 10_000;

/// Whether a SET may wait for this key.
#[inline]
pub fn may_be_asked(key: &[u8]) -> bool {
    settings::adopt_wait().is_some() && MAIN.adopt.keys.borrow().may_hold_adopted(key)
}

/// The connection was granted a lock with this fence; `None`: a script was, or a call by another module. Which
/// connection runs a script the server does not tell. A grant may have several: a request is repeated on another
/// connection, for one of several keys that have the fence in common.
pub fn note(fence: Fence, client: Option<ClientId>) {
    let mut grants = MAIN.adopt.granted.borrow_mut();
    grants.insert((fence, client));
    while grants.len() > MOST {
        grants.pop_first();
    }
}

/// Whether the connection was granted the lock with this fence, or may have been by a script.
pub fn may_be_by(fence: Fence, client: ClientId) -> bool {
    let granted = MAIN.adopt.granted.borrow();
    granted.contains(&(fence, None)) || granted.contains(&(fence, Some(client)))
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
