//! Locks in the server's keyspace.

pub mod datatype;
pub mod effects;
pub mod held_counts;
pub mod removals;
pub mod store;
