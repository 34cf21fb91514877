//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The table of contents. `lock` holds the rules, `command` the commands, `shell` all that touches the server; arrows run one way:
//! `lock ← command ← shell ← lib.rs`. ARCHITECTURE.md tells the story.

mod shell;

use redis_module::configuration::ConfigurationFlags;
use redis_module::redis_module;
use shell::config;
use shell::datatype::REDISLOCK;
use shell::start::{start, stop};

/// The server's allocator, so that locks count in its memory. Plain tests run without a server and use the system's.
#[cfg(not(test))]
use redis_module::alloc::RedisAlloc as Allocator;
#[cfg(test)]
use std::alloc::System as Allocator;

redis_module! {
    name: "lock",
    version: 1,
    allocator: (Allocator, Allocator),
    data_types: [REDISLOCK],
    init: start,
    deinit: stop,
    commands: [],
    configurations: [
        i64: [
            [config::SET_DEFAULT_LEASE.name, &config::DEFAULT_LEASE, config::SET_DEFAULT_LEASE.default, config::SET_DEFAULT_LEASE.least, config::SET_DEFAULT_LEASE.most, ConfigurationFlags::DEFAULT, None],
            [config::SET_MAX_LEASE.name, &config::MAX_LEASE, config::SET_MAX_LEASE.default, config::SET_MAX_LEASE.least, config::SET_MAX_LEASE.most, ConfigurationFlags::DEFAULT, None],
            [config::SET_MAX_WAITERS.name, &config::MAX_WAITERS, config::SET_MAX_WAITERS.default, config::SET_MAX_WAITERS.least, config::SET_MAX_WAITERS.most, ConfigurationFlags::DEFAULT, None],
            [config::SET_KEEP_PLACE.name, &config::KEEP_PLACE, config::SET_KEEP_PLACE.default, config::SET_KEEP_PLACE.least, config::SET_KEEP_PLACE.most, ConfigurationFlags::DEFAULT, None],
            [config::SET_GRACE.name, &config::GRACE, config::SET_GRACE.default, config::SET_GRACE.least, config::SET_GRACE.most, ConfigurationFlags::DEFAULT, None],
        ],
        string: [],
        bool: [],
        enum: [],
        module_args_as_configuration: true,
    ]
}
