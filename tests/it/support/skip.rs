//! Features that some servers or systems lack: their tests are skipped there by name, with a reason.

use std::sync::OnceLock;

pub use ::support::skip;

use super::Server;

/// Skips the test if no clock can be shifted: `if skips_shifted_clock() { return; }`.
pub fn skips_shifted_clock() -> bool {
    if !cfg!(target_os = "linux") {
        skip("libfaketime shifts clocks on Linux only");
        return true;
    }
    // It may be missing for another platform: `scripts/platform`.
    let is_there = ::support::faketime().exists();
    if !is_there {
        skip("there is no libfaketime for this server's platform");
    }
    !is_there
}

/// Skips the test if slots can only move key by key: `if skips_slot_migrations() { return; }`.
pub fn skips_slot_migrations() -> bool {
    static MIGRATES: OnceLock<bool> = OnceLock::new();
    let migrates = *MIGRATES
        .get_or_init(|| !Server::start().client().run("COMMAND INFO cluster|migrateslots").items()[0].is_null());
    if !migrates {
        skip("this server has no CLUSTER MIGRATESLOTS");
    }
    !migrates
}
