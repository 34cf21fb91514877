//! The one timer: decides what no command asked for, and hears the alarms of the rules.
//!
//! Whatever ends a lock outside the module's own commands leaves a mark and comes here, where writing is allowed, unless the server refuses
//! writes at the moment; then it comes here again after a while, because no event says that a pause has ended.

use std::cell::Cell;
use std::ffi::c_void;

use redis_module::raw;

use super::api::{api, guard, poke_event_loop, Ctx, MainThread};
use super::keyspace::Keyspace;
use super::state::{self, State};
use lock::serve::GATE_RETRY_MS;
use lock::time::{At, Now};

/// So many alarms at the most are heard in one turn of the server, so that clients are not held up.
const ALARMS_A_TURN: usize = 1_000;

/// The server counts a timer in microseconds and lets that overflow: a wait of ages would be over at once, and again, for ever. A timer
/// that comes too early looks, and waits again.
const LONGEST_WAIT_MS: u64 = 86_400_000;

/// A context of the module's own, made at its start: timers need one, and not every callback of the server brings one.
static OWN: MainThread<Cell<Option<Ctx>>> = MainThread(Cell::new(None));

/// The timer that is armed, and the millisecond for which.
static ARMED: MainThread<Cell<Option<(u64, u64)>>> = MainThread(Cell::new(None));

/// At the module's start.
pub fn start(ctx: Ctx) {
    // SAFETY: the context is kept until the module goes; it is used on the main thread only, without its lock.
    OWN.0.set(unsafe { Ctx::new(api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw()))) });
}

/// When the module goes.
pub fn stop() {
    let Some(ctx) = OWN.0.take() else { return };
    // SAFETY: the timer is armed; the context is ours.
    unsafe {
        if let Some((id, _)) = ARMED.0.take() {
            api!(RedisModule_StopTimer(ctx.raw(), id, std::ptr::null_mut()));
        }
        api!(RedisModule_FreeThreadSafeContext(ctx.raw()));
    }
}

/// The module's own context: good for timers and for publishing, not for keys.
pub fn own_context() -> Option<Ctx> {
    OWN.0.get()
}

/// After a request: sees to it that the timer comes when the rules want it.
pub fn schedule(state: &State, now: &Now) {
    if state.desk.has_pending() || state::has_marks() {
        arm(now, now.at());
    } else if let Some(at) = state.desk.next_alarm() {
        arm(now, at);
    }
}

/// From a callback of the server: drain as soon as this turn is over.
pub fn soon() {
    let now = &state::now();
    arm(now, now.at());
    poke_event_loop();
}

fn arm(now: &Now, at: At) {
    let Some(ctx) = OWN.0.get() else { return };
    if let Some((id, armed_for)) = ARMED.0.get() {
        if armed_for <= at.ms() {
            return;
        }
        // SAFETY: the timer is armed, and this is not its callback, which forgets it first.
        unsafe { api!(RedisModule_StopTimer(ctx.raw(), id, std::ptr::null_mut())) };
    }
    let wait_ms = i64::try_from(at.ms_since(now.at()).min(LONGEST_WAIT_MS)).unwrap_or(0);
    // SAFETY: the callback is a function of this module; it gets no data.
    let id = unsafe { api!(RedisModule_CreateTimer(ctx.raw(), wait_ms, Some(on_timer), std::ptr::null_mut())) };
    ARMED.0.set(Some((id, at.ms())));
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    ARMED.0.set(None);
    guard("timer", || {
        let Some(ctx) = Ctx::new(ctx) else { return };
        state::with(|state, now| {
            let State { desk, waiting } = state;
            let mut world = Keyspace::of_timer(ctx, waiting);
            desk.tick(&mut world, now, ALARMS_A_TURN);
            desk.drain(&mut world, now);
            let was_refused = world.was_refused();
            drop(world);
            if desk.has_pending() && was_refused {
                arm(now, now.at().plus_ms(GATE_RETRY_MS));
            } else {
                schedule(state, now);
            }
        });
    });
}
