//! An open key.

use std::ffi::{c_int, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

use lock::value::time::{Deadline, Timestamp};
use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::Str;

/// An open key; closed when dropped.
pub struct KeyHandle<'c> {
    key: NonNull<raw::RedisModuleKey>,
    callback: PhantomData<&'c ()>,
}

/// The content of an open key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawContent {
    Empty,
    /// A value of our type.
    Ours(NonNull<c_void>),
    /// A value of another type.
    Foreign,
}

impl<'c> KeyHandle<'c> {
    /// Opens for reading and writing. Deletes an expired key, which triggers keyspace events and `unlink2` inside this
    /// call.
    #[inline(always)]
    pub fn write(ctx: Ctx<'c>, name: Str<'_>) -> KeyHandle<'c> {
        let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
        // SAFETY: both are valid.
        let key = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), mode)) };
        let key = NonNull::new(key).expect("a key that is opened for writing is never null");
        KeyHandle { key, callback: PhantomData }
    }

    /// Opens for reading; `None` for a free or expired key.
    pub fn read(ctx: Ctx<'c>, name: Str<'_>) -> Option<KeyHandle<'c>> {
        // SAFETY: both are valid.
        let key = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), raw::REDISMODULE_READ as c_int)) };
        Some(KeyHandle { key: NonNull::new(key)?, callback: PhantomData })
    }

    /// The value under the key; `ours` is the server's handle for our data type.
    #[inline(always)]
    pub fn content(&self, ours: *mut raw::RedisModuleType) -> RawContent {
        // SAFETY: the key is open; a value of our type is a pointer that we stored.
        unsafe {
            if api!(RedisModule_ModuleTypeGetType(self.raw())) == ours {
                if let Some(value) = NonNull::new(api!(RedisModule_ModuleTypeGetValue(self.raw()))) {
                    return RawContent::Ours(value);
                }
            }
            match api!(RedisModule_KeyType(self.raw())) {
                kind if kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int => RawContent::Empty,
                _ => RawContent::Foreign,
            }
        }
    }

    /// Replaces the value with one of our type, without expiry.
    ///
    /// # Safety
    /// The key is open for writing; `value` is what the data type's `free` expects, and nothing else frees it.
    #[inline]
    pub unsafe fn set(&self, ours: *mut raw::RedisModuleType, value: NonNull<c_void>) {
        // SAFETY: guaranteed by the caller.
        unsafe { api!(RedisModule_ModuleTypeSetValue(self.raw(), ours, value.as_ptr())) };
    }

    /// Deletes the key and frees its value.
    ///
    /// # Safety
    /// The key is open for writing, and no reference to its value exists.
    #[inline]
    pub unsafe fn delete(&self) {
        // SAFETY: guaranteed by the caller.
        unsafe { api!(RedisModule_DeleteKey(self.raw())) };
    }

    /// The key's deadline. Do not call it for an empty key: Redis 8.2 would dereference a null pointer.
    pub fn until(&self) -> Deadline {
        // SAFETY: the key is open.
        let ms = u64::try_from(unsafe { api!(RedisModule_GetAbsExpire(self.raw())) });
        ms.map_or(Deadline::Never, |ms| Deadline::At(Timestamp::from_ms(ms)))
    }

    /// Sets the key's deadline. Has no effect on a key that is open for reading.
    #[inline]
    pub fn set_until(&self, until: Deadline) {
        let never = raw::REDISMODULE_NO_EXPIRE as c_longlong;
        let when = until.timestamp().map_or(never, Timestamp::signed_ms);
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_SetAbsExpire(self.raw(), when)) };
    }

    fn raw(&self) -> *mut raw::RedisModuleKey {
        self.key.as_ptr()
    }
}

impl Drop for KeyHandle<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the key is open, and nothing else closes it.
        unsafe { api!(RedisModule_CloseKey(self.raw())) };
    }
}
