//! What the server asks of the data type `redislock`: save, load, rewrite, free, unlink, digest.
//!
//! COPY is refused by leaving its callback out: two keys with one grant would be two locks with one fence.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::native_types::RedisType;
use redis_module::raw;

use super::api::{api, guard, Ctx, MainThread, OpenKey, Str};
use super::drain;
use super::effect;
use super::state::{self, Mark};
use super::stored;
use lock::fence::Fence;
use lock::queue::Key;
use lock::state::Lock;

/// The data type, as `TYPE` and `SCAN … TYPE` name it.
pub static REDISLOCK: RedisType = RedisType::new(
    "redislock",
    stored::VERSION,
    raw::RedisModuleTypeMethods {
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
        // Without a fence nothing is saved, so that the file loads where the module is not.
        aux_save2: Some(save_fence_if_any),
    },
);

/// The server's handle of our data type.
pub fn raw_type() -> *mut raw::RedisModuleType {
    *REDISLOCK.raw_type.borrow()
}

/// The lock that the module itself removes at this moment. Its `unlink` and `free` come from inside that removal; those of other locks may
/// come from anywhere, `free` from another thread too.
static REMOVING: AtomicPtr<Lock> = AtomicPtr::new(null_mut());

/// The memory of locks that were removed, for the next ones: the server's allocator counts what it gives and takes, which
/// would cost an uncontended pair 2 %.
static SPARES: MainThread<RefCell<Vec<NonNull<Lock>>>> = MainThread(RefCell::new(Vec::new()));

/// So many are kept, of 64 bytes each.
const MOST_SPARES: usize = 1024;

/// A lock, made where the server can keep it.
#[inline]
pub fn keep(lock: impl FnOnce() -> Lock) -> NonNull<c_void> {
    let spare = SPARES.0.borrow_mut().pop();
    let place = spare.unwrap_or_else(|| NonNull::from(Box::leak(Box::<Lock>::new_uninit())).cast());
    // SAFETY: it is memory for a lock, without one in it.
    unsafe { place.write(lock()) };
    place.cast()
}

/// Removes a key whose lock nobody holds any more. What follows from that the caller knows: `unlink` takes no notice.
pub fn remove(key: &OpenKey, lock: NonNull<c_void>) {
    REMOVING.store(lock.cast().as_ptr(), Ordering::Relaxed);
    key.delete();
    REMOVING.store(null_mut(), Ordering::Relaxed);
}

unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard("rdb_save", || {
        // SAFETY: the server passes a value of our type.
        let bytes = unsafe { value.cast::<Lock>().as_ref() }.and_then(stored::encode).unwrap_or_default();
        // SAFETY: the server copies the bytes.
        unsafe { api!(RedisModule_SaveStringBuffer(rdb, bytes.as_ptr().cast(), bytes.len())) };
    });
}

unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guard("rdb_load", || {
        if version != stored::VERSION {
            return null_mut();
        }
        let lock = load_bytes(rdb).and_then(|bytes| stored::decode(&bytes));
        let Some((lock, fence)) = lock.and_then(|lock| lock.fence().map(|fence| (lock, fence))) else {
            return null_mut();
        };
        if is_restored_here(rdb) && fence.is_beyond_a_day(state::now().us()) {
            return null_mut();
        }
        state::with(|state, _| state.desk.fences.raise(fence));
        Box::into_raw(Box::new(lock)).cast()
    })
    .unwrap_or(null_mut())
}

/// A string from the dump, copied; `None` where it is cut short.
fn load_bytes(rdb: *mut raw::RedisModuleIO) -> Option<Vec<u8>> {
    let mut len = 0;
    // SAFETY: the buffer is ours to free; errors are announced to be handled (`start`).
    unsafe {
        let start = api!(RedisModule_LoadStringBuffer(rdb, &mut len));
        if start.is_null() {
            return None;
        }
        let is_broken = api!(RedisModule_IsIOError(rdb)) != 0;
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
        api!(RedisModule_Free(start.cast()));
        (!is_broken).then_some(bytes)
    }
}

/// Whether this is a RESTORE by a client of this server, and not the server's own data or its master's.
fn is_restored_here(rdb: *mut raw::RedisModuleIO) -> bool {
    let not_here = raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
        | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    // SAFETY: the context belongs to the load that is running.
    let ctx = unsafe { Ctx::new(api!(RedisModule_GetContextFromIO(rdb))) };
    ctx.is_some_and(|ctx| !ctx.has_flag(not_here))
}

