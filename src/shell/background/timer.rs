//! The one timer: armed for the next deadline.
//!
//! The server measures a timer by its event loop's monotonic clock, but compares by the wall clock whether it is due: a
//! timer that is armed when the wall clock is set back fires late by as much. So the server's cron checks for a set
//! clock, and then the timer is armed anew.
//!
//! The server reads the wall clock once, and then calls all timers that are due by this reading, also timers that these
//! calls arm. If the clock is set back in between, each new timer is due at once, and the server would call them for as
//! long as the clock was set back. So a timer that fires early arms no other: the event loop does, in its next round.

use std::ffi::c_void;

use lock::manager::timers::NextTimer;
use lock::value::time::Instant;

use crate::shell::clock;
use crate::shell::ffi::context::{guard, Ctx};
use crate::shell::ffi::time::{self as ffi, TimerCallback};
use crate::shell::main_state::{ArmedTimer, TimerSetup, MAIN};

/// Redis 7.0 counts what is left of a timer in microseconds of 31 bits, some 35 minutes. A longer wait overflows: the
/// event loop would spin until the timer fires. One that fires too early finds nothing due and is armed again.
const LONGEST_WAIT_MS: u64 = 1_800_000;

const _: () = assert!(LONGEST_WAIT_MS * 1000 <= i32::MAX as u64);

/// A timer that fires so many milliseconds before its time fires early. Clocks that run at slightly different speeds
/// may make a long wait early too, which does no harm.
const EARLY_MS: u64 = 2;

/// A timer that is late by so many milliseconds is armed anew: a wall clock that was ahead for a moment when it was
/// armed has put it off by as much, and no later timer replaces one that should have fired before.
const OVERDUE_MS: u64 = 50;

/// As soon as this turn is over: the clock's start is over at any time.
const NOW: NextTimer = NextTimer { instant: Some(Instant::START), timestamp: None };

/// The result of arming the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arming {
    /// An earlier timer is armed already, or none is needed.
    Unchanged,
    /// It was armed for an earlier time than before.
    Anew,
}

/// At the module's start. The callback has to call [`fired`] first.
pub fn start(ctx: Ctx<'_>, callback: TimerCallback) {
    MAIN.timer.setup.set(ffi::own_context(ctx).map(|ctx| TimerSetup { ctx, callback }));
}

/// When the module goes.
pub fn stop() {
    let Some(setup) = MAIN.timer.setup.take() else { return };
    if let Some(armed) = MAIN.timer.armed.take() {
        ffi::disarm(setup.ctx, armed.timer);
    }
    // SAFETY: it was taken out of the only place that knew it.
    unsafe { ffi::free_own_context(setup.ctx) };
}

/// The module's own context: good for publishing, not for keys.
pub fn own_context() -> Option<Ctx<'static>> {
    MAIN.timer.setup.get().map(|setup| setup.ctx)
}

/// The timer has fired: the server frees it after its callback.
pub fn fired() {
    let armed = MAIN.timer.armed.take();
    if armed.is_some_and(|armed| armed.fires.ms_since(clock::instant()) >= EARLY_MS) {
        MAIN.timer.is_held_back.set(true);
        ffi::call_in_next_round(arm_again);
    }
}

extern "C" fn arm_again(_: *mut c_void) {
    guard("event loop", || {
        MAIN.timer.is_held_back.set(false);
        arm_now();
    });
}

/// Arms the timer to fire for `next` at the latest. The clocks are read only if it may not do so already.
pub fn arm(next: NextTimer) -> Arming {
    let Some(setup) = MAIN.timer.setup.get().filter(|_| !MAIN.timer.is_held_back.get()) else {
        return Arming::Unchanged;
    };
    let armed = MAIN.timer.armed.get();
    if armed.is_some_and(|armed| next.is_covered_by(&armed.next)) {
        return Arming::Unchanged;
    }
    // A point of the wall clock is as far away as the wall clock says now.
    let lease_ends = next.timestamp.map(|timestamp| clock::instant().plus_ms(clock::ms_until(timestamp)));
    let Some(fires) = next.instant.into_iter().chain(lease_ends).min() else { return Arming::Unchanged };
    if let Some(armed) = armed {
        if armed.fires <= fires {
            MAIN.timer.armed.set(Some(ArmedTimer { next, ..armed }));
            return Arming::Unchanged;
        }
        ffi::disarm(setup.ctx, armed.timer);
    }
    let wait_ms = match fires {
        Instant::START => 0,
        fires => fires.ms_since(clock::instant()).min(LONGEST_WAIT_MS),
    };
    let timer = ffi::arm(setup.ctx, wait_ms as i64, setup.callback);
    MAIN.timer.armed.set(Some(ArmedTimer { timer, fires, next }));
    Arming::Anew
}

/// The timer fires as soon as this turn is over.
pub fn arm_now() -> Arming {
    arm(NOW)
}

/// From a callback of the server: the timer fires as soon as this turn is over.
pub fn wake() {
    poke_if(arm_now());
}

/// The same for then, or for earlier.
pub fn wake_for(instant: Instant) {
    poke_if(arm(NextTimer { instant: Some(instant), timestamp: None }));
}

/// If a timer was armed that fires as early, the event loop was woken when it was armed.
fn poke_if(arming: Arming) {
    if arming == Arming::Anew {
        ffi::poke_event_loop();
    }
}

/// Whether the armed timer should have fired before.
pub fn is_overdue() -> bool {
    MAIN.timer.armed.get().is_some_and(|armed| clock::instant().ms_since(armed.fires) >= OVERDUE_MS)
}

/// The wall clock was set: it is unknown when an armed timer would fire. Never to be called out of the timer's own
/// callback.
pub fn arm_anew() {
    if let (Some(setup), Some(armed)) = (MAIN.timer.setup.get(), MAIN.timer.armed.take()) {
        ffi::disarm(setup.ctx, armed.timer);
        arm_now();
    }
}
