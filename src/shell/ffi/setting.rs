//! Settings of the module: the server checks and keeps them, `CONFIG` reads and changes them. The crate registers them:
//! its callbacks read and write the atomics. It does not report a refusal of the server, which has no reason for one:
//! the names begin with the module's.

use std::sync::atomic::{AtomicBool, AtomicI64};

use redis_module::configuration::{register_bool_configuration, register_i64_configuration, ConfigurationFlags};
use redis_module::{raw, Context};

use super::api;
use super::context::Ctx;
use super::functions::required;

// The crate calls them.
const _: () = required::RedisModule_RegisterBoolConfig;
const _: () = required::RedisModule_RegisterNumericConfig;

/// A number with its bounds.
pub struct Number {
    /// After `lock.`
    pub name: &'static str,
    pub default: i64,
    pub min: i64,
    pub max: i64,
    /// Where the server writes it.
    pub value: &'static AtomicI64,
}

/// Registers a number; only while the module is being loaded.
pub fn register_number(ctx: Ctx<'_>, number: &Number) {
    let Number { name, default, min, max, value } = *number;
    let ctx = Context::new(ctx.raw());
    register_i64_configuration(&ctx, name, value, default, min, max, ConfigurationFlags::DEFAULT, None);
}

/// Registers something that is on or off; only while the module is being loaded.
pub fn register_flag(ctx: Ctx<'_>, name: &str, default: bool, value: &'static AtomicBool) {
    let ctx = Context::new(ctx.raw());
    register_bool_configuration(&ctx, name, value, default, ConfigurationFlags::DEFAULT, None);
}

/// Gives the registered settings their values: from the configuration file, the command that loads the module, or their
/// defaults. Only while the module is being loaded. False: a setting does not take its value; the server's log names
/// it.
pub fn load(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is valid.
    let loaded = unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) };
    loaded == raw::REDISMODULE_OK as i32
}