unsafe extern "C" fn rewrite(aof: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    guard("aof_rewrite", || {
        // SAFETY: the server passes the key and a value of our type.
        if let (Some(key), Some(lock)) = unsafe { (Str::new(key), value.cast::<Lock>().as_ref()) } {
            effect::emit(aof, key, lock);
        }
    });
}

unsafe extern "C" fn memory(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    guard("mem_usage", || unsafe { value.cast::<Lock>().as_ref() }.map_or(0, Lock::memory_bytes)).unwrap_or(0)
}

/// Two servers with the same holders have the same digest, in whatever order they came.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard("digest", || {
        // SAFETY: the server passes a value of our type.
        let Some(lock) = (unsafe { value.cast::<Lock>().as_ref() }) else { return };
        for hold in lock.stored_holds() {
            let numbers = format!("{}:{}:{}:{}", hold.fence.get(), hold.holds, hold.reads, hold.lease.as_ms());
            for bytes in [hold.owner.as_bytes(), numbers.as_bytes()] {
                // SAFETY: the server reads the bytes now.
                unsafe {
                    api!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast::<c_char>(), bytes.len()))
                };
            }
            // SAFETY: the digest is valid.
            unsafe { api!(RedisModule_DigestEndSequence(digest)) };
        }
    });
}

/// May run on another thread, and for values that never were in the keyspace: touches nothing but the value.
unsafe extern "C" fn free(value: *mut c_void) {
    let Some(lock) = NonNull::new(value.cast::<Lock>()) else { return };
    guard("free", || {
        // Nobody else has this very lock: it is the main thread, inside `remove`.
        if REMOVING.load(Ordering::Relaxed) == lock.as_ptr() {
            let mut spares = SPARES.0.borrow_mut();
            if spares.len() < MOST_SPARES {
                // SAFETY: the lock is ours, and the server has forgotten it.
                unsafe { lock.drop_in_place() };
                return spares.push(lock);
            }
        }
        // SAFETY: as above; it was boxed by `keep` or `load`.
        drop(unsafe { Box::from_raw(lock.as_ptr()) });
    });
}

/// A key of ours leaves the keyspace, whatever the reason: DEL, expiry, eviction, overwriting, RENAME, MIGRATE.
unsafe extern "C" fn unlink(ctx: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    if !state::is_attended() || REMOVING.load(Ordering::Relaxed) == value.cast_mut().cast() {
        return;
    }
    guard("unlink", || {
        // SAFETY: the context is valid for this call; key and database are those of the value.
        let (name, db) = unsafe {
            let name = Str::new(api!(RedisModule_GetKeyNameFromOptCtx(ctx)).cast_mut());
            (name.map(|name| name.bytes()), api!(RedisModule_GetDbIdFromOptCtx(ctx)))
        };
        // SAFETY: the server passes a value of our type, which it has not freed yet.
        let last = unsafe { value.cast::<Lock>().as_ref() }.and_then(Lock::fence);
        if let (Some(name), Some(last)) = (name, last) {
            state::mark(Mark::KeyRemoved(Key::new(db, name), last));
            drain::soon();
        }
    });
}

unsafe extern "C" fn save_fence(rdb: *mut raw::RedisModuleIO, _: c_int) {
    guard("aux_save", || {
        let fence = state::peek(|state| state.desk.fences.last()).flatten().map_or(0, Fence::get);
        // SAFETY: the file is being written.
        unsafe { api!(RedisModule_SaveUnsigned(rdb, fence)) };
    });
}

unsafe extern "C" fn save_fence_if_any(rdb: *mut raw::RedisModuleIO, when: c_int) {
    let any = guard("aux_save2", || state::peek(|state| state.desk.fences.last()).flatten());
    if any.flatten().is_some() {
        save_fence(rdb, when);
    }
}

unsafe extern "C" fn load_fence(rdb: *mut raw::RedisModuleIO, version: c_int, _: c_int) -> c_int {
    guard("aux_load", || {
        if version != stored::VERSION {
            return raw::REDISMODULE_ERR as c_int;
        }
        // SAFETY: the file is being read; errors are announced to be handled.
        let (number, is_broken) =
            unsafe { (api!(RedisModule_LoadUnsigned(rdb)), api!(RedisModule_IsIOError(rdb)) != 0) };
        if is_broken {
            return raw::REDISMODULE_ERR as c_int;
        }
        if let Some(fence) = Fence::new(number) {
            state::with(|state, _| state.desk.fences.raise(fence));
        }
        raw::REDISMODULE_OK as c_int
    })
    .unwrap_or(raw::REDISMODULE_ERR as c_int)
}
