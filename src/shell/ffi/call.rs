//! Calls of the server's own commands.

use std::ffi::{c_int, CStr};
use std::ptr::NonNull;

use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::string::Str;

/// The slot of a key, by the server's own command: not every server has a call for it. `None` where there are no slots.
pub fn slot(ctx: Ctx<'_>, key: Str<'_>) -> Option<i64> {
    // SAFETY: the reply is freed; formats and types agree.
    unsafe {
        let reply =
            api!(RedisModule_Call(ctx.raw(), c"CLUSTER".as_ptr(), c"cs".as_ptr(), c"KEYSLOT".as_ptr(), key.raw()));
        let reply = NonNull::new(reply)?;
        let slot = api!(RedisModule_CallReplyInteger(reply.as_ptr()));
        api!(RedisModule_FreeCallReply(reply.as_ptr()));
        Some(slot)
    }
}

/// Runs `command key word` as a script would, so that the server refuses what it would refuse a client.
///
/// # Errors
/// The server refuses it; the number of its error (`errno`).
pub fn call_as_script(ctx: Ctx<'_>, command: &CStr, key: Str<'_>, word: &CStr) -> Result<(), i32> {
    // `S`: as a script. `E`: a refusal is a reply, without which Valkey 9.1 reads a null pointer.
    // SAFETY: format and arguments agree; the reply is freed below.
    let (reply, error) = unsafe {
        let reply = api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"SEsc".as_ptr(), key.raw(), word.as_ptr()));
        (NonNull::new(reply), std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    };
    // SAFETY: the reply is ours.
    let is_accepted = reply.is_some_and(|reply| unsafe {
        let kind = api!(RedisModule_CallReplyType(reply.as_ptr()));
        api!(RedisModule_FreeCallReply(reply.as_ptr()));
        kind != raw::REDISMODULE_REPLY_ERROR as c_int
    });
    if is_accepted {
        Ok(())
    } else {
        Err(error)
    }
}
