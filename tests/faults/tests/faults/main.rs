//! Scenarios: a fault each, on real servers, under clients that record what they were told. Each asserts what is
//! promised for it, and reports a row of docs/faults.md. `REDIS_LOCK_FAULT_SECONDS` makes them longer.

mod clock;
mod disk;
mod limits;
mod memory;
mod parked;
mod persistence;
mod soak;
