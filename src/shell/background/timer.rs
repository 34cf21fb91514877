//! The module's only timer, armed for the next deadline.
//!
//! The server waits by the event loop's monotonic clock but decides by the wall clock whether a timer is due. If the
//! wall clock is set back, an armed timer therefore fires late by the same amount. So the server's cron checks whether
//! the clock was set, and if so the timer is rearmed.
//!
//! The server reads the wall clock once and then calls all timers that are due at that time, including timers armed by
//! these calls. If the clock was set back since, each newly armed timer is due at once, and the server would keep
//! calling timers until the clock reaches the earlier time again. Therefore a timer that fires early does not arm
//! another one; the next event-loop iteration does.

use std::cell::Cell;
use std::ffi::c_void;

use lock::engine::timers::NextTimer;
use lock::value::time::Instant;

use crate::shell::clock;
use crate::shell::ffi::context::{guard, Ctx};
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::time::{self as ffi, TimerCallback, TimerId};

static TIMER: MainThread<Timer> =
    MainThread::new(Timer { setup: Cell::new(None), armed: Cell::new(None), is_arming_deferred: Cell::new(false) });

struct Timer {
    setup: Cell<Option<TimerSetup>>,
    armed: Cell<Option<ArmedTimer>>,
    /// Whether the last timer fired early, so that none is armed before the next event-loop iteration.
    is_arming_deferred: Cell<bool>,
}

/// What the timer needs, from the start of the module to its unloading.
#[derive(Clone, Copy)]
struct TimerSetup {
    ctx: Ctx<'static>,
    callback: TimerCallback,
}

#[derive(Clone, Copy)]
struct ArmedTimer {
    timer: TimerId,
    fires: Instant,
    /// Its deadline: it fires no later unless the wall clock is set.
    next: NextTimer,
}

/// Redis 7.0 stores the remaining time in 31 bits of microseconds, about 35 minutes. A longer wait overflows, and the
/// event loop would spin until the timer fires. A timer that fires too early finds nothing due and is armed again.
const LONGEST_WAIT_MS: u64 = 1_800_000;

const _: () = assert!(LONGEST_WAIT_MS * 1000 <= i32::MAX as u64);

/// A timer that fires this many milliseconds before its time fires early. A slight difference in clock speed may also
/// make a long wait early, which is harmless.
const EARLY_MS: u64 = 2;

/// A timer that is late by this many milliseconds is rearmed. If the wall clock was ahead for a moment when it was
/// armed, it fires late by that much, and no later deadline would replace a timer that should have fired already.
const OVERDUE_MS: u64 = 50;

/// At the end of this event-loop iteration: the start of the clock is always in the past.
const NOW: NextTimer = NextTimer { instant: Some(Instant::START), timestamp: None };

/// The result of arming the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arming {
    /// An earlier timer is already armed, or none is needed.
    Unchanged,
    /// Armed for an earlier time than before.
    Earlier,
}

/// Call at module start. The callback must call [`fired`] first.
pub fn start(ctx: Ctx<'_>, callback: TimerCallback) {
    TIMER.setup.set(ffi::own_context(ctx).map(|ctx| TimerSetup { ctx, callback }));
}

/// Call when the module is unloaded.
pub fn stop() {
    let Some(setup) = TIMER.setup.take() else { return };
    if let Some(armed) = TIMER.armed.take() {
        ffi::disarm(setup.ctx, armed.timer);
    }
    // SAFETY: it was taken from its only owner.
    unsafe { ffi::free_own_context(setup.ctx) };
}

/// The module's own context: suitable for publishing, not for opening keys.
pub fn own_context() -> Option<Ctx<'static>> {
    TIMER.setup.get().map(|setup| setup.ctx)
}

/// The timer has fired; the server frees it after the callback.
pub fn fired() {
    let armed = TIMER.armed.take();
    if armed.is_some_and(|armed| armed.fires.ms_since(clock::instant()) >= EARLY_MS) {
        TIMER.is_arming_deferred.set(true);
        ffi::call_in_next_iteration(arm_again);
    }
}

extern "C" fn arm_again(_: *mut c_void) {
    guard("event loop", || {
        TIMER.is_arming_deferred.set(false);
        arm_now();
    });
}

/// Arms the timer to fire no later than `next`. The clocks are read only if it might fire later than that.
pub fn arm(next: NextTimer) -> Arming {
    let Some(setup) = TIMER.setup.get().filter(|_| !TIMER.is_arming_deferred.get()) else {
        return Arming::Unchanged;
    };
    let armed = TIMER.armed.get();
    if armed.is_some_and(|armed| next.is_covered_by(&armed.next)) {
        return Arming::Unchanged;
    }
    // A wall-clock time is as far away as the wall clock says now.
    let lease_ends = next.timestamp.map(|timestamp| clock::instant().plus_ms(clock::ms_until(timestamp)));
    let Some(fires) = next.instant.into_iter().chain(lease_ends).min() else { return Arming::Unchanged };
    if let Some(armed) = armed {
        if armed.fires <= fires {
            TIMER.armed.set(Some(ArmedTimer { next, ..armed }));
            return Arming::Unchanged;
        }
        ffi::disarm(setup.ctx, armed.timer);
    }
    let wait_ms = match fires {
        Instant::START => 0,
        fires => fires.ms_since(clock::instant()).min(LONGEST_WAIT_MS),
    };
    let timer = ffi::arm(setup.ctx, wait_ms as i64, setup.callback);
    TIMER.armed.set(Some(ArmedTimer { timer, fires, next }));
    Arming::Earlier
}

/// Makes the timer fire at the end of this event-loop iteration.
pub fn arm_now() -> Arming {
    arm(NOW)
}

/// As [`arm_now`], from a server callback, which may have to wake the event loop.
pub fn wake() {
    poke_if(arm_now());
}

/// As [`wake`], for `instant` or earlier.
pub fn wake_for(instant: Instant) {
    poke_if(arm(NextTimer { instant: Some(instant), timestamp: None }));
}

/// If the timer was already armed early enough, the event loop was woken then.
fn poke_if(arming: Arming) {
    if arming == Arming::Earlier {
        ffi::poke_event_loop();
    }
}

/// Whether the armed timer should have fired already.
pub fn is_overdue() -> bool {
    TIMER.armed.get().is_some_and(|armed| clock::instant().ms_since(armed.fires) >= OVERDUE_MS)
}

/// Call when the wall clock was set, because it is then unknown when an armed timer would fire. Never call it from the
/// timer's own callback.
pub fn rearm() {
    if let (Some(setup), Some(armed)) = (TIMER.setup.get(), TIMER.armed.take()) {
        ffi::disarm(setup.ctx, armed.timer);
        arm_now();
    }
}
