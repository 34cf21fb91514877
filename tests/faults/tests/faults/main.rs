//! Scenarios: one fault each, on real servers, with clients that record their replies. Each asserts its promise, and
//! reports a row of results/faults.md. `REDIS_LOCK_FAULT_SECONDS` makes them longer.

mod clock;
mod cluster;
mod connections;
mod disk;
mod failover;
mod holder;
mod judged;
mod limits;
mod load;
mod memory;
mod parked;
mod partition;
mod persistence;
mod soak;
mod stopped;
mod upgrade;
mod witness;
