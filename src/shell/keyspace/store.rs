//! The server's keyspace for the engine: opens keys; stores, expires, replicates and signals.
//!
//! Below it are the open key with its lock, and the memory of stored locks, 64 bytes each, allocated by the server's
//! allocator. A reference to a lock never outlives the open key.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use command::host::KeyArguments;
use lock::host::{Content, Effect, Entry, Keys, WriteCheck};
use lock::key::KeyRef;
use lock::value::claim::LockType;
use lock::value::fence::Fence;
use lock::value::lock::{FirstGrant, Lock};
use lock::value::owner::Owner;
use lock::value::time::Deadline;
use redis_module::raw;

use super::{held_counts, removals};
use crate::shell::adopt;
use crate::shell::background::write_check::{self, HoldsFor};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::key::{KeyHandle, RawContent};
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::string::{OwnedStr, Str, StrOfKey};
use crate::shell::replication::{self, ChangeSource};

static LOCK_MEMORY: MainThread<LockMemory> =
    MainThread::new(LockMemory { data_type: Cell::new(null_mut()), spares: RefCell::new(Vec::new()) });

/// The lock that the module itself is removing. Its `unlink` and `free` are called inside that removal; for other locks
/// they may be called from anywhere, including other threads.
static REMOVING: AtomicPtr<Lock> = AtomicPtr::new(null_mut());

/// The memory of stored locks.
struct LockMemory {
    /// The server's handle for our data type.
    data_type: Cell<*mut raw::RedisModuleType>,
    /// The memory of removed locks, for reuse.
    spares: RefCell<Vec<NonNull<Lock>>>,
}

/// The keyspace of a command or of the timer.
pub struct Store<'a> {
    ctx: Ctx<'a>,
    source: ChangeSource,
    /// The selected database: the timer works in any, a command stays in its own.
    selected: Option<i32>,
    /// The command's own arguments, which need no new string object.
    arguments: KeyArguments<'a, Str<'a>>,
    /// A key of the command that was already open before the engine pass: the first one it opens.
    opened: Option<StoredKey<'a>>,
    /// The result of the write check in this timer callback, if it applies to all keys.
    write_check: Option<WriteCheck>,
    was_refused: bool,
}

impl<'a> Store<'a> {
    /// # Safety
    /// It is the only one in the running callback, and no key that it opens is open elsewhere at the same time, except
    /// `opened`.
    #[inline]
    pub unsafe fn of_command(
        ctx: Ctx<'a>,
        opened: Option<StoredKey<'a>>,
        arguments: KeyArguments<'a, Str<'a>>,
    ) -> Store<'a> {
        Store {
            ctx,
            source: ChangeSource::Command,
            selected: None,
            arguments,
            opened,
            write_check: None,
            was_refused: false,
        }
    }

    /// # Safety
    /// See [`Store::of_command`].
    pub unsafe fn of_timer(ctx: Ctx<'a>) -> Store<'a> {
        let arguments = KeyArguments { arguments: &[], names: &[] };
        let selected = Some(ctx.db());
        Store {
            ctx,
            source: ChangeSource::Timer,
            selected,
            arguments,
            opened: None,
            write_check: None,
            was_refused: false,
        }
    }

    /// Whether the write check refused some key, so that due queues must be retried later.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    #[inline]
    fn select(&mut self, db: i32) {
        if self.selected.is_some_and(|selected| selected != db) {
            self.ctx.select_db(db);
            self.selected = Some(db);
        }
    }
}

impl Keys for Store<'_> {
    type Entry<'e>
        = StoredKey<'e>
    where
        Self: 'e;

    #[inline]
    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> StoredKey<'e> {
        if let Some(opened) = self.opened.take().filter(|opened| opened.name.as_str().bytes() == key.name) {
            return opened;
        }
        self.select(key.db);
        let name = StrOfKey::find(&self.arguments, key.name);
        // SAFETY: only one key is open at a time, because it borrows the store, which is the only one.
        unsafe { StoredKey::open(self.ctx, self.source, name) }
    }

    fn write_check(&mut self, key: KeyRef<'_>) -> WriteCheck {
        // The server has accepted the running command: in a cluster for its own keys, otherwise for any key.
        if self.source == ChangeSource::Command
            && (!write_check::is_in_cluster() || self.arguments.names.contains(&key.name))
        {
            // Only a transaction that itself paused the server gets here during a pause.
            return if self.ctx.avoids_replica_traffic() { WriteCheck::Refused } else { WriteCheck::Allowed };
        }
        if let Some(write_check) = self.write_check {
            return write_check;
        }
        self.select(key.db);
        let name = OwnedStr::new(key.name);
        let (write_check, holds_for) = write_check::check(self.ctx, name.as_str());
        if holds_for == HoldsFor::EveryKey {
            self.write_check = Some(write_check);
        }
        self.was_refused |= write_check == WriteCheck::Refused;
        write_check
    }
}

