//! Calls of the server's own commands.

use std::ffi::{c_int, CStr};
use std::marker::PhantomData;
use std::ptr::NonNull;

use command::host::Scanned;
use redis_module::raw;

use super::context::Ctx;
use super::guard::guard;
use super::string::{OwnedStr, Str};
use super::{api, probe};

/// Whether the server would run a command with all of these keys, which have one slot. It would not if some of them
/// have gone to the slot's new node, or have not come from the old one yet.
pub fn may_read_together(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    // `D`: nothing is run, so nothing is counted as read or tracked for the client. A server without it, Redis 7.0,
    // does not track what a module reads. 7.2 brought it, and the function that is probed.
    let is_dry = probe!(RedisModule_CachedMicroseconds).is_some();
    let format = if is_dry { c"DEv" } else { c"Ev" };
    // SAFETY: format and arguments agree, `Str` is a transparent wrapper of a pointer; the reply is freed.
    unsafe {
        let (start, count) = (keys.as_ptr().cast::<*mut raw::RedisModuleString>(), keys.len());
        let reply = api!(RedisModule_Call(ctx.raw(), c"EXISTS".as_ptr(), format.as_ptr(), start, count));
        let Some(reply) = NonNull::new(reply) else { return is_dry };
        let kind = api!(RedisModule_CallReplyType(reply.as_ptr()));
        api!(RedisModule_FreeCallReply(reply.as_ptr()));
        kind != raw::REDISMODULE_REPLY_ERROR as c_int
    }
}

/// Runs SCAN with these arguments, without permissions being checked.
///
/// # Errors
/// The server refuses it; the number of its error (`errno`).
pub fn scan(ctx: Ctx<'_>, args: &[&[u8]]) -> Result<Scanned, i32> {
    let args: Vec<_> = args.iter().map(|arg| OwnedStr::new(arg)).collect();
    let args: Vec<_> = args.iter().map(OwnedStr::as_str).collect();
    // SAFETY: format and arguments agree, `Str` is a transparent wrapper of a pointer; the reply is freed by its
    // wrapper.
    let reply = unsafe {
        let (start, count) = (args.as_ptr().cast::<*mut raw::RedisModuleString>(), args.len());
        let reply = api!(RedisModule_Call(ctx.raw(), c"SCAN".as_ptr(), c"v".as_ptr(), start, count));
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Reply(NonNull::new(reply).ok_or(error)?)
    };
    let (Some(cursor), Some(keys)) = (reply.element(0), reply.element(1)) else { return Err(0) };
    let (Some(cursor), length) = (cursor.text(), keys.len()) else { return Err(0) };
    let cursor = cursor.to_vec();
    let keys = (0..length).filter_map(|index| Some(keys.element(index)?.text()?.to_vec())).collect();
    Ok(Scanned { cursor, keys })
}

/// The reply to a call, freed when dropped.
struct Reply(NonNull<raw::RedisModuleCallReply>);

/// A part of it.
struct Part<'r>(NonNull<raw::RedisModuleCallReply>, PhantomData<&'r Reply>);

impl Reply {
    fn element(&self, index: usize) -> Option<Part<'_>> {
        Part(self.0, PhantomData).element(index)
    }
}

impl<'r> Part<'r> {
    /// How many elements it has; no array has none.
    fn len(&self) -> usize {
        // SAFETY: the reply is valid.
        unsafe { api!(RedisModule_CallReplyLength(self.0.as_ptr())) }
    }

    fn element(&self, index: usize) -> Option<Part<'r>> {
        // SAFETY: the reply is valid, and its elements are as long as it is; what is no array, or too short, has none.
        let element = unsafe { api!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), index)) };
        Some(Part(NonNull::new(element)?, PhantomData))
    }

    fn text(&self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the reply is valid, and so are its bytes; what is no string has none.
        unsafe {
            let start = api!(RedisModule_CallReplyStringPtr(self.0.as_ptr(), &mut len));
            let start = NonNull::new(start.cast_mut())?;
            Some(std::slice::from_raw_parts(start.as_ptr().cast(), len))
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}

/// Repeats a call that the server has refused with `EPERM`, with a repaired client.
///
/// The server lends each call one of a pool of clients. If the last call of such a client, of any module or script,
/// named keys of several slots, Valkey 9.1 does not reset that: every later call with that client is answered `EPERM`,
/// until the server ends. It resets it when a command filter has changed the command's name; so a filter replaces the
/// name by another string with the same bytes. This repairs the client for good.
pub fn call_again<R>(ctx: Ctx<'_>, call: impl FnOnce() -> R) -> R {
    let _filter = CopyingNames::begin(ctx);
    call()
}

/// A command filter, which is called for every command of the server: it is there for one call only.
struct CopyingNames<'c>(Ctx<'c>, NonNull<raw::RedisModuleCommandFilter>);

impl CopyingNames<'_> {
    fn begin(ctx: Ctx<'_>) -> Option<CopyingNames<'_>> {
        // SAFETY: the callback is a function of this module.
        let filter = unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(copy_name), 0)) };
        NonNull::new(filter).map(|filter| CopyingNames(ctx, filter))
    }
}

impl Drop for CopyingNames<'_> {
    fn drop(&mut self) {
        // SAFETY: the filter is this module's and ended once, here; no command is being filtered.
        unsafe { api!(RedisModule_UnregisterCommandFilter(self.0.raw(), self.1.as_ptr())) };
    }
}

