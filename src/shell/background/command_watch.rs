//! Sees every command before it runs, as long as a lock has several holders, a free key is waited for, or more keys are
//! waited for than a turn of inspections sees: then a change of a key by others has to be noticed by the command.
//!
//! The server's keyspace events would tell exactly that, but there is no way back: once subscribed, every key that
//! expires or is deleted costs a context and a call, for as long as the server runs. A command filter costs each
//! command far less, and it can be taken back.

use std::cell::Cell;

use redis_module::raw;

use super::timer;
use crate::shell::ffi::command_filter::{CommandFilter, FilterCallback};
use crate::shell::ffi::main_thread::MainThread;

/// After so many rounds of the server's cron in which nobody needed it the filter goes: some tenths of a second, unless
/// `hz` says otherwise. At once would register it anew for each wait.
const MOST_IDLE_ROUNDS: u32 = 5;

static CALLBACK: MainThread<Cell<Option<FilterCallback>>> = MainThread(Cell::new(None));
static FILTER: MainThread<Cell<Option<CommandFilter>>> = MainThread(Cell::new(None));
static IS_NEEDED: MainThread<Cell<bool>> = MainThread(Cell::new(false));
static IDLE_ROUNDS: MainThread<Cell<u32>> = MainThread(Cell::new(0));

/// At the module's start.
pub fn start(callback: FilterCallback) {
    CALLBACK.0.set(Some(callback));
}

/// Whether commands are seen.
pub fn is_registered() -> bool {
    FILTER.0.get().is_some()
}

/// Commands are to be seen from now on, or need not be. Not to be called by a filter.
#[inline]
pub fn set_needed(is_needed: bool) {
    if is_needed != IS_NEEDED.0.get() {
        change(is_needed);
    }
}

#[cold]
fn change(is_needed: bool) {
    let (Some(ctx), Some(callback)) = (timer::own_context(), CALLBACK.0.get()) else { return };
    // On a replica nobody waits and no lease ends. Its promotion is followed by a turn.
    let is_needed = is_needed && ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER);
    IS_NEEDED.0.set(is_needed);
    IDLE_ROUNDS.0.set(0);
    if is_needed && !is_registered() {
        FILTER.0.set(CommandFilter::register(ctx, callback));
    }
}

/// A round of the server's cron, which runs inside no command.
pub fn cron() {
    let (false, Some(filter)) = (IS_NEEDED.0.get(), FILTER.0.get()) else { return };
    let rounds = IDLE_ROUNDS.0.get() + 1;
    IDLE_ROUNDS.0.set(rounds);
    if let (true, Some(ctx)) = (rounds > MOST_IDLE_ROUNDS, timer::own_context()) {
        FILTER.0.set(None);
        // SAFETY: it was taken out of the only place that knew it, and no filter is being called.
        unsafe { filter.unregister(ctx) };
    }
}
