//! Remembers which connections were granted locks on keys of `lock.adopt`, and which are blocked in a SET. With
//! `lock.adopt-wait`, a connection that holds a lock must not wait for itself, and an operator wants to find the client
//! that holds a lock. The stored lock does not contain the connection.

use command::host::GrantedTo;
use lock::key::ClientId;
use lock::value::fence::Fence;

use super::ffi::blocked::BlockedId;
use super::ffi::context::Ctx;
use super::ffi::server::{client_address, client_name};
use super::main_state::MAIN;
use super::settings;

/// The most grants that are remembered, the newest ones. A connection whose grant is forgotten may wait for itself
/// once, for at most `lock.adopt-wait`.
const MOST: usize = 10_000;

/// Whether a SET may wait for this key.
#[inline]
pub fn may_be_waited_for(key: &[u8]) -> bool {
    settings::adopt_wait().is_some() && MAIN.adopt.keys.borrow().may_hold_adopted(key)
}

/// Records that the connection was granted a lock with this fencing token. `None`: a script or another module was; the
/// server does not reveal which connection runs a script. A grant may have more than one connection: a request can be
/// repeated on another connection, for one of multiple keys that share the fencing token.
pub fn record(fence: Fence, client: Option<ClientId>) {
    let mut grants = MAIN.adopt.granted.borrow_mut();
    grants.insert((fence, client));
    while grants.len() > MOST {
        grants.pop_first();
    }
}

/// Records the same for an adopted lock, for which LOCK.INFO and LOCK.LOG show the connection.
pub fn record_adopted(ctx: Ctx<'_>, fence: Fence, client: Option<ClientId>) {
    record(fence, client);
    let mut clients = MAIN.adopt.clients.borrow_mut();
    if let Some(client) = client.filter(|client| !clients.contains_key(client)) {
        // Looked up once per connection, because the server queries its socket. Remains known after the connection has
        // closed.
        clients.insert(client, GrantedTo { addr: client_address(client.0), name: client_name(ctx, client.0) });
        while clients.len() > MOST {
            clients.pop_first();
        }
    }
}

/// The connection that was granted an adopted lock with this fencing token, if known.
pub fn granted_to(fence: Fence) -> Option<(ClientId, GrantedTo)> {
    let granted = MAIN.adopt.granted.borrow();
    let of_fence = granted.range((fence, None)..).take_while(|(of, _)| *of == fence);
    let client = of_fence.filter_map(|(_, client)| *client).next()?;
    Some((client, MAIN.adopt.clients.borrow().get(&client)?.clone()))
}

/// Whether the connection was granted the lock with this fencing token, or may have been, by a script.
pub fn may_be_by(fence: Fence, client: ClientId) -> bool {
    let granted = MAIN.adopt.granted.borrow();
    granted.contains(&(fence, None)) || granted.contains(&(fence, Some(client)))
}

/// A client starts waiting in a SET.
pub fn start_waiting(blocked: BlockedId) {
    MAIN.adopt.waiting.borrow_mut().insert(blocked);
}

pub fn stop_waiting(blocked: BlockedId) {
    let mut waiting = MAIN.adopt.waiting.borrow_mut();
    if !waiting.is_empty() {
        waiting.remove(&blocked);
    }
}

/// Whether this client waits in a SET.
pub fn is_waiting(blocked: BlockedId) -> bool {
    MAIN.adopt.waiting.borrow().contains(&blocked)
}
