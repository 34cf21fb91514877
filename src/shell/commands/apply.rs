//! `LOCK.APPLY key …`: an effect from the primary or the append-only file. Refused to every client.

use command::effect::decode;
use command::errors::{self, ErrorReply};
use lock::key::KeyRef;
use lock::value::fence::Fence;
use lock::value::holders::Holder;
use lock::value::lock::Lock;
use lock::value::received::{KeyAfter, Received};
use lock::value::time::Deadline;
use redis_module::raw;

use super::arguments::Arguments;
use crate::shell::background::{events, gate};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::Str;
use crate::shell::keyspace::held;
use crate::shell::keyspace::lock_key::LockKey;
use crate::shell::state;

/// Runs the command.
pub fn run(ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    if gate::is_probing() {
        ctx.reply_ok();
        return Ok(());
    }
    let trusted = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
    if !ctx.has_flag(trusted) {
        return Err(errors::APPLY_IS_INTERNAL);
    }
    apply(ctx, args.strings[1], decode(&args.bytes[2..]).ok_or(errors::SYNTAX)?);
    // What a replica was told, it tells its own replicas and its own append-only file.
    ctx.replicate_verbatim();
    ctx.reply_ok();
    Ok(())
}

fn apply(ctx: Ctx<'_>, name: Str<'_>, effect: Received<'_>) {
    // SAFETY: the command that runs opens no other key.
    let mut key = unsafe { LockKey::open(ctx, name) };
    let before = key.lock().and_then(|lock| lock.held_family());
    if matches!(effect, Received::Hold(..)) && key.lock().is_none() {
        key.set(|| Lock::Vacant);
    }
    let until = key.until();
    let Some(lock) = key.lock() else { return };
    match &effect {
        Received::Hold(_, Holder { fence, .. }) | Received::Fence(fence) => raise_fences(*fence),
        Received::Drop(_) | Received::Limit(_) | Received::Clamp(_) => {}
    }
    let is_seen_by_watchers = matches!(effect, Received::Hold(..) | Received::Drop(_) | Received::Limit(_));
    match lock.apply(effect, until) {
        KeyAfter::Same => {}
        KeyAfter::Until(until) => key.set_until(until),
        KeyAfter::Removed => key.remove(),
    }
    if is_seen_by_watchers {
        ctx.signal_modified(name);
    }
    held::changed(before, key.lock().and_then(|lock| lock.held_family()));
    note_holders(ctx, name, &mut key);
}

/// Whoever becomes the primary knows which leases it has to end.
fn note_holders(ctx: Ctx<'_>, name: Str<'_>, key: &mut LockKey<'_>) {
    let has_several_holders = key.lock().is_some_and(|lock| lock.has_several_holders());
    let until = if has_several_holders { key.until() } else { Deadline::Never };
    let ends = key.lock().and_then(|lock| lock.several_ends(until));
    if ends.is_some() || events::concern_several() {
        let name = KeyRef { db: ctx.db(), name: name.bytes() };
        state::borrow(|state, _| state.manager.applied(name, ends));
    }
}

/// Fences of our own grants will be above it.
fn raise_fences(fence: Fence) {
    state::borrow(|state, _| state.manager.fences.raise(fence));
}
