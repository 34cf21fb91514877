//! Remembers which connections were granted locks on keys of `lock.adopt`, and which are blocked in a SET. With
//! `lock.adopt-wait`, a connection that holds a lock must not wait for itself, and an operator wants to find the client
//! that holds a lock. The stored lock does not contain the connection.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use command::host::GrantedTo;
use lock::key::ClientId;
use lock::value::fence::Fence;

use super::ffi::blocked::BlockedId;
use super::ffi::context::Ctx;
use super::ffi::main_thread::MainThread;
use super::ffi::server::{client_address, client_name};

static GRANTED_HERE: MainThread<GrantedHere> = MainThread::new(GrantedHere {
    granted: RefCell::new(BTreeSet::new()),
    clients: RefCell::new(BTreeMap::new()),
    waiting: RefCell::new(BTreeSet::new()),
});

struct GrantedHere {
    /// The connections of the newest grants.
    granted: RefCell<BTreeSet<(Fence, Option<ClientId>)>>,
    /// The connections that were granted adopted locks.
    clients: RefCell<BTreeMap<ClientId, GrantedTo>>,
    /// The clients that wait in a SET.
    waiting: RefCell<BTreeSet<BlockedId>>,
}

/// How many grants are remembered, the newest ones. A connection whose grant is forgotten may wait for itself once, for
/// at most `lock.adopt-wait`.
const MAX_REMEMBERED: usize = 10_000;

/// Records that the connection was granted a lock with this fencing token. `None` stands for a script or another
/// module, because the server does not reveal which connection runs a script. A grant may have more than one
/// connection, because a request can be repeated on another one, and multiple keys may share the fencing token.
pub fn record(fence: Fence, client: Option<ClientId>) {
    let mut grants = GRANTED_HERE.granted.borrow_mut();
    grants.insert((fence, client));
    while grants.len() > MAX_REMEMBERED {
        grants.pop_first();
    }
}

/// As [`record`], for an adopted lock. LOCK.INFO and LOCK.LOG show its connection.
pub fn record_adopted(ctx: Ctx<'_>, fence: Fence, client: Option<ClientId>) {
    record(fence, client);
    let mut clients = GRANTED_HERE.clients.borrow_mut();
    if let Some(client) = client.filter(|client| !clients.contains_key(client)) {
        // Looked up once per connection, because the server queries its socket. Remains known after the connection has
        // closed.
        clients.insert(client, GrantedTo { addr: client_address(client.0), name: client_name(ctx, client.0) });
        while clients.len() > MAX_REMEMBERED {
            clients.pop_first();
        }
    }
}

/// The connection that was granted an adopted lock with this fencing token, if known.
pub fn granted_to(fence: Fence) -> Option<(ClientId, GrantedTo)> {
    let granted = GRANTED_HERE.granted.borrow();
    let of_fence = granted.range((fence, None)..).take_while(|(of, _)| *of == fence);
    let client = of_fence.filter_map(|(_, client)| *client).next()?;
    Some((client, GRANTED_HERE.clients.borrow().get(&client)?.clone()))
}

/// Whether the connection was granted the lock with this fencing token, or may have been by a script that it sent.
pub fn may_belong_to(fence: Fence, client: ClientId) -> bool {
    let granted = GRANTED_HERE.granted.borrow();
    granted.contains(&(fence, None)) || granted.contains(&(fence, Some(client)))
}

/// A client starts waiting in a SET.
pub fn start_waiting(blocked: BlockedId) {
    GRANTED_HERE.waiting.borrow_mut().insert(blocked);
}

pub fn stop_waiting(blocked: BlockedId) {
    let mut waiting = GRANTED_HERE.waiting.borrow_mut();
    if !waiting.is_empty() {
        waiting.remove(&blocked);
    }
}

/// Whether this client waits in a SET.
pub fn is_waiting(blocked: BlockedId) -> bool {
    GRANTED_HERE.waiting.borrow().contains(&blocked)
}
