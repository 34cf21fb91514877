//! Settings of the module: the server checks and keeps them, `CONFIG` reads and changes them.

use std::ffi::{c_char, c_int, c_longlong, c_void, CString};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::raw;

use super::api;
use super::context::Ctx;

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

/// Registers a number; only while the module is being loaded. False: the server refuses it.
pub fn register_number(ctx: Ctx<'_>, number: &Number) -> bool {
    unsafe extern "C" fn get(_: *const c_char, value: *mut c_void) -> c_longlong {
        // SAFETY: the server passes what the setting was registered with.
        unsafe { value.cast::<AtomicI64>().as_ref() }.map_or(0, |value| value.load(Ordering::Relaxed))
    }

    unsafe extern "C" fn set(
        _: *const c_char,
        number: c_longlong,
        value: *mut c_void,
        _: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        // SAFETY: as above.
        if let Some(value) = unsafe { value.cast::<AtomicI64>().as_ref() } {
            value.store(number, Ordering::Relaxed);
        }
        raw::REDISMODULE_OK as c_int
    }

    let Number { name, default, min, max, value } = *number;
    let Ok(name) = CString::new(name) else { return false };
    let (flags, value) = (raw::REDISMODULE_CONFIG_DEFAULT, ptr::from_ref(value).cast_mut().cast());
    // SAFETY: the name is copied; the functions cast the value to what it is, a static.
    let registered = unsafe {
        api!(RedisModule_RegisterNumericConfig(
            ctx.raw(),
            name.as_ptr(),
            default,
            flags,
            min,
            max,
            Some(get),
            Some(set),
            None,
            value,
        ))
    };
    registered == raw::REDISMODULE_OK as c_int
}

/// Registers something that is on or off; as [`register_number`].
pub fn register_flag(ctx: Ctx<'_>, name: &str, default: bool, value: &'static AtomicBool) -> bool {
    unsafe extern "C" fn get(_: *const c_char, value: *mut c_void) -> c_int {
        // SAFETY: the server passes what the setting was registered with.
        unsafe { value.cast::<AtomicBool>().as_ref() }.map_or(0, |value| value.load(Ordering::Relaxed).into())
    }

    unsafe extern "C" fn set(
        _: *const c_char,
        is_on: c_int,
        value: *mut c_void,
        _: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        // SAFETY: as above.
        if let Some(value) = unsafe { value.cast::<AtomicBool>().as_ref() } {
            value.store(is_on != 0, Ordering::Relaxed);
        }
        raw::REDISMODULE_OK as c_int
    }

    let Ok(name) = CString::new(name) else { return false };
    let (flags, value) = (raw::REDISMODULE_CONFIG_DEFAULT, ptr::from_ref(value).cast_mut().cast());
    // SAFETY: the name is copied; the functions cast the value to what it is, a static.
    let registered = unsafe {
        api!(RedisModule_RegisterBoolConfig(
            ctx.raw(),
            name.as_ptr(),
            default.into(),
            flags,
            Some(get),
            Some(set),
            None,
            value,
        ))
    };
    registered == raw::REDISMODULE_OK as c_int
}

/// Gives the registered settings their values: out of the configuration file, the command that loads the module, or
/// their defaults. Only while the module is being loaded. False: a value is none that its setting takes; the server's
/// log says which one.
pub fn load(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is valid.
    let loaded = unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) };
    loaded == raw::REDISMODULE_OK as c_int
}
