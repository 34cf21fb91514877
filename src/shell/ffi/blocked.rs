//! Blocked clients. Each must be unblocked exactly once: the type prevents a second time, and its owner must not drop
//! it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;

use super::api;
use super::context::Ctx;

/// The server's callbacks for a blocked client.
pub struct BlockCallbacks {
    pub reply: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    /// `CLIENT UNBLOCK`, the only timeout that the server itself can cause.
    pub timeout: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    /// The last call: frees the data that was passed to `unblock`.
    pub free: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void),
    /// The server has unblocked the client.
    pub disconnect: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient),
}

#[derive(Debug)]
#[must_use = "every blocked client has to be unblocked"]
pub struct BlockedClient(*mut raw::RedisModuleBlockedClient);

/// Identifies the blocked client in a callback. Unique among the clients that are still blocked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockedId(usize);

impl BlockedClient {
    /// The id that callbacks use.
    pub fn id(&self) -> BlockedId {
        BlockedId::of(self.0)
    }

    /// Unblocks the client. The callbacks get `data`; the last of them, `free`, owns it.
    pub fn unblock<T>(self, data: Option<Box<T>>) {
        let data = data.map_or(null_mut(), Box::into_raw);
        // SAFETY: the handle came from `block` and is consumed here, so it was not unblocked yet.
        unsafe { api!(RedisModule_UnblockClient(self.0, data.cast())) };
    }
}

impl BlockedId {
    /// The id of the handle passed to a callback.
    pub fn of(blocked: *mut raw::RedisModuleBlockedClient) -> BlockedId {
        BlockedId(blocked as usize)
    }
}

impl<'c> Ctx<'c> {
    /// Blocks the client without a server timeout: on 7.0 timeouts have a resolution of 100 ms and can end a client in
    /// the same iteration in which it was unblocked. Check first whether the client may block. `None`: the server
    /// refuses.
    pub fn block(self, callbacks: &BlockCallbacks) -> Option<BlockedClient> {
        let BlockCallbacks { reply, timeout, free, disconnect } = *callbacks;
        // SAFETY: the callbacks are functions of this module, which is never unloaded while clients are blocked.
        unsafe {
            let blocked = api!(RedisModule_BlockClient(self.raw(), Some(reply), Some(timeout), Some(free), 0));
            if blocked.is_null() {
                return None;
            }
            api!(RedisModule_SetDisconnectCallback(blocked, Some(disconnect)));
            Some(BlockedClient(blocked))
        }
    }

    /// The blocked client that a reply or timeout callback concerns.
    pub fn blocked_id(self) -> BlockedId {
        // SAFETY: the context is valid.
        BlockedId::of(unsafe { api!(RedisModule_GetBlockedClientHandle(self.raw())) })
    }

    /// In the reply callback: the data that was passed to `unblock`.
    ///
    /// # Safety
    /// The blocked client was unblocked with a `Box<T>` or nothing, and the context is that of its reply callback.
    pub unsafe fn blocked_data<T>(self) -> Option<&'c T> {
        // SAFETY: `free`, which owns the data, runs later; the caller guarantees the type.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData(self.raw())).cast::<T>().as_ref() }
    }

    /// In the free callback: whether the client was gone before its reply.
    pub fn is_blocked_client_disconnected(self) -> bool {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_BlockedClientDisconnected(self.raw())) != 0 }
    }
}
