//! Translates server events into the module's own. Nothing is written here: an event is recorded, and an engine pass
//! follows.

use std::cell::Cell;
use std::ffi::c_void;

use lock::key::ClientId;
use redis_module::raw;

use super::events::{self, Event};
use super::{stall, timer};
use crate::shell::ffi::context::{guard, Ctx};
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::{self, subscribe_to_event, unsubscribe_from_event};
use crate::shell::replication;
use crate::shell::slots::ClusterSlots;
use crate::shell::{clock, settings};

/// Called as soon as all databases are empty.
static ALL_FLUSHED: MainThread<Cell<fn()>> = MainThread::new(Cell::new(|| {}));

/// Subscribes to everything that can remove or move a lock, or add a consumer of effects. False: the server refuses.
/// `all_flushed` is called as soon as all databases are empty.
pub fn subscribe(ctx: Ctx<'_>, all_flushed: fn()) -> bool {
    ALL_FLUSHED.set(all_flushed);
    const EVENTS: [u64; 9] = [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CLIENT_CHANGE,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_CRON_LOOP,
    ];
    let are_subscribed = EVENTS.into_iter().all(|id| subscribe_to_event(ctx, id, on_event));
    if !are_subscribed {
        // The load fails, and Redis 7.0 would keep calling an unloaded module.
        for id in EVENTS {
            unsubscribe_from_event(ctx, id);
        }
    }
    are_subscribed
}

/// Subscribes to the end of slot migrations, if the server can migrate slots atomically. False: this server cannot.
///
/// Nothing else about a migration matters. The source keeps working; its effects also go to the target. The target
/// stores what it receives, and grants nothing from it before it owns the slots: clients are redirected, and the write
/// check reports every such key as served by another node. An aborted migration has moved nothing.
pub fn subscribe_to_slot_migrations(ctx: Ctx<'_>) -> bool {
    module::subscribe_to_slot_migrations(ctx, on_slot_migration)
}

unsafe extern "C" fn on_slot_migration(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    if sub == module::EXPORT_COMPLETED && events::has_waiters_or_sessions() {
        guard("slot migration", || {
            let mut slots = ClusterSlots::none();
            // SAFETY: the server passed it with this event.
            unsafe { module::each_slot(data, |slot| slots.add(slot)) };
            record_if_relevant(Event::SlotsMoved(slots));
        });
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
        if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED && events::has_waiters_or_sessions() {
            // SAFETY: the server passes this structure with this event.
            guard("disconnection", || on_disconnection(unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }));
        }
        return;
    }
    guard("event", || {
        // SAFETY: the context of this callback.
        let Some(ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        match (event.id, sub) {
            (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, sub) => {
                on_role(ctx, sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA);
            }
            // Shortens the next time slice by what the flush takes: milliseconds for ten thousand locks.
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_START) => _ = clock::begin_slice(),
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                clock::end_slice();
                // SAFETY: the server passes this structure with this event.
                on_flushed(unsafe { data.cast::<raw::RedisModuleFlushInfoV1>().as_ref() });
            }
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                // SAFETY: the server passes this structure with this event.
                on_swapped(unsafe { data.cast::<raw::RedisModuleSwapDbInfoV1>().as_ref() });
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                replication::count_consumers(ctx);
                record_start();
                record_if_relevant(Event::DbChanged(None));
            }
            (raw::REDISMODULE_EVENT_CONFIG, _) => {
                replication::count_consumers(ctx);
                events::record(Event::Configured);
                timer::wake();
            }
            (raw::REDISMODULE_EVENT_CRON_LOOP, _) => {
                // SAFETY: the server passes this structure with this event.
                let hz = unsafe { data.cast::<raw::RedisModuleCronLoopV1>().as_ref() }.map_or(1, |info| info.hz);
                on_cron(ctx, u64::try_from(hz).unwrap_or(1));
            }
            (raw::REDISMODULE_EVENT_REPLICA_CHANGE, _) => {
                stall::count_replicas(ctx);
                replication::count_consumers(ctx);
            }
            (raw::REDISMODULE_EVENT_FORK_CHILD, _) => replication::count_consumers(ctx),
            _ => {}
        }
    });
}

fn on_disconnection(info: Option<&raw::RedisModuleClientInfo>) {
    if let Some(info) = info {
        record_if_relevant(Event::ClientDisconnected(ClientId(info.id)));
    }
}

fn on_role(ctx: Ctx<'_>, is_replica: bool) {
    replication::count_consumers(ctx);
    events::set_replica(is_replica);
    if is_replica {
        // Recorded even without waiters: a grant whose delivery is pending may still be lost, and cannot be revoked
        // here.
        events::record(Event::Demoted);
        timer::wake();
    } else {
        record_start();
    }
}

/// One database or all of them were flushed.
fn on_flushed(info: Option<&raw::RedisModuleFlushInfoV1>) {
    let db = info.map(|info| info.dbnum).filter(|db| *db >= 0);
    if db.is_none() || timer::own_context().is_some_and(Ctx::are_all_dbs_empty) {
        ALL_FLUSHED.get()();
    }
    record_if_relevant(Event::DbChanged(db));
}

fn on_swapped(info: Option<&raw::RedisModuleSwapDbInfoV1>) {
    for db in info.into_iter().flat_map(|info| [info.dbnum_first, info.dbnum_second]) {
        record_if_relevant(Event::DbChanged(Some(db)));
    }
}

/// The server's cron, ten times a second unless `hz` is set: checks for changes that have no event.
fn on_cron(ctx: Ctx<'_>, hz: u64) {
    stall::cron(hz);
    replication::cron(ctx);
    if events::is_any() {
        // No timer is armed when the module starts, but a grace period that begins then must be logged even if no
        // request comes.
        timer::wake();
    }
    if clock::was_set() {
        if events::has_waiters_or_sessions() {
            events::record(Event::ClockSet);
        }
        timer::rearm();
    } else if timer::is_overdue() {
        timer::rearm();
    }
}

/// The server started, loaded its data or was promoted to primary.
pub fn record_start() {
    events::record(Event::Started { since: clock::instant(), grace_ms: settings::grace_ms() });
}

/// Records the event if a request waits, a hold is bound to a connection, or the delivery of a grant is pending.
fn record_if_relevant(event: Event) {
    if events::has_waiters_or_sessions() {
        events::record(event);
        timer::wake();
    }
}
