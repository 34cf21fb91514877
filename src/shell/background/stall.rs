//! Detects whether the server was paused, and whether its replicas have acknowledged data since.
//!
//! While a server or its machine is paused, a replica may take over and grant locks that have expired. The paused
//! server learns of that only some time after it resumes. Until then, clients that send requests do so at their own
//! risk, but no client requested the hand-offs that the server makes by itself, and their fencing tokens would be above
//! that of the real holder. So the server holds such hand-offs back until each replica that it had has acknowledged
//! data sent after the pause. Earlier acknowledgements prove nothing, because they may have been in transit during the
//! whole pause. A server that is acknowledged as a primary was not replaced. This holds in a cluster too, where only
//! the replicas of a node take over its slots.
//!
//! A replica that is gone acknowledges nothing, so the hand-offs proceed after a time limit.

use std::cell::Cell;

use lock::value::time::Instant;

use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server::{info_field, OnlineReplicas};

/// A sign of life that is late by more than this means that the server was paused.
const TOLERANCE_MS: u64 = 500;

/// The longest time for which hand-offs are held back.
const LIMIT_MS: u64 = 2_000;

/// The shortest time between two requests for acknowledgement.
const ASK_AGAIN_MS: u64 = 25;

static STALL: MainThread<Stall> = MainThread::new(Stall {
    last: Cell::new(None),
    period_ms: Cell::new(1_000),
    replicas: Cell::new(0),
    detected: Cell::new(None),
});

/// Whether the server was paused.
struct Stall {
    /// When the module was last called by the server's cron, by its timer or for a replica.
    last: Cell<Option<Instant>>,
    /// The interval of the server's cron.
    period_ms: Cell<u64>,
    replicas: Cell<usize>,
    detected: Cell<Option<DetectedStall>>,
}

/// The server was paused, and not all of its replicas have acknowledged data since.
#[derive(Clone, Copy)]
struct DetectedStall {
    /// When it was detected.
    since: Instant,
    /// How many replicas there were.
    replicas: usize,
    ack_request: Option<AckRequest>,
}

/// The replicas were asked to acknowledge.
#[derive(Clone, Copy)]
struct AckRequest {
    last: Instant,
    /// The replication offset at the first request. A replica with a larger offset has acknowledged data since.
    offset: i64,
}

pub fn cron(hz: u64) {
    record_sign_of_life();
    STALL.period_ms.set(1_000 / hz.max(1));
}

/// A sign of life: checks how long ago the last one was. Call it before granting anything without a command.
pub fn record_sign_of_life() {
    let now = clock::instant();
    let Some(last) = STALL.last.replace(Some(now)) else { return };
    if now.ms_since(last) > STALL.period_ms.get() + TOLERANCE_MS {
        let before = STALL.detected.get().map_or(0, |stall| stall.replicas);
        let replicas = STALL.replicas.get().max(before);
        STALL.detected.set((replicas > 0).then_some(DetectedStall { since: now, replicas, ack_request: None }));
    }
}

/// Call at module start and whenever a replica connects or disconnects.
pub fn count_replicas(ctx: Ctx<'_>) {
    record_sign_of_life();
    STALL.replicas.set(OnlineReplicas::of(ctx).count);
}

/// Whether the server may have been replaced. If so, asks its replicas; a later call may have the result.
pub fn holds_back(ctx: Ctx<'_>) -> bool {
    let Some(stall) = STALL.detected.get() else { return false };
    let now = clock::instant();
    let is_over = now.ms_since(stall.since) >= LIMIT_MS || has_acknowledged(&stall, ctx);
    if is_over {
        STALL.detected.set(None);
    } else if stall.ack_request.is_none_or(|ack_request| now.ms_since(ack_request.last) >= ASK_AGAIN_MS) {
        let offset = || info_field(ctx, c"replication", c"master_repl_offset").unwrap_or(i64::MAX);
        let offset = stall.ack_request.map_or_else(offset, |ack_request| ack_request.offset);
        STALL.detected.set(Some(DetectedStall { ack_request: Some(AckRequest { last: now, offset }), ..stall }));
        // An acknowledgement only covers data from before the request for it, so one request is not enough.
        ctx.ask_replicas();
    }
    !is_over
}

/// Whether all replicas have acknowledged data that was sent after the pause.
fn has_acknowledged(stall: &DetectedStall, ctx: Ctx<'_>) -> bool {
    stall.ack_request.is_some_and(|ack_request| {
        let replicas = OnlineReplicas::of(ctx);
        replicas.count >= stall.replicas && replicas.least_offset > ack_request.offset
    })
}
