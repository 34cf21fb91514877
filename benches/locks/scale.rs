//! The amount of work of each workload.

/// How large the workloads are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Full,
    /// Small workloads: they show that the benchmark works, and roughly where the figures lie.
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
