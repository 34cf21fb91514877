//! `redis-lock run` against real servers, with real signals, terminals and crashes.

mod environment;
mod granting;
mod losing;
mod once;
mod runner;
mod shell;
mod signals;
mod status;
mod surroundings;
mod terminal;
mod waiting;
