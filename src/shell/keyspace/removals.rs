//! Locks that leave their keys without a command of ours: by expiry, DEL, eviction, RENAME and so on. What is observed
//! of that, and counted.

use lock::key::{Key, KeyRef};
use lock::manager::occurrence::EndedBy;
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use redis_module::raw;

use crate::shell::background::events::{self, Event};
use crate::shell::background::{evictions, timer};
use crate::shell::clock;
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;
use crate::shell::{settings, state};

/// Outside of turns at most so many: a flush, or the server's expiry, removes thousands at once.
const MOST_TOLD: usize = 1_000;

/// How many holds have ended with their keys because their leases were over.
pub fn expired() -> u64 {
    MAIN.removals.expired.get()
}

/// A lock leaves its key. Not on a replica, which does what its primary says, nor out of an append-only file.
pub fn note(db: i32, name: Str<'_>, lock: &Lock) {
    let decided_elsewhere = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if timer::own_context().is_none_or(|ctx| ctx.has_flag(decided_elsewhere)) {
        return;
    }
    // Nothing that the module does in a turn removes a lock but opening its key when that has expired. Outside of a
    // turn nobody tells why a lock is removed: what was granted for so long that its lease is over has expired, as a
    // rule.
    let is_in_turn = state::is_in_use();
    let has_expired = is_in_turn || lock.may_have_expired(&clock::of_expiry());
    if has_expired {
        MAIN.removals.expired.set(MAIN.removals.expired.get() + lock.holders() as u64);
    }
    let Some((owner, fence)) = lock.latest_holder() else { return };
    if !(events::concern_anybody() || settings::observes_holds() || evictions::are_told()) {
        return;
    }
    // Neither the short road nor an inspection takes what its turn has brought.
    timer::wake();
    let told = MAIN.removals.told.get();
    if !is_in_turn && told == MOST_TOLD {
        return;
    }
    MAIN.removals.told.set(told + 1);
    let key = Key::new(db, name.bytes());
    evictions::note_removed(&key, owner, fence);
    if is_in_turn {
        MAIN.removals.in_turn.borrow_mut().push((key, owner.clone(), fence));
    } else {
        let by = if has_expired { EndedBy::Expired } else { EndedBy::Removed };
        events::note(Event::HoldRemoved(key, owner.clone(), fence, by));
    }
}

/// The lock that expired when this key was opened, if that was not asked yet.
pub fn take_expired(key: KeyRef<'_>) -> Option<(Owner, Fence)> {
    let mut expired = MAIN.removals.in_turn.borrow_mut();
    let position = expired.iter().position(|(other, ..)| other.as_ref() == key)?;
    let (_, owner, fence) = expired.swap_remove(position);
    Some((owner, fence))
}

/// A turn is over: those for which nobody asked.
pub fn take_rest() -> Vec<(Key, Owner, Fence)> {
    MAIN.removals.told.set(0);
    MAIN.removals.in_turn.take()
}
