//! What the server knows: fields of INFO, addresses of clients, permissions; and channels.

use std::ffi::{c_int, CStr, CString};
use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

use super::api;
use super::call::{call, CallFlags};
use super::context::Ctx;
use super::string::{OwnedStr, Str};

/// An integer field of `INFO section`, as the server has it now; `None` where it has none of that name.
pub fn info_field(ctx: Ctx<'_>, section: &CStr, field: &CStr) -> Option<i64> {
    let mut error: c_int = 0;
    // SAFETY: the section's data is freed in the end; the field is searched in it only.
    let value = unsafe {
        let info = api!(RedisModule_GetServerInfo(ctx.raw(), section.as_ptr()));
        let value = api!(RedisModule_ServerInfoGetFieldSigned(info, field.as_ptr(), &mut error));
        api!(RedisModule_FreeServerInfo(ctx.raw(), info));
        value
    };
    (error == 0).then_some(value)
}

/// Whether the cluster is down for this node: it serves no key then. False where the node cannot be asked.
pub fn is_cluster_down(ctx: Ctx<'_>) -> bool {
    let info = OwnedStr::new(b"INFO");
    let reply = call(ctx, c"CLUSTER", CallFlags::PLAIN, &[info.as_str()]);
    reply.is_ok_and(|reply| reply.text(&[]).is_some_and(|text| text.starts_with(b"cluster_state:fail")))
}

/// The replicas that are fed with all that is replicated.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnlineReplicas {
    /// How many there are.
    pub count: usize,
    /// Each of them has acknowledged at least this offset of replication.
    pub least_offset: i64,
}

impl OnlineReplicas {
    /// As `INFO replication` tells them: `slave0:ip=…,port=…,state=online,offset=…,lag=…`.
    pub fn of(ctx: Ctx<'_>) -> OnlineReplicas {
        let mut online = OnlineReplicas { count: 0, least_offset: i64::MAX };
        // SAFETY: the section's data is freed in the end; what is read of it is read before.
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

/// The address of a client, as `CLIENT LIST` shows it; empty when it is gone.
pub fn client_address(id: u64) -> String {
    // SAFETY: the structure is plain data, of the version that we set, and filled by the server.
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

/// Whether the server is going to close the client when the turn is over, before the event of its end: the end of a
/// connection that was read in this turn. Only CLIENT LIST shows it, by the flag `A`.
pub fn is_closing(ctx: Ctx<'_>, id: u64) -> bool {
    let args = [&b"LIST"[..], b"ID", id.to_string().as_bytes()].map(OwnedStr::new);
    let reply = call(ctx, c"CLIENT", CallFlags::PLAIN, &args.each_ref().map(OwnedStr::as_str));
    reply.is_ok_and(|reply| reply.text(&[]).is_some_and(has_close_flag))
}

/// Whether a line of CLIENT LIST has the flag `A`: to be closed as soon as possible.
fn has_close_flag(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b' ');
    fields.any(|field| field.strip_prefix(b"flags=").is_some_and(|flags| flags.contains(&b'A')))
}

/// The name that a connection has by CLIENT SETNAME; empty where it has none.
pub fn client_name(ctx: Ctx<'_>, id: u64) -> Vec<u8> {
    // SAFETY: the name is ours to free, which `OwnedStr` does.
    let name = unsafe { OwnedStr::of_server(api!(RedisModule_GetClientNameById(ctx.raw(), id))) };
    name.map(|name| name.as_str().bytes().to_vec()).unwrap_or_default()
}

/// The name of a connection's user; empty where it has none.
pub fn client_user(ctx: Ctx<'_>, id: u64) -> Vec<u8> {
    user_name(ctx, id).map(|name| name.as_str().bytes().to_vec()).unwrap_or_default()
}

/// Whether the client is a connection. The temporary client of another module's call is none: the server has it in no
/// table. `GetClientInfoById` does not do: Valkey 9.1 takes a call's temporary client for a connection there, and reads
/// its address through a null pointer.
pub fn is_connection(ctx: Ctx<'_>, id: u64) -> bool {
    // A connection that has no user is another error.
    user_name(ctx, id).is_some() || last_errno() != Some(libc::ENOENT)
}

/// `None`: there is no such connection, or it has no user.
fn user_name(ctx: Ctx<'_>, id: u64) -> Option<OwnedStr> {
    // SAFETY: the name is ours to free, which `OwnedStr` does.
    unsafe { OwnedStr::of_server(api!(RedisModule_GetClientUserNameById(ctx.raw(), id))) }
}

fn last_errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Whether the connection's user may publish on the channel.
pub fn may_publish(ctx: Ctx<'_>, id: u64, channel: Str<'_>) -> bool {
    User::of_connection(ctx, id).is_some_and(|user| user.may_publish(channel))
}

/// The permissions to read keys.
pub enum Reader<'c> {
    /// A user, with its key patterns.
    User(User<'c>),
    /// A module on its own behalf: it may read everything.
    Module,
    /// A user that has been deleted meanwhile: it may read nothing.
    DeletedUser,
}

impl<'c> Reader<'c> {
    /// The reader on behalf of which the command runs. `command` is one of the module's own that wants arguments.
    pub fn of(ctx: Ctx<'c>, command: &CStr) -> Reader<'c> {
        if !has_user(ctx, command) {
            return Reader::Module;
        }
        // SAFETY: it has a user.
        unsafe { User::of(ctx) }.map_or(Reader::DeletedUser, Reader::User)
    }

    /// Whether it may read the key.
    pub fn may_read(&self, key: Str<'_>) -> bool {
        match self {
            Reader::User(user) => user.may_read(key),
            Reader::Module => true,
            Reader::DeletedUser => false,
        }
    }
}

/// The server's version, a byte each for major, minor and patch; of Valkey that of the Redis which it stands for.
pub fn version() -> c_int {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_GetServerVersion()) }
}

/// Whether the context's client has a user: a connection or a script has one, a call by another module need not.
/// `command` is one of the module's own that wants arguments.
///
/// Redis 7.0 reads a null pointer when it is asked for the user of a client that has none. But when it is to run a
/// command as that user, it reports a missing user before it finds that the command lacks its arguments. Redis 7.0.5
/// alone checks the arguments first: there the command is PING, which needs none, and ACL LOG names a user without
/// PING.
pub fn has_user(ctx: Ctx<'_>, command: &CStr) -> bool {
    const REDIS_7_0_5: c_int = 0x0007_0005;
    let command = if version() == REDIS_7_0_5 { c"ping" } else { command };
    !matches!(call(ctx, command, CallFlags::AS_CALLER, &[]), Err(libc::ENOTSUP))
}

/// A user of the server, for as long as the callback runs.
pub struct User<'c>(NonNull<raw::RedisModuleUser>, PhantomData<&'c ()>);

