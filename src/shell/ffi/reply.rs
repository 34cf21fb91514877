//! Replies. Each adds to the reply of the context's client.

use std::ffi::{c_long, CString};

use command::errors::ErrorReply;
use command::reply::ReplyWriter;

use super::api;
use super::context::Ctx;

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
        if line == "OK" {
            return self.reply_ok();
        }
        let line = CString::new(line).unwrap_or_default();
        // SAFETY: the string ends with a NUL and is copied.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw(), line.as_ptr())) };
    }

    fn null(&mut self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNullArray(self.raw())) };
    }

    fn null_bulk(&mut self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNull(self.raw())) };
    }

    fn error(&mut self, error: &ErrorReply) {
        let text = CString::new(error.as_str()).unwrap_or_default();
        // SAFETY: the string ends with a NUL and is copied.
        unsafe { api!(RedisModule_ReplyWithError(self.raw(), text.as_ptr())) };
    }
}

impl Ctx<'_> {
    /// `+OK`, without a copy of the word: each effect that a replica applies is answered so.
    fn reply_ok(self) {
        // SAFETY: the string is static.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw(), c"OK".as_ptr())) };
    }
}
