//! Shared by the integration tests, the benchmarks and the demo: a [`Server`] per test, a [`Client`] that speaks RESP
//! to it, a [`Connection`] of which thousands share a thread, random numbers, and waiting for observable state.
//!
//! Nothing here sleeps for a fixed time, imitates Redis, or knows the internals of the module.

mod allocations;
mod client;
pub mod cluster;
mod connection;
pub mod debian;
mod info;
mod module;
mod ports;
mod process;
mod replication;
mod reply;
mod resp;
mod rng;
mod server;
mod skip;
mod stopwatch;
mod wait;

pub use allocations::CountingAllocator;
pub use client::Client;
pub use connection::Connection;
pub use info::Info;
pub use module::{built_caller, built_module};
pub use ports::free_port;
pub use process::{cpu_time, die_with_parent, faketime, raise_file_limit};
pub use replication::in_sync;
pub use reply::Reply;
pub use resp::{decode_all, Pipeline};
pub use rng::Rng;
pub use server::{Builder, Clocks, Server};
pub use skip::skip;
pub use stopwatch::Stopwatch;
pub use wait::{until, LIMIT};
