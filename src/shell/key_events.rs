//! What the server tells of single keys, and which event of ours it is. Nothing is written here: an event is noted, and
//! a turn follows.

use std::cell::Cell;
use std::ffi::{c_char, c_int, CStr};

use lock::key::{Key, KeyRef};
use redis_module::raw;

use super::background::events::{self, Event};
use super::background::timer;
use super::ffi::context::Ctx;
use super::ffi::guard::guard;
use super::ffi::main_thread::MainThread;
use super::ffi::module::subscribe_to_keys;
use super::ffi::string::Str;
use super::state;

/// Subscribes to what is done to single keys, once, when somebody begins to wait: a lease that EXPIRE made shorter has
/// to be seen then, and a free key that becomes something. As long as nobody ever waits, other people's keys cost what
/// they cost without the module.
pub fn watch(ctx: Ctx<'_>) {
    static WATCHED: MainThread<Cell<bool>> = MainThread(Cell::new(false));
    if !WATCHED.0.replace(true) {
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_NEW, on_key);
    }
}

/// An event of a key: `expire` and `persist` change a lease; with `new` a key comes to be, by SET, RENAME, MOVE,
/// RESTORE or whatever else. Its end is seen by `unlink2` already.
unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a name that ends with a NUL.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    if matches!(event, b"move_from" | b"move_to") {
        // SAFETY: the context of this callback.
        guard("move event", || unsafe { Ctx::new(ctx) }.into_iter().for_each(|ctx| keep_database(ctx, event)));
    }
    if events::concern_anybody() && matches!(event, b"expire" | b"persist" | b"new") {
        guard("keyspace event", || {
            // SAFETY: both live as long as the callback.
            let (Some(ctx), Some(key)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
            if event == b"new" && !is_waited_for(KeyRef { db: ctx.db(), name: key.bytes() }) {
                return;
            }
            events::note(Event::KeyTouched(Key::new(ctx.db(), key.bytes())));
            timer::wake();
        });
    }
    raw::REDISMODULE_OK as c_int
}

/// Most keys that come to be are nobody's concern. Nor are those that a decision of ours makes: the state is in use
/// then.
fn is_waited_for(key: KeyRef<'_>) -> bool {
    state::peek(|state| state.manager.queues().id_of(key).is_some()) == Some(true)
}

/// Valkey 8.1 selects the database of an event on the client that causes it, and does not go back: after `MOVE key 1`
/// the client, or the link to a primary, would stay in database 1 because a module subscribed. Elsewhere the context
/// has a client of its own.
fn keep_database(ctx: Ctx<'_>, event: &[u8]) {
    static FROM: MainThread<Cell<i32>> = MainThread(Cell::new(0));
    if event == b"move_from" {
        FROM.0.set(ctx.db());
    } else {
        ctx.select_db(FROM.0.get());
    }
}
