//! What the module remembers, and the marks that callbacks leave when they may not touch it.
//!
//! The server calls the module on its main thread only (the one exception, `free` of the data type, touches nothing here). It calls
//! back from inside our own calls, though: `unlink2` out of an `OpenKey`, for one. So the state is borrowed once for a whole request, and
//! every callback that can come in between leaves a mark instead, which the next request or drain takes up first.

use std::cell::{Cell, RefCell};

use super::api::MainThread;
use super::config;
use super::waiting::Waiting;
use lock::desk::Desk;
use lock::fence::Fence;
use lock::queue::{ClientId, Key};
use lock::time::{At, Now};

/// Everything of the module that is not in a key.
#[derive(Default)]
pub struct State {
    pub desk: Desk,
    pub waiting: Waiting,
}

/// Something that happened where nothing may be written or decided.
pub enum Mark {
    /// The key was removed, replaced or renamed; the latest fence of the lock that it held.
    KeyRemoved(Key, Fence),
    /// The key's time to live was changed.
    KeyTouched(Key),
    /// Any key of the database, or of all, may have changed.
    DbChanged(Option<i32>),
    /// The connection has ended.
    ClientGone(ClientId),
    /// The server became a replica.
    Demoted,
    /// The server started, loaded its data or became the master.
    Began(At),
    /// A setting was changed.
    Configured,
}

static STATE: MainThread<RefCell<Option<State>>> = MainThread(RefCell::new(None));
static MARKS: MainThread<RefCell<Vec<Mark>>> = MainThread(RefCell::new(Vec::new()));
static ATTENDED: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// Works with the state, after the marks that were left. `None` when it is in use: a command inside a callback inside a command.
pub fn with<R>(work: impl FnOnce(&mut State, &Now) -> R) -> Option<R> {
    let mut borrowed = STATE.0.try_borrow_mut().ok()?;
    let state = match &mut *borrowed {
        Some(state) => state,
        vacant => begin(vacant),
    };
    let now = &now();
    if has_marks() {
        take_marks().into_iter().for_each(|mark| state.heed(mark, now));
    }
    let result = work(state, now);
    ATTENDED.0.set(!state.desk.queue().is_empty() || !state.desk.sessions().is_empty());
    Some(result)
}

/// Apart, so that every request but the first passes it by.
#[cold]
fn begin(vacant: &mut Option<State>) -> &mut State {
    vacant.insert(State::default())
}

/// Looks at the state as it is, marks left alone: a forked child may do that too.
pub fn peek<R>(look: impl FnOnce(&State) -> R) -> Option<R> {
    STATE.0.try_borrow().ok()?.as_ref().map(look)
}

impl State {
    fn heed(&mut self, mark: Mark, now: &Now) {
        match mark {
            Mark::KeyRemoved(key, last) => self.desk.key_removed(key.as_ref(), last),
            Mark::KeyTouched(key) => self.desk.key_touched(key.as_ref()),
            Mark::DbChanged(db) => self.desk.db_changed(db),
            Mark::ClientGone(client) => {
                self.waiting.last_gone = Some(client);
                self.desk.end_session(client);
                self.waiting.forget_subscriber(&mut self.desk, now, client);
            }
            Mark::Demoted => self.waiting.demote(&mut self.desk),
            Mark::Configured => {
                self.desk.limits = config::limits();
                self.desk.change_grace(config::grace_ms());
            }
            Mark::Began(since) => {
                self.desk.limits = config::limits();
                self.desk.begin_grace(since, config::grace_ms());
            }
        }
    }
}

/// Leaves a mark. The caller sees to it that a drain follows.
pub fn mark(mark: Mark) {
    if let Ok(mut marks) = MARKS.0.try_borrow_mut() {
        marks.push(mark);
    }
}

/// Whether marks wait to be taken up.
pub fn has_marks() -> bool {
    MARKS.0.try_borrow().is_ok_and(|marks| !marks.is_empty())
}

fn take_marks() -> Vec<Mark> {
    MARKS.0.try_borrow_mut().map(|mut marks| std::mem::take(&mut *marks)).unwrap_or_default()
}

/// Whether anybody waits or is bound: if not, what happens to keys is nobody's concern.
pub fn is_attended() -> bool {
    ATTENDED.0.get()
}

/// The moment at which a request needs to know the time.
pub fn now() -> Now {
    Now::by(wall_clock_us)
}

/// The wall clock, microseconds since the epoch.
fn wall_clock_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
}
