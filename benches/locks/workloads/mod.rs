//! One file for each question that the benchmark asks.

pub mod base;
pub mod bytes;
pub mod consumer;
pub mod contended;
pub mod exec;
pub mod floor;
pub mod growth;
pub mod instructions;
pub mod latency;
pub mod memory;
pub mod ordinary_keys;
pub mod pair;
pub mod plan;
pub mod readings;
pub mod taxes;
pub mod turns;
pub mod wakeup;
