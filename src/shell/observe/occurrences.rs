//! What came of a turn: taken from the rules when it is over, while its command or timer may still publish.

use lock::manager::lock_manager::LockManager;
use lock::manager::occurrence::EndedBy;
use lock::value::time::Now;

use super::durations::{HOLDS, WAITS};
use crate::shell::background::events;
use crate::shell::ffi::context::Ctx;
use crate::shell::keyspace::removals;

/// Takes what a turn has brought.
#[inline]
pub fn take(ctx: Ctx<'_>, manager: &mut LockManager, now: &Now) {
    for (key, owner, fence) in removals::take_rest() {
        manager.hold_removed(now, key.as_ref(), &owner, fence, EndedBy::LeaseEnd);
    }
    if !manager.samples.is_empty() {
        take_samples(manager, now);
    }
    if !manager.occurrences.is_empty() {
        take_occurrences(ctx, manager);
    }
}

#[inline(never)]
fn take_samples(manager: &mut LockManager, now: &Now) {
    let now = now.instant();
    let held = |ms| {
        HOLDS.add(now, ms);
        events::set_sampling(false);
    };
    manager.samples.take(|ms| WAITS.add(now, ms), held);
}

/// Out of line: nothing is told of most turns.
#[cold]
fn take_occurrences(_: Ctx<'_>, manager: &mut LockManager) {
    manager.occurrences.take();
}
