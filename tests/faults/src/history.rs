//! What clients did and were told, with the times by one clock. Nothing here judges.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::Mode;

/// One request of one client, or one write to the guarded resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Which client: it does one thing after another.
    pub client: usize,
    pub key: String,
    /// The token; no two holds share one.
    pub owner: String,
    pub action: Action,
    /// Since the history began: just before the request was sent.
    pub invoked: Duration,
    /// Since the history began: just after the reply was read, or after the client gave up.
    pub returned: Duration,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Acquire {
        mode: Mode,
        lease: Duration,
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
    /// nil: held by others, or the time to wait ran out.
    NotGranted,
    /// Renewed, released, written.
    Done,
    /// What the register held.
    Value(Option<u64>),
    /// This owner does not hold the lock (0, -1, NOTHELD); or the guarded resource has seen a greater fence.
    NotHeld,
    /// Another error: nothing happened.
    Refused(String),
    /// The connection ended before the reply, or fewer replicas have it than the client asks for: it may have
    /// happened, and may yet.
    Unknown,
}

/// All operations of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
}

impl History {
    pub fn new(mut operations: Vec<Operation>) -> History {
        operations.sort_by_key(|operation| operation.invoked);
        History { operations }
    }

    /// In the order in which they were invoked.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many operations have an outcome that `is_it`.
    pub fn count(&self, is_it: impl Fn(&Outcome) -> bool) -> usize {
        self.operations.iter().filter(|operation| is_it(&operation.outcome)).count()
    }
}

/// Where clients write down what happens, from many threads.
#[derive(Clone)]
pub struct Recorder {
    began: Instant,
    operations: Arc<Mutex<Vec<Operation>>>,
}

impl Recorder {
    #[expect(clippy::new_without_default, reason = "it starts a clock")]
    pub fn new() -> Recorder {
        Recorder { began: Instant::now(), operations: Arc::default() }
    }

    /// Since the history began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn record(&self, operation: Operation) {
        self.operations.lock().expect("nobody panics while it is locked").push(operation);
    }

    /// How many requests were granted so far: something to wait for.
    pub fn grants(&self) -> usize {
        let operations = self.operations.lock().expect("nobody panics while it is locked");
        operations.iter().filter(|operation| matches!(operation.outcome, Outcome::Granted { .. })).count()
    }

    /// What was recorded so far.
    pub fn history(&self) -> History {
        History::new(self.operations.lock().expect("nobody panics while it is locked").clone())
    }
}
