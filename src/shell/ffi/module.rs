//! Registers the module's options, data type, event subscriptions, INFO section and settings.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ops::RangeInclusive;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI64};

use redis_module::configuration::{register_bool_configuration, register_i64_configuration, ConfigurationFlags};
use redis_module::{raw, Context};

use super::api;
use super::context::{guard, Ctx};
use super::functions::required;
use super::string::{OwnedStr, Str};

pub type EventCallback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// Sets `REDISMODULE_OPTIONS_…`.
pub fn set_options(ctx: Ctx<'_>, options: u32) {
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), options as c_int)) };
}

/// Whether the server is Valkey: only Valkey has API functions with this name prefix.
pub fn is_valkey() -> bool {
    let mut function: *mut c_void = null_mut();
    let name = c"ValkeyModule_SubscribeToServerEvent";
    // SAFETY: the server writes the function's address to the second argument.
    let found = unsafe { api!(RedisModule_GetApi(name.as_ptr(), (&raw mut function).cast())) };
    found == raw::REDISMODULE_OK as c_int && !function.is_null()
}

/// Registers the module's name and version. False: a module with this name is already loaded.
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

/// Registers a data type; only while the module is loading. `None`: the server refuses.
pub fn register_data_type(
    ctx: Ctx<'_>,
    name: &CStr,
    version: c_int,
    mut methods: raw::RedisModuleTypeMethods,
) -> Option<NonNull<raw::RedisModuleType>> {
    // SAFETY: the server copies the name and the methods, which are functions of this module.
    NonNull::new(unsafe { api!(RedisModule_CreateDataType(ctx.raw(), name.as_ptr(), version, &mut methods)) })
}

/// The data version of every event we use, as in `redismodule.h`, and of Valkey's slot migration event.
const DATAVER: u64 = 1;

/// Subscribes to a server event. False: the server refuses.
pub fn subscribe_to_event(ctx: Ctx<'_>, id: u64, callback: EventCallback) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: DATAVER };
    // SAFETY: the callback is a function of this module.
    let subscribed = unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(callback))) };
    subscribed == raw::REDISMODULE_OK as c_int
}

/// Ends a subscription to a server event. Never call it during a server event, not even another module's, because the
/// server is then iterating over its list of subscriptions.
pub fn unsubscribe_from_event(ctx: Ctx<'_>, id: u64) {
    let event = raw::RedisModuleEvent { id, dataver: DATAVER };
    // SAFETY: the context is valid, and this is not called from an event callback.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, None)) };
}

/// The number of the event for Valkey's atomic slot migration, `CLUSTER MIGRATESLOTS`. The crate's bindings have
/// neither this event nor the module option that allows it. Redis uses other events up to this number.
const SLOT_MIGRATION: u64 = 19;

/// The subevent: the slots of an export now belong to the target.
pub const EXPORT_COMPLETED: u64 = 5;

/// The module option without which Valkey refuses to migrate slots: `…_HANDLE_ATOMIC_SLOT_MIGRATION`.
pub const MAY_MIGRATE_SLOTS: u32 = 1 << 5;

/// A range of slots, both ends included.
#[repr(C)]
struct SlotRange {
    first: c_int,
    last: c_int,
}

#[repr(C)]
struct Migration {
    version: u64,
    job: [c_char; 41],
    ranges: *const SlotRange,
    count: u32,
}

/// Subscribes to the event. False: this server does not have it.
pub fn subscribe_to_slot_migrations(ctx: Ctx<'_>, callback: EventCallback) -> bool {
    // Redis may use this number for another event.
    is_valkey() && subscribe_to_event(ctx, SLOT_MIGRATION, callback)
}

/// Calls `visit` with each slot of an event.
///
/// # Safety
/// The server passed `data` with the event to the running callback.
pub unsafe fn each_slot(data: *const c_void, mut visit: impl FnMut(u16)) {
    // SAFETY: the server passes this structure with this event, and its ranges live as long.
    let ranges = unsafe {
        match data.cast::<Migration>().as_ref() {
            Some(migration) if !migration.ranges.is_null() => {
                std::slice::from_raw_parts(migration.ranges, migration.count as usize)
            }
            _ => return,
        }
    };
    ranges.iter().flat_map(|range| range.first..=range.last).flat_map(u16::try_from).for_each(&mut visit);
}

/// The callback that collects INFO; its second argument is nonzero in a crash report.
pub type InfoCallback = unsafe extern "C" fn(*mut raw::RedisModuleInfoCtx, i32);

/// Registers a section of INFO. False: the server refuses.
pub fn register_info(ctx: Ctx<'_>, callback: InfoCallback) -> bool {
    // SAFETY: the callback is a function of this module.
    let registered = unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(callback))) };
    registered == raw::REDISMODULE_OK as i32
}

