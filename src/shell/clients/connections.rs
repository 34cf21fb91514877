//! Which clients are connections, as far as somebody has asked.

use std::cell::Cell;

use lock::key::ClientId;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server;

/// So many are remembered.
const KNOWN: usize = 256;

/// Connections, by the last digits of their ids. Ids are never used again: what was a connection is one, or has ended
/// and asks no more.
static CONNECTIONS: MainThread<[Cell<Option<ClientId>>; KNOWN]> = MainThread([const { Cell::new(None) }; KNOWN]);

/// The client of a command, if it is a connection. That of a script is none, nor is the temporary one of another
/// module's call: neither ever ends. The server is asked only about those that are not known: its answer is a string.
pub fn connection_of(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ClientId(ctx.client_id());
    let known = &CONNECTIONS.0[client.0 as usize % KNOWN];
    if known.get() != Some(client) {
        if !server::is_connection(ctx, client.0) {
            return None;
        }
        known.set(Some(client));
    }
    Some(client)
}
