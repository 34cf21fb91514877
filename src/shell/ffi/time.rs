//! The server's clocks, its timers and its event loop.
//!
//! Time is read through the server, not from the system. Valkey 9.1 opens modules with RTLD_DEEPBIND, so a replaced C
//! library clock in the server (libfaketime in tests) does not affect a module's own calls. Also, the server decides
//! expiry by its own reading.

use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use super::context::Ctx;
use super::{api, probe};

/// The time by which the server decides expiry in the running command, in microseconds since the epoch. `None` on Redis
/// 7.0, which does not have the function.
#[inline]
pub fn cached_us() -> Option<u64> {
    let cached_us = probe!(RedisModule_CachedMicroseconds)?;
    // SAFETY: the function has no preconditions.
    let us = unsafe { cached_us() };
    u64::try_from(us).ok()
}

/// The system clock, for Redis 7.0, which has no function for microseconds. The clock of `std` takes 50 instructions
/// more.
pub fn system_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is written to `time`, which stays unchanged if the clock cannot be read.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
}

/// The current wall-clock time, even in the middle of a long script: milliseconds since the epoch.
pub fn wall_ms() -> u64 {
    // SAFETY: the function has no preconditions.
    u64::try_from(unsafe { api!(RedisModule_Milliseconds()) }).unwrap_or(0)
}

/// The monotonic clock: microseconds since an arbitrary start.
pub fn monotonic_us() -> u64 {
    // SAFETY: the function has no preconditions.
    unsafe { api!(RedisModule_MonotonicMicroseconds()) }
}

pub type TimerCallback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// An armed timer. It fires once.
#[derive(Clone, Copy, Debug)]
pub struct TimerId(raw::RedisModuleTimerID);

/// Arms a timer that fires after `wait_ms`; its callback gets no data.
pub fn arm(ctx: Ctx<'_>, wait_ms: i64, callback: TimerCallback) -> TimerId {
    // SAFETY: the callback is a function of this module.
    TimerId(unsafe { api!(RedisModule_CreateTimer(ctx.raw(), wait_ms, Some(callback), null_mut())) })
}

/// Disarms a timer. The server does not know a timer that has fired, and then does nothing. Never call it from the
/// timer's own callback, after which the server frees the timer.
pub fn disarm(ctx: Ctx<'_>, timer: TimerId) {
    // SAFETY: the timer has no data.
    unsafe { api!(RedisModule_StopTimer(ctx.raw(), timer.0, null_mut())) };
}

/// Wakes the event loop. Otherwise a timer armed just before the server sleeps would fire up to 100 ms late on 7.0.15,
/// and so would, on every server, a timer armed by another thread while it sleeps.
pub fn poke_event_loop() {
    extern "C" fn nothing(_: *mut c_void) {}
    call_in_next_iteration(nothing);
}

/// Makes the event loop call this function, which gets no data, in its next iteration. The function must not write
/// keys.
pub fn call_in_next_iteration(callback: extern "C" fn(*mut c_void)) {
    // SAFETY: the callback is a function of this module, which is never unloaded: it has a data type.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(callback), null_mut())) };
}

/// Whether the server decides how long it sleeps before it runs the pending commands of clients unblocked in this
/// iteration. A timer armed by these commands then fires up to 100 ms late unless the event loop is woken. Redis 7.0
/// does so; 7.2 reversed the order and added the function probed here.
pub fn sleeps_past_new_timers() -> bool {
    probe!(RedisModule_CachedMicroseconds).is_none()
}

/// The module's own context: timers need one, and some server callbacks do not provide one. Suitable for timers and
/// publishing, not for opening keys.
pub fn own_context(ctx: Ctx<'_>) -> Option<Ctx<'static>> {
    // SAFETY: the context is kept until the module is unloaded, and is used only on the main thread, which needs no
    // lock.
    unsafe { Ctx::new(api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw()))) }
}

/// # Safety
/// It came from [`own_context`] and is not used afterwards.
pub unsafe fn free_own_context(ctx: Ctx<'static>) {
    // SAFETY: guaranteed by the caller.
    unsafe { api!(RedisModule_FreeThreadSafeContext(ctx.raw())) };
}
