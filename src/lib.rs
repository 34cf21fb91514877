//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The table of contents. Crate `lock` holds the rules, crate `command` the commands, `shell` all that touches the
//! server; arrows run one way: `lock <- command <- shell <- lib.rs`. The server begins in `shell/start.rs`.
//! ARCHITECTURE.md explains it.

mod shell;

/// The server's allocator, so that locks count in its memory. Plain tests run without a server and use the system's.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: shell::ServerAllocator = shell::ServerAllocator::new();
