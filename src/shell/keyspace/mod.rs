//! Locks in the server's keyspace.

pub mod datatype;
pub mod effects;
pub mod held_counts;
pub mod key_events;
pub mod lock_key;
pub mod removals;
pub mod store;
