//! Whether anybody listens to effects: a replica, its backlog, an append-only file. Building one for nobody costs a third of a request.
//!
//! The answer must be exact, or replicas would miss a grant. Somebody begins to listen in one of these moments, and each is an event:
//! - A replica's first synchronization and the start of an append-only file begin with a snapshot by a forked child: whatever was not sent
//!   before the fork is in the snapshot. A replica that synchronizes partially needs the backlog of an earlier one, which counts as a listener.
//! - `CONFIG SET appendonly yes`, a promotion, the end of loading.
//!
//! Nobody is assumed to have left before one of these events says so. In a cluster, where slots are moved by streams of effects
//! too, somebody is always taken to listen.

use std::cell::Cell;

use redis_module::raw;

use super::api::{info_field, Ctx, MainThread};

static ANYBODY: MainThread<Cell<bool>> = MainThread(Cell::new(true));

/// Whether effects have to be sent.
pub fn is_anybody_there() -> bool {
    ANYBODY.0.get()
}

/// Looks again. To be called at each of the events above.
pub fn look_again(ctx: Ctx) {
    let always = raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    let backlog = || info_field(ctx, c"replication", c"repl_backlog_active") != Some(0);
    let replicas = || info_field(ctx, c"replication", c"connected_slaves") != Some(0);
    ANYBODY.0.set(ctx.has_flag(always) || backlog() || replicas());
}
