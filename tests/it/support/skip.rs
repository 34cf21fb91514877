//! Features that some servers or systems lack: their tests are skipped there, by name and with the reason.

use std::sync::OnceLock;

pub use ::support::skip;

use super::Server;

/// Skips the test where no clock can be shifted: `if skips_shifted_clock() { return; }`.
pub fn skips_shifted_clock() -> bool {
    if !cfg!(target_os = "linux") {
        skip("libfaketime shifts clocks on Linux only");
        return true;
    }
    // Of another platform there may be none: `scripts/platform`.
    let is_there = ::support::faketime().exists();
    if !is_there {
        skip("there is no libfaketime for this server's platform");
    }
    !is_there
}

/// Skips the test where slots move key by key only: `if skips_slot_migrations() { return; }`.
pub fn skips_slot_migrations() -> bool {
    static MIGRATES: OnceLock<bool> = OnceLock::new();
    let migrates = *MIGRATES
        .get_or_init(|| !Server::start().client().run("COMMAND INFO cluster|migrateslots").items()[0].is_null());
    if !migrates {
        skip("this server has no CLUSTER MIGRATESLOTS");
    }
    !migrates
}
