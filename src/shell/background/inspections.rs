//! Schedules the inspection of keys that other commands may have changed: a few keys every few milliseconds while a
//! request waits. The cost does not depend on the command rate of the server, and other commands pay nothing.

use std::cell::Cell;

use lock::engine::lock_manager::LockManager;
use lock::host::{Host, Keys};
use lock::value::time::Instant;
use redis_module::raw;

use super::timer;
use crate::shell::clock;
use crate::shell::ffi::main_thread::MainThread;

static INSPECTIONS: MainThread<Inspections> = MainThread::new(Inspections {
    due: Cell::new(None),
    were_needed: Cell::new(false),
    quiet_inspections: Cell::new(0),
});

struct Inspections {
    due: Cell<Option<Instant>>,
    /// Whether there was a key to inspect since the last inspection. If a lock is handed off frequently, this avoids
    /// rearming the timer for each waiter.
    were_needed: Cell<bool>,
    /// The number of inspections since the last command that saw a waiter.
    quiet_inspections: Cell<u32>,
}

/// The most keys with waiters that are inspected in one timer callback. Up to this number, every callback inspects all
/// of them; a full pass over ten thousand takes 1.6 seconds.
const KEYS_PER_INSPECTION: usize = 64;

/// Milliseconds between two inspections.
const PAUSE_MS: u64 = 10;

/// After this many inspections with no other activity, about a second, the interval grows so that an idle server can
/// sleep.
const QUIET_INSPECTIONS: u32 = 100;

/// Milliseconds between two inspections from then on.
const LONG_PAUSE_MS: u64 = 50;

/// Call after a command's engine pass, which may have changed which requests wait.
#[inline]
pub fn follow_command(manager: &LockManager) {
    if INSPECTIONS.quiet_inspections.replace(0) >= QUIET_INSPECTIONS {
        INSPECTIONS.due.set(None);
    }
    follow(manager);
}

/// Call after any other engine pass.
#[inline]
pub fn follow(manager: &LockManager) {
    if is_needed(manager) {
        INSPECTIONS.were_needed.set(true);
        if INSPECTIONS.due.get().is_none() {
            begin();
        }
    }
}

#[inline]
fn is_needed(manager: &LockManager) -> bool {
    !manager.queues().is_empty()
}

/// No request waits on a replica. Its promotion is followed by an engine pass.
#[cold]
fn begin() {
    if !is_primary() {
        return;
    }
    let due = clock::instant().plus_ms(PAUSE_MS);
    INSPECTIONS.due.set(Some(due));
    timer::wake_for(due);
}

fn is_primary() -> bool {
    timer::own_context().is_some_and(|ctx| ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER))
}

#[inline]
pub fn due() -> Option<Instant> {
    INSPECTIONS.due.get()
}

/// Called by the timer: marks the keys that have changed, to be processed next.
pub fn inspect<K: Keys, C>(manager: &mut LockManager, host: &mut Host<'_, K, C>) {
    if INSPECTIONS.due.get().is_none_or(|due| due > host.now.instant()) {
        return;
    }
    let was_needed = INSPECTIONS.were_needed.replace(false);
    let continues = (was_needed || is_needed(manager)) && is_primary();
    let quiet_inspections = INSPECTIONS.quiet_inspections.get().saturating_add(1);
    INSPECTIONS.quiet_inspections.set(quiet_inspections);
    // With more keys than one inspection covers, a full pass with long intervals would take too long.
    let is_long = quiet_inspections >= QUIET_INSPECTIONS && manager.queues().len() <= KEYS_PER_INSPECTION;
    let pause_ms = if is_long { LONG_PAUSE_MS } else { PAUSE_MS };
    INSPECTIONS.due.set(continues.then(|| host.now.instant().plus_ms(pause_ms)));
    manager.with_host(host).inspect_some(KEYS_PER_INSPECTION);
}
