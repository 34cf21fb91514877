//! The write check: whether the server would accept a write that no client requested.
//!
//! The server refuses writes from clients in many states: CLIENT PAUSE, NOREPLICAS, MISCONF, a slot that is moving. It
//! makes none of these checks for a grant from the timer, so the module asks before such a grant.

use std::cell::Cell;

use command::effect::APPLY;
use command::errors::{self, ErrorReply};
use lock::host::WriteCheck;
use lock::value::time::Instant;
use redis_module::raw;

use super::stall;
use crate::shell::ffi::call::{call_again, call_as_script, may_read_together, Refused};
use crate::shell::ffi::context::{Ctx, LOADING};
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server::is_cluster_down;
use crate::shell::ffi::string::{OwnedStr, Str};
use crate::shell::slots::slot_of;

static WRITE_CHECK: MainThread<WriteCheckState> = MainThread::new(WriteCheckState {
    is_probing: Cell::new(false),
    is_in_cluster: Cell::new(false),
    held_back_since: Cell::new(None),
});

struct WriteCheckState {
    /// Whether the LOCK.APPLY that is running is the probe of the write check.
    is_probing: Cell<bool>,
    is_in_cluster: Cell<bool>,
    /// Since when due work has been held back.
    held_back_since: Cell<Option<Instant>>,
}

/// The argument of LOCK.APPLY that marks it as a probe.
const PROBE: &[u8] = b"PROBE";

/// `EPERM`: this node does not serve the key's slot, or the slot is moving.
const NOT_MY_SLOT: i32 = 1;

/// The most keys that INFO tries to find one whose slot this node serves. A cluster of 20 nodes takes about 20
/// attempts.
const KEYS_TO_TRY: u32 = 200;

/// Which keys the result of a write check applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldsFor {
    /// Only the key that was checked: other keys may be in other slots.
    ThisKey,
    /// All keys of the server.
    EveryKey,
}

/// Call at module start. Cluster mode does not change while the server runs.
pub fn start(ctx: Ctx<'_>) {
    WRITE_CHECK.is_in_cluster.set(ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER));
}

/// Whether the server is in cluster mode, where keys have slots that can move.
pub fn is_in_cluster() -> bool {
    WRITE_CHECK.is_in_cluster.get()
}

/// Whether the LOCK.APPLY that is running is the probe.
pub fn is_probing() -> bool {
    WRITE_CHECK.is_probing.get()
}

/// Asks the server whether it accepts a write to the key, by running a probe command on it. The key must not be open.
pub fn check(ctx: Ctx<'_>, key: Str<'_>) -> (WriteCheck, HoldsFor) {
    let flags = ctx.flags();
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 || flags & LOADING != 0 || ctx.avoids_replica_traffic() {
        return (WriteCheck::Refused, HoldsFor::EveryKey);
    }
    let holds_for = if is_in_cluster() { HoldsFor::ThisKey } else { HoldsFor::EveryKey };
    let accepts = || probe(ctx, key).map_err(|refused| refused.errno);
    let mut accepted = accepts();
    if is_in_cluster() && accepted == Err(NOT_MY_SLOT) {
        accepted = call_again(ctx, accepts);
    }
    match accepted {
        Ok(()) if stall::holds_back(ctx) => (WriteCheck::Refused, HoldsFor::EveryKey),
        Ok(()) => (WriteCheck::Allowed, holds_for),
        Err(NOT_MY_SLOT) if is_in_cluster() => (WriteCheck::SlotMoved, HoldsFor::ThisKey),
        Err(_) => (WriteCheck::Refused, holds_for),
    }
}

fn probe(ctx: Ctx<'_>, key: Str<'_>) -> Result<(), Refused> {
    WRITE_CHECK.is_probing.set(true);
    let accepted = call_as_script(ctx, APPLY, key, PROBE);
    WRITE_CHECK.is_probing.set(false);
    accepted
}

