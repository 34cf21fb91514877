//! A simulated server that runs whole commands on connections, with a simulated clock. `tests/spec` is played on it
//! without a real server.
//!
//! The engine and the commands are the real ones. Simulated is the server around them: connections, databases, expiry,
//! transactions, subscriptions, and the server commands that delete or move a lock.

mod call;
mod clients;
mod native;
mod parts;
mod resp;
mod server;

pub use parts::SimulatedServer;
