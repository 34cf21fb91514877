//! Events: changes seen by callbacks, in which nothing may be written or decided. Callbacks note them; the next command
//! or turn of the timer applies them before anything else, in their order.
//!
//! The server calls back from inside our own calls: `unlink2` out of an `OpenKey`, for one. So the state is borrowed
//! once for a whole command, and a callback that comes in between notes an event instead.

use std::collections::VecDeque;

use lock::key::KeyRef;

pub use crate::shell::event::Event;
use crate::shell::main_state::MAIN;

/// From this number on, removals of locks are not noted one by one: all are applied in one turn. The memory of at most
/// this many events is kept for the next ones.
const MANY: usize = 256;

/// Events wait to be applied.
const ANY: u8 = 1;

/// Requests are observed.
const OBSERVED: u8 = 2;

/// The server is a replica.
const REPLICA: u8 = 4;

fn set_slow_path_reason(bit: u8, is_set: bool) {
    let others = MAIN.noted.slow_path_reasons.get() & !bit;
    MAIN.noted.slow_path_reasons.set(if is_set { others | bit } else { others });
}

/// Whether a request may take the fast path: no event waits to be applied, requests are not observed, and the server is
/// the primary.
#[inline(always)]
pub fn allow_fast_path() -> bool {
    MAIN.noted.slow_path_reasons.get() == 0
}

/// Sets whether requests are observed: the fast path reports nothing.
pub fn set_observed(is_observed: bool) {
    set_slow_path_reason(OBSERVED, is_observed);
}

/// Sets whether the server is a replica. No command decides there: with `replica-read-only no` the server itself lets
/// clients write.
pub fn set_replica(is_replica: bool) {
    set_slow_path_reason(REPLICA, is_replica);
}

/// Whether the server is a replica. Asked here because the flags of a context cost a sum over all threads.
#[inline]
pub fn is_replica() -> bool {
    MAIN.noted.slow_path_reasons.get() & REPLICA != 0
}

/// Notes an event. The caller sees to it that a turn follows, unless the next command is soon enough.
pub fn note(event: Event) {
    MAIN.noted.events.borrow_mut().push_back(event);
    set_slow_path_reason(ANY, true);
}

/// Notes an event, unless it is what was noted last.
pub fn note_once(event: Event) {
    let is_noted = MAIN.noted.events.borrow().back() == Some(&event);
    if !is_noted {
        note(event);
    }
}

/// Whether many events wait to be applied.
pub fn are_many() -> bool {
    MAIN.noted.events.borrow().len() >= MANY
}

/// Takes out what was noted last, if it is that a lock came to this key: RESTORE … REPLACE loads the new lock before
/// the server removes the old one. The caller notes it again, after the removal.
pub fn take_arrivals(key: KeyRef<'_>) -> Vec<Event> {
    let mut events = MAIN.noted.events.borrow_mut();
    let is_arrival = |event: &Event| match event {
        Event::KeyTouched(other) => other.as_ref() == key,
        _ => false,
    };
    let arrivals = events.iter().rev().take_while(|event| is_arrival(event)).count();
    let first = events.len() - arrivals;
    events.drain(first..).collect()
}

/// Whether events wait to be applied.
#[inline]
pub fn is_any() -> bool {
    MAIN.noted.slow_path_reasons.get() & ANY != 0
}

/// Takes the oldest event out.
pub fn take_next() -> Option<Event> {
    let mut events = MAIN.noted.events.borrow_mut();
    let next = events.pop_front();
    set_slow_path_reason(ANY, !events.is_empty());
    if next.is_none() && events.capacity() > MANY {
        *events = VecDeque::new();
    }
    next
}

/// Held while a turn runs, and forgotten when it is over: if it ends by a panic, it is unknown which waiters the rules
/// have seen before it. Callbacks then note everything, until the next turn is over.
pub struct NoteAllAfterPanic;

impl Drop for NoteAllAfterPanic {
    fn drop(&mut self) {
        set_has_waiters_or_sessions(true);
    }
}

/// Whether a request waits, a hold is bound to a connection, or a grant is on its way; if not, callbacks note nothing
/// about keys and clients.
#[inline]
pub fn has_waiters_or_sessions() -> bool {
    MAIN.noted.has_waiters_or_sessions.get()
}

/// Sets the answer of [`has_waiters_or_sessions`].
#[inline]
pub fn set_has_waiters_or_sessions(anybody: bool) {
    MAIN.noted.has_waiters_or_sessions.set(anybody);
}
