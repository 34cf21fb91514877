//! The INFO section `lock`, counted as things happen, never scanned. The field names are API.

use lock::value::claim::LockType;
use lock::value::fence::Fence;
use redis_module::raw;

use crate::shell::background::{events, timer, write_check};
use crate::shell::ffi::context::guard;
use crate::shell::ffi::module::Section;
use crate::shell::figures::{Percentiles, FIGURES};
use crate::shell::keyspace::{held_counts, removals};
use crate::shell::state::{self, State};
use crate::shell::{adopt, clock};

/// The server is collecting INFO.
///
/// # Safety
/// Only the server may call it.
pub unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: i32) {
    // In a crash report this runs in a signal handler, on any thread, at any point.
    if for_crash_report != 0 {
        return;
    }
    guard("INFO", || {
        // SAFETY: the server passed it to this callback.
        let Some(section) = (unsafe { Section::begin(info) }) else { return };
        section.text("version", env!("CARGO_PKG_VERSION"));
        let may_schedule = events::is_any();
        // An INFO during an engine pass gets only the version.
        state::borrow(|state, _| write(&section, state));
        if may_schedule {
            timer::wake();
        }
    });
}

fn write(section: &Section, state: &State) {
    let manager = &state.manager;
    let statistics = &manager.observer.statistics;
    let held = held_counts::stored(statistics.stored());
    let now = clock::instant();
    let grace_ms = manager.grace_ends().map_or(0, |ends| ends.ms_since(now));
    let own = timer::own_context();
    let may_evict = own.is_some_and(|ctx| ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT));
    section.text("acquires_refused", own.map_or("no", write_check::acquires_refused));
    for (name, number) in [
        ("held_mutex", *held.of(LockType::Mutex)),
        ("held_reentrant", *held.of(LockType::Reentrant)),
        ("held_rw", *held.of(LockType::ReadWrite)),
        ("held_semaphore", *held.of(LockType::Semaphore)),
        ("waiters", manager.queues().waiters() as u64),
        ("kept_places", manager.queues().reserved_positions() as u64),
        ("sessions", manager.bindings().len() as u64),
        ("last_fence", manager.fences.last().map_or(0, Fence::get)),
        ("grace_remaining_ms", grace_ms),
        ("held_back_ms", write_check::held_back_ms(now)),
        ("eviction_risk", u64::from(may_evict)),
        ("grants_immediate", statistics.grants_immediate()),
        ("grants_after_wait", statistics.grants_after_wait),
        ("not_granted", statistics.not_granted),
        ("wait_timeouts", statistics.wait_timeouts),
        ("cancelled", statistics.cancelled),
        ("superseded", statistics.superseded),
        ("coalesced", statistics.coalesced),
        ("deadlocks", statistics.deadlocks),
        ("max_waiters_refusals", statistics.max_waiters_refusals),
        ("grace_refusals", statistics.grace_refusals),
        ("releases", statistics.releases() + adopt::released()),
        ("renewals", statistics.renewals),
        ("leases_expired", statistics.leases_expired + removals::expired()),
        ("broken", statistics.broken),
        ("undelivered_grants", statistics.undelivered_grants),
        ("effects_not_applied", statistics.effects_not_applied),
        ("execs", statistics.execs),
        ("execs_not_held", statistics.execs_not_held),
        ("adopted_acquires", statistics.adopted_acquires),
        ("adopted_refusals", statistics.adopted_refusals),
        ("adopted_protected", statistics.adopted_protected),
    ] {
        section.number(name, number);
    }
    let Percentiles { p50, p99, p999, max } = FIGURES.waits.borrow_mut().percentiles(now);
    for (name, ms) in [("wait_ms_p50", p50), ("wait_ms_p99", p99), ("wait_ms_p999", p999), ("wait_ms_max", max)] {
        section.number(name, ms);
    }
    let mut longest_us = FIGURES.longest_pass.borrow_mut();
    section.number("longest_turn_us", longest_us.both(now).into_iter().copied().max().unwrap_or(0));
}
