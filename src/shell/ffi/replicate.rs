//! Commands sent to replicas and the append-only file. The crate's own takes strings without a NUL only and builds a
//! vector for each call.

use std::ffi::{c_longlong, CStr};

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::Str;

/// What follows the key and the word of a replicated command.
#[derive(Clone, Copy)]
pub enum Rest<'a> {
    /// Nothing.
    Nothing,
    /// One argument.
    Bytes(&'a [u8]),
    /// Two arguments.
    TwoBytes(&'a [u8], &'a [u8]),
    /// A number.
    Integer(i64),
}

/// A file that is being rewritten.
#[derive(Clone, Copy)]
pub struct AofRewrite(pub(super) *mut raw::RedisModuleIO);

impl AofRewrite {
    /// # Safety
    /// The server passed it to the `aof_rewrite` callback that is running.
    pub unsafe fn new(aof: *mut raw::RedisModuleIO) -> AofRewrite {
        AofRewrite(aof)
    }

    /// Writes `command key word …`.
    pub fn emit(self, command: &CStr, key: Str<'_>, word: &CStr, rest: Rest<'_>) {
        let (aof, command, key, word) = (self.0, command.as_ptr(), key.raw(), word.as_ptr());
        // SAFETY: formats and arguments agree; the server copies what it keeps.
        unsafe {
            match rest {
                Rest::Nothing => api!(RedisModule_EmitAOF(aof, command, c"sc".as_ptr(), key, word)),
                Rest::Bytes(a) => {
                    api!(RedisModule_EmitAOF(aof, command, c"scb".as_ptr(), key, word, a.as_ptr(), a.len()))
                }
                Rest::TwoBytes(a, b) => api!(RedisModule_EmitAOF(
                    aof,
                    command,
                    c"scbb".as_ptr(),
                    key,
                    word,
                    a.as_ptr(),
                    a.len(),
                    b.as_ptr(),
                    b.len()
                )),
                Rest::Integer(n) => {
                    api!(RedisModule_EmitAOF(aof, command, c"scl".as_ptr(), key, word, n as c_longlong))
                }
            };
        }
    }

    /// Writes `command key`.
    pub fn emit_key(self, command: &CStr, key: Str<'_>) {
        // SAFETY: format and arguments agree.
        unsafe { api!(RedisModule_EmitAOF(self.0, command.as_ptr(), c"s".as_ptr(), key.raw())) };
    }
}

impl Ctx<'_> {
    /// Sends `command key word …`.
    #[inline]
    pub fn replicate(self, command: &CStr, key: Str<'_>, word: &CStr, rest: Rest<'_>) {
        let (ctx, command, key, word) = (self.raw(), command.as_ptr(), key.raw(), word.as_ptr());
        // SAFETY: formats and arguments agree; the server copies what it keeps.
        unsafe {
            match rest {
                Rest::Nothing => api!(RedisModule_Replicate(ctx, command, c"sc".as_ptr(), key, word)),
                Rest::Bytes(a) => {
                    api!(RedisModule_Replicate(ctx, command, c"scb".as_ptr(), key, word, a.as_ptr(), a.len()))
                }
                Rest::TwoBytes(a, b) => api!(RedisModule_Replicate(
                    ctx,
                    command,
                    c"scbb".as_ptr(),
                    key,
                    word,
                    a.as_ptr(),
                    a.len(),
                    b.as_ptr(),
                    b.len()
                )),
                Rest::Integer(n) => {
                    api!(RedisModule_Replicate(ctx, command, c"scl".as_ptr(), key, word, n as c_longlong))
                }
            };
        }
    }

    /// Sends `command key`.
    pub fn replicate_key(self, command: &CStr, key: Str<'_>) {
        // SAFETY: format and arguments agree.
        unsafe { api!(RedisModule_Replicate(self.raw(), command.as_ptr(), c"s".as_ptr(), key.raw())) };
    }

    /// Asks the replicas to acknowledge at once what they were sent before; otherwise they do once a second.
    pub fn ask_replicas(self) {
        // `A`: not to the append-only file. This is how WAIT asks.
        // SAFETY: format and arguments agree; the server copies what it keeps.
        unsafe {
            let (getack, every) = (c"GETACK".as_ptr(), c"*".as_ptr());
            api!(RedisModule_Replicate(self.raw(), c"REPLCONF".as_ptr(), c"Acc".as_ptr(), getack, every));
        }
    }

    /// Sends the command that is running as it came; where nobody consumes it, the server only counts the change, for
    /// its save points. Only on the context of a command.
    pub fn replicate_verbatim(self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.raw())) };
    }
}
