//! What a history proves. Each judge is a pure function that returns the breaches it found; the scenario decides which
//! of them were promised not to be.

mod drained;
mod exclusive;
mod fences;
mod holds;

pub use drained::assert_drained;
pub use exclusive::{lost, overlaps, Overlap};
pub use fences::{fences, fences_given_twice, fences_that_go_back, Scope};
pub use holds::{holds, Hold};

#[cfg(test)]
mod planted;
