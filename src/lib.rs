//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The table of contents. The crate `lock` contains the engine, the crate `command` the commands, `shell` everything
//! that touches the server. Dependencies run one way: `lock <- command <- shell <- lib.rs`. The entry point is
//! `shell/start.rs`. See ARCHITECTURE.md.

mod shell;

/// The server's allocator, so that locks count toward its memory. Unit tests run without a server and use the system's.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: shell::ServerAllocator = shell::ServerAllocator::new();
