//! How many keys hold a lock, by lock type, without scanning. The engine counts the locks that it stores and removes;
//! this file counts locks from files and effects, and locks that the server removes.
//!
//! A lock that leaves the keyspace is counted when it is freed. The server frees it at once on its main thread, except
//! after an asynchronous flush: then another thread frees it later, in the order of the flushes. When all databases are
//! flushed, the locks still in memory are subtracted at once; locks that the other thread frees afterwards belonged to
//! the flush and are not subtracted again. FLUSHDB of the only database with keys counts as a flush of all. Keys that
//! FLUSHDB ASYNC removes from one of multiple databases count until they are freed.

use std::sync::atomic::Ordering;

use lock::value::claim::{ByFamily, Family};

use crate::shell::ffi::main_thread;
use crate::shell::main_state::{Flushed, FREEING, MAIN};
use crate::shell::state;

/// How many of the flushed locks are still in memory.
fn left(flushed: Flushed, freed: i64) -> i64 {
    (flushed.locks - (freed - flushed.freed_before)).max(0)
}

/// A key's lock changed from `before` to `after` outside the engine. Main thread only.
pub fn changed(before: Option<Family>, after: Option<Family>) {
    let mut here = MAIN.held.here.get();
    before.into_iter().for_each(|family| *here.of_mut(family) -= 1);
    after.into_iter().for_each(|family| *here.of_mut(family) += 1);
    MAIN.held.here.set(here);
}

/// The server frees a lock that has holders, on any thread.
pub fn freed(family: Family) {
    if main_thread::is_here() {
        changed(Some(family), None);
    } else {
        FREEING.elsewhere.of(family).fetch_add(1, Ordering::Relaxed);
    }
}

/// All databases are empty now.
pub fn all_flushed() {
    let Some(by_rules) = state::peek(|state| state.manager.observer.statistics.stored()) else { return };
    MAIN.held.flushed.set(ByFamily::make(|family| {
        let freed = FREEING.elsewhere.of(family).load(Ordering::Relaxed);
        Flushed { locks: in_memory(by_rules, family, freed), freed_before: freed }
    }));
}

/// How many keys hold a lock of each type; `by_rules` is the count of the engine.
pub fn stored(by_rules: ByFamily<i64>) -> ByFamily<u64> {
    ByFamily::make(|family| {
        let freed = FREEING.elsewhere.of(family).load(Ordering::Relaxed);
        let stored = in_memory(by_rules, family, freed) - left(*MAIN.held.flushed.get().of(family), freed);
        u64::try_from(stored).unwrap_or(0)
    })
}

fn in_memory(by_rules: ByFamily<i64>, family: Family, freed_elsewhere: i64) -> i64 {
    by_rules.of(family) + MAIN.held.here.get().of(family) - freed_elsewhere
}
