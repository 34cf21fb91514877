//! Locks that leave their keys without a command of ours, by expiry, DEL, eviction, RENAME and so on: counted, noted
//! for the log, and followed to another key where they go to one.

use std::ffi::{c_char, c_int, CStr};

use lock::key::{Key, KeyRef};
use lock::manager::keyspace_changes::Removal;
use lock::value::fence::Fence;
use lock::value::lock::{Lock, SeveralEnds};
use lock::value::owner::Owner;
use redis_module::raw;

use crate::shell::background::events::{self, Event};
use crate::shell::background::timer;
use crate::shell::clock;
use crate::shell::ffi::context::{guard, Ctx, LOADING};
use crate::shell::ffi::module::subscribe_to_keys;
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;
use crate::shell::{settings, state};

/// The most removals that are noted outside of turns: a flush, or the server's expiry, removes thousands at once.
const MOST_TOLD: usize = 1_000;

/// How many holds have ended with their keys because their leases were over.
pub fn expired() -> u64 {
    MAIN.removals.expired.get()
}

/// A lock leaves its key. Not on a replica, which does what its primary says, nor out of an append-only file.
pub fn note(db: i32, name: Str<'_>, lock: &Lock) {
    if timer::own_context().is_none_or(|ctx| ctx.has_flag(LOADING | raw::REDISMODULE_CTX_FLAGS_SLAVE)) {
        return;
    }
    // In a turn the module removes a lock only by opening its key after it has expired. Outside of a turn the reason
    // for a removal is unknown: if the lease is over, the lock has expired, as a rule.
    let is_in_turn = state::is_in_use();
    let has_expired = is_in_turn || lock.may_have_expired(&clock::of_expiry());
    if has_expired {
        MAIN.removals.expired.set(MAIN.removals.expired.get() + lock.holders() as u64);
    }
    let Some((owner, fence)) = lock.latest_holder() else { return };
    if !(events::has_waiters_or_sessions() || has_expired && settings::observes_holds()) {
        return;
    }
    // Neither the fast path nor an inspection takes over the removals of its own turn.
    timer::wake();
    let told = MAIN.removals.told.get();
    if !is_in_turn && told == MOST_TOLD {
        return;
    }
    MAIN.removals.told.set(told + 1);
    let key = Key::new(db, name.bytes());
    if is_in_turn {
        MAIN.removals.in_turn.borrow_mut().push((key, owner.clone(), fence));
    } else {
        let removal = if has_expired { Removal::LeaseEnd } else { Removal::Command };
        events::note(Event::HoldRemoved(key, owner.clone(), fence, removal));
    }
}

/// Notes that a lock has left its key, for the requests that wait for the key and the connection that its hold is bound
/// to.
pub fn note_departure(db: i32, name: Str<'_>, lock: &Lock) {
    if may_come_to_another_key(lock) {
        follow_moves();
    }
    let concerns = events::has_waiters_or_sessions() || lock.is_shared();
    let Some(last) = lock.fence().filter(|_| concerns) else { return };
    let key = KeyRef { db, name: name.bytes() };
    // During a turn it is unknown; it is one key then.
    let is_bound = || state::peek(|state| state.manager.bindings().has_key(key)).unwrap_or(true);
    let may_be_waited_for = || state::peek(|state| state.manager.queues().may_have(key.name)).unwrap_or(true);
    if !events::are_many() || lock.is_shared() || is_bound() {
        events::note(Event::KeyRemoved(key.to_key(), last));
    } else if may_be_waited_for() {
        events::note_once(Event::ManyRemoved(db));
    } else {
        events::note_once(Event::LockLeft);
    }
    timer::wake();
}

/// Whether a lock that leaves its key may come to another one, by RENAME or MOVE, with leases that have to end there.
/// The server reports the new key only after this.
fn may_come_to_another_key(lock: &Lock) -> bool {
    let is_over = |lock: &Lock| lock.last_deadline().is_some_and(|last| last.is_over(clock::now().timestamp()));
    // The server has removed it when it was over, unless it was restored just before.
    lock.has_several_holders() && (!is_over(lock) || events::is_any())
}

/// The lock that expired when this key was opened, if that was not asked yet.
pub fn take_expired(key: KeyRef<'_>) -> Option<(Owner, Fence)> {
    let mut expired = MAIN.removals.in_turn.borrow_mut();
    let position = expired.iter().position(|(other, ..)| other.as_ref() == key)?;
    let (_, owner, fence) = expired.swap_remove(position);
    Some((owner, fence))
}

/// A turn is over: the removals that were not asked for.
pub fn take_rest() -> Vec<(Key, Owner, Fence)> {
    MAIN.removals.told.set(0);
    MAIN.removals.in_turn.take()
}

/// Subscribes to the server's events of single keys: a lock with several holders that goes to another key by RENAME or
/// MOVE still has its leases ended there, one by one, though no request waits for it.
///
/// `unlink` reports the key that a lock leaves; only the server's keyspace events report its new key. A subscription to
/// them cannot be ended, and from then on a `SET … EX` with its DEL costs the server 5 % more: 2.10 µs instead of 2.00
/// on Redis 7.0.15, pipelined. So it begins when such a lock leaves its key by a command other than the module's, which
/// is still in time: the event comes after `unlink`. A DEL begins it too, as `unlink` does not tell DEL from RENAME.
/// All other changes of keys are found by rounds of inspections.
pub fn follow_moves() {
    if let (false, Some(ctx)) = (MAIN.moved.is_subscribed.replace(true), timer::own_context()) {
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_GENERIC, on_key);
    }
}

unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a name that ends with a NUL.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    if matches!(event, b"rename_to" | b"move_from" | b"move_to") {
        guard("keyspace event", || {
            // SAFETY: both live as long as the callback.
            let (Some(ctx), Some(key)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
            match event {
                b"move_from" => MAIN.moved.from.set(Some(ctx.db())),
                b"move_to" => note_moved(ctx, key),
                _ => note_arrival(ctx.db(), key),
            }
        });
    }
    raw::REDISMODULE_OK as c_int
}

/// The key is to be inspected, if a lock may just have come to it: its departure from another key was noted before.
fn note_arrival(db: i32, name: Str<'_>) {
    if !events::is_any() {
        return;
    }
    events::note(Event::SeveralHold(Key::new(db, name.bytes()), SeveralEnds::to_be_inspected()));
    timer::wake();
}

/// A key has come to another database. In a transaction Valkey 9.1 does not tell to which: every context has the
/// database of the client. Then keys of that name are inspected in all of them.
///
/// Valkey 8.1 and 9.0 run this on the client that causes the event, select the event's database on it, and do not go
/// back. After `MOVE key 1` of any key the client, or the link to a primary, would stay in database 1 because a module
/// subscribed, and replicas would execute the MOVE there. On other servers it does no harm to go back.
fn note_moved(ctx: Ctx<'_>, name: Str<'_>) {
    let to = ctx.db();
    // Another module may notify of a `move_to` of its own.
    let Some(from) = MAIN.moved.from.take() else { return note_arrival(to, name) };
    if to != from {
        note_arrival(to, name);
    } else if events::is_any() {
        (0..).take_while(|db| ctx.select_db(*db)).for_each(|db| note_arrival(db, name));
    }
    ctx.select_db(from);
}
