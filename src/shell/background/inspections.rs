//! When waited-for keys are inspected that may have changed unnoticed: soon after a command that may have changed them,
//! but seldom, however many such commands come; and now and then without any.

use std::cell::Cell;

use lock::manager::inspection::Round;
use lock::manager::lock_manager::LockManager;
use lock::value::time::{Instant, Now};

use super::timer;
use crate::shell::clock;
use crate::shell::ffi::main_thread::MainThread;

/// At most this many keys are inspected in one turn of the server.
const KEYS_A_TURN: usize = 64;

/// Milliseconds between two such turns.
const PAUSE_MS: u64 = 10;

/// Milliseconds after which all keys are inspected again though no command asked for it: the server may keep a command
/// back (CLIENT PAUSE) after the filters have seen it, and another module may write keys without a command.
const AT_LEAST_EVERY_MS: u64 = 1_000;

static ASKED: MainThread<Cell<Option<Round>>> = MainThread(Cell::new(None));
/// When the round that is asked for, or under way, goes on.
static DUE: MainThread<Cell<Option<Instant>>> = MainThread(Cell::new(None));
/// When the last inspection was.
static LAST: MainThread<Cell<Instant>> = MainThread(Cell::new(Instant::START));

/// Whether the server refused writes in the last turn.
static REFUSED: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// A round is to begin when the command that runs is over.
#[inline]
pub fn ask(round: Round) {
    if ASKED.0.get() < Some(round) {
        begin(round);
    }
}

#[cold]
fn begin(round: Round) {
    ASKED.0.set(Some(round));
    if DUE.0.get().is_none() {
        let due = clock::instant().max(LAST.0.get().plus_ms(PAUSE_MS));
        DUE.0.set(Some(due));
        timer::wake_for(due);
    }
}

/// A round of the server's cron, while somebody waits.
pub fn cron() {
    if LAST.0.get().plus_ms(AT_LEAST_EVERY_MS) <= clock::instant() {
        ask(Round::AllKeys);
    }
}

/// When the next inspection is due.
#[inline]
pub fn due() -> Option<Instant> {
    DUE.0.get()
}

/// The server refuses writes in this turn of the timer. Until it accepts them again nothing more is inspected, or all
/// queues would be due, and tried again in each turn.
pub fn refused() {
    REFUSED.0.set(true);
}

/// In a turn of the timer: marks the keys that are to be inspected now, for the drain that follows.
pub fn go_on(manager: &mut LockManager, now: &Now) {
    let was_refused = REFUSED.0.replace(false);
    if DUE.0.get().is_none_or(|due| due > now.instant()) {
        return;
    }
    if was_refused {
        return DUE.0.set(Some(now.instant().plus_ms(PAUSE_MS)));
    }
    if manager.is_round_over() {
        ASKED.0.take().into_iter().for_each(|round| manager.begin_round(round));
    }
    manager.inspect_some(KEYS_A_TURN);
    LAST.0.set(now.instant());
    let is_over = manager.is_round_over() && ASKED.0.get().is_none();
    DUE.0.set((!is_over).then(|| now.instant().plus_ms(PAUSE_MS)));
}
