//! The callbacks of the data type `redislock`: save, load, rewrite, free, unlink, digest.
//!
//! COPY is refused by not providing its callback: it would create two locks with the same grant and fencing token.

use std::ffi::{c_int, c_void, CStr};
use std::ptr::{null_mut, NonNull};

use command::rdb_codec;
use lock::key::{Key, KeyRef};
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::outcome::Hold;
use redis_module::raw;

use super::{held_counts, removals, store};
use crate::shell::background::events::{self, Event};
use crate::shell::background::timer;
use crate::shell::clock;
use crate::shell::ffi::api;
use crate::shell::ffi::context::{guard, Ctx, LOADING};
use crate::shell::ffi::module::register_data_type;
use crate::shell::ffi::rdb_io::{Digest, Rdb};
use crate::shell::ffi::replicate::AofRewrite;
use crate::shell::ffi::string::Str;
use crate::shell::replication;
use crate::shell::state;

/// The name of the data type, as in `TYPE` and `SCAN … TYPE`.
pub const NAME: &CStr = c"redislock";

/// Registers the data type; only while the module is loading. False: the server refuses.
pub fn register(ctx: Ctx<'_>) -> bool {
    let registered = register_data_type(ctx, NAME, rdb_codec::FORMAT_VERSION, METHODS);
    registered.map(|data_type| store::start(data_type.as_ptr())).is_some()
}

const METHODS: raw::RedisModuleTypeMethods = raw::RedisModuleTypeMethods {
    version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
    rdb_load: Some(load),
    rdb_save: Some(save),
    aof_rewrite: Some(rewrite),
    mem_usage: Some(memory),
    digest: Some(digest),
    free: Some(free),
    aux_load: Some(load_fence),
    aux_save: Some(save_fence),
    aux_save_triggers: raw::Aux::Before as c_int,
    free_effort: None,
    unlink: None,
    copy: None,
    defrag: None,
    mem_usage2: None,
    free_effort2: None,
    unlink2: Some(unlink),
    copy2: None,
    // Writes nothing if no fencing token was assigned, so that the file also loads on a server without the module.
    aux_save2: Some(save_fence_if_any),
};

unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard("rdb_save", || {
        // SAFETY: the server passes a value of our type and the stream to write to.
        let (lock, rdb) = unsafe { (value.cast::<Lock>().as_ref(), Rdb::new(rdb)) };
        rdb.save_bytes(&lock.and_then(rdb_codec::encode).unwrap_or_default());
    });
}

unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, format_version: c_int) -> *mut c_void {
    guard("rdb_load", || {
        // SAFETY: the server passes the stream to read from.
        let rdb = unsafe { Rdb::new(rdb) };
        if !is_read(rdb, format_version) {
            return null_mut();
        }
        let Some(lock) = rdb.load_bytes().and_then(|bytes| rdb_codec::decode(&bytes)) else { return null_mut() };
        if let Some(fence) = lock.fence() {
            if is_restored_here(rdb) && fence.is_beyond_a_day(clock::now().us()) {
                return null_mut();
            }
            state::borrow(|state, _| state.manager.fences.raise(fence));
        }
        record_loaded(rdb);
        held_counts::changed(None, lock.held_lock_type());
        Box::into_raw(Box::new(lock)).cast()
    })
    .unwrap_or(null_mut())
}

/// Whether values with this format version can be loaded. If not, the server refuses to load the data, and its log says
/// why; RESTORE replies with an error.
fn is_read(rdb: Rdb, format_version: c_int) -> bool {
    if format_version != rdb_codec::FORMAT_VERSION {
        if let Some(ctx) = rdb.context().filter(|ctx| ctx.has_flag(LOADING)) {
            ctx.warn(&rdb_codec::other_version(format_version));
        }
    }
    format_version == rdb_codec::FORMAT_VERSION
}

/// Deadlock detection must know the holder of a key with waiters at once. The key is read as soon as it can be opened:
/// an engine pass follows each RESTORE.
fn record_loaded(rdb: Rdb) {
    let is_restored = rdb.context().is_some_and(|ctx| !ctx.has_flag(LOADING));
    let Some((db, name)) = rdb.key().filter(|_| is_restored && events::has_waiters_or_sessions()) else { return };
    events::record(Event::KeyChanged(Key::new(db, name.bytes())));
    timer::wake();
}

