//! What the server tells, and what it means for those who wait or are bound. Nothing is written here: marks, and a drain.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use super::api::{api, guard, Ctx, MainThread, Str};
use super::drain;
use super::listen;
use super::state::{self, Mark};
use lock::queue::{ClientId, Key};

/// Subscribes to everything that can end or move a lock, or bring a listener. False: the server refuses.
pub fn subscribe(ctx: Ctx) -> bool {
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
    EVENTS.iter().all(|(id, dataver)| {
        let event = raw::RedisModuleEvent { id: *id, dataver: *dataver };
        // SAFETY: the callback is a function of this module.
        unsafe {
            api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(on_event))) == raw::REDISMODULE_OK as c_int
        }
    })
}

/// Subscribes to what is done to single keys, once, when somebody begins to wait: a lease that EXPIRE made shorter has to be seen then.
/// As long as nobody ever waits, the DEL and EXPIRE of other people's keys cost what they cost without the module.
pub fn watch_keys(ctx: Ctx) {
    static WATCHED: MainThread<Cell<bool>> = MainThread(Cell::new(false));
    if !WATCHED.0.replace(true) {
        // SAFETY: the callback is a function of this module.
        unsafe {
            api!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw(), raw::REDISMODULE_NOTIFY_GENERIC, Some(on_key)))
        };
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
        // SAFETY: the server passes the context.
        guard("move event", || unsafe { keep_database(ctx, event) });
    }
    if state::is_attended() && matches!(event, b"expire" | b"persist") {
        guard("keyspace event", || {
            let (Some(ctx), Some(key)) = (Ctx::new(ctx), Str::new(key)) else { return };
            // SAFETY: the key lives as long as the callback.
            state::mark(Mark::KeyTouched(Key::new(ctx.db(), unsafe { key.bytes() })));
            drain::soon();
        });
    }
    raw::REDISMODULE_OK as c_int
}

/// Valkey 8.1 selects the database of an event on the client that causes it, and does not go back: after `MOVE key 1` the client, or the
/// link to a master, would stay in database 1 for no other reason than that a module listens. Elsewhere the context has a client of its own.
unsafe fn keep_database(ctx: *mut raw::RedisModuleCtx, event: &[u8]) {
    static FROM: MainThread<Cell<i32>> = MainThread(Cell::new(0));
    let Some(ctx) = Ctx::new(ctx) else { return };
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
    // Every connection that comes or goes is told: nothing to do is the rule.
    if event.id == raw::REDISMODULE_EVENT_CLIENT_CHANGE {
        if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED && state::is_attended() {
            guard("disconnection", || {
                // SAFETY: with this event comes this structure.
                if let Some(info) = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() } {
                    leave_mark(Mark::ClientGone(ClientId(info.id)));
                }
            });
        }
        return;
    }
    guard("event", || {
        let Some(ctx) = Ctx::new(ctx) else { return };
        match (event.id, sub) {
            (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, sub) => {
                listen::look_again(ctx);
                match sub {
                    raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA => leave_mark(Mark::Demoted),
                    _ => state::mark(Mark::Began(state::now().at())),
                }
            }
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                // SAFETY: with this event comes this structure.
                let db = unsafe { data.cast::<raw::RedisModuleFlushInfoV1>().as_ref() }.map_or(-1, |info| info.dbnum);
                leave_mark(Mark::DbChanged((db >= 0).then_some(db)));
            }
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                // SAFETY: with this event comes this structure.
                if let Some(info) = unsafe { data.cast::<raw::RedisModuleSwapDbInfoV1>().as_ref() } {
                    leave_mark(Mark::DbChanged(Some(info.dbnum_first)));
                    leave_mark(Mark::DbChanged(Some(info.dbnum_second)));
                }
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                listen::look_again(ctx);
                state::mark(Mark::Began(state::now().at()));
                leave_mark(Mark::DbChanged(None));
            }
            (raw::REDISMODULE_EVENT_CONFIG, _) => {
                listen::look_again(ctx);
                state::mark(Mark::Configured);
                drain::soon();
            }
            (raw::REDISMODULE_EVENT_FORK_CHILD | raw::REDISMODULE_EVENT_REPLICA_CHANGE, _) => listen::look_again(ctx),
            _ => {}
        }
    });
}

fn leave_mark(mark: Mark) {
    if state::is_attended() {
        state::mark(mark);
        drain::soon();
    }
}
