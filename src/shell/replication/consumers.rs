//! Whether anybody consumes effects: a replica, its backlog, an append-only file. Building one for nobody costs a third
//! of a request.
//!
//! The answer must be exact, or replicas would miss a grant. Somebody begins to consume in one of these moments, and
//! each is an event:
//! - A replica's first synchronization and the start of an append-only file begin with a snapshot by a forked child:
//!   whatever was not sent before the fork is in the snapshot. A replica that synchronizes partially needs the backlog
//!   of an earlier one, which counts as a consumer.
//! - `CONFIG SET appendonly yes`, a promotion, the end of loading.
//!
//! Consumers are counted again only at these events. In a cluster, where slots are moved by streams of effects too,
//! somebody always counts as consuming.

use std::cell::Cell;

use redis_module::raw;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server::info_field;

static ANY: MainThread<Cell<bool>> = MainThread(Cell::new(true));

/// Whether effects have to be sent.
#[inline]
pub fn is_any() -> bool {
    ANY.0.get()
}

/// Counts again. To be called at each of the events above.
pub fn count(ctx: Ctx<'_>) {
    let always = raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    let backlog = || info_field(ctx, c"replication", c"repl_backlog_active") != Some(0);
    let replicas = || info_field(ctx, c"replication", c"connected_slaves") != Some(0);
    ANY.0.set(ctx.has_flag(always) || backlog() || replicas());
}
