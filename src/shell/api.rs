//! The module API behind safe, typed wrappers. Nothing here decides anything.
//!
//! The server fills the function pointers before anything of the module runs, so a missing one is a server older than 7.0.

use std::ffi::{c_int, c_long, c_longlong, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

use redis_module::raw;

/// Calls a function of the API that every supported server has.
macro_rules! api {
    ($name:ident($($arg:expr),* $(,)?)) => {
        raw::$name.expect(concat!(stringify!($name), " is there since Redis 7.0"))($($arg),*)
    };
}
pub(super) use api;

/// The context of a callback. Valid until the callback returns, which is why it is never stored.
#[derive(Clone, Copy)]
pub struct Ctx(NonNull<raw::RedisModuleCtx>);

/// A string object of the server, borrowed for the length of a callback.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Str(NonNull<raw::RedisModuleString>);

/// A string object of our own, freed when dropped.
pub struct OwnedStr {
    ctx: Ctx,
    string: Str,
}

/// A client that is blocked. Has to be unblocked exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockedHandle(usize);

impl Ctx {
    /// # Safety
    /// `ctx` is what the server passed to the callback that is running.
    pub unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Option<Ctx> {
        NonNull::new(ctx).map(Ctx)
    }

    pub fn raw(self) -> *mut raw::RedisModuleCtx {
        self.0.as_ptr()
    }

    /// What the context's client and the server are: `REDISMODULE_CTX_FLAGS_…`.
    pub fn flags(self) -> u32 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetContextFlags(self.raw())) as u32 }
    }

    pub fn has_flag(self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    pub fn client_id(self) -> u64 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetClientId(self.raw())) }
    }

    pub fn db(self) -> i32 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetSelectedDb(self.raw())) }
    }

    /// Only on the context of a timer: elsewhere it would change the client's own database.
    pub fn select_db(self, db: i32) {
        // SAFETY: the context is valid; a database that is out of range is refused.
        unsafe { api!(RedisModule_SelectDb(self.raw(), db)) };
    }

    pub fn signal_modified(self, key: Str) {
        // SAFETY: both are valid.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw(), key.raw())) };
    }

    pub fn string(self, bytes: &[u8]) -> OwnedStr {
        // SAFETY: the server copies the bytes; it ends itself rather than to return null.
        let string = unsafe { api!(RedisModule_CreateString(self.raw(), bytes.as_ptr().cast(), bytes.len())) };
        OwnedStr { ctx: self, string: Str(NonNull::new(string).expect("the server never returns null")) }
    }

    /// A line in the server's log. Percent signs are spelled out: the server takes a format.
    pub fn log(self, level: &CStr, message: &str) {
        log(self.raw(), level, message);
    }

    /// Whether the server may not send replication traffic now: a pause, a failover, a shutdown.
    pub fn avoids_replica_traffic(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }
}

/// A line in the server's log, also where there is no context.
pub fn log(ctx: *mut raw::RedisModuleCtx, level: &CStr, message: &str) {
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    // SAFETY: the format takes one string, which ends with a NUL; a null context is allowed.
    unsafe { api!(RedisModule_Log(ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
}

/// Replies. Each adds to the reply of the context's client.
impl Ctx {
    pub fn reply_array(self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithArray(self.raw(), len as c_long)) };
    }

    /// A map in RESP3, a flat array in RESP2.
    pub fn reply_map(self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithMap(self.raw(), len as c_long)) };
    }

    pub fn reply_integer(self, number: i64) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.raw(), number)) };
    }

    pub fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer(self.raw(), bytes.as_ptr().cast(), bytes.len())) };
    }

    /// Null: `_` in RESP3, the null array in RESP2.
    pub fn reply_null(self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNullArray(self.raw())) };
    }

    pub fn reply_ok(self) {
        // SAFETY: the string is static.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw(), c"OK".as_ptr())) };
    }

    pub fn reply_error(self, words: &str) {
        let words = CString::new(words.replace('\0', "?")).unwrap_or_default();
        // SAFETY: the string ends with a NUL and is copied.
        unsafe { api!(RedisModule_ReplyWithError(self.raw(), words.as_ptr())) };
    }

    pub fn reply_wrong_arity(self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_WrongArity(self.raw())) };
    }
}

impl Str {
    /// # Safety
    /// `string` is valid for as long as the result is used.
    pub unsafe fn new(string: *mut raw::RedisModuleString) -> Option<Str> {
        NonNull::new(string).map(Str)
    }