/// The INFO section named after the module.
pub struct Section {
    info: *mut raw::RedisModuleInfoCtx,
}

impl Section {
    /// `None`: the section was not requested.
    ///
    /// # Safety
    /// The server passed it to the running callback, and it is not used after that callback.
    pub unsafe fn begin(info: *mut raw::RedisModuleInfoCtx) -> Option<Section> {
        // SAFETY: guaranteed by the caller; a null name is allowed.
        let begun = unsafe { api!(RedisModule_InfoAddSection(info, std::ptr::null())) };
        (begun == raw::REDISMODULE_OK as i32).then_some(Section { info })
    }

    /// Adds a field with the module's name as its prefix.
    pub fn number(&self, name: &str, number: u64) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the section is open, the name is copied.
        unsafe { api!(RedisModule_InfoAddFieldULongLong(self.info, name.as_ptr(), number)) };
    }

    /// Adds a text field with the module's name as its prefix.
    pub fn text(&self, name: &str, text: &str) {
        let (Ok(name), Ok(text)) = (CString::new(name), CString::new(text)) else { return };
        // SAFETY: the section is open, both are copied.
        unsafe { api!(RedisModule_InfoAddFieldCString(self.info, name.as_ptr(), text.as_ptr())) };
    }
}

// Called by the crate.
const _: () = required::RedisModule_RegisterBoolConfig;
const _: () = required::RedisModule_RegisterNumericConfig;

/// Registers a numeric setting; only while the module is loading. The server validates and stores settings; `CONFIG`
/// reads and changes them. The crate does the registration, and its callbacks access the atomics. It does not report a
/// refusal, but the server has no reason for one, because it prefixes the names with the module's.
pub fn register_number(
    ctx: Ctx<'_>,
    name: &str,
    default: i64,
    bounds: &RangeInclusive<i64>,
    value: &'static AtomicI64,
) {
    let (ctx, min, max) = (Context::new(ctx.raw()), *bounds.start(), *bounds.end());
    register_i64_configuration(&ctx, name, value, default, min, max, ConfigurationFlags::DEFAULT, None);
}

/// Registers a boolean setting; only while the module is loading.
pub fn register_flag(ctx: Ctx<'_>, name: &str, default: bool, value: &'static AtomicBool) {
    let ctx = Context::new(ctx.raw());
    register_bool_configuration(&ctx, name, value, default, ConfigurationFlags::DEFAULT, None);
}

pub struct TextSetting {
    /// Returns its value, which the server copies.
    pub get: fn() -> *mut raw::RedisModuleString,
    /// Changes it, or returns the error.
    pub set: fn(&[u8]) -> Result<(), String>,
}

/// Registers a text setting; only while the module is loading.
pub fn register_text(ctx: Ctx<'_>, name: &str, default: &str, text: &'static TextSetting) {
    let (Ok(name), Ok(default)) = (CString::new(name), CString::new(default)) else { return };
    let (flags, data) = (raw::REDISMODULE_CONFIG_DEFAULT, (&raw const *text).cast_mut().cast());
    // SAFETY: the server copies both strings; the callbacks get the static that is passed here.
    unsafe {
        api!(RedisModule_RegisterStringConfig(
            ctx.raw(),
            name.as_ptr(),
            default.as_ptr(),
            flags,
            Some(get_text),
            Some(set_text),
            None,
            data
        ))
    };
}

unsafe extern "C" fn get_text(_: *const c_char, data: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: see `register_text`.
    let text = unsafe { &*data.cast::<TextSetting>() };
    guard("a setting", text.get).unwrap_or(null_mut())
}

unsafe extern "C" fn set_text(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: see `register_text`; the value lives as long as the callback, and the server owns the error.
    let set = guard("a setting", || unsafe {
        let value = Str::new(value).map_or(&[][..], Str::bytes);
        let text = &*data.cast::<TextSetting>();
        (text.set)(value).inspect_err(|reason| {
            let reason = OwnedStr::new(reason.as_bytes());
            *error = reason.as_str().raw();
            std::mem::forget(reason);
        })
    });
    if matches!(set, Some(Ok(()))) {
        raw::REDISMODULE_OK as c_int
    } else {
        raw::REDISMODULE_ERR as c_int
    }
}

/// Initializes the registered settings from the configuration file, the command that loads the module, or their
/// defaults. Only while the module is loading. False: a value is invalid; the server's log names the setting.
pub fn load_settings(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is valid.
    let loaded = unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) };
    loaded == raw::REDISMODULE_OK as i32
}
