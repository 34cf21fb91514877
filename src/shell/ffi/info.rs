//! How the module adds a section to INFO.

use std::ffi::CString;

use redis_module::raw;

use super::api;
use super::context::Ctx;

/// What the server calls when it collects INFO; the second argument is not 0 in a crash report.
pub type InfoCallback = unsafe extern "C" fn(*mut raw::RedisModuleInfoCtx, i32);

/// The server asks for a section of INFO from now on. False: it refuses.
pub fn register(ctx: Ctx<'_>, callback: InfoCallback) -> bool {
    // SAFETY: the callback is a function of this module.
    let registered = unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(callback))) };
    registered == raw::REDISMODULE_OK as i32
}

/// The section that has the module's name.
pub struct Section {
    info: *mut raw::RedisModuleInfoCtx,
}

impl Section {
    /// `None`: nobody asked for it.
    ///
    /// # Safety
    /// It is what the server passed to the callback that is running, and is not used after it.
    pub unsafe fn begin(info: *mut raw::RedisModuleInfoCtx) -> Option<Section> {
        // SAFETY: the caller vouches for it; the name is left out.
        let begun = unsafe { api!(RedisModule_InfoAddSection(info, std::ptr::null())) };
        (begun == raw::REDISMODULE_OK as i32).then_some(Section { info })
    }

    /// A field, under the module's name and this one.
    pub fn number(&self, name: &str, number: u64) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the section is open, the name is copied.
        unsafe { api!(RedisModule_InfoAddFieldULongLong(self.info, name.as_ptr(), number)) };
    }

    /// The same with a word.
    pub fn text(&self, name: &str, text: &str) {
        let (Ok(name), Ok(text)) = (CString::new(name), CString::new(text)) else { return };
        // SAFETY: the section is open, both are copied.
        unsafe { api!(RedisModule_InfoAddFieldCString(self.info, name.as_ptr(), text.as_ptr())) };
    }
}
