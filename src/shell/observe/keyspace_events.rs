//! lock.keyspace-events: publishes changes of locks as keyspace events of class `d`.
//!
//! Other modules may subscribe to an event and call our commands while it is published. So events are published at the
//! end of an engine pass, when the state is free. Events caused by such a command are published after all events of the
//! pass that it interrupts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;

use lock::key::Key;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::string::OwnedStr;

static KEY_EVENTS: MainThread<KeyEvents> =
    MainThread::new(KeyEvents { events: RefCell::new(VecDeque::new()), is_publishing: Cell::new(false) });

/// Keyspace events to be published at the end of the engine pass.
struct KeyEvents {
    events: RefCell<VecDeque<(&'static CStr, Key)>>,
    is_publishing: Cell<bool>,
}

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
    KEY_EVENTS.events.borrow_mut().push_back((event.name(), key));
}

/// Publishes the recorded events. The state must not be borrowed.
#[inline]
pub fn publish(ctx: Ctx<'_>) {
    if !KEY_EVENTS.events.borrow().is_empty() {
        publish_all(ctx);
    }
}

#[cold]
fn publish_all(ctx: Ctx<'_>) {
    if KEY_EVENTS.is_publishing.replace(true) {
        return;
    }
    let _publishing = Publishing;
    let db = ctx.db();
    let take_next = || KEY_EVENTS.events.borrow_mut().pop_front();
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
        KEY_EVENTS.is_publishing.set(false);
    }
}
