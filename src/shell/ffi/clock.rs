//! The server's clocks.
//!
//! Time is read through the server, not from the system: Valkey 9.1 opens modules with RTLD_DEEPBIND, so what replaces
//! the C library's clock for the server (libfaketime in tests) does not reach a module's own calls. And the server
//! decides expiry by a reading of its own.

use super::{api, probe};

/// The instant by which the server decides expiry in what it runs now: microseconds since the epoch. `None` on Redis
/// 7.0, which has no such function.
#[inline]
pub fn cached_us() -> Option<u64> {
    let cached_us = probe!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes nothing.
    let us = unsafe { cached_us() };
    u64::try_from(us).ok()
}

/// For Redis 7.0, which has no function that tells microseconds: the same of the system. std's clock takes 50
/// instructions more.
pub fn system_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is written to `time`; a clock that cannot be read leaves it.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
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
