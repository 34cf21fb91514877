//! Calls to the server's own commands.

use std::ffi::{c_int, CStr};
use std::ptr::NonNull;

use command::host::Scanned;
use redis_module::raw;

use super::context::{guard, Ctx};
use super::string::{OwnedStr, Str};
use super::{api, probe};

/// How to call a command: the flags of `RedisModule_Call`, with `v` for arguments passed as an array.
#[derive(Clone, Copy)]
pub struct CallFlags(&'static CStr);

impl CallFlags {
    /// As the server itself, without replication.
    pub(super) const PLAIN: CallFlags = CallFlags(c"v");
    /// `C`: with the permissions of the context's client.
    pub(super) const AS_CALLER: CallFlags = CallFlags(c"Cv");
    /// `E`: return a refusal as a reply.
    const REFUSED_BY_REPLY: CallFlags = CallFlags(c"Ev");
    /// `D`: a dry run, unknown to Redis 7.0.
    const DRY: CallFlags = CallFlags(c"DEv");
    /// `S`: as a script, so that the server refuses what it would refuse a client. Without `E`, Valkey 9.1 dereferences
    /// a null pointer after a refusal.
    const AS_SCRIPT: CallFlags = CallFlags(c"SEv");
    /// As the context's client in a script: with its permissions and (`0`) its protocol version. `!`: replicate. `M`:
    /// respect maxmemory. `E`: return a refusal as a reply.
    pub const EXEC: CallFlags = CallFlags(c"!CSE0Mv");
    /// Replicated, in the client's protocol version, refused if the server is out of memory, with errors returned as
    /// replies. The server has already accepted the command that it was translated into.
    pub const ORIGINAL: CallFlags = CallFlags(c"!E0Mv");
    /// As `EXEC`, for a client without a user (another module), which has all permissions.
    pub const EXEC_WITHOUT_USER: CallFlags = CallFlags(c"!SE0Mv");
}

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno_of_thread;
/// The address of this thread's `errno`.
#[cfg(target_os = "macos")]
use libc::__error as errno_of_thread;

/// Calls a command in the database of the context's client.
///
/// # Errors
/// `errno`, or 0 if the server set none. There is no reply: the server refused the command, or the call was a dry run.
pub fn call(ctx: Ctx<'_>, command: &CStr, flags: CallFlags, args: &[Str<'_>]) -> Result<CallReply, i32> {
    let (command, CallFlags(format)) = (command.as_ptr(), flags);
    let (start, count) = (args.as_ptr().cast::<*mut raw::RedisModuleString>(), args.len());
    // SAFETY: format and arguments match, `Str` is a transparent wrapper of a pointer, and the server retains the
    // arguments it keeps. `errno` belongs to this thread.
    let (reply, errno) = unsafe {
        // Only Valkey 9.1 resets it before a call.
        *errno_of_thread() = 0;
        let reply = api!(RedisModule_Call(ctx.raw(), command, format.as_ptr(), start, count));
        (reply, *errno_of_thread())
    };
    NonNull::new(reply).map(|reply| CallReply { reply, errno }).ok_or(errno)
}

/// The reply of a call, freed when dropped.
pub struct CallReply {
    reply: NonNull<raw::RedisModuleCallReply>,
    /// The value after the call; 0 before it.
    errno: i32,
}

impl CallReply {
    /// The text of an error, without the leading `-`. `None`: the reply is not an error.
    pub fn error(&self) -> Option<&[u8]> {
        let mut len = 0;
        // SAFETY: we own the reply, and its bytes live as long as it does.
        let bytes = unsafe {
            let start = api!(RedisModule_CallReplyProto(self.reply.as_ptr(), &mut len));
            std::slice::from_raw_parts(NonNull::new(start.cast_mut())?.as_ptr().cast::<u8>(), len)
        };
        bytes.strip_prefix(b"-").map(<[u8]>::trim_ascii_end)
    }

    /// Whether the server probably refused to run the command. It is a guess, because a command that ran may leave any
    /// `errno` and return any error; use it only for counting.
    pub fn is_refusal(&self) -> bool {
        self.error().is_some_and(|message| is_refusal(self.errno, message))
    }

    /// A string in the reply: the reply itself, or the element at this path of indexes. `None`: there is none.
    pub fn text(&self, path: &[usize]) -> Option<&[u8]> {
        let mut len = 0;
        // SAFETY: we own the reply, and its elements and bytes live as long as it does. The API returns null for an
        // element of something that is not an array or is too short, and for the bytes of something that is not a
        // string.
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
        // SAFETY: we own the reply.
        unsafe { api!(RedisModule_FreeCallReply(self.reply.as_ptr())) };
    }
}

fn is_refusal(errno: i32, message: &[u8]) -> bool {
    match errno {
        libc::ENOTSUP => message.starts_with(b"ERR cannot run as user"),
        libc::EPERM => message.starts_with(b"ERR Attempted to access a non local key"),
        // In order: unknown command, arity, scripts or persistence or replicas, memory, permissions; a cluster that is
        // down.
        libc::ENOENT | libc::EINVAL | libc::ESPIPE | libc::ENOSPC | libc::EACCES => true,
        libc::EROFS | libc::ENETDOWN => true,
        _ => false,
    }
}

