//! Replication: effects are sent to replicas and the append-only file when the decision is made, if anything consumes
//! them. `keyspace/effects` applies them.
//!
//! Building an effect costs a third of a request, so the module builds none without a consumer: a replica, a
//! replication backlog or an append-only file. If it missed a consumer, replicas would miss a grant. A consumer can
//! appear only at one of these moments, each of which is an event:
//! - A replica's first synchronization and the start of an append-only file begin with a snapshot by a forked child,
//!   which contains whatever was not sent before the fork. A replica that synchronizes partially needs the backlog of
//!   an earlier one, which counts as a consumer.
//! - `CONFIG SET appendonly yes`, a promotion, the end of loading.
//!
//! Consumers are counted again only at these events. A backlog may end without an event: one that no replica reads is
//! freed after `repl-backlog-ttl`, and one created by a start from an RDB file is freed after the server has reported
//! the end of loading. So if a backlog is the only consumer, the server's cron checks again. In a cluster, where
//! effects are also streamed to move slots, they always count as consumed.

use std::cell::Cell;

use command::effect::{encode_hold, APPLY};
use lock::value::lock::Lock;
use lock::value::time::{Deadline, Timestamp};
use redis_module::raw;

use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::replicate::{AofRewrite, Rest};
use crate::shell::ffi::server::info_field;
use crate::shell::ffi::string::Str;

// Until consumers have been counted, assume there is one.
static CONSUMERS: MainThread<Consumers> =
    MainThread::new(Consumers { is_any: Cell::new(true), is_backlog_only: Cell::new(false) });

/// Consumers of effects.
struct Consumers {
    is_any: Cell<bool>,
    is_backlog_only: Cell<bool>,
}

/// What makes a change to the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSource {
    /// A client's command: the server has accepted a write in this database.
    Command,
    /// The timer: no client's write was accepted, and it may be any database.
    Timer,
}

/// Sends the owner's current hold; `key_until` is the key's own deadline.
#[inline]
pub fn send_hold(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>, lock: &Lock, owner: &[u8], key_until: Deadline) {
    if must_send_or_count(ctx, source) {
        encode_and_send(ctx, key, lock, owner, key_until);
    }
}

/// Out of line, because its stack frame would slow down requests that send nothing.
#[inline(never)]
fn encode_and_send(ctx: Ctx<'_>, key: Str<'_>, lock: &Lock, owner: &[u8], key_until: Deadline) {
    let Some(hold) = lock.hold(owner, key_until) else { return };
    encode_hold(lock, &hold, |bytes| ctx.replicate(APPLY, key, Rest::Bytes(bytes)));
}

/// Sends that this owner no longer holds the lock.
pub fn send_drop(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>, owner: &[u8]) {
    if must_send_or_count(ctx, source) {
        ctx.replicate(APPLY, key, Rest::WordAndBytes(c"DROP", owner));
    }
}

/// Sends that the holders with leases that had expired at this time are removed.
pub fn send_ended(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>, time: Timestamp) {
    if must_send_or_count(ctx, source) {
        ctx.replicate(APPLY, key, Rest::WordAndInteger(c"ENDED", time.signed_ms()));
    }
}

/// Sends a semaphore's limit.
pub fn send_limit(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>, lock: &Lock) {
    let Some(limit) = lock.semaphore_limit() else { return };
    if must_send_or_count(ctx, source) {
        ctx.replicate(APPLY, key, Rest::WordAndInteger(c"LIMIT", i64::from(limit)));
    }
}

/// Sends that no lease lasts longer than the key, whose deadline a client has set.
pub fn send_clamp(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>) {
    if must_send_or_count(ctx, source) {
        ctx.replicate(APPLY, key, Rest::Word(c"CLAMP"));
    }
}

/// Sends that the key was deleted.
#[inline]
pub fn send_removal(ctx: Ctx<'_>, source: ChangeSource, key: Str<'_>) {
    if must_send_or_count(ctx, source) {
        ctx.replicate(c"DEL", key, Rest::Nothing);
    }
}

/// Writes a lock into an append-only file that is being rewritten.
pub fn rewrite(aof: AofRewrite, key: Str<'_>, lock: &Lock) {
    for hold in lock.stored_holds() {
        encode_hold(lock, &hold, |bytes| aof.emit(APPLY, key, Rest::Bytes(bytes)));
    }
    // FENCE, because the holder with the latest fencing token may be gone. PERSIST, because loading a hold sets an
    // expiry; the server adds PEXPIREAT if the key has one.
    if let (true, Some(fence)) = (lock.is_shared(), lock.fence()) {
        aof.emit(APPLY, key, Rest::WordAndInteger(c"FENCE", fence.signed()));
        aof.emit(c"PERSIST", key, Rest::Nothing);
    }
}

/// Whether an effect must be sent. A command's change without a consumer is only counted for the server's save points.
/// A timer's change is always sent, because the module API has no other way to count it.
#[inline]
fn must_send_or_count(ctx: Ctx<'_>, source: ChangeSource) -> bool {
    if source == ChangeSource::Timer || CONSUMERS.is_any.get() {
        return true;
    }
    ctx.replicate_verbatim();
    false
}

/// Counts the consumers. Call it at each of the events listed above.
pub fn count_consumers(ctx: Ctx<'_>) {
    let always = raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    let is_there = |field| info_field(ctx, c"replication", field) != Some(0);
    let is_streamed = ctx.has_flag(always) || is_there(c"connected_slaves");
    let is_backlog = !is_streamed && is_there(c"repl_backlog_active");
    CONSUMERS.is_backlog_only.set(is_backlog);
    CONSUMERS.is_any.set(is_streamed || is_backlog);
}

/// The server's cron: checks for a backlog that ended without an event.
pub fn cron(ctx: Ctx<'_>) {
    if CONSUMERS.is_backlog_only.get() {
        count_consumers(ctx);
    }
}
