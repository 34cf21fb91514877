//! Calls of the server's own commands.

use std::ffi::{c_int, CStr};
use std::ptr::NonNull;

use command::host::Scanned;
use redis_module::raw;

use super::context::{guard, Ctx};
use super::string::{OwnedStr, Str};
use super::{api, probe};

/// How a command is called: flags of `RedisModule_Call`, and `v`, the arguments as an array.
#[derive(Clone, Copy)]
pub struct CallFlags(&'static CStr);

impl CallFlags {
    /// As the server itself, and nothing is replicated.
    pub(super) const PLAIN: CallFlags = CallFlags(c"v");
    /// `C`: with the permissions of the context's client.
    pub(super) const AS_CALLER: CallFlags = CallFlags(c"Cv");
    /// `E`: a refusal is a reply.
    const REFUSED_BY_REPLY: CallFlags = CallFlags(c"Ev");
    /// `D`: a dry run. Redis 7.0 does not know it.
    const DRY: CallFlags = CallFlags(c"DEv");
    /// `S`: as a script, and the server refuses what it refuses a client. Without `E` Valkey 9.1 reads a null pointer
    /// after a refusal.
    const AS_SCRIPT: CallFlags = CallFlags(c"SEv");
    /// As the context's client would in a script: with its permissions and, `0`, its protocol. `!`: replicate. `M`:
    /// respect maxmemory. `E`: a refusal is a reply.
    pub const EXEC: CallFlags = CallFlags(c"!CSE0Mv");
    /// With an error as a reply, replicated, in the client's protocol, refused where the server is out of memory. The
    /// server has accepted the command that stands for it.
    pub const ORIGINAL: CallFlags = CallFlags(c"!E0Mv");
    /// As `EXEC`, for a client without a user, another module: it has all permissions.
    pub const EXEC_WITHOUT_USER: CallFlags = CallFlags(c"!SE0Mv");
}

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno_of_thread;
/// Where the C library keeps this thread's `errno`.
#[cfg(target_os = "macos")]
use libc::__error as errno_of_thread;

/// Calls a command, in the database of the context's client.
///
/// # Errors
/// `errno`, or 0 where the server set none. There is no reply: the server refused the command, or the call was a dry
/// run.
pub fn call(ctx: Ctx<'_>, command: &CStr, flags: CallFlags, args: &[Str<'_>]) -> Result<CallReply, i32> {
    let (command, CallFlags(format)) = (command.as_ptr(), flags);
    let (start, count) = (args.as_ptr().cast::<*mut raw::RedisModuleString>(), args.len());
    // SAFETY: format and arguments agree, `Str` is a transparent wrapper of a pointer; the server keeps references of
    // its own to the arguments. The number is this thread's.
    let (reply, errno) = unsafe {
        // Only Valkey 9.1 resets it before a call.
        *errno_of_thread() = 0;
        let reply = api!(RedisModule_Call(ctx.raw(), command, format.as_ptr(), start, count));
        (reply, *errno_of_thread())
    };
    NonNull::new(reply).map(|reply| CallReply { reply, errno }).ok_or(errno)
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

    /// A string in the reply: the reply itself, or the element that these indices lead to. `None`: there is none.
    pub fn text(&self, path: &[usize]) -> Option<&[u8]> {
        let mut len = 0;
        // SAFETY: the reply is ours, and its elements and bytes are valid as long as it lives. What is no array, or too
        // short, has no such element; what is no string has no bytes.
        unsafe {
            let part = path.iter().try_fold(self.reply, |array, index| {
                NonNull::new(api!(RedisModule_CallReplyArrayElement(array.as_ptr(), *index)))
            })?;
            let start = api!(RedisModule_CallReplyStringPtr(part.as_ptr(), &mut len));
            Some(std::slice::from_raw_parts(NonNull::new(start.cast_mut())?.as_ptr().cast(), len))
        }
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours.
        unsafe { api!(RedisModule_FreeCallReply(self.reply.as_ptr())) };
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

/// Whether the server would run a command with all of these keys, which have one slot. It would not if some of them
/// have gone to the slot's new node, or have not come from the old one yet.
pub fn may_read_together(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    // Dry: nothing is counted as read or tracked for the client. Redis 7.0, which cannot, does not track what a module
    // reads. 7.2 brought it, and the function that is probed.
    let is_dry = probe!(RedisModule_CachedMicroseconds).is_some();
    let flags = if is_dry { CallFlags::DRY } else { CallFlags::REFUSED_BY_REPLY };
    call(ctx, c"EXISTS", flags, keys).map_or(is_dry, |reply| reply.error().is_none())
}

/// Runs SCAN with these arguments, without permissions being checked.
///
/// # Errors
/// The server refuses it; the number of its error (`errno`).
pub fn scan(ctx: Ctx<'_>, args: &[&[u8]]) -> Result<Scanned, i32> {
    let args: Vec<_> = args.iter().map(|arg| OwnedStr::new(arg)).collect();
    let args: Vec<_> = args.iter().map(OwnedStr::as_str).collect();
    let reply = call(ctx, c"SCAN", CallFlags::PLAIN, &args)?;
    let cursor = reply.text(&[0]).ok_or(0)?.to_vec();
    let keys = (0..).map_while(|index| reply.text(&[1, index])).map(<[u8]>::to_vec).collect();
    Ok(Scanned { cursor, keys })
}

/// The type of a key, as TYPE has it. `None`: the server refuses the command.
pub fn type_of(ctx: Ctx<'_>, key: Str<'_>) -> Option<String> {
    let reply = call(ctx, c"TYPE", CallFlags::PLAIN, &[key]).ok()?;
    reply.text(&[]).map(|kind| String::from_utf8_lossy(kind).into_owned()).filter(|kind| kind != "none")
}

/// The names of all users; none where the server refuses ACL USERS.
pub fn users(ctx: Ctx<'_>) -> Vec<Vec<u8>> {
    let word = OwnedStr::new(b"USERS");
    let Ok(reply) = call(ctx, c"ACL", CallFlags::PLAIN, &[word.as_str()]) else { return Vec::new() };
    (0..).map_while(|index| reply.text(&[index])).map(<[u8]>::to_vec).collect()
}

/// A call that the server has refused.
#[derive(Debug)]
pub struct Refused {
    /// `errno`, or 0 where the server set none.
    pub errno: i32,
    /// The text of the error; empty where the server gave none.
    pub message: Vec<u8>,
}

/// Runs `command key word` as a script would, so that the server refuses it as it would refuse a client.
///
/// # Errors
/// The server refuses it.
pub fn call_as_script(ctx: Ctx<'_>, command: &CStr, key: Str<'_>, word: &[u8]) -> Result<(), Refused> {
    let word = OwnedStr::new(word);
    let reply = call(ctx, command, CallFlags::AS_SCRIPT, &[key, word.as_str()]);
    let reply = reply.map_err(|errno| Refused { errno, message: Vec::new() })?;
    reply.error().map_or(Ok(()), |message| Err(Refused { errno: reply.errno, message: message.to_vec() }))
}

impl Ctx<'_> {
    /// Answers with the reply to a call. False: it cannot be encoded in the client's protocol, and nothing was
    /// answered.
    pub fn reply_with(self, reply: &CallReply) -> bool {
        // SAFETY: both are valid; the server copies the reply.
        let replied = unsafe { api!(RedisModule_ReplyWithCallReply(self.raw(), reply.reply.as_ptr())) };
        replied == raw::REDISMODULE_OK as c_int
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
