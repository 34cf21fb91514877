//! Where a lock with several holders is after RENAME or MOVE: its leases go on to end one by one at the new key, though
//! no request waits for it.
//!
//! `unlink` reports the key that a lock leaves; only the server's keyspace events report its new key. A subscription to
//! them cannot be ended, and from then on a `SET … EX` with its DEL costs the server 5 % more: 2.10 µs instead of 2.00
//! on Redis 7.0.15, pipelined. So it begins when such a lock leaves its key by a command other than the module's, which
//! is still in time: the event comes after `unlink`. A DEL begins it too, as `unlink` does not tell DEL from RENAME.
//! All other changes of keys are found by rounds of inspections.

use std::ffi::{c_char, c_int, CStr};

use lock::key::Key;
use lock::value::lock::SeveralEnds;
use redis_module::raw;

use crate::shell::background::events::{self, Event};
use crate::shell::background::timer;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::module::subscribe_to_keys;
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;

/// Subscribes to the server's events of single keys. It cannot be undone.
pub fn subscribe() {
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
                b"move_from" => MAIN.moved.from.set(ctx.db()),
                // Without a noted event no lock has just left its key.
                _ if !events::is_any() => {}
                b"rename_to" => note(ctx.db(), key),
                _ => note_moved(ctx, key),
            }
        });
    }
    raw::REDISMODULE_OK as c_int
}

/// The key is to be inspected.
fn note(db: i32, name: Str<'_>) {
    events::note(Event::SeveralHold(Key::new(db, name.bytes()), SeveralEnds::to_be_inspected()));
    timer::wake();
}

/// A lock may have come to another database. In a transaction Valkey 9.1 does not tell to which: every context has the
/// database of the client. Then keys of that name are inspected in all of them.
///
/// Valkey 8.1 selects the database of an event on the client that causes it, and does not go back: after `MOVE key 1`
/// the client, or the link to a primary, would stay in database 1 because a module subscribed. Elsewhere the context
/// has a client of its own.
fn note_moved(ctx: Ctx<'_>, name: Str<'_>) {
    let (from, to) = (MAIN.moved.from.get(), ctx.db());
    match to != from {
        true => note(to, name),
        false => (0..).take_while(|db| ctx.select_db(*db)).for_each(|db| note(db, name)),
    }
    ctx.select_db(from);
}