impl<'c> User<'c> {
    /// The user of the context's client; `None`: it has been deleted.
    ///
    /// # Safety
    /// The client has a user.
    unsafe fn of(ctx: Ctx<'c>) -> Option<User<'c>> {
        // SAFETY: the caller vouches for the user; the name is ours to free, which `OwnedStr` does.
        User::named(unsafe { OwnedStr::of_server(api!(RedisModule_GetCurrentUserName(ctx.raw()))) }?)
    }

    /// The user that a connection has now; `None`: the connection has ended, or its user was deleted.
    pub fn of_connection(ctx: Ctx<'c>, id: u64) -> Option<User<'c>> {
        User::named(user_name(ctx, id)?)
    }

    /// A user of this name; `None`: there is none.
    pub fn named(name: OwnedStr) -> Option<User<'c>> {
        // SAFETY: the server reads the name only; the user is ours to free.
        let user = unsafe { api!(RedisModule_GetModuleUserFromUserName(name.as_str().raw())) };
        Some(User(NonNull::new(user)?, PhantomData))
    }

    /// Whether it may run this command; an error other than a refusal counts as yes.
    pub fn may_run(&self, command: &[Str<'_>]) -> bool {
        let Ok(count) = c_int::try_from(command.len()) else { return false };
        // SAFETY: the user is valid; `Str` is a transparent wrapper of a pointer, which the server only reads.
        let allowed = unsafe {
            let start = command.as_ptr().cast_mut().cast::<*mut raw::RedisModuleString>();
            api!(RedisModule_ACLCheckCommandPermissions(self.0.as_ptr(), start, count))
        };
        allowed == raw::REDISMODULE_OK as c_int || last_errno() != Some(libc::EACCES)
    }

    /// Whether it may publish on the channel.
    pub fn may_publish(&self, channel: Str<'_>) -> bool {
        /// `REDISMODULE_CMD_CHANNEL_PUBLISH`, which the crate's bindings leave out.
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
        // SAFETY: it is ours to free.
        unsafe { api!(RedisModule_FreeModuleUser(self.0.as_ptr())) };
    }
}

/// Whether the user of the context's client may run this command with its keys; an error other than a refusal counts as
/// yes. A refusal is in ACL LOG, as one of the command: the API does not tell whether a key was the reason.
///
/// # Safety
/// The client has a user: see [`has_user`].
pub unsafe fn may_run_as_caller(ctx: Ctx<'_>, command: &[Str<'_>]) -> bool {
    // SAFETY: the caller vouches for the user.
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
    /// All subscribers of the server, and of the cluster's bus.
    All,
    /// Subscribers of the shard: the channel has a slot.
    Shard,
}

/// Publishes a message.
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
    fn a_client_that_is_to_be_closed_has_the_flag_in_its_flags_only() {
        assert!(has_close_flag(b"id=3 addr=127.0.0.1:1 name=A flags=bA db=0\n"));
        assert!(!has_close_flag(b"id=3 addr=127.0.0.1:1 name=A flags=b db=0 user=flags\n"));
        assert!(!has_close_flag(b""));
    }

    #[test]
    fn replicas_that_are_online_are_counted_and_the_last_of_them_is_found() {
        let mut online = OnlineReplicas { count: 0, least_offset: i64::MAX };
        online.add("ip=127.0.0.1,port=6380,state=online,offset=700,lag=0");
        online.add("ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0,type=main-channel");
        online.add("ip=127.0.0.1,port=6382,state=online,offset=650,lag=1,io-thread=0");
        assert_eq!((online.count, online.least_offset), (2, 650));
    }
}
