//! Applies effects from the primary or the append-only file to the keys of this server.

use lock::value::fence::Fence;
use lock::value::holders::Holder;
use lock::value::lock::Lock;
use lock::value::rebuild::{KeyAfter, ReplicatedEffect};

use super::held_counts;
use super::store::LockKey;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::Str;
use crate::shell::state;

/// Applies an effect unconditionally.
pub fn apply(ctx: Ctx<'_>, name: Str<'_>, effect: ReplicatedEffect<'_>) {
    // SAFETY: the running command has no other key open.
    let mut key = unsafe { LockKey::open(ctx, name) };
    let before = key.lock().and_then(|lock| lock.held_lock_type());
    if matches!(effect, ReplicatedEffect::Hold(..)) && key.lock().is_none() {
        key.set(|| Lock::Vacant);
    }
    let until = key.until();
    let Some(lock) = key.lock() else { return };
    match &effect {
        ReplicatedEffect::Hold(_, Holder { fence, .. }) | ReplicatedEffect::Fence(fence) => raise_fences(*fence),
        ReplicatedEffect::Drop(_)
        | ReplicatedEffect::Ended(_)
        | ReplicatedEffect::Limit(_)
        | ReplicatedEffect::Clamp => {}
    }
    let is_seen_by_watchers = lock.is_changed_by(&effect);
    match lock.apply(effect, until) {
        KeyAfter::Same => {}
        KeyAfter::Until(until) => key.set_until(until),
        KeyAfter::Removed => key.remove(),
    }
    if is_seen_by_watchers {
        ctx.signal_modified(name);
    }
    held_counts::changed(before, key.lock().and_then(|lock| lock.held_lock_type()));
}

/// Makes our own future fencing tokens larger than this one.
fn raise_fences(fence: Fence) {
    state::borrow(|state, _| state.manager.fences.raise(fence));
}
