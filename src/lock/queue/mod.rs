//! Which requests wait for which key, in which order, and whether a request would deadlock.

pub mod busiest;
pub mod deadlock;
#[cfg(test)]
mod fixture;
pub mod holders;
mod holdings;
pub(crate) mod lookups;
mod owners;
pub mod placement;
pub mod position;
pub mod queue_table;
pub mod queues;
pub mod request;
mod small_set;
mod timer_set;
pub mod wait_queue;
