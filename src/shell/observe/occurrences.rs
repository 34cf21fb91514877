//! What came of a turn: taken from the rules when it is over, while its command or timer may still publish.

use command::lock_log::LockLog;
use lock::manager::lock_manager::LockManager;
use lock::value::time::Now;

use super::report::Reporter;
use crate::shell::background::events;
use crate::shell::clients::waiting_clients::WaitingClients;
use crate::shell::ffi::context::Ctx;
use crate::shell::keyspace::removals;
use crate::shell::main_state::MAIN;

/// Takes what a turn has brought.
#[inline]
pub fn take(ctx: Ctx<'_>, now: &Now, manager: &mut LockManager, clients: &mut WaitingClients, log: &mut LockLog) {
    for (key, owner, fence) in removals::take_rest() {
        manager.hold_expired(now, key.as_ref(), &owner, fence);
    }
    if !manager.samples.is_empty() {
        take_samples(manager, now);
    }
    if !manager.occurrences.is_empty() {
        take_occurrences(ctx, now, manager, clients, log);
    }
    clients.forget_granted();
}

#[inline(never)]
fn take_samples(manager: &mut LockManager, now: &Now) {
    let now = now.instant();
    let held = |ms| {
        MAIN.figures.holds.borrow_mut().add(now, ms);
        events::set_sampling(false);
    };
    manager.samples.take(|ms| MAIN.figures.waits.borrow_mut().add(now, ms), held);
}

/// Out of line: nothing is told of most turns.
#[cold]
fn take_occurrences(ctx: Ctx<'_>, now: &Now, manager: &mut LockManager, clients: &WaitingClients, log: &mut LockLog) {
    let mut reporter = Reporter { ctx, now, observe: manager.limits.observe, clients, log, told: None, named: None };
    manager.occurrences.take().into_iter().for_each(|occurrence| reporter.tell(occurrence));
}
