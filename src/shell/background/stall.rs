//! Whether the server stood still, and has heard from its replicas since.
//!
//! While a server is stopped, or its machine is, a replica may take over and grant locks that have ended. The server
//! learns of that some time after it goes on. In between its clients ask at their own risk, but grants that it makes by
//! itself were not asked for: the new grant's fence would be above that of the real holder. So it holds back such
//! grants until each replica that it had has acknowledged data that was sent after the stop: acknowledgements from
//! before prove nothing, they may have been on their way for as long as the stop lasted. A server that is acknowledged
//! as a primary was not replaced. In a cluster only the replicas of a node take over its slots, so this holds there
//! too.
//!
//! A replica that has gone acknowledges nothing: then the grants come when a limit is over.

use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{info_field, OnlineReplicas};
use crate::shell::main_state::MAIN;
use crate::shell::noticed_stall::{AskedReplicas, NoticedStall};

/// A sign of life that comes later than expected by more than this means that the server stood still.
const TOLERANCE_MS: u64 = 500;

/// Grants are held back for at most so long.
const LIMIT_MS: u64 = 2_000;

/// Replicas are asked to acknowledge no more often than this.
const ASK_AGAIN_MS: u64 = 25;

/// The server's cron, `hz` times a second.
pub fn cron(hz: u64) {
    note_life();
    MAIN.stall.period_ms.set(1_000 / hz.max(1));
}

/// A sign of life: notices if the last one is too long ago. To be called before anything is granted without a command.
pub fn note_life() {
    let now = clock::instant();
    let Some(last) = MAIN.stall.last.replace(Some(now)) else { return };
    if now.ms_since(last) > MAIN.stall.period_ms.get() + TOLERANCE_MS {
        let before = MAIN.stall.noticed.get().map_or(0, |stall| stall.replicas);
        let replicas = MAIN.stall.replicas.get().max(before);
        MAIN.stall.noticed.set((replicas > 0).then_some(NoticedStall { since: now, replicas, asked: None }));
    }
}

/// At the module's start, and whenever a replica has come or gone.
pub fn count_replicas(ctx: Ctx<'_>) {
    note_life();
    MAIN.stall.replicas.set(OnlineReplicas::of(ctx).count);
}

/// Whether the server may have been replaced. Asks its replicas if so; the next call may know more.
pub fn holds_back(ctx: Ctx<'_>) -> bool {
    let Some(stall) = MAIN.stall.noticed.get() else { return false };
    let now = clock::instant();
    let is_over = now.ms_since(stall.since) >= LIMIT_MS || has_heard(&stall, ctx);
    if is_over {
        MAIN.stall.noticed.set(None);
    } else if stall.asked.is_none_or(|asked| now.ms_since(asked.last) >= ASK_AGAIN_MS) {
        let offset = || info_field(ctx, c"replication", c"master_repl_offset").unwrap_or(i64::MAX);
        let offset = stall.asked.map_or_else(offset, |asked| asked.offset);
        MAIN.stall.noticed.set(Some(NoticedStall { asked: Some(AskedReplicas { last: now, offset }), ..stall }));
        // An acknowledgement covers only data from before the question. So one question is not enough.
        ctx.ask_replicas();
    }
    !is_over
}

/// Whether all replicas have acknowledged what was sent after the stop.
fn has_heard(stall: &NoticedStall, ctx: Ctx<'_>) -> bool {
    stall.asked.is_some_and(|asked| {
        let replicas = OnlineReplicas::of(ctx);
        replicas.count >= stall.replicas && replicas.least_offset > asked.offset
    })
}
