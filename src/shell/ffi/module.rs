//! What the module tells the server about itself: options, settings, the events that it wants to know of.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;

use super::api;
use super::context::Ctx;

/// What the server calls for an event of its own.
pub type EventCallback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// What the server calls for an event of a key.
pub type KeyCallback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, c_int, *const c_char, *mut raw::RedisModuleString) -> c_int;

/// Sets `REDISMODULE_OPTIONS_…`.
pub fn set_options(ctx: Ctx<'_>, options: u32) {
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), options as c_int)) };
}

/// Whether the server is Valkey: only there functions have names that begin so.
pub fn is_valkey() -> bool {
    let mut function: *mut c_void = null_mut();
    let name = c"ValkeyModule_SubscribeToServerEvent";
    // SAFETY: the server writes the function's address into what the second argument points to.
    let found = unsafe { api!(RedisModule_GetApi(name.as_ptr(), (&raw mut function).cast())) };
    found == raw::REDISMODULE_OK as c_int && !function.is_null()
}

/// Gives the registered settings their values; only while the module is being loaded.
pub fn load_settings(ctx: Ctx<'_>) {
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) };
}

/// Subscribes to a server event, with the version of its data. False: the server refuses.
pub fn subscribe_to_event(ctx: Ctx<'_>, id: u64, dataver: u64, callback: EventCallback) -> bool {
    let event = raw::RedisModuleEvent { id, dataver };
    // SAFETY: the callback is a function of this module.
    let subscribed = unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(callback))) };
    subscribed == raw::REDISMODULE_OK as c_int
}

/// Ends a subscription to a server event. Never to be called out of a server event, not even of another module: the
/// server walks its list of subscriptions then.
pub fn unsubscribe_from_event(ctx: Ctx<'_>, id: u64, dataver: u64) {
    let event = raw::RedisModuleEvent { id, dataver };
    // SAFETY: the context is valid; no callback ends the subscription.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, None)) };
}

/// Subscribes to events of keys, of the classes `REDISMODULE_NOTIFY_…`.
pub fn subscribe_to_keys(ctx: Ctx<'_>, classes: i32, callback: KeyCallback) {
    // SAFETY: the callback is a function of this module.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw(), classes, Some(callback))) };
}