    pub fn raw(self) -> *mut raw::RedisModuleString {
        self.0.as_ptr()
    }

    /// The bytes, for as long as the string lives.
    ///
    /// # Safety
    /// The string outlives `'a` and is not changed: arguments of a command are neither freed nor changed while it runs.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        let mut len = 0;
        let start = api!(RedisModule_StringPtrLen(self.raw(), &mut len));
        if start.is_null() {
            return &[];
        }
        std::slice::from_raw_parts(start.cast(), len)
    }
}

impl OwnedStr {
    pub fn as_str(&self) -> Str {
        self.string
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: we own one reference.
        unsafe { api!(RedisModule_FreeString(self.ctx.raw(), self.string.raw())) };
    }
}

/// An open key; closed when dropped.
pub struct OpenKey(NonNull<raw::RedisModuleKey>);

/// What is under an open key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Empty,
    /// A value of our type.
    Ours(NonNull<c_void>),
    Foreign,
}

impl OpenKey {
    /// Opens for reading and writing. An expired key is deleted by that, which notifies and calls `unlink2` inside.
    pub fn write(ctx: Ctx, name: Str) -> OpenKey {
        let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
        // SAFETY: both are valid.
        let key = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), mode)) };
        OpenKey(NonNull::new(key).expect("a key that is opened for writing is never null"))
    }

    /// Opens for reading; `None` where there is nothing, or nothing that has not expired.
    pub fn read(ctx: Ctx, name: Str) -> Option<OpenKey> {
        // SAFETY: both are valid.
        let key = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), raw::REDISMODULE_READ as c_int)) };
        NonNull::new(key).map(OpenKey)
    }

    pub fn content(&self, ours: *mut raw::RedisModuleType) -> Content {
        // SAFETY: the key is open; a value of our type is a pointer that we stored.
        unsafe {
            if api!(RedisModule_ModuleTypeGetType(self.raw())) == ours {
                if let Some(value) = NonNull::new(api!(RedisModule_ModuleTypeGetValue(self.raw()))) {
                    return Content::Ours(value);
                }
            }
            match api!(RedisModule_KeyType(self.raw())) {
                kind if kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int => Content::Empty,
                _ => Content::Foreign,
            }
        }
    }

    /// Stores a value of our type, without a time to live, in place of what was there.
    pub fn set(&self, ours: *mut raw::RedisModuleType, value: NonNull<c_void>) {
        // SAFETY: the key is open for writing; the value belongs to the server from now on.
        unsafe { api!(RedisModule_ModuleTypeSetValue(self.raw(), ours, value.as_ptr())) };
    }

    pub fn delete(&self) {
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_DeleteKey(self.raw())) };
    }

    /// When the key ends, in ms since the epoch; `None`: never.
    pub fn expire_at_ms(&self) -> Option<u64> {
        // SAFETY: the key is open.
        u64::try_from(unsafe { api!(RedisModule_GetAbsExpire(self.raw())) }).ok()
    }

    /// Sets when the key ends, in ms since the epoch; `None`: never.
    pub fn set_expire_at_ms(&self, at: Option<u64>) {
        let at = at
            .map_or(raw::REDISMODULE_NO_EXPIRE as c_longlong, |at| c_longlong::try_from(at).unwrap_or(c_longlong::MAX));
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_SetAbsExpire(self.raw(), at)) };
    }

    fn raw(&self) -> *mut raw::RedisModuleKey {
        self.0.as_ptr()
    }
}

impl Drop for OpenKey {
    fn drop(&mut self) {
        // SAFETY: the key is open, and nobody else closes it.
        unsafe { api!(RedisModule_CloseKey(self.raw())) };
    }
}

/// What the server calls for a blocked client.
pub struct BlockCallbacks {
    pub reply: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    pub timeout: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    pub free: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void),
    pub disconnect: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient),
}

impl Ctx {
    /// Blocks the client without a time-out of the server's: on 7.0 those are exact to 100 ms only, and can end a client in the turn
    /// in which it was unblocked. Ask first whether the client may block.
    pub fn block(self, callbacks: &BlockCallbacks) -> Option<BlockedHandle> {
        // SAFETY: the callbacks are functions of this module, which is never unloaded while clients are blocked.
        unsafe {
            let blocked = api!(RedisModule_BlockClient(
                self.raw(),
                Some(callbacks.reply),
                Some(callbacks.timeout),
                Some(callbacks.free),
                0
            ));
            if blocked.is_null() {
                return None;
            }
            api!(RedisModule_SetDisconnectCallback(blocked, Some(callbacks.disconnect)));
            Some(BlockedHandle(blocked as usize))
        }
    }

