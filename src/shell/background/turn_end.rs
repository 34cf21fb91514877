//! When a turn of the server is over: it has written its replies, closed the clients that were marked to be closed, and
//! polled again. What happens to a connection from then on comes after what the turn told it.
//!
//! The server's event loop tells it. That costs every turn of the server, whoever it works for, so the module listens
//! only while clients are granted locks that they waited for.

use std::cell::Cell;
use std::ffi::c_void;

use redis_module::raw;

use super::events::{self, Event};
use super::timer;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::{subscribe_to_event, unsubscribe_from_event};

/// After so many turns that nobody asked for the module stops listening. Fewer would subscribe anew for each hand-off.
const MOST_IDLE_TURNS: u32 = 100;

/// The version of the event's data, as `redismodule.h` has it.
const DATAVER: u64 = 1;

/// Whether the module listens, and whom for.
#[derive(Clone, Copy)]
enum Listening {
    /// It does not.
    No,
    /// The end of this turn is to be told.
    Asked,
    /// So many turns have ended since somebody asked.
    Idle(u32),
}

static LISTENING: MainThread<Cell<Listening>> = MainThread(Cell::new(Listening::No));

/// The end of this turn is told: as the event [`Event::TurnOver`].
pub fn tell() {
    let is_listening = match LISTENING.0.get() {
        Listening::Asked => return,
        Listening::Idle(_) => true,
        Listening::No => timer::own_context()
            .is_some_and(|ctx| subscribe_to_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, DATAVER, on_event_loop)),
    };
    if is_listening {
        LISTENING.0.set(Listening::Asked);
    } else {
        // No supported server refuses. What was told before counts as delivered then.
        events::note(Event::TurnOver);
    }
}

/// To be called by the timer's turn: here the subscription may end.
pub fn rest_if_idle() {
    if let Listening::Idle(MOST_IDLE_TURNS..) = LISTENING.0.get() {
        if let Some(ctx) = timer::own_context() {
            unsubscribe_from_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, DATAVER);
            LISTENING.0.set(Listening::No);
        }
    }
}

unsafe extern "C" fn on_event_loop(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, sub: u64, _: *mut c_void) {
    if sub != raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
        return;
    }
    guard("event loop", || {
        let idle_turns = match LISTENING.0.get() {
            Listening::No => return,
            Listening::Asked => {
                events::note(Event::TurnOver);
                0
            }
            Listening::Idle(turns) => turns.saturating_add(1),
        };
        LISTENING.0.set(Listening::Idle(idle_turns));
        if idle_turns == MOST_IDLE_TURNS {
            timer::wake();
        }
    });
}
