//! Sends commands to replicas and the append-only file. The crate's own function accepts only strings without NUL, and
//! builds a vector for each call.

use std::ffi::{c_longlong, CStr};

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::Str;

/// What follows the key in a replicated command.
#[derive(Clone, Copy)]
pub enum Rest<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Word(&'a CStr),
    WordAndBytes(&'a CStr, &'a [u8]),
    WordAndInteger(&'a CStr, i64),
}

/// An append-only file that is being rewritten.
#[derive(Clone, Copy)]
pub struct AofRewrite(pub(super) *mut raw::RedisModuleIO);

/// The option `VALKEYMODULE_OPTIONS_SKIP_COMMAND_VALIDATION`: Valkey then does not look up the name of each command
/// that the module sends, which saves two lookups per acquire/release pair. Redis may use this number for another
/// option.
pub const UNCHECKED_ON_VALKEY: u32 = 1 << 4;

/// Calls an API function that takes a command in parts: format and arguments match, and the server copies what it
/// keeps.
macro_rules! pass_command {
    ($function:ident, $target:expr, $command:expr, $key:expr, $rest:expr) => {{
        let (target, command, key) = ($target, $command.as_ptr(), $key.raw());
        match $rest {
            Rest::Nothing => api!($function(target, command, c"s".as_ptr(), key)),
            Rest::Bytes(a) => api!($function(target, command, c"sb".as_ptr(), key, a.as_ptr(), a.len())),
            Rest::Word(word) => api!($function(target, command, c"sc".as_ptr(), key, word.as_ptr())),
            Rest::WordAndBytes(word, a) => {
                api!($function(target, command, c"scb".as_ptr(), key, word.as_ptr(), a.as_ptr(), a.len()))
            }
            Rest::WordAndInteger(word, n) => {
                api!($function(target, command, c"scl".as_ptr(), key, word.as_ptr(), n as c_longlong))
            }
        };
    }};
}

impl AofRewrite {
    /// # Safety
    /// The server passed it to the running `aof_rewrite` callback.
    pub unsafe fn new(aof: *mut raw::RedisModuleIO) -> AofRewrite {
        AofRewrite(aof)
    }

    /// Writes `command key …`.
    pub fn emit(self, command: &CStr, key: Str<'_>, rest: Rest<'_>) {
        // SAFETY: the file is valid; see the macro.
        unsafe { pass_command!(RedisModule_EmitAOF, self.0, command, key, rest) };
    }
}

impl Ctx<'_> {
    /// Sends `command key …`.
    #[inline]
    pub fn replicate(self, command: &CStr, key: Str<'_>, rest: Rest<'_>) {
        // SAFETY: the context is valid; see the macro.
        unsafe { pass_command!(RedisModule_Replicate, self.raw(), command, key, rest) };
    }

    /// Asks the replicas to acknowledge immediately what they have received; otherwise they do so once a second.
    pub fn ask_replicas(self) {
        // `A`: not to the append-only file. WAIT asks in the same way.
        // SAFETY: format and arguments match; the server copies what it keeps.
        unsafe {
            let (getack, every) = (c"GETACK".as_ptr(), c"*".as_ptr());
            api!(RedisModule_Replicate(self.raw(), c"REPLCONF".as_ptr(), c"Acc".as_ptr(), getack, every));
        }
    }

    /// Replicates the running command unchanged. Without a consumer, the server only counts the change for its save
    /// points. Call it only with the context of a command: a timer has no command to send.
    pub fn replicate_verbatim(self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.raw())) };
    }
}