/// Whether the server would run a command with all of these keys, which share a slot. It would not if some have already
/// moved to the slot's new node, or have not arrived from the old one yet.
pub fn may_read_together(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    // A dry run does not count as a read or track the keys for the client. Redis 7.0 has no dry runs, but does not
    // track what a module reads. 7.2 introduced both dry runs and the function probed here.
    let is_dry = probe!(RedisModule_CachedMicroseconds).is_some();
    let flags = if is_dry { CallFlags::DRY } else { CallFlags::REFUSED_BY_REPLY };
    call(ctx, c"EXISTS", flags, keys).map_or(is_dry, |reply| reply.error().is_none())
}

/// Runs SCAN with these arguments, without permission checks.
///
/// # Errors
/// The server refuses; its `errno`.
pub fn scan(ctx: Ctx<'_>, args: &[&[u8]]) -> Result<Scanned, i32> {
    let args: Vec<_> = args.iter().map(|arg| OwnedStr::new(arg)).collect();
    let args: Vec<_> = args.iter().map(OwnedStr::as_str).collect();
    let reply = call(ctx, c"SCAN", CallFlags::PLAIN, &args)?;
    let cursor = reply.text(&[0]).ok_or(0)?.to_vec();
    let keys = (0..).map_while(|index| reply.text(&[1, index])).map(<[u8]>::to_vec).collect();
    Ok(Scanned { cursor, keys })
}

/// The data type of a key, as in TYPE. `None`: the server refuses the command.
pub fn type_of(ctx: Ctx<'_>, key: Str<'_>) -> Option<String> {
    let reply = call(ctx, c"TYPE", CallFlags::PLAIN, &[key]).ok()?;
    reply.text(&[]).map(|kind| String::from_utf8_lossy(kind).into_owned()).filter(|kind| kind != "none")
}

/// The names of all users; empty if the server refuses ACL USERS.
pub fn users(ctx: Ctx<'_>) -> Vec<Vec<u8>> {
    let word = OwnedStr::new(b"USERS");
    let Ok(reply) = call(ctx, c"ACL", CallFlags::PLAIN, &[word.as_str()]) else { return Vec::new() };
    (0..).map_while(|index| reply.text(&[index])).map(<[u8]>::to_vec).collect()
}

/// A call that the server refused.
#[derive(Debug)]
pub struct Refused {
    /// `errno`, or 0 if the server set none.
    pub errno: i32,
    /// The error text; empty if the server returned none.
    pub message: Vec<u8>,
}

/// Runs `command key word` as a script would, so that the server refuses it as it would for a client.
///
/// # Errors
/// The server refuses.
pub fn call_as_script(ctx: Ctx<'_>, command: &CStr, key: Str<'_>, word: &[u8]) -> Result<(), Refused> {
    let word = OwnedStr::new(word);
    let reply = call(ctx, command, CallFlags::AS_SCRIPT, &[key, word.as_str()]);
    let reply = reply.map_err(|errno| Refused { errno, message: Vec::new() })?;
    reply.error().map_or(Ok(()), |message| Err(Refused { errno: reply.errno, message: message.to_vec() }))
}

impl Ctx<'_> {
    /// Sends the reply of a call as our reply. False: it cannot be encoded in the client's protocol version, and
    /// nothing was sent.
    pub fn reply_with(self, reply: &CallReply) -> bool {
        // SAFETY: both are valid; the server copies the reply.
        let replied = unsafe { api!(RedisModule_ReplyWithCallReply(self.raw(), reply.reply.as_ptr())) };
        replied == raw::REDISMODULE_OK as c_int
    }
}

/// Repeats a call that the server refused with `EPERM`, after repairing its client.
///
/// For each call the server uses one of a pool of clients. If the last call with that client, by any module or script,
/// named keys of multiple slots, Valkey 9.1 does not reset the client, and every later call with it fails with `EPERM`
/// until the server restarts. The server does reset it if a command filter changed the command's name, so a filter
/// replaces the name with another string of the same bytes. This repairs the client permanently.
pub fn call_again<R>(ctx: Ctx<'_>, call: impl FnOnce() -> R) -> R {
    let _filter = CopyingNames::begin(ctx);
    call()
}

/// A command filter is called for every command of the server, so this one is registered for a single call only.
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
        // SAFETY: the filter belongs to this module and is unregistered once, here; no command is being filtered.
        unsafe { api!(RedisModule_UnregisterCommandFilter(self.0.raw(), self.1.as_ptr())) };
    }
}

/// Replaces the command's name with another string object of the same bytes.
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
    fn ambiguous_errnos_count_only_with_the_servers_message() {
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
        for (errno, message, expected) in cases {
            assert_eq!(is_refusal(errno, message), expected, "{errno}, {}", message.escape_ascii());
        }
    }
}
