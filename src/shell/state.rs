//! The module's state that is not stored with a key.

use std::cell::{RefCell, RefMut};
use std::mem;

use command::lock_log::LockLog;
use lock::engine::lock_manager::LockManager;
use lock::key::{KeyRef, RequestId};
use lock::value::time::Now;

use super::background::events::{self, Event, RecordAllAfterPanic};
use super::clients::WaitingClients;
use super::ffi::main_thread::MainThread;
use super::slots::slot_of;
use super::{clock, settings};

#[derive(Default)]
pub struct State {
    pub manager: LockManager,
    pub clients: WaitingClients,
    pub log: LockLog,
}

static STATE: MainThread<RefCell<Option<State>>> = MainThread::new(RefCell::new(None));

/// Runs `work` on the state after applying pending events. `None` if the state is in use: a command inside a callback
/// inside a command.
pub fn borrow<R>(work: impl FnOnce(&mut State, &Now) -> R) -> Option<R> {
    borrow_at(&clock::now(), work)
}

/// As [`borrow`], with a time that was already read.
pub fn borrow_at<R>(now: &Now, work: impl FnOnce(&mut State, &Now) -> R) -> Option<R> {
    let mut borrowed = STATE.try_borrow_mut().ok()?;
    let state = borrowed.get_or_insert_with(begin);
    let guard = RecordAllAfterPanic;
    if events::is_any() {
        now.begin_slice();
        while let Some(event) = events::take_next() {
            state.apply(event, now);
        }
    }
    let result = work(state, now);
    mem::forget(guard);
    events::set_has_waiters_or_sessions(state.manager.has_waiters_or_sessions());
    Some(result)
}

/// The reply that contains a grant was written, which completes its delivery whatever events are pending. This decides
/// and writes nothing, so it changes the state at once. Only during an engine pass it becomes an event, which would
/// keep the next request off the fast path.
pub fn record_delivered(request: RequestId) {
    match STATE.try_borrow_mut().as_deref_mut() {
        Ok(Some(State { manager, .. })) => {
            manager.delivered(request);
            events::set_has_waiters_or_sessions(manager.has_waiters_or_sessions());
        }
        Ok(None) => {}
        Err(_) => events::record(Event::GrantDelivered(request)),
    }
}

/// The state for the fast path, unless it is borrowed.
#[inline(always)]
pub fn borrow_fast() -> Option<RefMut<'static, State>> {
    RefMut::filter_map(STATE.try_borrow_mut().ok()?, Option::as_mut).ok()
}

/// Out of line, because only the first request calls it.
#[cold]
fn begin() -> State {
    State::default()
}

/// Reads the state without applying events; a forked child may do so too.
pub fn peek<R>(inspect: impl FnOnce(&State) -> R) -> Option<R> {
    STATE.try_borrow().ok()?.as_ref().map(inspect)
}

/// Whether an engine pass is running: then the module itself caused this callback. False before the first pass.
pub fn is_in_use() -> bool {
    STATE.try_borrow().is_err()
}

fn set_limits(manager: &mut LockManager) {
    manager.limits = settings::limits();
    manager.observer.settings = settings::observed();
    events::set_observed(manager.observer.settings.needs_slow_path());
}

impl State {
    fn apply(&mut self, event: Event, now: &Now) {
        let State { manager, clients, log } = self;
        match event {
            Event::KeyRemoved(key, last) => manager.key_removed(key.as_ref(), last),
            Event::ManyRemoved(db) => manager.many_removed(db),
            Event::LockRemoved => manager.lock_removed(),
            Event::HoldRemoved(key, owner, fence, why) => manager.hold_removed(now, key.as_ref(), &owner, fence, why),
            Event::KeyChanged(key) => manager.key_changed(key.as_ref()),
            Event::DbChanged(db) => manager.db_changed(db),
            // Even if the slots have come back since: the clients then retry here.
            Event::SlotsMoved(slots) => {
                manager.slots_moved(|key: KeyRef<'_>| slots.contains(slot_of(key.name)));
            }
            Event::ClientDisconnected(client) => {
                manager.end_session(client);
                manager.undelivered_to(client);
                clients.client_disconnected(manager, client);
            }
            Event::GrantDelivered(request) => manager.delivered(request),
            Event::GrantUndelivered(request) => manager.undelivered(request),
            Event::Unblocked(blocked) => clients.unblocked(manager, now, blocked),
            Event::Disconnected(blocked) => clients.disconnected(manager, now, blocked),
            // The server may have unblocked the blocked clients itself; `demote` handles both cases.
            Event::Demoted => manager.demote(),
            Event::Configured => {
                set_limits(manager);
                log.trim(settings::log_max_len());
                manager.change_grace(now, settings::grace_ms());
            }
            Event::Started { since, grace_ms } => {
                set_limits(manager);
                manager.begin_grace(since, grace_ms);
            }
            Event::ClockSet => manager.clock_was_set(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Serializes the tests that use the main thread's values.
    static MAIN_THREAD: Mutex<()> = Mutex::new(());

    #[test]
    fn after_a_pass_panicked_callbacks_record_everything_until_the_next_completes() {
        let _guard = MAIN_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        borrow(|_, _| ());
        assert!(!events::has_waiters_or_sessions(), "no request waits");
        catch_unwind(|| borrow(|_, _| panic!("planted"))).expect_err("it panics");
        assert!(events::has_waiters_or_sessions(), "whatever the pass had done by then");
        borrow(|_, _| ());
        assert!(!events::has_waiters_or_sessions(), "the rules know");
        *STATE.borrow_mut() = None;
    }

    #[test]
    fn it_is_in_use_during_a_pass_and_not_before_the_first() {
        let _guard = MAIN_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(STATE.borrow().is_none() && !is_in_use(), "nothing has run yet");
        let pass = STATE.borrow_mut();
        assert!(is_in_use(), "during a pass");
        drop(pass);
        assert!(!is_in_use(), "it has ended");
    }
}
