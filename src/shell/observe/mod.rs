//! Reports to operators: INFO, LOCK.LOG, lines in the server's log, keyspace events. Nothing here decides anything.

pub mod info;
pub mod keyspace_events;
pub mod report;
