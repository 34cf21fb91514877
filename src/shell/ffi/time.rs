//! The server's clocks, its timers and its event loop.
//!
//! Time is read through the server, not from the system: Valkey 9.1 opens modules with RTLD_DEEPBIND, so a replacement
//! of the C library's clock in the server (libfaketime in tests) does not reach a module's own calls. And the server
//! decides expiry by its own reading.

use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use super::context::Ctx;
use super::{api, probe};

/// The instant by which the server decides expiry in the command that it runs now: microseconds since the epoch. `None`
/// on Redis 7.0, which has no such function.
#[inline]
pub fn cached_us() -> Option<u64> {
    let cached_us = probe!(RedisModule_CachedMicroseconds)?;
    // SAFETY: takes nothing.
    let us = unsafe { cached_us() };
    u64::try_from(us).ok()
}

/// For Redis 7.0, which has no function for microseconds: the system's clock. std's clock takes 50 instructions more.
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

/// The monotonic clock: microseconds since a start that means nothing.
pub fn monotonic_us() -> u64 {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_MonotonicMicroseconds()) }
}

/// The callback of a timer.
pub type TimerCallback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// A timer that is armed. It fires once.
#[derive(Clone, Copy, Debug)]
pub struct TimerId(raw::RedisModuleTimerID);

/// Arms a timer, which fires after `wait_ms` and gets no data.
pub fn arm(ctx: Ctx<'_>, wait_ms: i64, callback: TimerCallback) -> TimerId {
    // SAFETY: the callback is a function of this module.
    TimerId(unsafe { api!(RedisModule_CreateTimer(ctx.raw(), wait_ms, Some(callback), null_mut())) })
}

/// Disarms a timer; one that has fired is unknown to the server, which then does nothing. Never to be called out of the
/// timer's own callback: the server frees it after that.
pub fn disarm(ctx: Ctx<'_>, timer: TimerId) {
    // SAFETY: the timer has no data.
    unsafe { api!(RedisModule_StopTimer(ctx.raw(), timer.0, null_mut())) };
}

/// Wakes the event loop. Otherwise a timer that is made just before the server sleeps would fire up to 100 ms late on
/// 7.0.15, and so would a timer that another thread makes while it sleeps, on every server.
pub fn poke_event_loop() {
    extern "C" fn nothing(_: *mut c_void) {}
    call_in_next_round(nothing);
}

/// Has the event loop call this function, which gets no data, in its next round. The function must not write keys.
pub fn call_in_next_round(callback: extern "C" fn(*mut c_void)) {
    // SAFETY: the callback is a function of this module, which is never unloaded: it has a data type.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(callback), null_mut())) };
}

/// Whether the server decides how long it sleeps before it runs the queued commands of clients that were unblocked in
/// this turn. A timer that these commands arm fires up to 100 ms late then, unless the event loop is woken. So on Redis
/// 7.0; 7.2 turned the order, and brought the function that is probed.
pub fn sleeps_past_new_timers() -> bool {
    probe!(RedisModule_CachedMicroseconds).is_none()
}

/// A context of the module's own: timers need one, and not every callback of the server brings one. Good for timers and
/// for publishing, not for keys.
pub fn own_context(ctx: Ctx<'_>) -> Option<Ctx<'static>> {
    // SAFETY: the context is kept until the module goes; it is used on the main thread only, without its lock.
    unsafe { Ctx::new(api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw()))) }
}

/// Frees a context of the module's own.
///
/// # Safety
/// It came from [`own_context`], and is not used any more.
pub unsafe fn free_own_context(ctx: Ctx<'static>) {
    // SAFETY: the caller vouches for it.
    unsafe { api!(RedisModule_FreeThreadSafeContext(ctx.raw())) };
}
