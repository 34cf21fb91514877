//! The shell: everything that calls the server or is called by it, and all unsafe code.
//!
//! Imports run one way, from left to right: `start`, `commands`, `engine_pass`, `observe`, `keyspace`, `state`,
//! `clients`, `adopt`, `background`, `replication`, `settings`, `clock`, `granted_here`, `connections`, `main_state`,
//! `figures`, `detected_stall`, `event`, `key_name`, `slots`, `ffi`.

mod adopt;
mod background;
mod clients;
mod clock;
mod commands;
mod connections;
mod detected_stall;
mod engine_pass;
mod event;
mod ffi;
mod figures;
mod granted_here;
mod key_name;
mod keyspace;
mod main_state;
mod observe;
mod replication;
mod settings;
mod slots;
mod start;
mod state;

#[cfg(not(test))]
pub use ffi::allocator::ServerAllocator;
