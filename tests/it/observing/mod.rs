//! Notifications for operators and applications: LOCK.LOG, lines in the server's log, keyspace events, client tracking.

mod events;
mod lines;
mod log;
mod tracking;
