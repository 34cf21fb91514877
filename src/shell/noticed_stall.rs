//! What `background/stall` has noticed.

use lock::value::time::Instant;

/// The server stood still, and has not heard from all of its replicas since.
#[derive(Clone, Copy)]
pub struct NoticedStall {
    /// When it was noticed.
    pub since: Instant,
    /// How many replicas there were.
    pub replicas: usize,
    pub asked: Option<AskedReplicas>,
}

/// The replicas were asked.
#[derive(Clone, Copy)]
pub struct AskedReplicas {
    pub last: Instant,
    /// The offset of replication when they were asked first. A replica with a larger offset has it since.
    pub offset: i64,
}
