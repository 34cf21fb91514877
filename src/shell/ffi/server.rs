//! What the server knows: fields of INFO, addresses of clients, permissions; and channels.

use std::ffi::{c_int, CStr};

use redis_module::raw;

use super::api;
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

/// Whether the context's user may publish on the channel.
pub fn may_publish(ctx: Ctx<'_>, channel: Str<'_>) -> bool {
    /// `REDISMODULE_CMD_CHANNEL_PUBLISH`, which the crate's bindings leave out.
    const PUBLISH: c_int = 1 << 1;
    // SAFETY: name and user are ours to free.
    unsafe {
        let name = api!(RedisModule_GetCurrentUserName(ctx.raw()));
        if name.is_null() {
            return false;
        }
        let user = api!(RedisModule_GetModuleUserFromUserName(name));
        api!(RedisModule_FreeString(ctx.raw(), name));
        if user.is_null() {
            return false;
        }
        let allowed = api!(RedisModule_ACLCheckChannelPermissions(user, channel.raw(), PUBLISH));
        api!(RedisModule_FreeModuleUser(user));
        allowed == raw::REDISMODULE_OK as c_int
    }
}

/// Whose subscribers get a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All of the server's, and of the cluster's bus.
    Everybody,
    /// Those of the shard: the channel has a slot.
    Shard,
}

/// Publishes a message.
pub fn publish(ctx: Ctx<'_>, channel: &[u8], message: &[u8], audience: Audience) {
    let (channel, message) = (OwnedStr::new(channel), OwnedStr::new(message));
    let (channel, message) = (channel.as_str().raw(), message.as_str().raw());
    // SAFETY: both strings live until the end of the function.
    unsafe {
        match audience {
            Audience::Everybody => api!(RedisModule_PublishMessage(ctx.raw(), channel, message)),
            Audience::Shard => api!(RedisModule_PublishMessageShard(ctx.raw(), channel, message)),
        };
    }
}
