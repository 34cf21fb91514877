//! What the server knows: fields of INFO, addresses of clients, permissions; and channels.

use std::ffi::{c_int, CStr, CString};

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

/// Whether the client is a connection. The temporary client of another module's call is none: the server has it in no
/// table. `GetClientInfoById` would tell too, but Valkey 9.1 takes a call's temporary client for a connection there,
/// and reads its address through a null pointer.
pub fn is_connection(ctx: Ctx<'_>, id: u64) -> bool {
    const NO_SUCH_CLIENT: i32 = 2; // ENOENT
                                   // SAFETY: the name is ours to free.
    unsafe {
        let name = api!(RedisModule_GetClientUserNameById(ctx.raw(), id));
        if name.is_null() {
            // A connection that has no user is another error.
            return std::io::Error::last_os_error().raw_os_error() != Some(NO_SUCH_CLIENT);
        }
        api!(RedisModule_FreeString(ctx.raw(), name));
    }
    true
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

/// The number of the thread that runs this.
pub fn thread_id() -> usize {
    // SAFETY: takes nothing.
    (unsafe { libc::pthread_self() }) as usize
}

#[cfg(test)]
mod tests {
    use super::OnlineReplicas;

    #[test]
    fn replicas_that_are_online_are_counted_and_the_last_of_them_is_found() {
        let mut online = OnlineReplicas { count: 0, least_offset: i64::MAX };
        online.add("ip=127.0.0.1,port=6380,state=online,offset=700,lag=0");
        online.add("ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0,type=main-channel");
        online.add("ip=127.0.0.1,port=6382,state=online,offset=650,lag=1,io-thread=0");
        assert_eq!((online.count, online.least_offset), (2, 650));
    }
}
