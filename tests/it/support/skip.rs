//! Features that some servers or systems lack: their tests are skipped there, by name and with the reason.

use std::sync::OnceLock;

pub use ::support::skip;

use super::Server;

/// Skips the test where no clock can be shifted: `if skips_shifted_clock() { return; }`.
pub fn skips_shifted_clock() -> bool {
    let is_there = cfg!(target_os = "linux");
    if !is_there {
        skip("libfaketime shifts clocks on Linux only");
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
