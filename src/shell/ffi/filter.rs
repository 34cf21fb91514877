//! A command filter: the server calls it for every command before it looks the command up.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::null_mut;

use redis_module::raw;

use super::context::Ctx;
use super::string::{OwnedStr, Str};
use super::{api, api_unchecked, probe};

pub struct FilteredCommand<'c>(*mut raw::RedisModuleCommandFilterCtx, PhantomData<&'c ()>);

/// The callback for every command.
pub type FilterCallback = unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx);

/// Registers a filter permanently. False: the server refuses.
pub fn register(ctx: Ctx<'_>, callback: FilterCallback) -> bool {
    // SAFETY: the callback is a function of this module, which is never unloaded once it is loaded.
    !unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(callback), 0)) }.is_null()
}

/// The origin of a command that is being filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A connection, or a call by another module.
    Connection,
    /// A script or a function.
    Script,
    /// A primary, or a file that is being loaded.
    Log,
}

/// The caller, derived without a context from what applies to the server as a whole.
pub fn caller() -> Caller {
    let flags = flags();
    if flags & (raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_LOADING) != 0 {
        Caller::Log
    } else if flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0 {
        Caller::Script
    } else {
        Caller::Connection
    }
}

/// Whether a script is running, or the server is following a primary or loading data.
pub fn is_in_script_or_follows() -> bool {
    caller() != Caller::Connection
}

fn flags() -> u32 {
    // SAFETY: a command is being filtered, so the module is loaded. Without a context the server reports only flags
    // that apply to it as a whole.
    unsafe { api_unchecked!(RedisModule_GetContextFlags(null_mut())) as u32 }
}

impl FilteredCommand<'_> {
    /// # Safety
    /// The server passed it to the running callback.
    #[inline]
    pub unsafe fn new(command: *mut raw::RedisModuleCommandFilterCtx) -> Self {
        FilteredCommand(command, PhantomData)
    }

    /// The number of arguments, including the command's name.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: the command is being filtered, so the module is loaded.
        usize::try_from(unsafe { api_unchecked!(RedisModule_CommandFilterArgsCount(self.0)) }).unwrap_or(0)
    }

    /// An argument; the name is argument 0. It must not be kept when arguments change.
    #[inline]
    pub fn arg(&self, position: usize) -> Option<&[u8]> {
        let position = i32::try_from(position).ok()?;
        // SAFETY: the command is being filtered; the server returns null for an invalid position. Only `insert_first`
        // changes arguments, and nothing is read after it.
        unsafe { Str::new(api!(RedisModule_CommandFilterArgGet(self.0, position))) }.map(Str::bytes)
    }

    /// The first byte of an argument, 0 if it is empty. Takes half the instructions of `arg`.
    #[inline]
    pub fn first_byte(&self, position: c_int) -> Option<u8> {
        // SAFETY: the command is being filtered, so the module is loaded; the server returns null for an invalid
        // position, and every string has a NUL after its bytes. The length is not read.
        unsafe {
            let string = api_unchecked!(RedisModule_CommandFilterArgGet(self.0, position));
            if string.is_null() {
                return None;
            }
            Some(*api_unchecked!(RedisModule_StringPtrLen(string, null_mut())).cast())
        }
    }

    /// The connection that sent it. `None`: Redis 7.0 does not report it.
    pub fn client(&self) -> Option<u64> {
        // SAFETY: the command is being filtered.
        probe!(RedisModule_CommandFilterGetClientId).map(|client| unsafe { client(self.0) })
    }

    /// Inserts an argument before all others.
    pub fn insert_first(&self, word: &[u8]) {
        let word = OwnedStr::new(word);
        // SAFETY: the command is being filtered; the server owns the string once it has taken it.
        if unsafe { api!(RedisModule_CommandFilterArgInsert(self.0, 0, word.as_str().raw())) } == 0 {
            std::mem::forget(word);
        }
    }
}
