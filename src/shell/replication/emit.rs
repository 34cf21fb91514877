//! Sends effects to replicas and the append-only file.

use command::effect::{encode_hold, APPLY};
use lock::value::lock::Lock;
use lock::value::time::Deadline;

use super::consumers;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::replicate::{AofRewrite, Rest};
use crate::shell::ffi::string::Str;

/// From where the keyspace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A client's command: the server has accepted a write, in this database.
    Command,
    /// The timer: nobody has accepted anything, any database.
    Timer,
}

/// Sends how this owner holds the lock now; `key_until` is the key's own deadline.
#[inline]
pub fn send_hold(ctx: Ctx<'_>, scope: Scope, key: Str<'_>, lock: &Lock, owner: &[u8], key_until: Deadline) {
    if is_consumed(ctx, scope) {
        encode_and_send(ctx, key, lock, owner, key_until);
    }
}

/// Out of line: its room on the stack is not for those who send nothing.
#[inline(never)]
fn encode_and_send(ctx: Ctx<'_>, key: Str<'_>, lock: &Lock, owner: &[u8], key_until: Deadline) {
    let Some(hold) = lock.hold(owner, key_until) else { return };
    encode_hold(lock, &hold, |bytes| ctx.replicate(APPLY, key, Rest::Bytes(bytes)));
}

/// Sends that this owner holds the lock no more.
pub fn send_drop(ctx: Ctx<'_>, scope: Scope, key: Str<'_>, owner: &[u8]) {
    if is_consumed(ctx, scope) {
        ctx.replicate(APPLY, key, Rest::WordAndBytes(c"DROP", owner));
    }
}

/// Sends the limit of a semaphore.
pub fn send_limit(ctx: Ctx<'_>, scope: Scope, key: Str<'_>, lock: &Lock) {
    let Some(limit) = lock.semaphore_limit() else { return };
    if is_consumed(ctx, scope) {
        ctx.replicate(APPLY, key, Rest::WordAndInteger(c"LIMIT", i64::from(limit)));
    }
}

/// Sends that no holder ends later than `at_most`, which was the key's deadline for a while, or is it.
pub fn send_clamp(ctx: Ctx<'_>, scope: Scope, key: Str<'_>, at_most: Deadline, key_until: Deadline) {
    let rest = match at_most.timestamp() {
        Some(timestamp) if at_most != key_until => Rest::WordAndInteger(c"CLAMP", timestamp.signed_ms()),
        _ => Rest::Word(c"CLAMP"),
    };
    if is_consumed(ctx, scope) {
        ctx.replicate(APPLY, key, rest);
    }
}

/// Sends that the key is gone.
#[inline]
pub fn send_removal(ctx: Ctx<'_>, scope: Scope, key: Str<'_>) {
    if is_consumed(ctx, scope) {
        ctx.replicate(c"DEL", key, Rest::Nothing);
    }
}

/// Writes a lock into an append-only file that is being rewritten.
pub fn rewrite(aof: AofRewrite, key: Str<'_>, lock: &Lock) {
    for hold in lock.stored_holds() {
        encode_hold(lock, &hold, |bytes| aof.emit(APPLY, key, Rest::Bytes(bytes)));
    }
    // FENCE: the latest holder may have gone. PERSIST: loading a hold sets an expiry; the server adds PEXPIREAT if the
    // key has one.
    if let (true, Some(fence)) = (lock.is_shared(), lock.fence()) {
        aof.emit(APPLY, key, Rest::WordAndInteger(c"FENCE", fence.signed()));
        aof.emit(c"PERSIST", key, Rest::Nothing);
    }
}

/// Whether an effect has to be sent. Where nobody consumes it, none is built: the server only counts the change, for
/// its save points. For a timer's change it has no call that only counts: there the effect is what is counted.
#[inline]
fn is_consumed(ctx: Ctx<'_>, scope: Scope) -> bool {
    if scope == Scope::Timer || consumers::is_any() {
        return true;
    }
    ctx.replicate_verbatim();
    false
}
