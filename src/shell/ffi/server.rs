//! Information from the server: INFO fields, client addresses, permissions. Also publishing to channels.

use std::ffi::{c_int, CStr, CString};
use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

use super::api;
use super::call::{call, CallFlags};
use super::context::Ctx;
use super::string::{OwnedStr, Str};

/// The current value of an integer field of `INFO section`; `None` if the server has no such field.
pub fn info_field(ctx: Ctx<'_>, section: &CStr, field: &CStr) -> Option<i64> {
    let mut error: c_int = 0;
    // SAFETY: the section's data is freed at the end, and the field is only looked up in it.
    let value = unsafe {
        let info = api!(RedisModule_GetServerInfo(ctx.raw(), section.as_ptr()));
        let value = api!(RedisModule_ServerInfoGetFieldSigned(info, field.as_ptr(), &mut error));
        api!(RedisModule_FreeServerInfo(ctx.raw(), info));
        value
    };
    (error == 0).then_some(value)
}

/// Whether this node considers the cluster down, so that it serves no keys. False if the node cannot be asked.
pub fn is_cluster_down(ctx: Ctx<'_>) -> bool {
    let info = OwnedStr::new(b"INFO");
    let reply = call(ctx, c"CLUSTER", CallFlags::PLAIN, &[info.as_str()]);
    reply.is_ok_and(|reply| reply.text(&[]).is_some_and(|text| text.starts_with(b"cluster_state:fail")))
}

#[derive(Clone, Copy, Debug, Default)]
pub struct OnlineReplicas {
    /// How many there are.
    pub count: usize,
    /// The smallest replication offset that all of them have acknowledged.
    pub least_offset: i64,
}

impl OnlineReplicas {
    /// As reported by `INFO replication`: `slave0:ip=…,port=…,state=online,offset=…,lag=…`.
    pub fn of(ctx: Ctx<'_>) -> OnlineReplicas {
        let mut online = OnlineReplicas { count: 0, least_offset: i64::MAX };
        // SAFETY: the section's data is freed at the end, after everything has been read from it.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(ctx.raw(), c"replication".as_ptr()));
            for number in 0.. {
                let Ok(field) = CString::new(format!("slave{number}")) else { break };
                let text = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
                if text.is_null() {
                    break;
                }
                online.add(&CStr::from_ptr(text).to_string_lossy());
            }
            api!(RedisModule_FreeServerInfo(ctx.raw(), info));
        }
        online
    }

    fn add(&mut self, line: &str) {
        let value = |name| line.split(',').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name);
        if value("state").is_some_and(|(_, state)| state == "online") {
            let offset = value("offset").and_then(|(_, offset)| offset.parse().ok()).unwrap_or(0);
            self.count += 1;
            self.least_offset = self.least_offset.min(offset);
        }
    }
}

/// The address of a client, as in `CLIENT LIST`; empty if it is gone.
pub fn client_address(id: u64) -> String {
    // SAFETY: the structure is plain data of the version that we set, filled in by the server.
    unsafe {
        let mut info: raw::RedisModuleClientInfo = std::mem::zeroed();
        info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
        if api!(RedisModule_GetClientInfoById((&raw mut info).cast(), id)) != 0 {
            return String::new();
        }
        let address = CStr::from_ptr(info.addr.as_ptr()).to_string_lossy().into_owned();
        match info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_UNIXSOCKET) {
            0 => format!("{address}:{}", info.port),
            _ => address,
        }
    }
}

/// Whether the server will close the client at the end of this event-loop iteration, before its disconnect event,
/// because it has read the end of the connection. Only the flag `A` in CLIENT LIST shows this.
pub fn is_closing(ctx: Ctx<'_>, id: u64) -> bool {
    let args = [&b"LIST"[..], b"ID", id.to_string().as_bytes()].map(OwnedStr::new);
    let reply = call(ctx, c"CLIENT", CallFlags::PLAIN, &args.each_ref().map(OwnedStr::as_str));
    reply.is_ok_and(|reply| reply.text(&[]).is_some_and(has_close_flag))
}

/// Whether a line of CLIENT LIST has the flag `A`: close as soon as possible.
fn has_close_flag(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b' ');
    fields.any(|field| field.strip_prefix(b"flags=").is_some_and(|flags| flags.contains(&b'A')))
}