/// An open key of the store, for the engine.
pub struct StoredKey<'e> {
    // First, because it must be closed before its name is freed.
    lock_key: LockKey<'e>,
    name: StrOfKey<'e>,
    ctx: Ctx<'e>,
    source: ChangeSource,
}

impl<'e> StoredKey<'e> {
    /// The key of a command that runs without a store.
    ///
    /// # Safety
    /// See [`LockKey::open`].
    #[inline(always)]
    pub unsafe fn of_command(ctx: Ctx<'e>, key: Str<'e>) -> StoredKey<'e> {
        // SAFETY: guaranteed by the caller.
        unsafe { StoredKey::open(ctx, ChangeSource::Command, StrOfKey::Argument(key)) }
    }

    /// # Safety
    /// See [`LockKey::open`].
    #[inline(always)]
    unsafe fn open(ctx: Ctx<'e>, source: ChangeSource, name: StrOfKey<'e>) -> StoredKey<'e> {
        // SAFETY: guaranteed by the caller.
        let lock_key = unsafe { LockKey::open(ctx, name.as_str()) };
        StoredKey { lock_key, name, ctx, source }
    }
}

impl StoredKey<'_> {
    /// Whether the key holds or held a reentrant mutex: a vacant lock does not have its lock type.
    #[inline(never)]
    fn is_reentrant(&mut self) -> bool {
        let may_be_reentrant = |lock: &Lock| lock.lock_type().is_none_or(|it| it == LockType::Reentrant);
        matches!(self.lock_key.content(), Content::Lock(lock) if may_be_reentrant(lock))
    }
}

impl Entry for StoredKey<'_> {
    fn take_expired(&mut self) -> Option<(Owner, Fence)> {
        removals::take_expired(KeyRef { db: self.ctx.db(), name: self.name.as_str().bytes() })
    }

    #[inline]
    fn content(&mut self) -> Content<'_> {
        self.lock_key.content()
    }

    fn until(&self) -> Deadline {
        self.lock_key.until()
    }

    #[inline(always)]
    fn create(&mut self, first: &FirstGrant<'_>) {
        self.lock_key.set(|| first.lock());
        if first.until() != Deadline::Never {
            self.lock_key.set_until(first.until());
        }
        if let Content::Lock(lock) = self.lock_key.content() {
            replication::send_hold(self.ctx, self.source, self.name.as_str(), lock, first.owner(), first.until());
        }
        self.ctx.signal_modified(self.name.as_str());
    }

    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>) {
        let (ctx, source, name) = (self.ctx, self.source, self.name.as_str());
        let until = match until {
            Some(until) => {
                self.lock_key.set_until(until);
                until
            }
            None => self.lock_key.until(),
        };
        let Content::Lock(lock) = self.lock_key.content() else { return };
        match effect {
            Effect::Hold(owner) | Effect::Renew(owner) => replication::send_hold(ctx, source, name, lock, owner, until),
            Effect::Drop(owner) => replication::send_drop(ctx, source, name, owner),
            Effect::Ended(time) => replication::send_ended(ctx, source, name, time),
            Effect::Limit => replication::send_limit(ctx, source, name, lock),
            Effect::Clamp => replication::send_clamp(ctx, source, name),
        }
        if matches!(effect, Effect::Hold(_) | Effect::Drop(_) | Effect::Ended(_)) {
            ctx.signal_modified(name);
        }
    }

    #[inline(always)]
    fn remove(&mut self) {
        let publishes_unlock = adopt::has_hashes() && self.is_reentrant();
        self.lock_key.remove();
        replication::send_removal(self.ctx, self.source, self.name.as_str());
        self.ctx.signal_modified(self.name.as_str());
        if publishes_unlock {
            adopt::unlock::publish_unlock(self.ctx, self.name.as_str());
        }
    }
}

/// A key that is open for reading and writing.
pub struct LockKey<'c> {
    key: KeyHandle<'c>,
    content: RawContent,
    /// The key's deadline, once it was read: each reading makes the server look the key up.
    until: Cell<Option<Deadline>>,
}

