//! Which clients are connections.

use lock::key::ClientId;

use super::ffi::context::Ctx;
use super::ffi::server::is_connection;
use super::main_state::{KNOWN_CONNECTIONS, MAIN};

/// The client of a command, if it is a connection. The client of a script is not, and neither is the temporary client
/// of another module's call: their disconnection would never be reported. The server is asked only about unknown
/// clients: it replies with a string, which would cost an acquire and release with SESSION 770 instructions (4 %).
pub fn connection_of(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ClientId(ctx.client_id());
    let known = &MAIN.connections[client.0 as usize % KNOWN_CONNECTIONS];
    if known.get() != Some(client) {
        if !is_connection(ctx, client.0) {
            return None;
        }
        known.set(Some(client));
    }
    Some(client)
}
