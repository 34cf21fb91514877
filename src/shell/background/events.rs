//! Events: changes seen by server callbacks, which may neither write nor decide. A callback records an event; the next
//! command or timer callback applies the events in order before doing anything else.
//!
//! The server calls back from inside our own calls, for example `unlink2` from an `OpenKey`. Therefore the state is
//! borrowed once for a whole command, and a callback during that time records an event.

use std::collections::VecDeque;

use lock::key::KeyRef;

pub use crate::shell::event::Event;
use crate::shell::main_state::MAIN;

/// From this number on, removals of locks are not recorded one by one but applied together. The memory of at most this
/// many events is kept for reuse.
const MANY: usize = 256;

/// Events are pending.
const ANY: u8 = 1;

/// Requests are observed.
const OBSERVED: u8 = 2;

const REPLICA: u8 = 4;

fn set_slow_path_reason(bit: u8, is_set: bool) {
    let others = MAIN.recorded.slow_path_reasons.get() & !bit;
    MAIN.recorded.slow_path_reasons.set(if is_set { others | bit } else { others });
}

/// Whether a request may take the fast path: no event is pending, requests are not observed, and the server is the
/// primary.
#[inline(always)]
pub fn allow_fast_path() -> bool {
    MAIN.recorded.slow_path_reasons.get() == 0
}

/// Sets whether requests are observed. If so, no request takes the fast path, because that reports nothing.
pub fn set_observed(is_observed: bool) {
    set_slow_path_reason(OBSERVED, is_observed);
}

/// Sets whether the server is a replica. No command decides on a replica: with `replica-read-only no` the server itself
/// lets clients write.
pub fn set_replica(is_replica: bool) {
    set_slow_path_reason(REPLICA, is_replica);
}

/// Whether the server is a replica. Cached because reading a context's flags makes the server sum over all threads.
#[inline]
pub fn is_replica() -> bool {
    MAIN.recorded.slow_path_reasons.get() & REPLICA != 0
}

/// Records an event. The caller must schedule an engine pass unless the next command is soon enough.
pub fn record(event: Event) {
    MAIN.recorded.events.borrow_mut().push_back(event);
    set_slow_path_reason(ANY, true);
}

/// Records an event, unless it equals the last one.
pub fn record_once(event: Event) {
    let is_recorded = MAIN.recorded.events.borrow().back() == Some(&event);
    if !is_recorded {
        record(event);
    }
}

/// Whether many events are pending.
pub fn are_many() -> bool {
    MAIN.recorded.events.borrow().len() >= MANY
}

/// Removes the last events if they say that a lock arrived at this key: RESTORE … REPLACE loads the new lock before the
/// server removes the old one. The caller records them again after the removal.
pub fn take_arrivals(key: KeyRef<'_>) -> Vec<Event> {
    let mut events = MAIN.recorded.events.borrow_mut();
    let is_arrival = |event: &Event| match event {
        Event::KeyChanged(other) => other.as_ref() == key,
        _ => false,
    };
    let arrivals = events.iter().rev().take_while(|event| is_arrival(event)).count();
    let first = events.len() - arrivals;
    events.drain(first..).collect()
}

/// Whether events are pending.
#[inline]
pub fn is_any() -> bool {
    MAIN.recorded.slow_path_reasons.get() & ANY != 0
}

/// Removes the oldest event.
pub fn take_next() -> Option<Event> {
    let mut events = MAIN.recorded.events.borrow_mut();
    let next = events.pop_front();
    set_slow_path_reason(ANY, !events.is_empty());
    if next.is_none() && events.capacity() > MANY {
        *events = VecDeque::new();
    }
    next
}

/// Held during an engine pass and forgotten at its end. If a panic drops it instead, it is unknown which waiters the
/// engine had registered, so callbacks record everything until the next pass completes.
pub struct RecordAllAfterPanic;

impl Drop for RecordAllAfterPanic {
    fn drop(&mut self) {
        set_has_waiters_or_sessions(true);
    }
}

/// Whether a request waits, a hold is bound to a connection, or the delivery of a grant is pending. If not, callbacks
/// record nothing about keys and clients.
#[inline]
pub fn has_waiters_or_sessions() -> bool {
    MAIN.recorded.has_waiters_or_sessions.get()
}

/// Sets the result of [`has_waiters_or_sessions`].
#[inline]
pub fn set_has_waiters_or_sessions(anybody: bool) {
    MAIN.recorded.has_waiters_or_sessions.set(anybody);
}
