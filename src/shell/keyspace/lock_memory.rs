//! The memory of stored locks: 64 bytes each, made where the server can keep them.

use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use lock::value::lock::Lock;
use redis_module::raw;

use super::held;
use crate::shell::ffi::key::OpenKey;
use crate::shell::main_state::MAIN;

/// The lock that the module itself removes at this moment. Its `unlink` and `free` come from inside that removal; those
/// of other locks may come from anywhere, `free` from another thread too: so it is a static.
static REMOVING: AtomicPtr<Lock> = AtomicPtr::new(null_mut());

/// The memory of at most this many removed locks, of 64 bytes each, is kept for the next ones: the server's allocator
/// counts what it gives and takes, which would cost an uncontended pair 2 %.
const MOST_SPARES: usize = 1024;

/// At the module's start, when the data type was registered.
pub fn start(data_type: *mut raw::RedisModuleType) {
    MAIN.lock_memory.data_type.set(data_type);
}

/// The server's handle of our data type.
#[inline]
pub fn data_type() -> *mut raw::RedisModuleType {
    MAIN.lock_memory.data_type.get()
}

/// A lock, made where the server can keep it. Whoever gets it hands it to the server, or it leaks.
#[inline(always)]
pub fn keep(lock: impl FnOnce() -> Lock) -> NonNull<Lock> {
    let spare = MAIN.lock_memory.spares.borrow_mut().pop();
    let memory = spare.unwrap_or_else(|| NonNull::from(Box::leak(Box::<Lock>::new_uninit())).cast());
    // SAFETY: it is memory for a lock, without one in it.
    unsafe { memory.write(lock()) };
    memory
}

/// Removes a key whose lock nobody holds any more. `unlink` notes no event for it: the caller knows what follows.
///
/// # Safety
/// The key is open for writing, `lock` is its value, and nobody refers to it any more.
#[inline]
pub unsafe fn remove(key: &OpenKey<'_>, lock: NonNull<Lock>) {
    REMOVING.store(lock.as_ptr(), Ordering::Relaxed);
    // SAFETY: the caller vouches for it.
    unsafe { key.delete() };
    REMOVING.store(null_mut(), Ordering::Relaxed);
}

/// Whether the module itself removes this value now.
pub fn is_removing(value: *const c_void) -> bool {
    REMOVING.load(Ordering::Relaxed).cast_const().cast() == value
}

/// Frees a lock, or keeps its memory. May run on another thread, and for values that never were in the keyspace.
///
/// # Safety
/// The lock came from [`keep`] or a `Box`, and the server has forgotten it.
#[inline(always)]
pub unsafe fn free(lock: NonNull<Lock>) {
    // Nobody else has this very lock: it is the main thread, inside `remove`.
    if is_removing(lock.as_ptr().cast()) {
        let mut spares = MAIN.lock_memory.spares.borrow_mut();
        if spares.len() < MOST_SPARES {
            // SAFETY: the lock is ours.
            unsafe { lock.drop_in_place() };
            return spares.push(lock);
        }
    }
    // SAFETY: as above.
    let lock = unsafe { Box::from_raw(lock.as_ptr()) };
    lock.held_family().into_iter().for_each(held::freed);
    drop(lock);
}
