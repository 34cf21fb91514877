//! The requests and replies of clients, with times of a single clock. Nothing here judges.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::lock::Mode;

/// One request of one client, or one write to the guarded resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The client, which does one thing after another.
    pub client: usize,
    pub key: String,
    /// Its owner ID; no two holds share one.
    pub owner: String,
    pub action: Action,
    /// Since the history began, just before the request was sent.
    pub invoked: Duration,
    /// Since the history began, just after the reply was read, or after the client gave up.
    pub returned: Duration,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Acquire {
        mode: Mode,
        lease: Duration,
        /// How long the request waits in the queue; None: it does not wait.
        block: Option<Duration>,
    },
    Renew {
        mode: Mode,
        lease: Duration,
    },
    Release {
        mode: Mode,
    },
    /// `LOCK.EXEC … SET` of the lock's register.
    Write {
        value: u64,
    },
    /// `LOCK.EXEC … GET` of the lock's register.
    Read,
    /// A write to [`Guarded`](crate::Guarded), outside the server.
    WriteByFence {
        fence: i64,
        value: u64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Granted {
        fence: i64,
    },
    /// nil: other owners hold it, or the wait timed out.
    NotGranted,
    /// Renewed, released, written.
    Done,
    Value(Option<u64>),
    /// This owner does not hold the lock (0, -1, NOTHELD), or the guarded resource has seen a larger fencing token.
    NotHeld,
    /// Another error: nothing happened.
    Refused(String),
    /// The connection closed before the reply, or fewer replicas have it than the client requires: it may have
    /// happened, or may still happen.
    Unknown,
}

/// One snapshot of a key's queue. All times are since the history began.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    pub key: String,
    pub invoked: Duration,
    pub returned: Duration,
    /// The owners that waited, in queue order.
    pub waiters: Vec<String>,
}

/// Everything recorded in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    looks: Vec<Look>,
    server_time: ServerTime,
}

/// How much time the server had for its work, by time since the history began. Time taken by a busy machine or a stop
/// does not count. See [`support::Stopwatch`].
#[derive(Clone, Debug, Default)]
pub struct ServerTime(Vec<(Duration, Duration)>);

impl ServerTime {
    /// Readings `(time since the history began, time the server has had until then)`, in order.
    pub fn new(readings: Vec<(Duration, Duration)>) -> ServerTime {
        ServerTime(readings)
    }

    /// The minimum time that the server slept or worked between two times. Zero if there are no readings.
    pub fn between(&self, from: Duration, to: Duration) -> Duration {
        let first = self.0.partition_point(|(time, _)| *time < from);
        let end = self.0.partition_point(|(time, _)| *time <= to);
        match self.0.get(first..end) {
            Some([(_, first), .., (_, last)]) => *last - *first,
            _ => Duration::ZERO,
        }
    }
}

impl History {
    pub fn new(mut operations: Vec<Operation>) -> History {
        operations.sort_by_key(|operation| operation.invoked);
        History { operations, ..History::default() }
    }

    /// Adds what an [`Observer`](crate::Observer) saw.
    pub fn observed(mut self, looks: Vec<Look>, server_time: ServerTime) -> History {
        self.looks = looks;
        self.server_time = server_time;
        self
    }

    pub fn looks(&self) -> &[Look] {
        &self.looks
    }

    pub fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// In the order in which they were invoked.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many operations have an outcome for which `is_it` is true.
    pub fn count(&self, is_it: impl Fn(&Outcome) -> bool) -> usize {
        self.operations.iter().filter(|operation| is_it(&operation.outcome)).count()
    }
}

/// Records the operations of clients on many threads.
#[derive(Clone)]
pub struct Recorder {
    began: Instant,
    records: Arc<Mutex<Records>>,
}

#[derive(Default)]
struct Records {
    operations: Vec<Operation>,
    grants: usize,
    broken: usize,
    looks: Vec<Look>,
    server_time: Vec<(Duration, Duration)>,
}

impl Recorder {
    #[expect(clippy::new_without_default, reason = "it starts a clock")]
    pub fn new() -> Recorder {
        Recorder { began: Instant::now(), records: Arc::default() }
    }

    /// Since the history began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn record(&self, operation: Operation) {
        let mut records = self.records();
        records.grants += usize::from(matches!(operation.outcome, Outcome::Granted { .. }));
        records.operations.push(operation);
    }

    pub fn record_look(&self, look: Look) {
        self.records().looks.push(look);
    }

    /// The server has had `counted` for its work so far.
    pub fn record_server_time(&self, counted: Duration) {
        let mut records = self.records();
        let now = self.now();
        records.server_time.push((now, counted));
    }

    /// A connection closed before the reply arrived; timeouts do not count.
    pub fn connection_broke(&self) {
        self.records().broken += 1;
    }

    /// How many connections closed in this way. No server closes one by itself, however slow its machine is.
    pub fn broken(&self) -> usize {
        self.records().broken
    }

    /// How many requests have been granted so far, to wait for progress.
    pub fn grants(&self) -> usize {
        self.records().grants
    }

    /// How many requests have been completed so far, with or without a reply, to wait for progress where none can be
    /// granted.
    pub fn requests(&self) -> usize {
        self.records().operations.len()
    }

    /// What has been recorded so far.
    pub fn history(&self) -> History {
        let records = self.records();
        History::new(records.operations.clone())
            .observed(records.looks.clone(), ServerTime::new(records.server_time.clone()))
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("no panic while it is locked")
    }
}
