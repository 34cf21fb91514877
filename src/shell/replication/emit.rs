//! Sends effects to replicas and the append-only file.

use std::ffi::CStr;

use lock::value::lock::Lock;
use lock::value::time::Deadline;

use super::consumers;
use super::effect::{encode_hold, APPLY};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::replicate::{AofRewrite, Rest};
use crate::shell::ffi::string::Str;

const HOLD: &CStr = c"HOLD";

/// From where the keyspace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A client's command: the server has accepted a write, in this database.
    Command,
    /// The timer: nobody has accepted anything, any database.
    Timer,
}

/// Sends how this owner holds the lock now; `key_until` is the key's own deadline.
pub fn send_hold(ctx: Ctx<'_>, scope: Scope, key: Str<'_>, lock: &Lock, owner: &[u8], key_until: Deadline) {
    if !is_consumed(ctx, scope) {
        return;
    }
    let Some(hold) = lock.hold(owner, key_until) else { return };
    let Some(fields) = encode_hold(lock, &hold) else { return };
    ctx.replicate(APPLY, key, HOLD, Rest::TwoBytes(owner, fields.as_bytes()));
}

/// Sends that this owner holds the lock no more.
pub fn send_drop(ctx: Ctx<'_>, key: Str<'_>, owner: &[u8]) {
    ctx.replicate(APPLY, key, c"DROP", Rest::Bytes(owner));
}

/// Sends the limit of a semaphore.
pub fn send_limit(ctx: Ctx<'_>, key: Str<'_>, lock: &Lock) {
    if let Some(limit) = lock.semaphore_limit() {
        ctx.replicate(APPLY, key, c"LIMIT", Rest::Integer(i64::from(limit)));
    }
}

/// Sends that no holder ends later than `at_most`, which was the key's deadline for a while, or is it.
pub fn send_clamp(ctx: Ctx<'_>, key: Str<'_>, at_most: Deadline, key_until: Deadline) {
    let rest = match at_most.timestamp() {
        Some(timestamp) if at_most != key_until => Rest::Integer(timestamp.signed_ms()),
        _ => Rest::Nothing,
    };
    ctx.replicate(APPLY, key, c"CLAMP", rest);
}

/// Sends that the key is gone.
pub fn send_removal(ctx: Ctx<'_>, scope: Scope, key: Str<'_>) {
    if is_consumed(ctx, scope) {
        ctx.replicate_key(c"DEL", key);
    }
}

/// Writes a lock into an append-only file that is being rewritten.
pub fn rewrite(aof: AofRewrite, key: Str<'_>, lock: &Lock) {
    for hold in lock.stored_holds() {
        let Some(fields) = encode_hold(lock, &hold) else { return };
        aof.emit(APPLY, key, HOLD, Rest::TwoBytes(hold.owner.as_bytes(), fields.as_bytes()));
    }
    // FENCE: the latest holder may have gone. PERSIST: loading HOLD sets an expiry; the server adds PEXPIREAT if the
    // key has one.
    if let (true, Some(fence)) = (lock.is_shared(), lock.fence()) {
        aof.emit(APPLY, key, c"FENCE", Rest::Integer(fence.signed()));
        aof.emit_key(c"PERSIST", key);
    }
}

/// Whether an effect has to be sent. Where nobody consumes it, none is built: the server only counts the change, for
/// its save points.
fn is_consumed(ctx: Ctx<'_>, scope: Scope) -> bool {
    if scope == Scope::Timer || consumers::is_any() {
        return true;
    }
    ctx.replicate_verbatim();
    false
}