impl<'c> LockKey<'c> {
    /// Opens a key.
    ///
    /// # Safety
    /// No other `LockKey` or [`ReadKey`] of the same key is open before this one is dropped.
    #[inline(always)]
    pub unsafe fn open(ctx: Ctx<'c>, name: Str<'_>) -> LockKey<'c> {
        let key = KeyHandle::write(ctx, name);
        let content = key.content(data_type());
        LockKey { key, content, until: Cell::new(None) }
    }

    #[inline]
    pub fn content(&mut self) -> Content<'_> {
        match self.content {
            RawContent::Empty => Content::Free,
            RawContent::Foreign => Content::Foreign,
            // SAFETY: values of our type are locks, and this is the only reference to it: the key is open only once,
            // and the reference borrows us.
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

    /// Replaces the key's value with a lock, without expiry.
    #[inline(always)]
    pub fn set(&mut self, lock: impl FnOnce() -> Lock) {
        let spare = LOCK_MEMORY.spares.borrow_mut().pop();
        let memory = spare.unwrap_or_else(|| NonNull::from(Box::leak(Box::<Lock>::new_uninit())).cast());
        // SAFETY: the memory is for a lock and holds none.
        unsafe { memory.write(lock()) };
        let value = memory.cast();
        // SAFETY: the key is open for writing, and the server owns the lock from now on.
        unsafe { self.key.set(data_type(), value) };
        self.content = RawContent::Ours(value);
        self.until.set(None);
    }

    /// Removes the key and frees its lock. `unlink` records no event for it, because the caller knows what follows.
    #[inline]
    pub fn remove(&mut self) {
        if let RawContent::Ours(value) = std::mem::replace(&mut self.content, RawContent::Empty) {
            REMOVING.store(value.cast().as_ptr(), Ordering::Relaxed);
            // SAFETY: the key is open for writing; references to its lock borrow us, so there are none.
            unsafe { self.key.delete() };
            REMOVING.store(null_mut(), Ordering::Relaxed);
            self.until.set(None);
        }
    }

    /// The key's deadline; an empty key has none.
    pub fn until(&self) -> Deadline {
        let until = match self.content {
            RawContent::Empty => Deadline::Never,
            RawContent::Ours(_) | RawContent::Foreign => self.until.get().unwrap_or_else(|| self.key.until()),
        };
        self.until.set(Some(until));
        until
    }

    #[inline]
    pub fn set_until(&mut self, until: Deadline) {
        self.key.set_until(until);
        self.until.set(Some(until));
    }
}

/// A key that holds a lock, open for reading.
pub struct ReadKey<'c> {
    key: KeyHandle<'c>,
    lock: NonNull<Lock>,
}

/// What is under a key that was opened for reading.
pub enum ReadContent<'c> {
    /// Nothing, or an expired value.
    Free,
    Lock(ReadKey<'c>),
    /// A value of another type.
    Foreign,
}

impl<'c> ReadKey<'c> {
    /// Opens a key for reading.
    ///
    /// # Safety
    /// No [`LockKey`] of the same key is open before the result is dropped.
    pub unsafe fn open(ctx: Ctx<'c>, name: Str<'_>) -> ReadContent<'c> {
        let Some(key) = KeyHandle::read(ctx, name) else { return ReadContent::Free };
        match key.content(data_type()) {
            RawContent::Ours(value) => ReadContent::Lock(ReadKey { key, lock: value.cast() }),
            RawContent::Empty => ReadContent::Free,
            RawContent::Foreign => ReadContent::Foreign,
        }
    }

    pub fn lock(&self) -> &Lock {
        // SAFETY: values of our type are locks; the key is open, and not open for writing elsewhere.
        unsafe { self.lock.as_ref() }
    }

    pub fn until(&self) -> Deadline {
        self.key.until()
    }
}

/// The memory of at most this many removed locks, 64 bytes each, is kept for reuse: the server's allocator does
/// accounting, which would cost an uncontended acquire/release pair 370 instructions, 2 %.
const MOST_SPARES: usize = 1024;

/// Call at module start, after the data type was registered.
pub fn start(data_type: *mut raw::RedisModuleType) {
    LOCK_MEMORY.data_type.set(data_type);
}

/// The server's handle for our data type.
#[inline]
fn data_type() -> *mut raw::RedisModuleType {
    LOCK_MEMORY.data_type.get()
}

/// Whether the module itself is removing this value.
pub fn is_removing(value: *const c_void) -> bool {
    REMOVING.load(Ordering::Relaxed).cast_const().cast() == value
}

/// Frees a lock, or keeps its memory for reuse. May run on another thread, and for values that were never in the
/// keyspace.
///
/// # Safety
/// The lock came from [`LockKey::set`] or a `Box`, and the server has forgotten it.
#[inline(always)]
pub unsafe fn free(lock: NonNull<Lock>) {
    // No other thread has this lock: this is the main thread, inside [`LockKey::remove`].
    if is_removing(lock.as_ptr().cast()) {
        let mut spares = LOCK_MEMORY.spares.borrow_mut();
        if spares.len() < MOST_SPARES {
            // SAFETY: we own the lock.
            unsafe { lock.drop_in_place() };
            return spares.push(lock);
        }
    }
    // SAFETY: as above.
    let lock = unsafe { Box::from_raw(lock.as_ptr()) };
    if let Some(lock_type) = lock.held_lock_type() {
        held_counts::freed(lock_type);
    }
    drop(lock);
}
