//! The settings of the lock manager.

/// The settings that the lock manager knows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait, and places that may be kept.
    pub max_waiters: usize,
    /// As `max_waiters`, for one key; `None`: no limit per key.
    pub max_waiters_per_key: Option<usize>,
    /// Milliseconds that a place is kept; 0: no place is kept.
    pub keep_place_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_waiters: 10_000, max_waiters_per_key: None, keep_place_ms: 1_000 }
    }
}
