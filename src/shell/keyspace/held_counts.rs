//! How many keys hold a lock, by lock type, without scanning. The engine counts the locks that it stores and removes;
//! this file counts locks from files and effects, and locks that the server removes.
//!
//! A lock that leaves the keyspace is counted when it is freed. The server frees it at once on its main thread, except
//! after an asynchronous flush: then another thread frees it later, in the order of the flushes. When all databases are
//! flushed, the locks still in memory are subtracted at once; locks that the other thread frees afterwards belonged to
//! the flush and are not subtracted again. FLUSHDB of the only database with keys counts as a flush of all. Keys that
//! FLUSHDB ASYNC removes from one of multiple databases count until they are freed.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use lock::value::claim::{ByLockType, LockType};

use crate::shell::ffi::main_thread::{self, MainThread};
use crate::shell::state;

static COUNTS: MainThread<HeldCounts> = MainThread::new(HeldCounts {
    on_main_thread: Cell::new(ByLockType([0; 4])),
    flushed: Cell::new(ByLockType([Flushed { locks: 0, freed_before: 0 }; 4])),
});

/// How many locks other threads have freed.
static FREED_BY_OTHER_THREADS: ByLockType<AtomicI64> = ByLockType([const { AtomicI64::new(0) }; 4]);

struct HeldCounts {
    /// Keys added and removed on the main thread, outside the engine.
    on_main_thread: Cell<ByLockType<i64>>,
    /// The locks in memory after the last flush of all databases.
    flushed: Cell<ByLockType<Flushed>>,
}

/// The locks in memory right after all databases were flushed.
#[derive(Clone, Copy)]
struct Flushed {
    locks: i64,
    /// How many locks other threads had freed by then.
    freed_before: i64,
}

/// How many of the flushed locks are still in memory.
fn left(flushed: Flushed, freed: i64) -> i64 {
    (flushed.locks - (freed - flushed.freed_before)).max(0)
}

/// A key's lock changed from `before` to `after` outside the engine. Main thread only.
pub fn changed(before: Option<LockType>, after: Option<LockType>) {
    let mut here = COUNTS.on_main_thread.get();
    if let Some(lock_type) = before {
        *here.of_mut(lock_type) -= 1;
    }
    if let Some(lock_type) = after {
        *here.of_mut(lock_type) += 1;
    }
    COUNTS.on_main_thread.set(here);
}

/// The server frees a lock that has holders, on any thread.
pub fn freed(lock_type: LockType) {
    if main_thread::is_here() {
        changed(Some(lock_type), None);
    } else {
        FREED_BY_OTHER_THREADS.of(lock_type).fetch_add(1, Ordering::Relaxed);
    }
}

/// All databases are empty now.
pub fn all_flushed() {
    let Some(by_rules) = state::peek(|state| state.manager.observer.statistics.stored()) else { return };
    COUNTS.flushed.set(ByLockType::make(|lock_type| {
        let freed = FREED_BY_OTHER_THREADS.of(lock_type).load(Ordering::Relaxed);
        Flushed { locks: in_memory(by_rules, lock_type, freed), freed_before: freed }
    }));
}

/// How many keys hold a lock of each type; `by_rules` is the count of the engine.
pub fn stored(by_rules: ByLockType<i64>) -> ByLockType<u64> {
    ByLockType::make(|lock_type| {
        let freed = FREED_BY_OTHER_THREADS.of(lock_type).load(Ordering::Relaxed);
        let stored = in_memory(by_rules, lock_type, freed) - left(*COUNTS.flushed.get().of(lock_type), freed);
        u64::try_from(stored).unwrap_or(0)
    })
}

fn in_memory(by_rules: ByLockType<i64>, lock_type: LockType, freed_by_other_threads: i64) -> i64 {
    by_rules.of(lock_type) + COUNTS.on_main_thread.get().of(lock_type) - freed_by_other_threads
}
