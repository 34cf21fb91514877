//! The shell: everything that calls the server or is called by it, and all unsafe code.
//!
//! Imports run one way, from left to right: `start`, `commands`, `engine_pass`, `observe`, `keyspace`, `state`,
//! `clients`, `adopt`, `background`, `replication`, `settings`, `clock`, `granted_here`, `connections`, `figures`,
//! `slots`, `ffi`.
//!
//! What callbacks access while an engine pass has the [`State`](state::State) borrowed, and what commands check before
//! they borrow it, is in cells of a private `static` of its module ([`MainThread`](ffi::main_thread::MainThread)).

mod adopt;
mod background;
mod clients;
mod clock;
mod commands;
mod connections;
mod engine_pass;
mod ffi;
mod figures;
mod granted_here;
mod keyspace;
mod observe;
mod replication;
mod settings;
mod slots;
mod start;
mod state;

#[cfg(not(test))]
pub use ffi::allocator::ServerAllocator;
