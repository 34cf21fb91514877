//! Events: what happened where nothing may be written or decided. Callbacks note them; the next command or turn of the
//! timer applies them before anything else, in their order.
//!
//! The server calls back from inside our own calls: `unlink2` out of an `OpenKey`, for one. So the state is borrowed
//! once for a whole command, and a callback that comes in between notes an event instead.

use std::collections::VecDeque;

pub use crate::shell::event::Event;
use crate::shell::main_state::MAIN;

/// The memory of at most this many events is kept for the next ones.
const MOST_KEPT: usize = 1024;

/// Events wait to be applied.
const ANY: u8 = 1;

/// What requests do is observed.
const OBSERVED: u8 = 2;

/// The next hold that ends is to be measured.
const SAMPLING: u8 = 4;

fn set_unrest(bit: u8, is_set: bool) {
    let others = MAIN.noted.unrest.get() & !bit;
    MAIN.noted.unrest.set(if is_set { others | bit } else { others });
}

/// What a command of the short road does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It grants.
    Grant,
    /// It ends holds.
    End,
}

/// Whether a command may take the short road: no event waits to be applied, and nobody observes or measures what it
/// does.
#[inline(always)]
pub fn are_at_rest(step: Step) -> bool {
    let may_be = if step == Step::Grant { SAMPLING } else { 0 };
    MAIN.noted.unrest.get() & !may_be == 0
}

/// Whether what requests do is observed: nothing of that is told on the short road.
pub fn set_observed(is_observed: bool) {
    set_unrest(OBSERVED, is_observed);
}

/// The next hold that ends, anybody's, is to be measured: the long road does that.
pub fn set_sampling(is_sampling: bool) {
    set_unrest(SAMPLING, is_sampling);
}

/// Whether one is.
#[inline]
pub fn is_sampling() -> bool {
    MAIN.noted.unrest.get() & SAMPLING != 0
}

/// Notes an event. The caller sees to it that a turn follows, unless the next command is soon enough.
pub fn note(event: Event) {
    MAIN.noted.events.borrow_mut().push_back(event);
    set_unrest(ANY, true);
}

/// Whether events wait to be applied.
#[inline]
pub fn is_any() -> bool {
    MAIN.noted.unrest.get() & ANY != 0
}

/// Takes the oldest event out.
pub fn take_next() -> Option<Event> {
    let mut events = MAIN.noted.events.borrow_mut();
    let next = events.pop_front();
    set_unrest(ANY, !events.is_empty());
    if next.is_none() && events.capacity() > MOST_KEPT {
        *events = VecDeque::new();
    }
    next
}

/// While a turn is on: if it ends by a panic, it is not known what the rules have come to know before it. Callbacks
/// then note everything, until the next turn is over.
pub struct NotingAll;

impl Drop for NotingAll {
    fn drop(&mut self) {
        set_concern_anybody(true);
        set_concern_several(true);
    }
}

/// Whether anybody waits or is bound to a connection; if not, callbacks note nothing about keys and clients.
#[inline]
pub fn concern_anybody() -> bool {
    MAIN.noted.concern_anybody.get()
}

/// Sets what [`concern_anybody`] says.
#[inline]
pub fn set_concern_anybody(anybody: bool) {
    MAIN.noted.concern_anybody.set(anybody);
}

/// Whether a lock with several holders is known, whose end the module has to notice, or may be among what was noted.
#[inline]
pub fn concern_several() -> bool {
    MAIN.noted.concern_several.get() || is_any()
}

/// Sets whether one is known.
#[inline]
pub fn set_concern_several(several: bool) {
    MAIN.noted.concern_several.set(several);
}