/// The name of a connection, set by CLIENT SETNAME; empty if it has none.
pub fn client_name(ctx: Ctx<'_>, id: u64) -> Vec<u8> {
    // SAFETY: we own the name, and `OwnedStr` frees it.
    let name = unsafe { OwnedStr::of_server(api!(RedisModule_GetClientNameById(ctx.raw(), id))) };
    name.map(|name| name.as_str().bytes().to_vec()).unwrap_or_default()
}

/// The user of a connection; empty if it has none.
pub fn client_user(ctx: Ctx<'_>, id: u64) -> Vec<u8> {
    user_name(ctx, id).map(|name| name.as_str().bytes().to_vec()).unwrap_or_default()
}

/// Whether the client is a connection. The temporary client of another module's call is not: it is not in the server's
/// client table. `GetClientInfoById` is unsuitable: Valkey 9.1 mistakes a call's temporary client for a connection and
/// reads its address through a null pointer.
pub fn is_connection(ctx: Ctx<'_>, id: u64) -> bool {
    // A connection without a user produces a different error.
    user_name(ctx, id).is_some() || last_errno() != Some(libc::ENOENT)
}

/// `None`: the connection does not exist or has no user.
fn user_name(ctx: Ctx<'_>, id: u64) -> Option<OwnedStr> {
    // SAFETY: we own the name, and `OwnedStr` frees it.
    unsafe { OwnedStr::of_server(api!(RedisModule_GetClientUserNameById(ctx.raw(), id))) }
}

fn last_errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Whether the connection's user may publish on the channel.
pub fn may_publish(ctx: Ctx<'_>, id: u64, channel: Str<'_>) -> bool {
    User::of_connection(ctx, id).is_some_and(|user| user.may_publish(channel))
}

/// Who reads keys, which determines the permissions.
pub enum Reader<'c> {
    /// A user, with its key patterns.
    User(User<'c>),
    /// A module that acts for itself: it may read everything.
    Module,
    /// A user that has been deleted: it may read nothing.
    DeletedUser,
}

impl<'c> Reader<'c> {
    /// The reader for which the command runs. `command` is one of the module's own commands that requires arguments.
    pub fn of(ctx: Ctx<'c>, command: &CStr) -> Reader<'c> {
        if !has_user(ctx, command) {
            return Reader::Module;
        }
        // SAFETY: the client has a user.
        unsafe { User::of(ctx) }.map_or(Reader::DeletedUser, Reader::User)
    }

    pub fn may_read(&self, key: Str<'_>) -> bool {
        match self {
            Reader::User(user) => user.may_read(key),
            Reader::Module => true,
            Reader::DeletedUser => false,
        }
    }
}

/// The server's version, with one byte each for major, minor and patch. For Valkey, the Redis version it is compatible
/// with.
pub fn version() -> c_int {
    // SAFETY: the function has no preconditions.
    unsafe { api!(RedisModule_GetServerVersion()) }
}

/// Whether the context's client has a user. A connection or a script has one; a call by another module may not.
/// `command` is one of the module's own commands that requires arguments.
///
/// Redis 7.0 dereferences a null pointer if asked for the user of a client without one. However, when asked to run a
/// command as that user, it reports a missing user before it notices missing arguments. Redis 7.0.5 alone checks the
/// arguments first, so there the command is PING, which needs none; a user without permission for PING then appears in
/// ACL LOG.
pub fn has_user(ctx: Ctx<'_>, command: &CStr) -> bool {
    const REDIS_7_0_5: c_int = 0x0007_0005;
    let command = if version() == REDIS_7_0_5 { c"ping" } else { command };
    !matches!(call(ctx, command, CallFlags::AS_CALLER, &[]), Err(libc::ENOTSUP))
}

/// A server user, valid while the callback runs.
pub struct User<'c>(NonNull<raw::RedisModuleUser>, PhantomData<&'c ()>);

