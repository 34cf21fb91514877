//! The settings of the lock manager.

/// The settings that the lock manager knows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of waiting requests, and of reserved positions.
    pub max_waiters: usize,
    /// The maximum for one key; `None` if there is no limit per key.
    pub max_waiters_per_key: Option<usize>,
    /// How many milliseconds a position is reserved; 0 if none is reserved.
    pub keep_place_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_waiters: 10_000, max_waiters_per_key: None, keep_place_ms: 1_000 }
    }
}
