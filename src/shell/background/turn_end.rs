//! When a turn of the server is over: it has written its replies, closed the clients that were marked to be closed, and
//! polled again. If a connection ends from then on, the replies of the turn count as delivered.
//!
//! The server's event loop reports it. Each turn of the server then costs some 600 instructions before it sleeps and as
//! many after, for any command, so the module subscribes only for the turns in which waiters are granted locks. The
//! subscription ends with the next request that queues: most hand-offs are followed by one.

use std::ffi::c_void;

use redis_module::raw;

use super::events::{self, Event};
use super::timer;
use crate::shell::ffi::context::guard;
use crate::shell::ffi::module::{subscribe_to_event, unsubscribe_from_event};
use crate::shell::main_state::{Listening, MAIN};

/// After so many turns without use the timer ends the subscription, which costs a turn of its own.
const MOST_IDLE_TURNS: u32 = 10;

/// Asks for the end of this turn: it comes as the event [`Event::TurnOver`].
pub fn request_event() {
    let is_listening = match MAIN.turn_end.get() {
        Listening::Asked => return,
        Listening::Idle(_) => true,
        Listening::No => timer::own_context()
            .is_some_and(|ctx| subscribe_to_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, on_event_loop)),
    };
    if is_listening {
        MAIN.turn_end.set(Listening::Asked);
    } else {
        // No supported server refuses. If one did, the grants sent so far would count as delivered.
        events::note(Event::TurnOver);
    }
}

/// Whether the subscription has no use.
pub fn is_idle() -> bool {
    matches!(MAIN.turn_end.get(), Listening::Idle(_))
}

/// Ends the subscription if it has no use. To be called by the timer's turn and by commands of connections only:
/// another module may call a command out of a server event, where a subscription must not end.
pub fn rest_if_idle() {
    if !is_idle() {
        return;
    }
    if let Some(ctx) = timer::own_context() {
        unsubscribe_from_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP);
        MAIN.turn_end.set(Listening::No);
    }
}

unsafe extern "C" fn on_event_loop(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, sub: u64, _: *mut c_void) {
    if sub != raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
        return;
    }
    guard("event loop", || {
        let idle_turns = match MAIN.turn_end.get() {
            Listening::No => return,
            Listening::Asked => {
                events::note(Event::TurnOver);
                0
            }
            Listening::Idle(turns) => turns.saturating_add(1),
        };
        MAIN.turn_end.set(Listening::Idle(idle_turns));
        if idle_turns == MOST_IDLE_TURNS {
            timer::wake();
        }
    });
}
