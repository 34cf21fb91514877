//! A client that waits in a queue, on a separate thread, while the test causes a fault. Its reply is part of the
//! history.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use faults::{Caller, Lock, Mode, Outcome, Recorder};
use support::{until, Server};

use crate::load::route;

/// The first number of clients that are not workers.
const FIRST_NUMBER: usize = 1_000;

/// Longer than any fault.
const BLOCK: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

pub struct Parked {
    waiting: JoinHandle<(Caller, Outcome)>,
    lock: Lock,
    owner: String,
}

/// A client of this server, in addition to the workers.
pub fn caller(server: &Server, recorder: &Recorder) -> Caller {
    Caller::new(FIRST_NUMBER, recorder.clone(), route(server))
}

impl Parked {
    /// Queues a request for a mutex, and returns when it waits or has already been granted.
    #[track_caller]
    pub fn behind(server: &Server, recorder: &Recorder, lock: &Lock, owner: &str) -> Parked {
        let mut caller = caller(server, recorder);
        let (wanted, token) = (lock.clone(), owner.to_string());
        let waiting = thread::spawn(move || {
            let outcome = caller.acquire(&wanted, &token, Mode::Mutex, LEASE, Some(BLOCK));
            (caller, outcome)
        });
        let mut observer = server.client();
        until(&format!("{owner} waits"), || {
            let waiters = observer.cmd(&["LOCK.WAITERS", &lock.key]);
            waiting.is_finished() || waiters.items().iter().any(|waiter| waiter.get("owner").is_bulk(owner))
        });
        Parked { waiting, lock: lock.clone(), owner: owner.into() }
    }

    #[track_caller]
    pub fn assert_waits(&self) {
        assert!(!self.waiting.is_finished(), "{} got its reply: it waited for {}", self.owner, self.lock.key);
    }

    /// Waits until it is granted the lock, and releases it.
    #[track_caller]
    pub fn assert_served(self) {
        until(&format!("{} is served", self.owner), || self.waiting.is_finished());
        let (mut caller, outcome) = self.waiting.join().expect("it does not panic");
        assert!(matches!(outcome, Outcome::Granted { .. }), "{} of {}: {outcome:?}", self.lock.key, self.owner);
        assert_eq!(caller.release(&self.lock, &self.owner, Mode::Mutex), Outcome::Done);
    }
}
