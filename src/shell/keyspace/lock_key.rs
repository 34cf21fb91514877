//! An open key, the lock under it, and the memory of stored locks: 64 bytes each, made where the server can keep them.
//! A reference to a lock never outlives the key's being open.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::Ordering;

use lock::host::Content;
use lock::value::lock::Lock;
use lock::value::time::{Deadline, Timestamp};
use redis_module::raw;

use super::held_counts;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::key::{OpenKey, RawContent};
use crate::shell::ffi::string::Str;
use crate::shell::main_state::{FREEING, MAIN};

/// A key that is open for reading and writing.
pub struct LockKey<'c> {
    key: OpenKey<'c>,
    content: RawContent,
    /// When the key ends, once it was read: each reading makes the server search the key.
    until: Cell<Option<Deadline>>,
}

impl<'c> LockKey<'c> {
    /// Opens a key.
    ///
    /// # Safety
    /// No other `LockKey` or [`ReadKey`] of the same key is open before this one is dropped.
    #[inline(always)]
    pub unsafe fn open(ctx: Ctx<'c>, name: Str<'_>) -> LockKey<'c> {
        let key = OpenKey::write(ctx, name);
        let content = key.content(data_type());
        LockKey { key, content, until: Cell::new(None) }
    }

    /// What is under the key.
    #[inline]
    pub fn content(&mut self) -> Content<'_> {
        match self.content {
            RawContent::Empty => Content::Free,
            RawContent::Foreign => Content::Foreign,
            // SAFETY: values of our type are locks, and this is the only reference to it: the key is open once, and we
            // are borrowed for as long as it lives.
            RawContent::Ours(value) => Content::Lock(unsafe { value.cast::<Lock>().as_mut() }),
        }
    }

    /// The lock under the key, if there is one.
    pub fn lock(&mut self) -> Option<&mut Lock> {
        match self.content() {
            Content::Lock(lock) => Some(lock),
            Content::Free | Content::Foreign => None,
        }
    }

    /// Stores a lock in place of what was there, without a time to live.
    #[inline(always)]
    pub fn set(&mut self, lock: impl FnOnce() -> Lock) {
        let spare = MAIN.lock_memory.spares.borrow_mut().pop();
        let memory = spare.unwrap_or_else(|| NonNull::from(Box::leak(Box::<Lock>::new_uninit())).cast());
        // SAFETY: it is memory for a lock, without one in it.
        unsafe { memory.write(lock()) };
        let value = memory.cast();
        // SAFETY: the key is open for writing, and the server owns the lock from now on.
        unsafe { self.key.set(data_type(), value) };
        self.content = RawContent::Ours(value);
        self.until.set(None);
    }

    /// Removes the key and frees its lock. `unlink` notes no event for it: the caller knows what follows.
    #[inline]
    pub fn remove(&mut self) {
        if let RawContent::Ours(value) = std::mem::replace(&mut self.content, RawContent::Empty) {
            FREEING.removing.store(value.cast().as_ptr(), Ordering::Relaxed);
            // SAFETY: the key is open for writing; references to its lock borrow us, so there are none.
            unsafe { self.key.delete() };
            FREEING.removing.store(null_mut(), Ordering::Relaxed);
            self.until.set(None);
        }
    }

    /// When the key ends. A free key is not asked for: Redis 8.2 would read a null pointer.
    pub fn until(&self) -> Deadline {
        let until = match self.content {
            RawContent::Empty => Deadline::Never,
            RawContent::Ours(_) | RawContent::Foreign => self.until.get().unwrap_or_else(|| until(&self.key)),
        };
        self.until.set(Some(until));
        until
    }

    /// Sets when the key ends.
    #[inline]
    pub fn set_until(&mut self, until: Deadline) {
        self.key.set_expire_at_ms(until.timestamp().map(Timestamp::signed_ms));
        self.until.set(Some(until));
    }
}

/// A key that holds a lock, open for reading.
pub struct ReadKey<'c> {
    key: OpenKey<'c>,
    lock: NonNull<Lock>,
}

/// What is under a key that was opened for reading.
pub enum ReadContent<'c> {
    /// Nothing, or nothing that has not expired.
    Free,
    /// A lock.
    Lock(ReadKey<'c>),
    /// A value of another type.
    Foreign,
}

impl<'c> ReadKey<'c> {
    /// Opens a key for reading.
    ///
    /// # Safety
    /// No [`LockKey`] of the same key is open before what is returned is dropped.
    pub unsafe fn open(ctx: Ctx<'c>, name: Str<'_>) -> ReadContent<'c> {
        let Some(key) = OpenKey::read(ctx, name) else { return ReadContent::Free };
        match key.content(data_type()) {
            RawContent::Ours(value) => ReadContent::Lock(ReadKey { key, lock: value.cast() }),
            RawContent::Empty => ReadContent::Free,
            RawContent::Foreign => ReadContent::Foreign,
        }
    }

    /// The lock under the key.
    pub fn lock(&self) -> &Lock {
        // SAFETY: values of our type are locks; the key is open, and is not open for writing elsewhere.
        unsafe { self.lock.as_ref() }
    }

    /// When the key ends.
    pub fn until(&self) -> Deadline {
        until(&self.key)
    }
}

fn until(key: &OpenKey<'_>) -> Deadline {
    key.expire_at_ms().map_or(Deadline::Never, |ms| Deadline::At(Timestamp::from_ms(ms)))
}

/// The memory of at most this many removed locks, of 64 bytes each, is kept for the next ones: the server's allocator
/// counts what it gives and takes, which would cost an uncontended pair 370 instructions, 2 %.
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

/// Whether the module itself removes this value now.
pub fn is_removing(value: *const c_void) -> bool {
    FREEING.removing.load(Ordering::Relaxed).cast_const().cast() == value
}

/// Frees a lock, or keeps its memory. May run on another thread, and for values that never were in the keyspace.
///
/// # Safety
/// The lock came from [`LockKey::set`] or a `Box`, and the server has forgotten it.
#[inline(always)]
pub unsafe fn free(lock: NonNull<Lock>) {
    // No other thread has this lock: it is the main thread, inside [`LockKey::remove`].
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
    lock.held_family().into_iter().for_each(held_counts::freed);
    drop(lock);
}
