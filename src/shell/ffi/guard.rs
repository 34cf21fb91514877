//! Keeps a panic from leaving through C: that would end the server.

use std::ffi::CString;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

use redis_module::raw;

use super::api;

/// Runs a callback; `None` when it panicked, which is logged.
pub fn guard<R>(what: &str, work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| log(null_mut(), LogLevel::Warning, &format!("redis-lock: a bug in {what}, please report it")))
        .ok()
}

/// The level of a line in the server's log: `loglevel` leaves lines out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Left out at `warning`.
    Notice,
    /// Never left out, but for Redis 8's `nothing`.
    Warning,
}

/// A line in the server's log.
pub(super) fn log(ctx: *mut raw::RedisModuleCtx, level: LogLevel, message: &str) {
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    let level = match level {
        LogLevel::Notice => c"notice",
        LogLevel::Warning => c"warning",
    };
    // SAFETY: the format takes one string, which ends with a NUL; a null context is allowed.
    unsafe { api!(RedisModule_Log(ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
}
