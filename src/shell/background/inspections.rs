//! When keys are inspected that other commands may have changed: a few every few milliseconds, for as long as a request
//! waits. The cost does not depend on how many commands the server runs, and these pay
//! nothing.

use lock::host::{Host, Keys};
use lock::manager::lock_manager::LockManager;
use lock::value::time::Instant;
use redis_module::raw;

use super::timer;
use crate::shell::clock;
use crate::shell::main_state::MAIN;

/// At most this many waited-for keys are inspected in one turn of the server. As long as there are no more, each of
/// them is inspected in each of these turns; ten thousand take 1.6 seconds.
const KEYS_A_TURN: usize = 64;

/// Milliseconds between two such turns.
const PAUSE_MS: u64 = 10;

/// After so many turns in which nothing else happened, a second, the pause is longer: an idle server should sleep.
const QUIET_TURNS: u32 = 100;

/// Milliseconds between two turns from then on.
const LONG_PAUSE_MS: u64 = 50;

/// After the turn of a command. It may have changed which requests wait.
#[inline]
pub fn follow_command(manager: &LockManager) {
    if MAIN.inspections.quiet_turns.replace(0) >= QUIET_TURNS {
        MAIN.inspections.due.set(None);
    }
    follow(manager);
}

/// After any other turn.
#[inline]
pub fn follow(manager: &LockManager) {
    if is_needed(manager) {
        MAIN.inspections.were_needed.set(true);
        if MAIN.inspections.due.get().is_none() {
            begin();
        }
    }
}

#[inline]
fn is_needed(manager: &LockManager) -> bool {
    !manager.queues().is_empty()
}

/// On a replica no request waits. Its promotion is followed by a turn.
#[cold]
fn begin() {
    if !is_primary() {
        return;
    }
    let due = clock::instant().plus_ms(PAUSE_MS);
    MAIN.inspections.due.set(Some(due));
    timer::wake_for(due);
}

fn is_primary() -> bool {
    timer::own_context().is_some_and(|ctx| ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER))
}

/// When the next inspection is due.
#[inline]
pub fn due() -> Option<Instant> {
    MAIN.inspections.due.get()
}

/// In a turn of the timer: marks what has changed, for the drain that follows.
pub fn go_on<K: Keys, C>(manager: &mut LockManager, host: &mut Host<'_, K, C>) {
    if MAIN.inspections.due.get().is_none_or(|due| due > host.now.instant()) {
        return;
    }
    let was_needed = MAIN.inspections.were_needed.replace(false);
    let goes_on = (was_needed || is_needed(manager)) && is_primary();
    let quiet_turns = MAIN.inspections.quiet_turns.get().saturating_add(1);
    MAIN.inspections.quiet_turns.set(quiet_turns);
    // With more keys than a turn inspects, a round of long pauses would take too long.
    let is_long = quiet_turns >= QUIET_TURNS && manager.queues().len() <= KEYS_A_TURN;
    let pause_ms = if is_long { LONG_PAUSE_MS } else { PAUSE_MS };
    MAIN.inspections.due.set(goes_on.then(|| host.now.instant().plus_ms(pause_ms)));
    manager.turn(host).inspect_some(KEYS_A_TURN);
}
