//! The write gate: tells whether the server would accept a write that no client requested.
//!
//! The server refuses clients' writes in many states: CLIENT PAUSE, NOREPLICAS, MISCONF, a slot that moves. It makes
//! none of these checks for a grant by the timer, so the module asks before such a grant.

use command::effect::APPLY;
use command::errors::{self, ErrorReply};
use lock::host::Gate;
use redis_module::raw;

use super::stall;
use crate::shell::ffi::call::{call_again, call_as_script, may_read_together};
use crate::shell::ffi::context::{Ctx, LOADING};
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;
use crate::shell::slots::slot_of;

/// The argument of LOCK.APPLY with which the gate asks whether a write would be accepted.
const PROBE: &[u8] = b"PROBE";

/// `EPERM`: this node does not serve the key's slot, or the slot is moving.
const NOT_MY_SLOT: i32 = 1;

/// Which keys an answer of the gate holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldsFor {
    /// Only the key that was asked about: other keys may have other slots.
    ThisKey,
    /// All keys of the server.
    EveryKey,
}

/// At the module's start. Cluster mode does not change while the server runs.
pub fn start(ctx: Ctx<'_>) {
    MAIN.gate.is_in_cluster.set(ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER));
}

/// Whether the server is in cluster mode: keys have slots, which can move.
pub fn is_in_cluster() -> bool {
    MAIN.gate.is_in_cluster.get()
}

/// Whether the LOCK.APPLY that runs now is the gate's probe.
pub fn is_probing() -> bool {
    MAIN.gate.is_probing.get()
}

/// Asks the server whether it accepts a write to the key, by a command on it. The key must not be open meanwhile.
pub fn ask(ctx: Ctx<'_>, key: Str<'_>) -> (Gate, HoldsFor) {
    let flags = ctx.flags();
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 || flags & LOADING != 0 || ctx.avoids_replica_traffic() {
        return (Gate::Closed, HoldsFor::EveryKey);
    }
    let holds_for = if is_in_cluster() { HoldsFor::ThisKey } else { HoldsFor::EveryKey };
    let mut accepted = probe(ctx, key);
    if is_in_cluster() && accepted == Err(NOT_MY_SLOT) {
        accepted = call_again(ctx, || probe(ctx, key));
    }
    match accepted {
        Ok(()) if stall::holds_back(ctx) => (Gate::Closed, HoldsFor::EveryKey),
        Ok(()) => (Gate::Open, holds_for),
        Err(NOT_MY_SLOT) if is_in_cluster() => (Gate::Elsewhere, HoldsFor::ThisKey),
        Err(_) => (Gate::Closed, holds_for),
    }
}

fn probe(ctx: Ctx<'_>, key: Str<'_>) -> Result<(), i32> {
    MAIN.gate.is_probing.set(true);
    let accepted = call_as_script(ctx, APPLY, key, PROBE);
    MAIN.gate.is_probing.set(false);
    accepted
}

/// Checks that a command may use all of these keys in a cluster: the server has checked only the first.
///
/// # Errors
/// The keys have different slots, or their slot is moving and some of them are at the other node.
pub fn check_slots(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Result<(), ErrorReply> {
    if keys.len() < 2 || !is_in_cluster() {
        return Ok(());
    }
    compare_slots(keys)?;
    check_node(ctx, keys)
}

/// Checks that these keys of a cluster have one slot. Do so before the module calls the server with them: see
/// [`call_again`].
///
/// # Errors
/// The keys have different slots.
pub fn compare_slots(keys: &[Str<'_>]) -> Result<(), ErrorReply> {
    let [first, others @ ..] = keys else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let first = slot_of(first.bytes());
    if others.iter().any(|key| slot_of(key.bytes()) != first) {
        return Err(errors::CROSS_SLOT);
    }
    Ok(())
}

/// Whether this node serves all of these keys, which have one slot of a cluster. As a side effect the server's internal
/// client is repaired for the next call, if that call has no keys or keys of this slot: see [`call_again`].
///
/// # Errors
/// Their slot is moving, and some of them are at the other node.
pub fn check_node(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Result<(), ErrorReply> {
    if keys.is_empty() || may_read_together(ctx, keys) || call_again(ctx, || may_read_together(ctx, keys)) {
        return Ok(());
    }
    Err(errors::TRY_AGAIN)
}
