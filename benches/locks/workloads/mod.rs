//! One file for each question that the benchmark answers.

pub mod adopted;
pub mod base;
pub mod beside_waiter;
pub mod callgrind;
pub mod consumer;
pub mod contended;
pub mod exec;
pub mod instructions;
pub mod memory;
pub mod pair;
pub mod plan;
pub mod turns;
pub mod wakeup;
