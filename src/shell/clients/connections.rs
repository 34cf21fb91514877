//! Which clients are connections, as far as somebody has asked.

use lock::key::ClientId;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server;
use crate::shell::main_state::{KNOWN_CONNECTIONS, MAIN};

/// The client of a command, if it is a connection. That of a script is none, nor is the temporary one of another
/// module's call: neither ever ends. The server is asked only about those that are not known: its answer is a string.
pub fn connection_of(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ClientId(ctx.client_id());
    let known = &MAIN.connections[client.0 as usize % KNOWN_CONNECTIONS];
    if known.get() != Some(client) {
        if !server::is_connection(ctx, client.0) {
            return None;
        }
        known.set(Some(client));
    }
    Some(client)
}
