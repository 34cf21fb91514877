//! lock.keyspace-events: publishes changes of locks as keyspace events of class `d`.
//!
//! Other modules may subscribe to an event and call our commands while it is published. So events are published at the
//! end of an engine pass, when the state is free. Events caused by such a command are published after all events of the
//! pass that it interrupts.

use std::ffi::CStr;

use lock::key::Key;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::OwnedStr;
use crate::shell::main_state::MAIN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// An owner was granted the lock, or its hold count or lease grew.
    Acquire,
    /// A request renewed the lease.
    Renew,
    /// Holds were released, or removed because a connection closed.
    Release,
    Break,
    /// The module removed an expired hold.
    Expire,
}

impl KeyEvent {
    const fn name(self) -> &'static CStr {
        match self {
            KeyEvent::Acquire => c"lock.acquire",
            KeyEvent::Renew => c"lock.renew",
            KeyEvent::Release => c"lock.release",
            KeyEvent::Break => c"lock.break",
            KeyEvent::Expire => c"lock.expire",
        }
    }
}

/// Records an event, to be published at the end of the engine pass.
pub fn record(event: KeyEvent, key: Key) {
    MAIN.key_events.events.borrow_mut().push_back((event.name(), key));
}

/// Publishes the recorded events. The state must not be borrowed.
#[inline]
pub fn publish(ctx: Ctx<'_>) {
    if !MAIN.key_events.events.borrow().is_empty() {
        publish_all(ctx);
    }
}

#[cold]
fn publish_all(ctx: Ctx<'_>) {
    if MAIN.key_events.is_publishing.replace(true) {
        return;
    }
    let _publishing = Publishing;
    let db = ctx.db();
    let take_next = || MAIN.key_events.events.borrow_mut().pop_front();
    while let Some((event, key)) = take_next() {
        ctx.select_db(key.db);
        ctx.notify(event, OwnedStr::new(&key.name).as_str());
    }
    ctx.select_db(db);
}

/// Reset when publishing ends, even by a panic.
struct Publishing;

impl Drop for Publishing {
    fn drop(&mut self) {
        MAIN.key_events.is_publishing.set(false);
    }
}
