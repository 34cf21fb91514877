//! Clients with a fixed role in a scenario: one holds a lock on the old primary, the other requests it on the new one.
//! So each judge has something to see, whatever the workers happen to do.

use std::sync::Arc;
use std::time::Duration;

use faults::{Caller, Kind, Lock, Mode, Outcome, Recorder, Route};

/// A lease that is longer than any scenario.
pub const LONG: Duration = Duration::from_secs(3_600);

/// How long a witness waits, in the queue and for a late reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub fn witnessed() -> Lock {
    Lock::new("witnessed", Kind::Mutex)
}

/// One of these clients.
pub struct Witness {
    pub caller: Caller,
    lock: Lock,
    owner: String,
}

impl Witness {
    pub fn new(number: usize, owner: String, recorder: &Recorder, route: Arc<dyn Route>) -> Witness {
        Witness { caller: Caller::new(number, recorder.clone(), route), lock: witnessed(), owner }
    }

    /// Uses another lock.
    pub fn of(mut self, lock: Lock) -> Witness {
        self.lock = lock;
        self
    }

    /// Waits in the queue.
    pub fn acquire(&mut self, lease: Duration) -> Outcome {
        self.caller.acquire(&self.lock, &self.owner, Mode::Mutex, lease, Some(REPLY_TIMEOUT))
    }

    pub fn try_acquire(&mut self, lease: Duration) -> Outcome {
        self.caller.acquire(&self.lock, &self.owner, Mode::Mutex, lease, None)
    }

    pub fn renew(&mut self, lease: Duration) -> Outcome {
        self.caller.renew(&self.lock, &self.owner, Mode::Mutex, lease)
    }

    pub fn release(&mut self) -> Outcome {
        self.caller.release(&self.lock, &self.owner, Mode::Mutex)
    }
}
