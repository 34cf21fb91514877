//! lock.keyspace-events: changes of locks, published as keyspace events of the class `d`.
//!
//! Other modules may receive an event and call a command of ours in the middle of it. So events are published when the
//! turn is over and the state is free; events of such a command come after all of the turn that it interrupts.

use std::ffi::CStr;

use lock::key::Key;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::OwnedStr;
use crate::shell::main_state::MAIN;

/// An event of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// An owner was granted it, or holds it more often or longer.
    Acquire,
    /// A request has started a lease again.
    Renew,
    /// Holds were given back, or taken back with a connection that ended.
    Release,
    /// LOCK.BREAK.
    Break,
    /// The module has ended a lease.
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

/// Notes an event, to be published when the turn is over.
pub fn note(event: KeyEvent, key: Key) {
    MAIN.key_events.events.borrow_mut().push_back((event.name(), key));
}

/// Publishes the noted events. The state must be free.
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

/// Ends with the publishing, also by a panic.
struct Publishing;

impl Drop for Publishing {
    fn drop(&mut self) {
        MAIN.key_events.is_publishing.set(false);
    }
}