    /// The handle of the blocked client that a reply or timeout callback is about.
    pub fn blocked_handle(self) -> BlockedHandle {
        // SAFETY: the context is valid.
        BlockedHandle(unsafe { api!(RedisModule_GetBlockedClientHandle(self.raw())) } as usize)
    }

    /// What [`BlockedHandle::unblock`] was given.
    pub fn blocked_data(self) -> *mut c_void {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData(self.raw())) }
    }

    /// In the free callback: whether the client was gone before its reply.
    pub fn is_blocked_client_gone(self) -> bool {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_BlockedClientDisconnected(self.raw())) != 0 }
    }
}

impl BlockedHandle {
    pub fn of(blocked: *mut raw::RedisModuleBlockedClient) -> BlockedHandle {
        BlockedHandle(blocked as usize)
    }

    /// Unblocks the client; the callbacks get `data`.
    ///
    /// # Safety
    /// The handle came from [`Ctx::block`] and was not unblocked yet.
    pub unsafe fn unblock(self, data: *mut c_void) {
        api!(RedisModule_UnblockClient(self.0 as *mut raw::RedisModuleBlockedClient, data));
    }
}

/// An integer field of `INFO section`, as the server has it now.
pub fn info_field(ctx: Ctx, section: &CStr, field: &CStr) -> Option<i64> {
    let mut error: c_int = 0;
    // SAFETY: the section's data is freed in the end; the field is looked up in it only.
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
        if api!(RedisModule_GetClientInfoById((&mut info as *mut raw::RedisModuleClientInfo).cast(), id)) != 0 {
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
pub fn may_publish(ctx: Ctx, channel: Str) -> bool {
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

/// Publishes a message; in a cluster to the shard's subscribers.
pub fn publish(ctx: Ctx, channel: &[u8], message: &[u8], to_shard: bool) {
    let (channel, message) = (ctx.string(channel), ctx.string(message));
    let (channel, message) = (channel.as_str().raw(), message.as_str().raw());
    // SAFETY: both strings live until the end of the function.
    unsafe {
        if to_shard {
            api!(RedisModule_PublishMessageShard(ctx.raw(), channel, message));
        } else {
            api!(RedisModule_PublishMessage(ctx.raw(), channel, message));
        }
    }
}

/// The slot of a key, by the server's own command: not every server has a call for it.
pub fn slot(ctx: Ctx, key: Str) -> Option<i64> {
    // SAFETY: the reply is freed; formats and types agree.
    unsafe {
        let reply =
            api!(RedisModule_Call(ctx.raw(), c"CLUSTER".as_ptr(), c"cs".as_ptr(), c"KEYSLOT".as_ptr(), key.raw()));
        if reply.is_null() {
            return None;
        }
        let slot = api!(RedisModule_CallReplyInteger(reply));
        api!(RedisModule_FreeCallReply(reply));
        Some(slot)
    }
}

/// A value that only the server's main thread touches.
pub struct MainThread<T>(pub T);

// SAFETY: the server runs commands, callbacks, events and timers of a module on its main thread, one at a time.
unsafe impl<T> Sync for MainThread<T> {}

/// Runs what the server called, and keeps a panic from leaving through C: that would end the server.
pub fn guard<R>(what: &str, work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| {
            log(std::ptr::null_mut(), c"warning", &format!("redis-lock: a bug in {what}, please report it"))
        })
        .ok()
}

/// Whether the server does not run the command, but asks where its keys stand.
pub fn asks_for_keys(ctx: Ctx) -> bool {
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_IsKeysPositionRequest(ctx.raw())) != 0 }
}

/// Answers that question with one argument's position.
pub fn tell_key(ctx: Ctx, position: usize) {
    // SAFETY: the context is valid, and the server has asked.
    unsafe { api!(RedisModule_KeyAtPos(ctx.raw(), position as c_int)) };
}

/// Wakes the event loop. A timer that is made just before the server sleeps would fire up to 100 ms late on 7.0.15 otherwise.
pub fn poke_event_loop() {
    extern "C" fn nothing(_: *mut c_void) {}
    // SAFETY: the callback does nothing.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(nothing), ptr::null_mut())) };
}
