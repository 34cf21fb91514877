//! Events: what happened where nothing may be written or decided. Callbacks note them; the next command or turn of the
//! timer applies them before anything else, in their order.
//!
//! The server calls back from inside our own calls: `unlink2` out of an `OpenKey`, for one. So the state is borrowed
//! once for a whole command, and a callback that comes in between notes an event instead.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use lock::key::{ClientId, Key, RequestId};
use lock::manager::occurrence::EndedBy;
use lock::value::fence::Fence;
use lock::value::lock::SeveralEnds;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use super::slots::Slots;
use crate::shell::ffi::blocked::BlockedId;
use crate::shell::ffi::main_thread::MainThread;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The key was removed, replaced or renamed; the latest fence of the lock that it held.
    KeyRemoved(Key, Fence),
    /// The lock that has gone from the key was held by this owner the last, since the grant with this fence.
    HoldRemoved(Key, Owner, Fence, EndedBy),
    /// The server has evicted the key, which this owner held, since the grant with this fence.
    Evicted(Key, Owner, Fence),
    /// RESTORE has brought a lock to the key.
    KeyTouched(Key),
    /// A lock with several holders came to the key.
    SeveralHold(Key, SeveralEnds),
    /// The database is empty, or all are.
    DbFlushed(Option<i32>),
    /// Two databases have changed places.
    DbsSwapped(i32, i32),
    /// Any key of the database, or of all, may have changed.
    DbChanged(Option<i32>),
    /// These slots of the cluster belong to another node now.
    SlotsLeft(Slots),
    /// The connection has ended.
    ClientGone(ClientId),
    /// The reply that it was granted the lock was given to the client, which may yet be closed in this turn.
    GrantTold(ClientId, RequestId),
    /// The client had gone before that.
    GrantUndelivered(RequestId),
    /// The turn of the server in which grants were told is over.
    TurnOver,
    /// `CLIENT UNBLOCK` has answered the blocked client.
    Unblocked(BlockedId),
    /// The server has unblocked the client: its connection ended, or `CLIENT UNBLOCK … ERROR`, or a demotion.
    Disconnected(BlockedId),
    /// The server became a replica.
    Demoted,
    /// The server started, loaded its data or became the primary.
    Began {
        /// When.
        since: Instant,
        /// `lock.grace` as it was then: a change afterwards begins none.
        grace_ms: u64,
    },
    /// Somebody has set the wall clock.
    ClockSet,
    /// A setting was changed.
    Configured,
}

/// The memory of at most this many events is kept for the next ones.
const MOST_KEPT: usize = 1024;

static EVENTS: MainThread<RefCell<VecDeque<Event>>> = MainThread(RefCell::new(VecDeque::new()));
/// What every command asks: whether there are events, and whether it has to take the long road for another reason.
static UNREST: MainThread<Cell<u8>> = MainThread(Cell::new(0));
static ANYBODY: MainThread<Cell<bool>> = MainThread(Cell::new(false));
static SEVERAL: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// Events wait to be applied.
const ANY: u8 = 1;

/// What requests do is observed.
const OBSERVED: u8 = 2;

/// The next hold that ends is to be measured.
const SAMPLING: u8 = 4;

fn set_unrest(bit: u8, is_set: bool) {
    let others = UNREST.0.get() & !bit;
    UNREST.0.set(if is_set { others | bit } else { others });
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
    UNREST.0.get() & !may_be == 0
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
    UNREST.0.get() & SAMPLING != 0
}

/// Notes an event. The caller sees to it that a turn follows, unless the next command is soon enough.
pub fn note(event: Event) {
    EVENTS.0.borrow_mut().push_back(event);
    set_unrest(ANY, true);
}

/// Whether events wait to be applied.
#[inline]
pub fn is_any() -> bool {
    UNREST.0.get() & ANY != 0
}

/// Takes the oldest event out.
pub fn take_next() -> Option<Event> {
    let mut events = EVENTS.0.borrow_mut();
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
    ANYBODY.0.get()
}

/// Sets what [`concern_anybody`] says.
#[inline]
pub fn set_concern_anybody(anybody: bool) {
    ANYBODY.0.set(anybody);
}

/// Whether a lock with several holders is known, whose end the module has to notice, or may be among what was noted.
#[inline]
pub fn concern_several() -> bool {
    SEVERAL.0.get() || is_any()
}

/// Sets whether one is known.
#[inline]
pub fn set_concern_several(several: bool) {
    SEVERAL.0.set(several);
}
