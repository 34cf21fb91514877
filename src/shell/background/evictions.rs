//! Locks that the server evicts. Only its event distinguishes an eviction from a DEL. The event comes right after the
//! key was removed, with the key's name, whatever type it had.
//!
//! A subscription cannot be ended, and costs some instructions at every event of any key. So there is none before the
//! server has a maxmemory and a policy that evicts.

use std::ffi::{c_char, c_int};

use lock::key::{Key, KeyRef};
use lock::value::fence::Fence;
use lock::value::owner::Owner;
use redis_module::raw;

use super::events::{self, Event};
use super::timer;
use crate::shell::ffi::context::{guard, Ctx};
use crate::shell::ffi::module::subscribe_to_keys;
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;

/// Whether the server reports each key that it evicts.
pub fn are_reported() -> bool {
    MAIN.removals.evictions_are_reported.get()
}

/// To be called when the settings may have changed, or the role.
pub fn watch() {
    let may_evict = |ctx: &Ctx<'_>| !are_reported() && ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT);
    if let Some(ctx) = timer::own_context().filter(may_evict) {
        MAIN.removals.evictions_are_reported.set(true);
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_EVICTED, on_evicted);
    }
}

/// A lock was removed: its latest holder, and the fence of that grant.
pub fn note_removed(key: &Key, owner: &Owner, fence: Fence) {
    if are_reported() {
        MAIN.removals.last.replace(Some((key.clone(), owner.clone(), fence)));
    }
}

unsafe extern "C" fn on_evicted(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    _: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard("eviction", || {
        // SAFETY: both live as long as the callback.
        let (Some(ctx), Some(name)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
        let evicted = KeyRef { db: ctx.db(), name: name.bytes() };
        if let Some((key, owner, fence)) = MAIN.removals.last.take().filter(|(key, ..)| key.as_ref() == evicted) {
            events::note(Event::Evicted(key, owner, fence));
            timer::wake();
        }
    });
    raw::REDISMODULE_OK as c_int
}
