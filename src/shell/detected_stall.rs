//! A pause of the server that `background/stall` has detected.

use lock::value::time::Instant;

/// The server was paused, and not all of its replicas have acknowledged data since.
#[derive(Clone, Copy)]
pub struct DetectedStall {
    /// When it was detected.
    pub since: Instant,
    /// How many replicas there were.
    pub replicas: usize,
    pub ack_request: Option<AckRequest>,
}

/// The replicas were asked to acknowledge.
#[derive(Clone, Copy)]
pub struct AckRequest {
    pub last: Instant,
    /// The replication offset at the first request. A replica with a larger offset has acknowledged data since.
    pub offset: i64,
}
