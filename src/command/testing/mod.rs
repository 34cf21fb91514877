//! A simulated server that runs whole commands of connections, with a clock of its own: what `tests/spec` is played on
//! without a server.
//!
//! The rules and the commands are the real ones. What is invented is the server around them: connections, databases,
//! expiry, transactions, subscriptions, and the commands of the server that end or move a lock.

mod call;
mod clients;
mod native;
mod parts;
mod resp;
mod server;

pub use parts::SimulatedServer;
