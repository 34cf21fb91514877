//! Locks that leave their keys without one of our commands, by expiry, DEL, eviction, RENAME and so on. They are
//! counted, and recorded for the log, for the requests that wait for the key, and for the connection that a hold is
//! bound to.

use std::cell::{Cell, RefCell};

use command::adopted::seen::Act;
use lock::engine::keyspace_changes::LockRemoval;
use lock::key::{Key, KeyRef};
use lock::value::claim::LockType;
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use redis_module::raw;

use crate::shell::adopt;
use crate::shell::background::events::{self, Event};
use crate::shell::background::timer;
use crate::shell::clock;
use crate::shell::ffi::context::LOADING;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::string::Str;
use crate::shell::{settings, state};

static REMOVALS: MainThread<Removals> =
    MainThread::new(Removals { expired: Cell::new(0), in_pass: RefCell::new(Vec::new()), recorded: Cell::new(0) });

/// Locks that the server removes from their keys.
struct Removals {
    /// The number of holds that ended with their keys because their leases expired.
    expired: Cell<u64>,
    /// Locks that expired when their keys were opened in this engine pass.
    in_pass: RefCell<Vec<(Key, Owner, Fence)>>,
    /// How many removals were recorded since the last engine pass ended.
    recorded: Cell<usize>,
}

/// The most removals recorded outside engine passes: a flush or the server's expiry removes thousands at once.
const MOST_RECORDED: usize = 1_000;

/// How many holds ended with their keys because their leases expired.
pub fn expired() -> u64 {
    REMOVALS.expired.get()
}

/// A lock leaves its key. Ignored on a replica, which follows its primary, and while an append-only file is loaded.
pub fn record(db: i32, name: Str<'_>, lock: &Lock) {
    if timer::own_context().is_none_or(|ctx| ctx.has_flag(LOADING | raw::REDISMODULE_CTX_FLAGS_SLAVE)) {
        return;
    }
    // During an engine pass the module removes a lock only by opening its key after it has expired. Outside one, the
    // reason for a removal is unknown; if the lease is past its deadline, the lock has normally expired.
    let is_in_pass = state::is_in_use();
    let has_expired = is_in_pass || lock.may_have_expired(&clock::for_expiry());
    if has_expired {
        REMOVALS.expired.set(REMOVALS.expired.get() + lock.holders() as u64);
    }
    // An old client releases with DEL.
    let is_release = !has_expired && is_released_by_del(name, lock);
    let Some((owner, fence)) = lock.latest_holder() else { return };
    if is_release {
        adopt::count_release();
        let lock_type = lock.lock_type().unwrap_or(LockType::Mutex);
        adopt::count(name.bytes(), lock_type, |seen| seen.act(Act::Release));
    }
    if !(events::has_waiters_or_sessions() || (has_expired || is_release) && settings::observes_holds()) {
        return;
    }
    let recorded = REMOVALS.recorded.get();
    if !is_in_pass {
        clock::count_removal();
        if recorded == MOST_RECORDED {
            return;
        }
    }
    // Neither the fast path nor an inspection processes the removals of its own pass.
    timer::wake();
    REMOVALS.recorded.set(recorded + 1);
    let key = Key::new(db, name.bytes());
    if is_in_pass {
        REMOVALS.in_pass.borrow_mut().push((key, owner.clone(), fence));
    } else {
        let removal = if has_expired {
            LockRemoval::LeaseExpired
        } else if is_release {
            LockRemoval::Release
        } else {
            LockRemoval::Command
        };
        events::record(Event::HoldRemoved(key, owner.clone(), fence, removal));
    }
}

/// Whether a removal by a command counts as a release: the lock is of an exclusive type on a key of `lock.adopt`.
/// `unlink` cannot distinguish DEL from RENAME, eviction and so on, which are rare on such keys.
fn is_released_by_del(name: Str<'_>, lock: &Lock) -> bool {
    lock.lock_type().is_some_and(LockType::is_exclusive) && adopt::may_hold_adopted(name.bytes())
}

/// Records that a lock has left its key, for the requests that wait for the key and the connection that its hold is
/// bound to.
pub fn record_removal(db: i32, name: Str<'_>, lock: &Lock) {
    let Some(last) = lock.fence() else { return };
    let key = KeyRef { db, name: name.bytes() };
    // Unknown during an engine pass, where it concerns only one key.
    let is_bound = || state::peek(|state| state.manager.bindings().has_key(key)).unwrap_or(true);
    let may_be_waited_for = || state::peek(|state| state.manager.queues().may_have(key.name)).unwrap_or(true);
    if !events::are_many() || is_bound() {
        events::record(Event::KeyRemoved(key.to_key(), last));
    } else if may_be_waited_for() {
        events::record_once(Event::ManyRemoved(db));
    } else {
        events::record_once(Event::LockRemoved);
    }
    timer::wake();
}

/// The lock that expired when this key was opened, unless it was already taken.
pub fn take_expired(key: KeyRef<'_>) -> Option<(Owner, Fence)> {
    let mut expired = REMOVALS.in_pass.borrow_mut();
    let position = expired.iter().position(|(other, ..)| other.as_ref() == key)?;
    let (_, owner, fence) = expired.swap_remove(position);
    Some((owner, fence))
}

/// At the end of an engine pass: the removals that were not taken.
pub fn take_rest() -> Vec<(Key, Owner, Fence)> {
    REMOVALS.recorded.set(0);
    REMOVALS.in_pass.take()
}
