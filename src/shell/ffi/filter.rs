//! A command filter: the server calls it for every command, before it looks the command up.

use std::marker::PhantomData;

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::{OwnedStr, Str};

/// A command that is being filtered.
pub struct FilteredCommand<'c>(*mut raw::RedisModuleCommandFilterCtx, PhantomData<&'c ()>);

/// The callback for every command.
pub type FilterCallback = unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx);

/// Registers a filter, for good. False: the server refuses.
pub fn register(ctx: Ctx<'_>, callback: FilterCallback) -> bool {
    // SAFETY: the callback is a function of this module, which is never unloaded after it was loaded.
    !unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(callback), 0)) }.is_null()
}

impl FilteredCommand<'_> {
    /// # Safety
    /// The server passed it to the callback that is running.
    #[inline]
    pub unsafe fn new(command: *mut raw::RedisModuleCommandFilterCtx) -> Self {
        FilteredCommand(command, PhantomData)
    }

    /// How many arguments it has, its name among them.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: the command is being filtered.
        usize::try_from(unsafe { api!(RedisModule_CommandFilterArgsCount(self.0)) }).unwrap_or(0)
    }

    /// An argument, its name being argument 0. Not to be kept when arguments change.
    #[inline]
    pub fn arg(&self, position: usize) -> Option<&[u8]> {
        let position = i32::try_from(position).ok()?;
        // SAFETY: the command is being filtered; the server has no argument at a wrong position. Arguments change in
        // `insert_first` only, behind which nothing is read.
        unsafe { Str::new(api!(RedisModule_CommandFilterArgGet(self.0, position))) }.map(Str::bytes)
    }

    /// Puts an argument in front of all.
    pub fn insert_first(&self, word: &[u8]) {
        let word = OwnedStr::new(word);
        // SAFETY: the command is being filtered; the server owns the string once it has taken it.
        if unsafe { api!(RedisModule_CommandFilterArgInsert(self.0, 0, word.as_str().raw())) } == 0 {
            std::mem::forget(word);
        }
    }
}
