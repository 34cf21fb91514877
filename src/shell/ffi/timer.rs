//! Timers of the server, and its event loop.

use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use super::context::Ctx;
use super::{api, probe};

/// What the server calls when a timer fires.
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

/// Wakes the event loop. A timer that is made just before the server sleeps would fire up to 100 ms late on 7.0.15
/// otherwise, and so would one that another thread makes while it sleeps, on every server.
pub fn poke_event_loop() {
    extern "C" fn nothing(_: *mut c_void) {}
    // SAFETY: the callback does nothing.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(nothing), null_mut())) };
}

/// Whether the server decides how long it sleeps before it runs what clients had sent that were unblocked in this turn.
/// A timer that these commands arm fires up to 100 ms late then, unless the event loop is woken. So on Redis 7.0; 7.2
/// turned the order, and brought the function that is probed.
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
/// It came from [`own_context`], and nobody uses it any more.
pub unsafe fn free_own_context(ctx: Ctx<'static>) {
    // SAFETY: the caller vouches for it.
    unsafe { api!(RedisModule_FreeThreadSafeContext(ctx.raw())) };
}
