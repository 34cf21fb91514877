//! When waited-for keys are inspected that other commands may have changed: a few every few milliseconds, for as long
//! as somebody waits. It costs the same whoever sends how many commands, and commands do not pay for it.

use std::cell::Cell;

use lock::host::{Host, Keys};
use lock::manager::lock_manager::LockManager;
use lock::value::time::Instant;

use super::timer;
use crate::shell::clock;
use crate::shell::ffi::main_thread::MainThread;

/// At most this many keys are inspected in one turn of the server. As long as no more are waited for, each of them is
/// inspected in each of these turns.
pub const KEYS_A_TURN: usize = 64;

/// Milliseconds between two such turns.
const PAUSE_MS: u64 = 10;

/// When the next inspection is due.
static DUE: MainThread<Cell<Option<Instant>>> = MainThread(Cell::new(None));

/// Whether somebody has waited since the last one: where a lock goes from hand to hand the timer is not armed anew for
/// each waiter.
static HAS_WAITED: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// After a turn that may have changed who waits.
#[inline]
pub fn follow(manager: &LockManager) {
    if !manager.queues().is_empty() {
        HAS_WAITED.0.set(true);
        if DUE.0.get().is_none() {
            begin();
        }
    }
}

#[cold]
fn begin() {
    let due = clock::instant().plus_ms(PAUSE_MS);
    DUE.0.set(Some(due));
    timer::wake_for(due);
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
    let has_waited = HAS_WAITED.0.replace(false);
    let is_over = manager.queues().is_empty() && !has_waited;
    DUE.0.set((!is_over).then(|| host.now.instant().plus_ms(PAUSE_MS)));
    manager.inspect_some(host, KEYS_A_TURN);
}
