//! The minimal cost of a fenced lock through the module API, as a baseline for the benchmark of redis-lock. It is not a
//! usable lock: it has no renewal and no retry, and its waiting (`parking`) ignores keys.
//!
//! | command                          | reply                                              |
//! | -------------------------------- | -------------------------------------------------- |
//! | `BARE.ACQUIRE key token PX ms`   | `[token, fence]`, nil if it is held                |
//! | `BARE.RELEASE key token`         | 1, 0 if this token does not hold it                |
//! | `BARE.PARKING key token …`       | waits for a wake-up, then `[token, fence]`         |
//! | `BARE.WAKE_UP …`                 | 1, 0 if no client was waiting for a wake-up        |
//!
//! These send nothing to replicas or the append-only file. `REPL.ACQUIRE` and `REPL.RELEASE` also replicate effects:
//! `BARE.APPLY key payload` for a grant, the server's `DEL` for a release.
//!
//! It makes only the calls that a lock needs, each in the cheapest way that the server offers. Measured in
//! instructions, of about 13,600 per pair (Redis 7.0.15):
//! - The memory of the latest value is reused for the next: saves 200 compared with a new allocation.
//! - Names are as long as those of `LOCK`, because the server hashes and compares each letter: 16 per letter.
//! - The token is returned as bytes: returning the argument's string costs 50 more, on each server.
//! - Without `CachedMicroseconds`, `Milliseconds` is the cheapest clock: 36 less than the standard library's.
//! - The payload of a grant is one argument: three arguments cost 2,000 more with an append-only file.
//! - `REDISMODULE_OPEN_KEY_NOTOUCH` would save 10, but is not used: eviction would not see that a lock is in use.

mod parking;
mod value;

use std::ffi::{c_int, c_longlong, CStr};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis_module::alloc::RedisAlloc;
use redis_module::{raw, redis_module, Context, RedisString, Status};
use value::{Value, LOCKFLOOR};

/// Calls a function that every server has.
macro_rules! api {
    ($name:ident($($arg:expr),* $(,)?)) => {
        redis_module::raw::$name.expect("it is there since Redis 7.0")($($arg),*)
    };
}
pub(crate) use api;

redis_module! {
    name: "floor",
    version: 1,
    allocator: (RedisAlloc, RedisAlloc),
    data_types: [LOCKFLOOR],
    init: start,
    commands: [],
}

/// The options of redis-lock: the module handles errors in damaged dumps (1) and signals modified keys itself (2).
const OPTIONS: c_int = 1 | 1 << 1;

type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

const COMMANDS: [(&CStr, Entry, &CStr); 7] = [
    (c"bare.acquire", acquire::<Nobody>, c"write deny-oom fast"),
    (c"bare.release", release::<Nobody>, c"write fast"),
    (c"repl.acquire", acquire::<Replicas>, c"write deny-oom fast"),
    (c"repl.release", release::<Replicas>, c"write fast"),
    (c"bare.apply", apply, c"write"),
    (c"bare.parking", parking::park, c"write deny-oom fast blocking"),
    (c"bare.wake_up", parking::wake_up, c"write fast"),
];

pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The fence of the latest grant.
pub(crate) static LAST: AtomicU64 = AtomicU64::new(0);

fn start(context: &Context, _: &[RedisString]) -> Status {
    value::start();
    // SAFETY: the context of the load that is running; all strings end with a NUL.
    unsafe {
        api!(RedisModule_SetModuleOptions(context.ctx, OPTIONS));
        for (name, entry, flags) in COMMANDS {
            if api!(RedisModule_CreateCommand(context.ctx, name.as_ptr(), Some(entry), flags.as_ptr(), 1, 1, 1)) != OK {
                return Status::Err;
            }
        }
    }
    Status::Ok
}

/// Whether effects are replicated.
trait Effects {
    /// # Safety
    /// Context and key are valid.
    unsafe fn granted(ctx: *mut raw::RedisModuleCtx, key: *mut raw::RedisModuleString, payload: &[u8]);
    /// # Safety
    /// Context and key are valid.
    unsafe fn ended(ctx: *mut raw::RedisModuleCtx, key: *mut raw::RedisModuleString);
}

struct Nobody;

impl Effects for Nobody {
    unsafe fn granted(_: *mut raw::RedisModuleCtx, _: *mut raw::RedisModuleString, _: &[u8]) {}
    unsafe fn ended(_: *mut raw::RedisModuleCtx, _: *mut raw::RedisModuleString) {}
}

struct Replicas;

impl Effects for Replicas {
    unsafe fn granted(ctx: *mut raw::RedisModuleCtx, key: *mut raw::RedisModuleString, payload: &[u8]) {
        let (command, format) = (c"BARE.APPLY".as_ptr(), c"sb".as_ptr());
        // SAFETY: format and arguments agree; the server copies what it keeps.
        unsafe { api!(RedisModule_Replicate(ctx, command, format, key, payload.as_ptr(), payload.len())) };
    }

    unsafe fn ended(ctx: *mut raw::RedisModuleCtx, key: *mut raw::RedisModuleString) {
        // SAFETY: format and arguments agree.
        unsafe { api!(RedisModule_Replicate(ctx, c"DEL".as_ptr(), c"s".as_ptr(), key)) };
    }
}

