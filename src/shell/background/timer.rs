//! The one timer: armed for the next moment at which something happens by itself.

use std::cell::Cell;

use lock::value::time::{Now, Timestamp};

use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::timer::{self as ffi, TimerCallback, TimerId};

/// The server counts a timer in microseconds. A longer wait overflows: the timer would fire in a loop. One that fires
/// too early finds nothing due and is armed again.
const LONGEST_WAIT_MS: u64 = 86_400_000;

/// What the timer works with, from the module's start to its end.
#[derive(Clone, Copy)]
struct Setup {
    ctx: Ctx<'static>,
    callback: TimerCallback,
}

static SETUP: MainThread<Cell<Option<Setup>>> = MainThread(Cell::new(None));

/// The timer that is armed, and for when.
static ARMED: MainThread<Cell<Option<(TimerId, Timestamp)>>> = MainThread(Cell::new(None));

/// At the module's start. The callback has to call [`fired`] first.
pub fn start(ctx: Ctx<'_>, callback: TimerCallback) {
    SETUP.0.set(ffi::own_context(ctx).map(|ctx| Setup { ctx, callback }));
}

/// When the module goes.
pub fn stop() {
    let Some(setup) = SETUP.0.take() else { return };
    if let Some((timer, _)) = ARMED.0.take() {
        ffi::disarm(setup.ctx, timer);
    }
    // SAFETY: it was taken out of the only place that knew it.
    unsafe { ffi::free_own_context(setup.ctx) };
}

/// The module's own context: good for publishing, not for keys.
pub fn own_context() -> Option<Ctx<'static>> {
    SETUP.0.get().map(|setup| setup.ctx)
}

/// The timer has fired: the server frees it after its callback.
pub fn fired() {
    ARMED.0.set(None);
}

/// The timer fires at `when` at the latest.
pub fn arm(now: &Now, when: Timestamp) {
    let Some(setup) = SETUP.0.get() else { return };
    if let Some((timer, armed_for)) = ARMED.0.get() {
        if armed_for <= when {
            return;
        }
        ffi::disarm(setup.ctx, timer);
    }
    let wait_ms = when.ms_since(now.timestamp()).min(LONGEST_WAIT_MS);
    let timer = ffi::arm(setup.ctx, wait_ms as i64, setup.callback);
    ARMED.0.set(Some((timer, when)));
}

/// From a callback of the server: the timer fires as soon as this turn is over.
pub fn wake() {
    let now = clock::now();
    arm(&now, now.timestamp());
    ffi::poke_event_loop();
}
