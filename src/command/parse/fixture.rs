//! Samples of what a client may send, for tests.

use super::lease::{LeaseSettings, MAX_LEASE_MS};

/// The defaults.
pub(super) const SETTINGS: LeaseSettings = LeaseSettings { default_ms: 30_000, max_ms: MAX_LEASE_MS };

/// The arguments on this line, which are separated by single spaces.
pub(super) fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}