/// Why the server would refuse a request for a free lock now: `no`, `PAUSED`, or the code of the error that the client
/// would get. Used by INFO for the server as a whole: in a cluster, a particular slot may still be on another node.
pub fn acquires_refused(ctx: Ctx<'_>) -> &'static str {
    let flags = ctx.flags();
    if flags & LOADING != 0 {
        return "LOADING";
    }
    if flags & raw::REDISMODULE_CTX_FLAGS_MASTER == 0 {
        return "READONLY";
    }
    if ctx.avoids_replica_traffic() {
        return "PAUSED";
    }
    // The slot of the probe's key may be one that no node serves.
    if is_in_cluster() && is_cluster_down(ctx) {
        return "CLUSTERDOWN";
    }
    // The probe detects every reason but this one, because a hand-off needs no memory.
    if flags & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
        return "OOM";
    }
    let probed =
        if is_in_cluster() { call_again(ctx, || probe_own_slot(ctx)) } else { probe(ctx, OwnedStr::new(b"").as_str()) };
    match probed {
        Ok(()) => "no",
        Err(refused) => code_of(&refused),
    }
}

/// Probes with a key of this node, because Valkey 9.1 checks whether a key belongs to another node before it checks
/// whether writes are refused.
fn probe_own_slot(ctx: Ctx<'_>) -> Result<(), Refused> {
    let probe_name = |number: u32| probe(ctx, OwnedStr::new(number.to_string().as_bytes()).as_str());
    let is_on_other_node =
        |probed: &Result<(), Refused>| probed.as_ref().is_err_and(|refused| refused.errno == NOT_MY_SLOT);
    (1..KEYS_TO_TRY)
        .fold(probe_name(0), |probed, number| if is_on_other_node(&probed) { probe_name(number) } else { probed })
}

fn code_of(Refused { errno, message }: &Refused) -> &'static str {
    match *errno {
        // All keys that were tried belong to other nodes: this node has few slots or none.
        NOT_MY_SLOT if is_in_cluster() => "no",
        libc::ENETDOWN | libc::EROFS => "CLUSTERDOWN",
        // Some servers prefix the code with `ERR`.
        _ => ["MISCONF", "NOREPLICAS"]
            .into_iter()
            .find(|code| message.windows(code.len()).any(|part| part == code.as_bytes()))
            .unwrap_or("ERR"),
    }
}

/// Records, after each timer callback, whether due work is held back by the write check.
pub fn record_held_back(is_held_back: bool, now: Instant) {
    let since = WRITE_CHECK.held_back_since.get().unwrap_or(now);
    WRITE_CHECK.held_back_since.set(is_held_back.then_some(since));
}

/// For how many milliseconds due work has been held back; 0: none is.
pub fn held_back_ms(now: Instant) -> u64 {
    WRITE_CHECK.held_back_since.get().map_or(0, |since| now.ms_since(since))
}

/// Checks that a command may use all of these keys in a cluster: the server has only checked the first one.
///
/// # Errors
/// The keys have different slots, or their slot is moving and some of them are on the other node.
pub fn check_slots(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Result<(), ErrorReply> {
    if keys.len() < 2 || !is_in_cluster() {
        return Ok(());
    }
    compare_slots(keys)?;
    check_node(ctx, keys)
}

/// Checks that these keys share a slot. Do this before the module calls the server with them: see [`call_again`].
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

/// Whether this node serves all of these keys, which share a slot. As a side effect this repairs the server's internal
/// client for the next call, if that call has no keys or keys of this slot: see [`call_again`].
///
/// # Errors
/// Their slot is moving, and some of them are on the other node.
pub fn check_node(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Result<(), ErrorReply> {
    if keys.is_empty() || may_read_together(ctx, keys) || call_again(ctx, || may_read_together(ctx, keys)) {
        return Ok(());
    }
    Err(errors::TRY_AGAIN)
}
