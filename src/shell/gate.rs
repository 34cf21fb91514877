//! Whether the server accepts a write now that no client asked for.
//!
//! A grant from the timer would get past every refusal that the server keeps for clients' commands, so the server is asked.

use std::cell::Cell;

use redis_module::raw;

use super::api::{Ctx, MainThread, Str};
use super::effect;
use lock::world::Gate;

/// `EPERM`: with it the server answers a call for a key whose slot is not, or not stably, its own.
const NOT_MY_SLOT: i32 = 1;

static IN_CLUSTER: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// At the module's start: a server is in a cluster from its start to its end, or never.
pub fn start(ctx: Ctx) {
    IN_CLUSTER.0.set(ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER));
}

/// Whether keys have slots that move.
pub fn is_in_cluster() -> bool {
    IN_CLUSTER.0.get()
}

/// What the gate says of the key, and whether that holds for every other key too.
pub fn ask(ctx: Ctx, key: Str) -> (Gate, bool) {
    let flags = ctx.flags();
    let loading = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 || flags & loading != 0 || ctx.avoids_replica_traffic() {
        return (Gate::Closed, true);
    }
    let in_cluster = is_in_cluster();
    match effect::probe(ctx, key) {
        Ok(()) => (Gate::Open, !in_cluster),
        Err(NOT_MY_SLOT) if in_cluster => (Gate::Elsewhere, false),
        Err(_) => (Gate::Closed, !in_cluster),
    }
}