unsafe extern "C" fn acquire<E: Effects>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: context and arguments of the command that is running; the key is closed before the end.
    unsafe {
        let &[_, name, token, px, ms] = arguments(argv, argc) else { return api!(RedisModule_WrongArity(ctx)) };
        let mut lease: c_longlong = 0;
        let is_number = api!(RedisModule_StringToLongLong(ms, &mut lease)) == OK;
        // Small enough that adding it to any clock value does not overflow.
        if !is_number || !(1..=1 << 40).contains(&lease) || !bytes(px).eq_ignore_ascii_case(b"PX") {
            return api!(RedisModule_ReplyWithError(ctx, c"ERR syntax error".as_ptr()));
        }
        let key = open(ctx, name);
        // Most requested locks are free, so first check whether the key is empty.
        if api!(RedisModule_KeyType(key)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            let now = now_us();
            let fence = now.max(LAST.load(Relaxed) + 1);
            LAST.store(fence, Relaxed);
            let until = (now / 1000) as c_longlong + lease;
            let token = bytes(token);
            let value = Value::new(fence, until, token);
            api!(RedisModule_ModuleTypeSetValue(key, value::data_type(), value.raw()));
            api!(RedisModule_SetAbsExpire(key, until));
            api!(RedisModule_SignalModifiedKey(ctx, name));
            E::granted(ctx, name, value.payload());
            api!(RedisModule_ReplyWithArray(ctx, 2));
            api!(RedisModule_ReplyWithStringBuffer(ctx, token.as_ptr().cast(), token.len()));
            api!(RedisModule_ReplyWithLongLong(ctx, fence as c_longlong));
        } else if api!(RedisModule_ModuleTypeGetType(key)) == value::data_type() {
            api!(RedisModule_ReplyWithNullArray(ctx));
        } else {
            api!(RedisModule_ReplyWithError(ctx, WRONGTYPE.as_ptr()));
        }
        api!(RedisModule_CloseKey(key));
    }
    OK
}

unsafe extern "C" fn release<E: Effects>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: context and arguments of the command that is running; the key is closed before the end, and nothing
    // refers to its value when it is deleted.
    unsafe {
        let &[_, name, token] = arguments(argv, argc) else { return api!(RedisModule_WrongArity(ctx)) };
        let key = open(ctx, name);
        // Most released locks are held.
        if api!(RedisModule_ModuleTypeGetType(key)) == value::data_type() {
            let holds = Value::of_key(api!(RedisModule_ModuleTypeGetValue(key))).token() == bytes(token);
            if holds {
                api!(RedisModule_DeleteKey(key));
                api!(RedisModule_SignalModifiedKey(ctx, name));
                E::ended(ctx, name);
            }
            api!(RedisModule_ReplyWithLongLong(ctx, c_longlong::from(holds)));
        } else if api!(RedisModule_KeyType(key)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            api!(RedisModule_ReplyWithLongLong(ctx, 0));
        } else {
            api!(RedisModule_ReplyWithError(ctx, WRONGTYPE.as_ptr()));
        }
        api!(RedisModule_CloseKey(key));
    }
    OK
}

/// Applies a grant on replicas and from the append-only file.
unsafe extern "C" fn apply(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: context and arguments of the command that is running; the key is closed before the end.
    unsafe {
        let &[_, name, payload] = arguments(argv, argc) else { return api!(RedisModule_WrongArity(ctx)) };
        let source = (raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING) as c_int;
        let is_effect = api!(RedisModule_GetContextFlags(ctx)) & source != 0;
        let Some(value) = Value::from_payload(bytes(payload)).filter(|_| is_effect) else {
            return api!(RedisModule_ReplyWithError(ctx, c"ERR only replicas and AOF files send this".as_ptr()));
        };
        let key = open(ctx, name);
        api!(RedisModule_ModuleTypeSetValue(key, value::data_type(), value.raw()));
        api!(RedisModule_SetAbsExpire(key, value.until()));
        LAST.fetch_max(value.fence(), Relaxed);
        api!(RedisModule_CloseKey(key));
        api!(RedisModule_ReplicateVerbatim(ctx));
        api!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr()))
    }
}

const WRONGTYPE: &CStr = c"WRONGTYPE Operation against a key holding the wrong kind of value";

/// # Safety
/// Context and name are valid; the caller closes the key.
unsafe fn open(ctx: *mut raw::RedisModuleCtx, name: *mut raw::RedisModuleString) -> *mut raw::RedisModuleKey {
    let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
    // SAFETY: the caller vouches for it.
    unsafe { api!(RedisModule_OpenKey(ctx, name, mode)) }
}

/// # Safety
/// The arguments of a command that is running.
pub(crate) unsafe fn arguments<'a>(
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> &'a [*mut raw::RedisModuleString] {
    // SAFETY: the caller vouches for it; there is always at least one argument, the command's name.
    unsafe { slice::from_raw_parts(argv, argc as usize) }
}

/// # Safety
/// The string outlives what is returned.
pub(crate) unsafe fn bytes<'a>(string: *mut raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller vouches for it; the pointer is never null.
    unsafe { slice::from_raw_parts(api!(RedisModule_StringPtrLen(string, &mut len)).cast(), len) }
}

/// The time at which this command started, if the API provides it, because it needs no clock call. Milliseconds are
/// enough, because [`LAST`] keeps fences distinct.
fn now_us() -> u64 {
    // SAFETY: the pointers were filled when the module was loaded; the functions take nothing.
    unsafe {
        match raw::RedisModule_CachedMicroseconds {
            Some(cached) => cached() as u64,
            None => api!(RedisModule_Milliseconds()) as u64 * 1000,
        }
    }
}
