//! Keeps a panic from leaving through C: that would end the server.

use std::ffi::CString;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

use redis_module::raw;

use super::api;

/// Runs what the server called; `None` when it panicked, which is logged.
pub fn guard<R>(what: &str, work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| log(null_mut(), &format!("redis-lock: a bug in {what}, please report it")))
        .ok()
}

/// A warning in the server's log.
pub(super) fn log(ctx: *mut raw::RedisModuleCtx, message: &str) {
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    // SAFETY: the format takes one string, which ends with a NUL; a null context is allowed.
    unsafe { api!(RedisModule_Log(ctx, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
}
