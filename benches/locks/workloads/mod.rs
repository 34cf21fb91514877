//! One file for each question that the benchmark answers.

pub mod adopted;
pub mod base;
pub mod callgrind;
pub mod consumer;
pub mod contended;
pub mod exec;
pub mod instructions;
pub mod iterations;
pub mod memory;
pub mod pair;
pub mod plan;
pub mod wakeup;
pub mod while_waiting;
