//! Command filters: the server calls them for each command before it decides about it, whoever sends it.

use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::{OwnedStr, Str};

/// What the server calls for each command: of clients, also when it is only queued in a transaction, and of scripts and
/// modules. What `EXEC` runs it is not called for.
pub type FilterCallback = unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx);

/// A filter that is registered.
#[derive(Clone, Copy)]
pub struct CommandFilter(NonNull<raw::RedisModuleCommandFilter>);

impl CommandFilter {
    /// Registers a filter: it is called from the next command on.
    pub fn register(ctx: Ctx<'_>, callback: FilterCallback) -> Option<CommandFilter> {
        // SAFETY: the callback is a function of this module.
        NonNull::new(unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(callback), 0)) })
            .map(CommandFilter)
    }

    /// Ends it.
    ///
    /// # Safety
    /// It was not ended before, and no filter is being called: the server walks its list then.
    pub unsafe fn unregister(self, ctx: Ctx<'_>) {
        // SAFETY: the filter is this module's; the caller vouches for the rest.
        unsafe { api!(RedisModule_UnregisterCommandFilter(ctx.raw(), self.0.as_ptr())) };
    }
}

/// The command that a filter is called for.
pub struct FilteredCommand<'c> {
    command: *mut raw::RedisModuleCommandFilterCtx,
    callback: PhantomData<&'c ()>,
}

impl<'c> FilteredCommand<'c> {
    /// # Safety
    /// The server passed it to the filter that it calls, which runs for `'c`.
    pub unsafe fn new(command: *mut raw::RedisModuleCommandFilterCtx) -> FilteredCommand<'c> {
        FilteredCommand { command, callback: PhantomData }
    }

    /// How many arguments it has, its name among them.
    #[inline]
    pub fn argument_count(&self) -> i32 {
        // SAFETY: the command is being filtered.
        unsafe { api!(RedisModule_CommandFilterArgsCount(self.command)) }
    }

    /// An argument; the first is the command's name, as it was sent.
    #[inline]
    pub fn argument(&self, position: i32) -> Option<Str<'_>> {
        // SAFETY: the command is being filtered; an argument stays as long as it is not replaced, which needs `&mut`.
        unsafe { Str::new(api!(RedisModule_CommandFilterArgGet(self.command, position))) }
    }

    /// Puts another string object with the same bytes in the place of the name.
    pub fn copy_name(&mut self) {
        let Some(copy) = self.argument(0).map(|name| OwnedStr::new(name.bytes())) else { return };
        // SAFETY: the command is being filtered; the server owns the new string then.
        if unsafe { api!(RedisModule_CommandFilterArgReplace(self.command, 0, copy.as_str().raw())) } == 0 {
            std::mem::forget(copy);
        }
    }
}