/// Whether this is a RESTORE by a client of this server, as opposed to its own or its primary's data.
fn is_restored_here(rdb: Rdb) -> bool {
    rdb.context().is_some_and(|ctx| !ctx.has_flag(LOADING | raw::REDISMODULE_CTX_FLAGS_SLAVE))
}

unsafe extern "C" fn rewrite(aof: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    guard("aof_rewrite", || {
        // SAFETY: the server passes the file, the key and a value of our type.
        unsafe {
            if let (Some(key), Some(lock)) = (Str::new(key), value.cast::<Lock>().as_ref()) {
                replication::rewrite(AofRewrite::new(aof), key, lock);
            }
        }
    });
}

unsafe extern "C" fn memory(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    guard("mem_usage", || unsafe { value.cast::<Lock>().as_ref() }.map_or(0, Lock::memory_bytes)).unwrap_or(0)
}

/// Two servers with the same holders compute the same digest, whatever the order of the holders.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard("digest", || {
        // SAFETY: the server passes a value of our type and its digest.
        let (lock, digest) = unsafe { (value.cast::<Lock>().as_ref(), Digest::new(digest)) };
        for hold in lock.map(Lock::stored_holds).unwrap_or_default() {
            let Hold { fence, holds, reads, lease, origin, .. } = hold;
            let numbers = format!("{}:{holds}:{reads}:{}:{origin:?}", fence.get(), lease.as_ms());
            digest.add_sequence([hold.owner.as_bytes(), numbers.as_bytes()]);
        }
    });
}

/// May run on another thread, and for values that were never in the keyspace, so it accesses nothing but the value.
unsafe extern "C" fn free(value: *mut c_void) {
    let Some(lock) = NonNull::new(value.cast::<Lock>()) else { return };
    // SAFETY: the server passes a value that it got from `LockKey::set` or `load`, and forgets it.
    guard("free", || unsafe { store::free(lock) });
}

/// One of our keys leaves the keyspace for any reason: DEL, expiry, eviction, overwriting, RENAME, MIGRATE.
unsafe extern "C" fn unlink(ctx: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    if store::is_removing(value) {
        return;
    }
    guard("unlink", || {
        // SAFETY: the context is valid for this call; key and database belong to the value, which is of our type and
        // not freed yet.
        let (name, db, lock) = unsafe {
            (
                Str::new(api!(RedisModule_GetKeyNameFromOptCtx(ctx)).cast_mut()),
                api!(RedisModule_GetDbIdFromOptCtx(ctx)),
                value.cast::<Lock>().as_ref(),
            )
        };
        let (Some(name), Some(lock)) = (name, lock) else { return };
        let arrivals = events::take_arrivals(KeyRef { db, name: name.bytes() });
        removals::record(db, name, lock);
        if events::has_waiters_or_sessions() {
            removals::record_removal(db, name, lock);
        }
        arrivals.into_iter().for_each(events::record);
    });
}

unsafe extern "C" fn save_fence(rdb: *mut raw::RedisModuleIO, _: c_int) {
    guard("aux_save", || {
        let fence = state::peek(|state| state.manager.fences.last()).flatten().map_or(0, Fence::get);
        // SAFETY: the server passes the stream to write to.
        unsafe { Rdb::new(rdb) }.save_unsigned(fence);
    });
}

unsafe extern "C" fn save_fence_if_any(rdb: *mut raw::RedisModuleIO, when: c_int) {
    let any = guard("aux_save2", || state::peek(|state| state.manager.fences.last()).flatten());
    if any.flatten().is_some() {
        // SAFETY: these are our own arguments.
        unsafe { save_fence(rdb, when) };
    }
}

unsafe extern "C" fn load_fence(rdb: *mut raw::RedisModuleIO, format_version: c_int, _: c_int) -> c_int {
    guard("aux_load", || {
        // SAFETY: the server passes the stream to read from.
        let rdb = unsafe { Rdb::new(rdb) };
        let number = is_read(rdb, format_version).then(|| rdb.load_unsigned()).flatten();
        let Some(number) = number else { return raw::REDISMODULE_ERR as c_int };
        if let Some(fence) = Fence::new(number) {
            state::borrow(|state, _| state.manager.fences.raise(fence));
        }
        raw::REDISMODULE_OK as c_int
    })
    .unwrap_or(raw::REDISMODULE_ERR as c_int)
}
