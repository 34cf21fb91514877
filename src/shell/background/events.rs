//! Events: changes seen by server callbacks, which may neither write nor decide. A callback records an event; the next
//! command or timer callback applies the events in order before doing anything else.
//!
//! The server calls back from inside our own calls, for example `unlink2` from an `OpenKey`. Therefore the state is
//! borrowed once for a whole command, and a callback during that time records an event.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use lock::engine::keyspace_changes::LockRemoval;
use lock::key::{ClientId, Key, KeyRef, RequestId};
use lock::value::fence::Fence;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use crate::shell::ffi::blocked::BlockedId;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::slots::ClusterSlots;

static RECORDED: MainThread<RecordedEvents> = MainThread::new(RecordedEvents {
    events: RefCell::new(VecDeque::new()),
    slow_path_reasons: Cell::new(0),
    has_waiters_or_sessions: Cell::new(false),
});

/// Recorded by callbacks.
struct RecordedEvents {
    events: RefCell<VecDeque<Event>>,
    /// Checked by every command: why it must take the slow path, one bit per reason. Pending events are one.
    slow_path_reasons: Cell<u8>,
    /// A request waits, a hold is bound to a connection, or the delivery of a grant is pending.
    has_waiters_or_sessions: Cell<bool>,
}

#[derive(Debug, PartialEq)]
pub enum Event {
    /// A lock with this latest fencing token was removed from the key, replaced or renamed.
    KeyRemoved(Key, Fence),
    /// Locks were removed from keys of the database. Recorded if too many events are pending to record each removal.
    ManyRemoved(i32),
    /// A lock was removed from a key that no request waits for.
    LockRemoved,
    /// A lock was removed from the key: its latest holder, the fencing token of that grant, and the reason.
    HoldRemoved(Key, Owner, Fence, LockRemoval),
    /// RESTORE has added a lock to the key.
    KeyChanged(Key),
    /// Any key of the database, or of all databases, may have changed.
    DbChanged(Option<i32>),
    /// These slots of the cluster now belong to another node.
    SlotsMoved(ClusterSlots),
    /// The connection closed.
    ClientDisconnected(ClientId),
    /// The reply that contains the grant was written to the client.
    GrantDelivered(RequestId),
    /// The client was gone before its grant was written.
    GrantUndelivered(RequestId),
    /// `CLIENT UNBLOCK` has replied to the blocked client.
    Unblocked(BlockedId),
    /// The server has unblocked the client: its connection closed, or `CLIENT UNBLOCK … ERROR`, or a demotion.
    Disconnected(BlockedId),
    /// The server became a replica.
    Demoted,
    /// The server started, loaded its data or was promoted to primary.
    Started {
        since: Instant,
        /// `lock.grace` at that time: a later change does not start a grace period.
        grace_ms: u64,
    },
    /// The wall clock was set.
    ClockSet,
    /// A setting was changed.
    Configured,
}

/// From this number on, removals of locks are not recorded one by one but applied together. The memory of at most this
/// many events is kept for reuse.
const MANY: usize = 256;

/// Events are pending.
const ANY: u8 = 1;

/// Requests are observed.
const OBSERVED: u8 = 2;

const REPLICA: u8 = 4;

fn set_slow_path_reason(bit: u8, is_set: bool) {
    let others = RECORDED.slow_path_reasons.get() & !bit;
    RECORDED.slow_path_reasons.set(if is_set { others | bit } else { others });
}

/// Whether a request may take the fast path: no event is pending, requests are not observed, and the server is the
/// primary.
#[inline(always)]
pub fn allow_fast_path() -> bool {
    RECORDED.slow_path_reasons.get() == 0
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
    RECORDED.slow_path_reasons.get() & REPLICA != 0
}

/// Records an event. The caller must schedule an engine pass unless the next command is soon enough.
pub fn record(event: Event) {
    RECORDED.events.borrow_mut().push_back(event);
    set_slow_path_reason(ANY, true);
}

/// Records an event, unless it equals the last one.
pub fn record_once(event: Event) {
    let is_recorded = RECORDED.events.borrow().back() == Some(&event);
    if !is_recorded {
        record(event);
    }
}

/// Whether many events are pending.
pub fn are_many() -> bool {
    RECORDED.events.borrow().len() >= MANY
}

/// Removes the last events if they say that a lock arrived at this key: RESTORE … REPLACE loads the new lock before the
/// server removes the old one. The caller records them again after the removal.
pub fn take_arrivals(key: KeyRef<'_>) -> Vec<Event> {
    let mut events = RECORDED.events.borrow_mut();
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
    RECORDED.slow_path_reasons.get() & ANY != 0
}

/// Removes the oldest event.
pub fn take_next() -> Option<Event> {
    let mut events = RECORDED.events.borrow_mut();
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
    RECORDED.has_waiters_or_sessions.get()
}

/// Sets the result of [`has_waiters_or_sessions`].
#[inline]
pub fn set_has_waiters_or_sessions(anybody: bool) {
    RECORDED.has_waiters_or_sessions.set(anybody);
}
