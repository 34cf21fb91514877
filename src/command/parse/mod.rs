//! Parses argument lists into requests.

mod adopted;
mod inspect;
mod options;
mod request;
mod values;

pub use adopted::{pairs, range, released_token, Condition, Expiry, SetCommand};
pub use inspect::{top_length, AdoptionCommand, ListLength, LogCommand, ScanCommand};
pub use options::WaitOptions;
pub use request::{broken_holders, key_positions, AcquireCommand, ReleaseCommand, RenewCommand, Token};
pub use values::{integer, owner, Argument, LeaseSettings, MAX_LEASE_MS};

/// Samples of what a client may send.
#[cfg(test)]
mod fixture {
    use super::{LeaseSettings, MAX_LEASE_MS};

    pub(super) const SETTINGS: LeaseSettings = LeaseSettings { default_ms: 30_000, max_ms: MAX_LEASE_MS };

    /// The space-separated arguments on this line.
    pub(super) fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }
}
