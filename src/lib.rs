//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The table of contents. Crate `lock` holds the rules, crate `command` the commands, `shell` all that touches the
//! server; arrows run one way: `lock <- command <- shell <- lib.rs`. ARCHITECTURE.md explains it.

mod shell;

use redis_module::redis_module;
use shell::keyspace::datatype::REDISLOCK;
use shell::start::{start, stop};
use shell::version;

/// The server's allocator, so that locks count in its memory. Plain tests run without a server and use the system's.
#[cfg(not(test))]
use redis_module::alloc::RedisAlloc as Allocator;
#[cfg(test)]
use std::alloc::System as Allocator;

redis_module! {
    name: "lock",
    version: version::NUMBER,
    allocator: (Allocator, Allocator),
    data_types: [REDISLOCK],
    init: start,
    deinit: stop,
    commands: [],
}
