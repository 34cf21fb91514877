//! RDB input and output: RDB files, DUMP and RESTORE, replication snapshots. The input may be arbitrary bytes.

use std::ffi::c_char;

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::Str;

/// The RDB stream that the running callback reads or writes.
#[derive(Clone, Copy)]
pub struct Rdb(*mut raw::RedisModuleIO);

impl Rdb {
    /// # Safety
    /// The server passed `rdb` to the running callback. The module has set `REDISMODULE_OPTIONS_HANDLE_IO_ERRORS`, so
    /// that a failed read returns instead of ending the server.
    pub unsafe fn new(rdb: *mut raw::RedisModuleIO) -> Rdb {
        Rdb(rdb)
    }

    /// Writes a string.
    pub fn save_bytes(self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe { api!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast::<c_char>(), bytes.len())) };
    }

    pub fn save_unsigned(self, number: u64) {
        // SAFETY: the stream is open for writing.
        unsafe { api!(RedisModule_SaveUnsigned(self.0, number)) };
    }

    /// Reads a string, copied; `None` if the input is truncated.
    pub fn load_bytes(self) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the buffer is ours to free.
        unsafe {
            let start = api!(RedisModule_LoadStringBuffer(self.0, &mut len));
            if start.is_null() {
                return None;
            }
            let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
            api!(RedisModule_Free(start.cast()));
            (!self.is_broken()).then_some(bytes)
        }
    }

    /// Reads a number; `None` if the input is truncated.
    pub fn load_unsigned(self) -> Option<u64> {
        // SAFETY: the stream is open for reading.
        let number = unsafe { api!(RedisModule_LoadUnsigned(self.0)) };
        (!self.is_broken()).then_some(number)
    }

    /// The context of the load or save.
    pub fn context(&self) -> Option<Ctx<'_>> {
        // SAFETY: the context belongs to the running callback.
        unsafe { Ctx::new(api!(RedisModule_GetContextFromIO(self.0))) }
    }

    /// The key being loaded or saved, and its database; `None` if the server does not report them.
    pub fn key(&self) -> Option<(i32, Str<'_>)> {
        // SAFETY: the name lives as long as the load or save.
        unsafe {
            let name = Str::new(api!(RedisModule_GetKeyNameFromIO(self.0)).cast_mut())?;
            let db = api!(RedisModule_GetDbIdFromIO(self.0));
            (db >= 0).then_some((db, name))
        }
    }

    fn is_broken(self) -> bool {
        // SAFETY: the stream is open for reading.
        unsafe { api!(RedisModule_IsIOError(self.0)) != 0 }
    }
}

/// The digest of a value, computed for `DEBUG DIGEST`.
#[derive(Clone, Copy)]
pub struct Digest(*mut raw::RedisModuleDigest);

impl Digest {
    /// # Safety
    /// The server passed `digest` to the running callback.
    pub unsafe fn new(digest: *mut raw::RedisModuleDigest) -> Digest {
        Digest(digest)
    }

    /// Adds a sequence. The digest depends on the order of the strings in a sequence, but not on the order of the
    /// sequences.
    pub fn add_sequence<const N: usize>(self, strings: [&[u8]; N]) {
        for bytes in strings {
            // SAFETY: the server reads the bytes during this call.
            unsafe { api!(RedisModule_DigestAddStringBuffer(self.0, bytes.as_ptr().cast::<c_char>(), bytes.len())) };
        }
        // SAFETY: the digest is valid.
        unsafe { api!(RedisModule_DigestEndSequence(self.0)) };
    }
}