/// Puts another string object with the same bytes in the place of the command's name.
unsafe extern "C" fn copy_name(command: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the command is being filtered; the server owns the new string once it has replaced the old one.
    guard("command filter", || unsafe {
        let Some(name) = Str::new(api!(RedisModule_CommandFilterArgGet(command, 0))) else { return };
        let copy = OwnedStr::new(name.bytes());
        if api!(RedisModule_CommandFilterArgReplace(command, 0, copy.as_str().raw())) == 0 {
            std::mem::forget(copy);
        }
    });
}

/// Runs `command key word` as a script would, so that the server refuses it as it would refuse a client.
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

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno_of_thread;
/// Where the C library keeps this thread's `errno`.
#[cfg(target_os = "macos")]
use libc::__error as errno_of_thread;

/// The permissions with which a command is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAs {
    /// The permissions of the user of the context's client.
    Caller,
    /// All: the caller is another module that has no user.
    Module,
}

/// The reply to a call, as the server wrote it; freed when dropped.
pub struct CallReply {
    reply: NonNull<raw::RedisModuleCallReply>,
    /// As the call left it; 0 before.
    errno: i32,
}

impl CallReply {
    /// The text of an error, without the leading `-`. `None`: the reply is no error.
    pub fn error(&self) -> Option<&[u8]> {
        let mut len = 0;
        // SAFETY: the reply is ours, and so are its bytes as long as it lives.
        let bytes = unsafe {
            let start = api!(RedisModule_CallReplyProto(self.reply.as_ptr(), &mut len));
            std::slice::from_raw_parts(NonNull::new(start.cast_mut())?.as_ptr().cast::<u8>(), len)
        };
        bytes.strip_prefix(b"-").map(<[u8]>::trim_ascii_end)
    }

    /// Whether the server did not run the command, as far as can be told: a command that ran may leave any number, and
    /// answer with anything. Good to count, and for nothing else.
    pub fn is_refusal(&self) -> bool {
        self.error().is_some_and(|words| is_refusal(self.errno, words))
    }
}

fn is_refusal(errno: i32, words: &[u8]) -> bool {
    match errno {
        libc::ENOTSUP => words.starts_with(b"ERR cannot run as user"),
        libc::EPERM => words.starts_with(b"ERR Attempted to access a non local key"),
        // Unknown, arity, scripts or persistence or replicas, memory, permissions; a cluster that is down.
        libc::ENOENT | libc::EINVAL | libc::ESPIPE | libc::ENOSPC | libc::EACCES => true,
        libc::EROFS | libc::ENETDOWN => true,
        _ => false,
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours.
        unsafe { api!(RedisModule_FreeCallReply(self.reply.as_ptr())) };
    }
}

impl Ctx<'_> {
    /// Runs a command as the context's client would in a script: with its permissions and protocol, in its database,
    /// under the server's rules for memory and replicas. Its effects are replicated. A refusal is a reply. `None`: the
    /// server does not know one of the flags.
    pub fn call(self, call_as: CallAs, command: &CStr, args: &[Str<'_>]) -> Option<CallReply> {
        // `!`: replicate. `C`: as the caller. `S`: as a script. `E`: a refusal is a reply, without which Valkey 9.1
        // reads a null pointer. `0`: in the caller's protocol. `M`: respect maxmemory.
        let format = match call_as {
            CallAs::Caller => c"!CSE0Mv",
            CallAs::Module => c"!SE0Mv",
        };
        // SAFETY: format and arguments agree, `Str` is a transparent wrapper of a pointer; the server keeps references
        // of its own to the arguments. The number is this thread's.
        let (reply, errno) = unsafe {
            let (start, count) = (args.as_ptr().cast::<*mut raw::RedisModuleString>(), args.len());
            // Only Valkey 9.1 does so itself.
            *errno_of_thread() = 0;
            let reply = api!(RedisModule_Call(self.raw(), command.as_ptr(), format.as_ptr(), start, count));
            (reply, *errno_of_thread())
        };
        NonNull::new(reply).map(|reply| CallReply { reply, errno })
    }

    /// Answers with the reply to a call. False: it cannot be encoded in the client's protocol, and nothing was
    /// answered.
    pub fn reply_with(self, reply: &CallReply) -> bool {
        // SAFETY: both are valid; the server copies the reply.
        let replied = unsafe { api!(RedisModule_ReplyWithCallReply(self.raw(), reply.reply.as_ptr())) };
        replied == raw::REDISMODULE_OK as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::is_refusal;

    #[test]
    fn numbers_that_commands_leave_too_count_only_with_the_servers_words() {
        let (no_user, not_my_slot) =
            (&b"ERR cannot run as user, no user"[..], &b"ERR Attempted to access a non local key"[..]);
        let cases = [
            (libc::ENOTSUP, no_user, true),
            (libc::EPERM, not_my_slot, true),
            (0, no_user, false),
            (0, not_my_slot, false),
            (libc::ENOTSUP, not_my_slot, false),
            (libc::ENOENT, &b"ERR unknown command 'x'"[..], true),
            (libc::EACCES, no_user, true),
        ];
        for (errno, words, expected) in cases {
            assert_eq!(is_refusal(errno, words), expected, "{errno}, {}", words.escape_ascii());
        }
    }
}
