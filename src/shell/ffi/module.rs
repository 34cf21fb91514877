//! What the module tells the server about itself: options, settings, the events that it wants to know of.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null_mut, NonNull};

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

/// Tells the server the module's name and version. False: a module of that name is loaded.
pub fn introduce(ctx: Ctx<'_>, name: &CStr, version: i32) -> bool {
    // SAFETY: the context is that of the load; the server copies the name.
    unsafe {
        if api!(RedisModule_IsModuleNameBusy(name.as_ptr())) != 0 {
            return false;
        }
        api!(RedisModule_SetModuleAttribs(ctx.raw(), name.as_ptr(), version, raw::REDISMODULE_APIVER_1 as c_int));
    }
    true
}

/// Registers a data type; only while the module is being loaded. `None`: the server refuses it.
pub fn register_data_type(
    ctx: Ctx<'_>,
    name: &CStr,
    version: c_int,
    methods: &'static raw::RedisModuleTypeMethods,
) -> Option<NonNull<raw::RedisModuleType>> {
    let mut methods = *methods;
    // SAFETY: the server copies name and methods, which are functions of this module.
    NonNull::new(unsafe { api!(RedisModule_CreateDataType(ctx.raw(), name.as_ptr(), version, &mut methods)) })
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
