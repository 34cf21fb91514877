//! The server's clocks.
//!
//! Time is read through the server, not from the system: Valkey 9.1 opens modules with RTLD_DEEPBIND, so what replaces
//! the C library's clock for the server (libfaketime in tests) does not reach a module's own calls. And the server
//! decides expiry by a reading of its own.

use redis_module::raw;

use super::api;

/// The instant by which the server decides expiry in what it runs now: microseconds since the epoch. `None` on Redis
/// 7.0, which has no such function.
#[inline]
pub fn cached_us() -> Option<u64> {
    // SAFETY: takes nothing; the pointer is probed.
    let us = unsafe { raw::RedisModule_CachedMicroseconds?() };
    u64::try_from(us).ok()
}

/// The wall clock as it is now, also in the middle of a long script: milliseconds since the epoch.
pub fn wall_ms() -> u64 {
    // SAFETY: takes nothing.
    u64::try_from(unsafe { api!(RedisModule_Milliseconds()) }).unwrap_or(0)
}

/// The clock that nobody sets: microseconds since a start that means nothing.
pub fn monotonic_us() -> u64 {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_MonotonicMicroseconds()) }
}
