//! The context of a callback: client, database, flags and replies. Also the panic guard: a panic that left through C
//! would crash the server.

use std::borrow::Cow;
use std::ffi::{c_int, c_long, CStr, CString};
use std::marker::PhantomData;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{null_mut, NonNull};

use command::errors::ErrorReply;
use command::reply::ReplyWriter;
use redis_module::raw;

use super::api;
use super::string::Str;

/// Flags of [`Ctx::flags`]: the server is loading a file or the data of its primary.
pub const LOADING: u32 = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;

/// The context of a callback, valid while the callback runs.
#[derive(Clone, Copy)]
pub struct Ctx<'c> {
    ctx: NonNull<raw::RedisModuleCtx>,
    callback: PhantomData<&'c ()>,
}

impl<'c> Ctx<'c> {
    /// `None` for a null pointer.
    ///
    /// # Safety
    /// The server passed `ctx` to the running callback, or the module created it; it is valid for `'c`.
    pub unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Option<Ctx<'c>> {
        Some(Ctx { ctx: NonNull::new(ctx)?, callback: PhantomData })
    }

    /// For calls to the API.
    pub fn raw(self) -> *mut raw::RedisModuleCtx {
        self.ctx.as_ptr()
    }

    /// The flags of the context's client and of the server: `REDISMODULE_CTX_FLAGS_…`. Not for the hot path, because
    /// the server inspects its memory and threads for it.
    pub fn flags(self) -> u32 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetContextFlags(self.raw())) as u32 }
    }

    /// Whether any of these flags is set.
    pub fn has_flag(self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    /// The server's id of the client. In a script it is the id of the script's own client, in a call by another module
    /// that of a temporary one.
    pub fn client_id(self) -> u64 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetClientId(self.raw())) }
    }

    /// The selected database.
    pub fn db(self) -> i32 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetSelectedDb(self.raw())) }
    }

    /// Selects a database. False: it does not exist. Use it only on the context of a timer, or restore the old one
    /// afterwards; elsewhere it may change the client's own database.
    pub fn select_db(self, db: i32) -> bool {
        // SAFETY: the context is valid; a database that is out of range is refused.
        unsafe { api!(RedisModule_SelectDb(self.raw(), db)) == raw::REDISMODULE_OK as c_int }
    }

    /// Runs `work` in another database, and then selects the client's own again, even after a panic.
    pub fn in_db<R>(self, db: i32, work: impl FnOnce() -> R) -> R {
        struct SelectAgain<'c>(Ctx<'c>, i32);

        impl Drop for SelectAgain<'_> {
            fn drop(&mut self) {
                self.0.select_db(self.1);
            }
        }

        let _again = SelectAgain(self, self.db());
        self.select_db(db);
        work()
    }

    /// Whether all databases are empty. Only for the module's own context: it leaves another database selected.
    pub fn are_all_dbs_empty(self) -> bool {
        // SAFETY: the context is valid.
        let is_empty = || unsafe { api!(RedisModule_DbSize(self.raw())) } == 0;
        let db = self.db();
        let are_empty = (0..).take_while(|db| self.select_db(*db)).all(|_| is_empty());
        self.select_db(db);
        are_empty
    }

    /// Signals to WATCH and client-side caching that the key has changed.
    pub fn signal_modified(self, key: Str<'_>) {
        // SAFETY: both are valid.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw(), key.raw())) };
    }

    /// Logs a warning in the server's log.
    pub fn warn(self, message: &str) {
        self.log(LogLevel::Warning, message);
    }

    /// Writes a line to the server's log.
    pub fn log(self, level: LogLevel, message: &str) {
        log(self.raw(), level, message);
    }

    /// Publishes a keyspace event of class `d` for a key of the selected database. Other modules may subscribe to it,
    /// and may call our commands during this call.
    pub fn notify(self, event: &CStr, key: Str<'_>) {
        let class = raw::REDISMODULE_NOTIFY_MODULE as c_int;
        // SAFETY: all arguments are valid, and the name is NUL-terminated.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.raw(), class, event.as_ptr(), key.raw())) };
    }

    /// Whether the server must not send replication traffic now: a pause, a failover, a shutdown.
    pub fn avoids_replica_traffic(self) -> bool {
        // SAFETY: the function has no preconditions.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }
}

/// Each method appends to the reply to the context's client.
impl ReplyWriter for Ctx<'_> {
    fn array(&mut self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithArray(self.raw(), len as c_long)) };
    }

    fn map(&mut self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithMap(self.raw(), len as c_long)) };
    }

    fn integer(&mut self, number: i64) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.raw(), number)) };
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer(self.raw(), bytes.as_ptr().cast(), bytes.len())) };
    }

    fn status(&mut self, line: &str) {
        // Avoids copying `OK`, which is the reply to each effect that a replica applies.
        let line = if line == "OK" { Cow::from(c"OK") } else { CString::new(line).unwrap_or_default().into() };
        // SAFETY: the string is NUL-terminated and copied.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw(), line.as_ptr())) };
    }

    fn null(&mut self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNullArray(self.raw())) };
    }

    fn null_string(&mut self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNull(self.raw())) };
    }

    fn error(&mut self, error: &ErrorReply) {
        let text = CString::new(error.as_str()).unwrap_or_default();
        // SAFETY: the string is NUL-terminated and copied.
        unsafe { api!(RedisModule_ReplyWithError(self.raw(), text.as_ptr())) };
    }
}

/// Runs a callback; `None` if it panicked, which is logged.
pub fn guard<R>(what: &str, work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| log(null_mut(), LogLevel::Warning, &format!("redis-lock: a bug in {what}, please report it")))
        .ok()
}

/// The level of a line in the server's log; `loglevel` filters by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Omitted at `warning`.
    Notice,
    /// Omitted only at `nothing`, which Redis 8 has.
    Warning,
}

/// Writes a line to the server's log.
fn log(ctx: *mut raw::RedisModuleCtx, level: LogLevel, message: &str) {
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    let level = match level {
        LogLevel::Notice => c"notice",
        LogLevel::Warning => c"warning",
    };
    // SAFETY: the format takes one NUL-terminated string; a null context is allowed.
    unsafe { api!(RedisModule_Log(ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
}
