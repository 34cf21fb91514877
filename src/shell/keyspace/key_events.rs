//! What the server tells of single keys, and which event of ours it is. Nothing is written here: an event is noted, and
//! a turn follows.

use std::cell::Cell;
use std::ffi::{c_char, c_int, CStr};

use lock::key::{Key, KeyRef};
use lock::value::lock::SeveralEnds;
use redis_module::raw;

use super::lock_key::{ReadContent, ReadKey};
use crate::shell::background::events::{self, Event};
use crate::shell::background::timer;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::subscribe_to_keys;
use crate::shell::ffi::string::Str;
use crate::shell::state;

/// Subscribes to what is done to single keys, once, when somebody begins to wait or a lock has several holders: a lease
/// that EXPIRE made shorter has to be seen then, and a free key that becomes something. As long as neither ever was,
/// other people's keys cost what they cost without the module.
pub fn watch(ctx: Ctx<'_>) {
    static WATCHED: MainThread<Cell<bool>> = MainThread(Cell::new(false));
    if !WATCHED.0.replace(true) {
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_NEW, on_key);
    }
}

/// An event of a key: `expire` and `persist` change a lease; with `new` a key comes to be, by SET, RENAME, MOVE,
/// RESTORE or whatever else, and the others say that it may be a lock. Its end is seen by `unlink2` already.
unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a name that ends with a NUL.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    let concerns_waiters = events::concern_anybody() && matches!(event, b"expire" | b"persist" | b"new");
    let has_come = matches!(event, b"rename_to" | b"move_to" | b"restore");
    let concerns_holders = has_come || matches!(event, b"expire" | b"persist") && events::concern_several();
    if concerns_waiters || concerns_holders || event == b"move_from" {
        guard("keyspace event", || {
            // SAFETY: both live as long as the callback.
            let (Some(ctx), Some(key)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
            match event {
                b"move_from" => MOVED_FROM.0.set(ctx.db()),
                b"move_to" => note_moved(ctx, key),
                b"new" => note_new(key.bytes()),
                _ if concerns_waiters => note(Event::KeyTouched(Key::new(ctx.db(), key.bytes()))),
                _ => {}
            }
            if concerns_holders && event != b"move_to" {
                note_several_holders(ctx, key, has_come);
            }
        });
    }
    raw::REDISMODULE_OK as c_int
}

fn note(event: Event) {
    events::note(event);
    timer::wake();
}

/// Notes when the first of several holders ends, and the deadline that the key has now: a later one of the same
/// transaction must not hide it.
fn note_several_holders(ctx: Ctx<'_>, name: Str<'_>, has_come: bool) {
    let key = KeyRef { db: ctx.db(), name: name.bytes() };
    // A command of ours runs, which inspects what it changes itself.
    let Some(knows) = state::peek(|state| state.manager.has_several_holders(key)) else { return };
    // Whatever has just come under a name is not known by it yet.
    if !knows && !has_come && !events::is_any() {
        return;
    }
    // SAFETY: the state is not in use, so no command of ours has the key open.
    if let ReadContent::Lock(open) = unsafe { ReadKey::open(ctx, name) } {
        let lock = open.lock();
        // A dump may hold what a bug left vacant.
        if let Some(ends) = lock.several_ends(open.until()).or_else(|| lock.ends_when_loaded()) {
            note(Event::SeveralHold(key.to_key(), ends));
        }
    }
}

/// Most keys that come to be are nobody's concern. Nor are those that a decision of ours makes: the state is in use
/// then. In a transaction Valkey 9.1 does not tell into which database MOVE and COPY write, so whoever waits for a key
/// of that name in any of them is concerned.
fn note_new(name: &[u8]) {
    let waited_for: Option<Vec<Key>> = state::peek(|state| state.manager.queues().keys_named(name).collect());
    waited_for.into_iter().flatten().for_each(|key| note(Event::KeyTouched(key)));
}

/// From where the key comes that MOVE moves.
static MOVED_FROM: MainThread<Cell<i32>> = MainThread(Cell::new(0));

/// A lock with several holders may have come to another database. In a transaction Valkey 9.1 does not tell to which:
/// every context has the database of the client. Then keys of that name are inspected in all of them.
///
/// Valkey 8.1 selects the database of an event on the client that causes it, and does not go back: after `MOVE key 1`
/// the client, or the link to a primary, would stay in database 1 because a module subscribed. Elsewhere the context
/// has a client of its own.
fn note_moved(ctx: Ctx<'_>, name: Str<'_>) {
    let (from, to) = (MOVED_FROM.0.get(), ctx.db());
    if to != from {
        note_several_holders(ctx, name, true);
    } else if events::is_any() {
        // A lock has just left its key: it is noted.
        for db in (0..).take_while(|db| ctx.select_db(*db)) {
            note(Event::SeveralHold(Key::new(db, name.bytes()), SeveralEnds::to_be_inspected()));
        }
    }
    ctx.select_db(from);
}