impl<'c> User<'c> {
    /// The user of the context's client; `None`: it was deleted.
    ///
    /// # Safety
    /// The client has a user.
    unsafe fn of(ctx: Ctx<'c>) -> Option<User<'c>> {
        // SAFETY: the caller guarantees a user; we own the name, and `OwnedStr` frees it.
        User::named(unsafe { OwnedStr::of_server(api!(RedisModule_GetCurrentUserName(ctx.raw()))) }?)
    }

    /// The current user of a connection; `None`: the connection closed, or its user was deleted.
    pub fn of_connection(ctx: Ctx<'c>, id: u64) -> Option<User<'c>> {
        User::named(user_name(ctx, id)?)
    }

    /// The user with this name; `None`: it does not exist.
    pub fn named(name: OwnedStr) -> Option<User<'c>> {
        // SAFETY: the server only reads the name; we own the user.
        let user = unsafe { api!(RedisModule_GetModuleUserFromUserName(name.as_str().raw())) };
        Some(User(NonNull::new(user)?, PhantomData))
    }

    /// Whether the user may run this command; any error other than a denied permission counts as yes.
    pub fn may_run(&self, command: &[Str<'_>]) -> bool {
        let Ok(count) = c_int::try_from(command.len()) else { return false };
        // SAFETY: the user is valid; `Str` is a transparent wrapper of a pointer, which the server only reads.
        let allowed = unsafe {
            let start = command.as_ptr().cast_mut().cast::<*mut raw::RedisModuleString>();
            api!(RedisModule_ACLCheckCommandPermissions(self.0.as_ptr(), start, count))
        };
        allowed == raw::REDISMODULE_OK as c_int || last_errno() != Some(libc::EACCES)
    }

    pub fn may_publish(&self, channel: Str<'_>) -> bool {
        /// `REDISMODULE_CMD_CHANNEL_PUBLISH`, which is missing in the crate's bindings.
        const PUBLISH: c_int = 1 << 1;
        // SAFETY: both are valid.
        let allowed = unsafe { api!(RedisModule_ACLCheckChannelPermissions(self.0.as_ptr(), channel.raw(), PUBLISH)) };
        allowed == raw::REDISMODULE_OK as c_int
    }

    fn may_read(&self, key: Str<'_>) -> bool {
        let access = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
        // SAFETY: both are valid.
        let allowed = unsafe { api!(RedisModule_ACLCheckKeyPermissions(self.0.as_ptr(), key.raw(), access)) };
        allowed == raw::REDISMODULE_OK as c_int
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        // SAFETY: we own it.
        unsafe { api!(RedisModule_FreeModuleUser(self.0.as_ptr())) };
    }
}

/// Whether the user of the context's client may run this command with its keys; any error other than a denied
/// permission counts as yes. A denial is logged in ACL LOG as one of the command, because the API does not say whether
/// a key caused it.
///
/// # Safety
/// The client has a user: see [`has_user`].
pub unsafe fn may_run_as_caller(ctx: Ctx<'_>, command: &[Str<'_>]) -> bool {
    // SAFETY: guaranteed by the caller.
    let Some(user) = (unsafe { User::of(ctx) }) else { return false };
    let is_allowed = user.may_run(command);
    if let (false, Some(name)) = (is_allowed, command.first()) {
        let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CMD;
        // SAFETY: the user is valid; the server copies the name.
        unsafe { api!(RedisModule_ACLAddLogEntry(ctx.raw(), user.0.as_ptr(), name.raw(), reason)) };
    }
    is_allowed
}

/// The subscribers that get a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All subscribers of the server, and of the cluster bus.
    All,
    /// The subscribers of the shard: the channel has a slot.
    Shard,
}

pub fn publish(ctx: Ctx<'_>, channel: &[u8], message: &[u8], audience: Audience) {
    let (channel, message) = (OwnedStr::new(channel), OwnedStr::new(message));
    let (channel, message) = (channel.as_str().raw(), message.as_str().raw());
    // SAFETY: both strings live until the end of the function.
    unsafe {
        match audience {
            Audience::All => api!(RedisModule_PublishMessage(ctx.raw(), channel, message)),
            Audience::Shard => api!(RedisModule_PublishMessageShard(ctx.raw(), channel, message)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{has_close_flag, OnlineReplicas};

    #[test]
    fn the_close_flag_is_only_searched_in_the_flags() {
        assert!(has_close_flag(b"id=3 addr=127.0.0.1:1 name=A flags=bA db=0\n"));
        assert!(!has_close_flag(b"id=3 addr=127.0.0.1:1 name=A flags=b db=0 user=flags\n"));
        assert!(!has_close_flag(b""));
    }

    #[test]
    fn online_replicas_are_counted_including_the_last_one() {
        let mut online = OnlineReplicas { count: 0, least_offset: i64::MAX };
        online.add("ip=127.0.0.1,port=6380,state=online,offset=700,lag=0");
        online.add("ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0,type=main-channel");
        online.add("ip=127.0.0.1,port=6382,state=online,offset=650,lag=1,io-thread=0");
        assert_eq!((online.count, online.least_offset), (2, 650));
    }
}
