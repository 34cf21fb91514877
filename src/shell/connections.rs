//! Which clients are connections.

use std::cell::Cell;

use lock::key::ClientId;

use super::ffi::context::Ctx;
use super::ffi::main_thread::MainThread;
use super::ffi::server::is_connection;

/// Known connections, indexed by the low digits of their ids. Ids are never reused: a known connection still is one, or
/// has closed and sends nothing more.
static KNOWN: MainThread<[Cell<Option<ClientId>>; 256]> = MainThread::new([const { Cell::new(None) }; 256]);

/// The client of a command, if it is a connection. The clients of scripts and of other modules' calls are not, because
/// the server would never report their disconnection. Only unknown clients are looked up: the server returns a string,
/// which would cost an acquire and release with SESSION 770 instructions (4 %).
pub fn connection_of(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ClientId(ctx.client_id());
    let known = &KNOWN[client.0 as usize % KNOWN.len()];
    if known.get() != Some(client) {
        if !is_connection(ctx, client.0) {
            return None;
        }
        known.set(Some(client));
    }
    Some(client)
}
