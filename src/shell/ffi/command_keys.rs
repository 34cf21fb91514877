//! The key arguments of commands: the server's answer for any command, and our answer for LOCK.EXEC.
//!
//! Redis from 8.2 on and Valkey in a cluster ask on their I/O threads, before AUTH too, and their own code around that
//! callback is a race already. So [`may_be_asked`] is false there, and on unknown servers.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};
use std::slice;

use command::catalog::Access;
use redis_module::raw;

use super::api;
use super::context::Ctx;
use super::module::is_valkey;
use super::string::Str;

/// An argument of a command that is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyArgument {
    /// Which argument, the command's name being argument 0.
    pub position: usize,
    /// What the command does to it: `REDISMODULE_CMD_KEY_…`. 0: the server does not tell modules.
    pub flags: u32,
}

/// How the API says what a command does to a key.
pub fn key_flags(access: Access) -> u32 {
    match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        Access::Delete => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
    }
}

/// The first Redis that may ask on another thread than its main one. Prereleases of 8.2 are numbered 8.1.
const FIRST_UNKNOWN_REDIS: c_int = 0x0008_0100;

/// The first such Valkey; in a cluster every Valkey asks on other threads.
const FIRST_UNKNOWN_VALKEY: c_int = 0x0009_0200;

/// Whether this server is known to ask for keys on its main thread only. No function or flag of the API tells on which
/// thread the server asks, and the callback cannot tell by itself: the race is around it. So versions are compared.
pub fn may_be_asked(ctx: Ctx<'_>) -> bool {
    // SAFETY: takes nothing.
    let version = unsafe { api!(RedisModule_GetServerVersion()) };
    match is_valkey() {
        false => version < FIRST_UNKNOWN_REDIS,
        true => version < FIRST_UNKNOWN_VALKEY && !ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER),
    }
}

/// The keys of a command, by which the server routes it. None for an unknown command, or one with too few arguments.
pub fn keys_of(ctx: Ctx<'_>, command: &[Str<'_>]) -> Vec<KeyArgument> {
    let (mut count, mut flags) = (0, null_mut());
    let Ok(argc) = c_int::try_from(command.len()) else { return Vec::new() };
    // SAFETY: `Str` is a transparent wrapper of a pointer, which the server only reads. Both arrays have `count`
    // elements and are ours to free.
    unsafe {
        let argv = command.as_ptr().cast_mut().cast::<*mut raw::RedisModuleString>();
        let positions = api!(RedisModule_GetCommandKeysWithFlags(ctx.raw(), argv, argc, &mut count, &mut flags));
        let (Some(positions), Some(flags)) = (NonNull::new(positions), NonNull::new(flags)) else { return Vec::new() };
        let count = usize::try_from(count).unwrap_or(0);
        let positions_and_flags =
            slice::from_raw_parts(positions.as_ptr(), count).iter().zip(slice::from_raw_parts(flags.as_ptr(), count));
        let keys = positions_and_flags
            .filter_map(|(position, flags)| {
                Some(KeyArgument { position: usize::try_from(*position).ok()?, flags: u32::try_from(*flags).ok()? })
            })
            .filter(|key| key.position < command.len())
            .collect();
        free(positions.as_ptr().cast());
        free(flags.as_ptr().cast());
        keys
    }
}

/// # Safety
/// The server made it for us, and there is no other pointer to it.
unsafe fn free(made: *mut c_void) {
    // SAFETY: the caller vouches for it.
    unsafe { api!(RedisModule_Free(made)) };
}

impl Ctx<'_> {
    /// Whether the server does not run the command, but asks for its keys. Such a context has no client: only
    /// [`Ctx::report_key`] may be called with it.
    pub fn is_asked_for_keys(self) -> bool {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_IsKeysPositionRequest(self.raw())) != 0 }
    }

    /// Tells a key that the server asks for.
    pub fn report_key(self, key: KeyArgument) {
        let (Ok(position), Ok(flags)) = (c_int::try_from(key.position), c_int::try_from(key.flags)) else { return };
        // SAFETY: the context is valid; the server ignores it where it has not asked.
        unsafe { api!(RedisModule_KeyAtPosWithFlags(self.raw(), position, flags)) };
    }
}
