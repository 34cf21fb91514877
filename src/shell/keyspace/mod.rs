//! Locks in the server's keyspace.

pub mod datatype;
pub mod held;
pub mod key_events;
pub mod lock_key;
pub mod received;
pub mod removals;
pub mod store;
