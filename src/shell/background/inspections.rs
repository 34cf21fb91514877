//! When keys are inspected that other commands may have changed: a few every few milliseconds, for as long as a request
//! waits or a lock has several holders. The cost does not depend on how many commands the server runs, and those pay
//! nothing.

use std::cell::Cell;

use lock::host::{Host, Keys};
use lock::manager::lock_manager::LockManager;
use lock::value::time::Instant;
use redis_module::raw;

use super::timer;
use crate::shell::clock;
use crate::shell::ffi::main_thread::MainThread;

/// At most this many waited-for keys are inspected in one turn of the server, and as many locks with several holders. As
/// long as there are no more, each of them is inspected in each of these turns; ten thousand take 1.6 seconds.
const KEYS_A_TURN: usize = 64;

/// Milliseconds between two such turns.
const PAUSE_MS: u64 = 10;

/// When the next inspection is due.
static DUE: MainThread<Cell<Option<Instant>>> = MainThread(Cell::new(None));

/// Whether there was one to inspect since the last one: where a lock goes from hand to hand the timer is not armed anew
/// for each waiter.
static WAS_NEEDED: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// After a turn that may have changed which requests wait, or how many locks have several holders.
#[inline]
pub fn follow(manager: &LockManager) {
    if is_needed(manager) {
        WAS_NEEDED.0.set(true);
        if DUE.0.get().is_none() {
            begin();
        }
    }
}

#[inline]
fn is_needed(manager: &LockManager) -> bool {
    !manager.queues().is_empty() || manager.knows_several_holders()
}

/// On a replica no request waits and no lease ends. Its promotion is followed by a turn.
#[cold]
fn begin() {
    if !is_primary() {
        return;
    }
    let due = clock::instant().plus_ms(PAUSE_MS);
    DUE.0.set(Some(due));
    timer::wake_for(due);
}

fn is_primary() -> bool {
    timer::own_context().is_some_and(|ctx| ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER))
}

/// When the next inspection is due.
#[inline]
pub fn due() -> Option<Instant> {
    DUE.0.get()
}

/// In a turn of the timer: marks what has changed, for the drain that follows.
pub fn go_on<K: Keys, C>(manager: &mut LockManager, host: &mut Host<'_, K, C>) {
    if DUE.0.get().is_none_or(|due| due > host.now.instant()) {
        return;
    }
    let was_needed = WAS_NEEDED.0.replace(false);
    let goes_on = (was_needed || is_needed(manager)) && is_primary();
    DUE.0.set(goes_on.then(|| host.now.instant().plus_ms(PAUSE_MS)));
    manager.inspect_some(host, KEYS_A_TURN);
}
