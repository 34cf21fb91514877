//! What the server tells, and which event of ours it is. Nothing is written here: events are noted, and a turn follows.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};

use lock::key::{ClientId, Key};
use redis_module::raw;

use super::events::{self, Event};
use super::timer;
use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::{subscribe_to_event, subscribe_to_keys};
use crate::shell::ffi::string::Str;
use crate::shell::replication::consumers;

/// Subscribes to everything that can end or move a lock, or bring a consumer of effects. False: the server refuses.
pub fn subscribe(ctx: Ctx<'_>) -> bool {
    /// Event numbers and the versions of their data, as `redismodule.h` has them.
    const EVENTS: [(u64, u64); 8] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, 1),
        (raw::REDISMODULE_EVENT_FLUSHDB, 1),
        (raw::REDISMODULE_EVENT_LOADING, 1),
        (raw::REDISMODULE_EVENT_CLIENT_CHANGE, 1),
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, 1),
        (raw::REDISMODULE_EVENT_SWAPDB, 1),
        (raw::REDISMODULE_EVENT_FORK_CHILD, 1),
        (raw::REDISMODULE_EVENT_CONFIG, 1),
    ];
    EVENTS.iter().all(|(id, dataver)| subscribe_to_event(ctx, *id, *dataver, on_event))
}

/// Subscribes to what is done to single keys, once, when somebody begins to wait: a lease that EXPIRE made shorter has
/// to be seen then. As long as nobody ever waits, the DEL and EXPIRE of other people's keys cost what they cost without
/// the module.
pub fn watch_keys(ctx: Ctx<'_>) {
    static WATCHED: MainThread<Cell<bool>> = MainThread(Cell::new(false));
    if !WATCHED.0.replace(true) {
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_GENERIC, on_key);
    }
}

/// A generic event of a key: `expire` and `persist` change a lease, the others are seen by `unlink2` already.
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
    if events::concern_anybody() && matches!(event, b"expire" | b"persist") {
        guard("keyspace event", || {
            // SAFETY: both live as long as the callback.
            let (Some(ctx), Some(key)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
            events::note(Event::KeyTouched(Key::new(ctx.db(), key.bytes())));
            timer::wake();
        });
    }
    raw::REDISMODULE_OK as c_int
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

unsafe extern "C" fn on_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // The server reports every connection; usually there is nothing to do.
    if event.id == raw::REDISMODULE_EVENT_CLIENT_CHANGE {
        if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED && events::concern_anybody() {
            guard("disconnection", || {
                // SAFETY: with this event comes this structure.
                if let Some(info) = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() } {
                    note_if_any_concern(Event::ClientGone(ClientId(info.id)));
                }
            });
        }
        return;
    }
    guard("event", || {
        // SAFETY: the context of this callback.
        let Some(ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        match (event.id, sub) {
            (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, sub) => {
                consumers::count(ctx);
                match sub {
                    raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA => note_if_any_concern(Event::Demoted),
                    _ => events::note(Event::Began(clock::now().timestamp())),
                }
            }
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                // SAFETY: with this event comes this structure.
                let db = unsafe { data.cast::<raw::RedisModuleFlushInfoV1>().as_ref() }.map_or(-1, |info| info.dbnum);
                note_if_any_concern(Event::DbChanged((db >= 0).then_some(db)));
            }
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                // SAFETY: with this event comes this structure.
                if let Some(info) = unsafe { data.cast::<raw::RedisModuleSwapDbInfoV1>().as_ref() } {
                    note_if_any_concern(Event::DbChanged(Some(info.dbnum_first)));
                    note_if_any_concern(Event::DbChanged(Some(info.dbnum_second)));
                }
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                consumers::count(ctx);
                events::note(Event::Began(clock::now().timestamp()));
                note_if_any_concern(Event::DbChanged(None));
            }
            (raw::REDISMODULE_EVENT_CONFIG, _) => {
                consumers::count(ctx);
                events::note(Event::Configured);
                timer::wake();
            }
            (raw::REDISMODULE_EVENT_FORK_CHILD | raw::REDISMODULE_EVENT_REPLICA_CHANGE, _) => consumers::count(ctx),
            _ => {}
        }
    });
}

/// Notes the event if anybody waits or is bound.
fn note_if_any_concern(event: Event) {
    if events::concern_anybody() {
        events::note(event);
        timer::wake();
    }
}
