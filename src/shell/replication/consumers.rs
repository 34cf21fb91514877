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
//! Consumers are counted again only at these events. One goes without any: a backlog that no replica reads is freed
//! after `repl-backlog-ttl`, and one that a start from an RDB file made is freed after the server has told the end of
//! loading. So where only a backlog counts, the server's cron looks again. In a cluster, where slots are moved by
//! streams of effects too, somebody always counts as consuming.

use redis_module::raw;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::info_field;
use crate::shell::main_state::MAIN;

/// Whether effects have to be sent.
#[inline]
pub fn is_any() -> bool {
    MAIN.consumers.is_any.get()
}

/// Counts again. To be called at each of the events above.
pub fn count(ctx: Ctx<'_>) {
    let always = raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    let is_there = |field| info_field(ctx, c"replication", field) != Some(0);
    let is_told = ctx.has_flag(always) || is_there(c"connected_slaves");
    let is_backlog = !is_told && is_there(c"repl_backlog_active");
    MAIN.consumers.is_backlog_only.set(is_backlog);
    MAIN.consumers.is_any.set(is_told || is_backlog);
}

/// The server's cron: what goes without an event is looked for.
pub fn cron(ctx: Ctx<'_>) {
    if MAIN.consumers.is_backlog_only.get() {
        count(ctx);
    }
}
