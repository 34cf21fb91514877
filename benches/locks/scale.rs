//! How much of everything to do.

/// How large the workloads are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Full,
    /// Everything in small: it shows that the benchmark works, and roughly where the figures lie.
    Quick,
}

impl Scale {
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
        }
    }
}
