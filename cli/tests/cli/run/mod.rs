//! `redis-lock run` against real servers, with real signals, terminals and crashes.

mod environment;
mod granting;
mod interrupted;
mod losing;
mod once;
mod refused;
pub mod runner;
mod shell;
mod signals;
mod status;
mod surroundings;
mod terminal;
mod waiting;
