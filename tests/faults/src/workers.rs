//! Clients that contend for locks while faults happen: each acquires a lock, uses it, releases it, and retries with the
//! same token whatever was lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::{Rng, LIMIT};

use crate::caller::{Caller, Route, Wait};
use crate::guarded::Guarded;
use crate::history::{History, Outcome, Recorder};
use crate::lock::{Kind, Lock, Mode};

/// The pause between a refused request and the next: polling must not keep a server from starting.
const PACE: Duration = Duration::from_millis(5);

/// How many used tokens a worker remembers, to write with one of them too late.
const FORMER: usize = 3;

/// What the workers do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: usize,
    pub locks: Vec<Lock>,
    /// The lease of every request.
    pub lease: Duration,
    /// How long one request waits in the queue before the next follows.
    pub block: Duration,
    /// The longest time that a lock is held between two requests.
    pub hold: Duration,
    /// How much longer than `block` it waits for a reply.
    pub reply_timeout: Duration,
    /// What must confirm a worker's writes in addition to the reply. None: the reply is enough.
    pub wait: Option<Wait>,
    /// In one of this many rounds the client dies while holding, and the lock expires. 0: never.
    pub die_one_in: usize,
    /// The seed of all random choices, together with a worker's number.
    pub seed: u64,
}

impl Plan {
    /// Eight workers, three mutexes, one lock of each other type.
    pub fn mixed() -> Plan {
        let mutexes = (0..3).map(|number| Lock::new(format!("mutex-{number}"), Kind::Mutex));
        let others = [
            Lock::new("reentrant", Kind::Reentrant),
            Lock::new("read-write", Kind::ReadWrite),
            Lock::new("semaphore", Kind::Semaphore { limit: 2 }),
        ];
        Plan {
            workers: 8,
            locks: mutexes.chain(others).collect(),
            lease: Duration::from_secs(2),
            block: Duration::from_millis(200),
            hold: Duration::from_millis(10),
            reply_timeout: Duration::from_secs(2),
            wait: None,
            die_one_in: 0,
            seed: 1,
        }
    }

    /// Adds a lock for native clients and clients of other lock libraries. Its servers need [`ADOPT`](crate::ADOPT).
    pub fn with_adopted(mut self, key: &str) -> Plan {
        self.locks.push(Lock::new(key, Kind::Adopted));
        self
    }
}

/// Running workers, each on its own thread.
pub struct Workers {
    recorder: Recorder,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them; `route` is asked for the address of each request.
    pub fn start(plan: &Plan, recorder: &Recorder, route: Arc<dyn Route>) -> Workers {
        Workers::start_each(plan, recorder, |_| route.clone())
    }

    /// [`Workers::start`] with a separate route for each worker number.
    pub fn start_each(plan: &Plan, recorder: &Recorder, route: impl Fn(usize) -> Arc<dyn Route>) -> Workers {
        let stopping = Arc::new(AtomicBool::new(false));
        let guarded = Arc::new(Guarded::default());
        let threads = (0..plan.workers).map(|number| {
            let worker = Worker {
                caller: Caller::new(number, recorder.clone(), route(number))
                    .reply_timeout(plan.reply_timeout)
                    .wait(plan.wait),
                rng: Rng::with_seed(plan.seed.wrapping_mul(7919).wrapping_add(number as u64)),
                plan: plan.clone(),
                guarded: guarded.clone(),
                stopping: stopping.clone(),
                values: 0,
                former: Vec::new(),
            };
            thread::spawn(move || worker.run())
        });
        Workers { recorder: recorder.clone(), stopping: stopping.clone(), threads: threads.collect() }
    }

    /// Waits until that many more requests have been granted, so that the servers are known to work.
    #[track_caller]
    pub fn wait_for_grants(&self, more: usize) {
        let enough = self.recorder.grants() + more;
        let started = Instant::now();
        while self.recorder.grants() < enough {
            assert!(started.elapsed() < LIMIT, "no {more} grants in {LIMIT:?}");
            thread::sleep(PACE);
        }
    }

    /// Lets every worker release what it holds, and returns the history. Heal all faults first: a worker that gets no
    /// reply fails the test.
    #[track_caller]
    pub fn stop(mut self) -> History {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a worker got its replies until the end");
        }
        self.recorder.history()
    }
}

/// If a scenario fails, its workers end by themselves.
impl Drop for Workers {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

struct Worker {
    caller: Caller,
    rng: Rng,
    plan: Plan,
    guarded: Arc<Guarded>,
    stopping: Arc<AtomicBool>,
    /// How many values it has written; all are different.
    values: u64,
    /// Tokens with which it has written and may not write any more.
    former: Vec<(Lock, String)>,
}

/// A lock that this worker holds.
struct Held<'a> {
    lock: &'a Lock,
    owner: &'a str,
    mode: Mode,
    fence: i64,
    /// In this worker's own clock.
    deadline: Duration,
}

impl Worker {
    fn run(mut self) {
        let mut iteration = 0;
        while !self.is_stopping() {
            iteration += 1;
            let lock = self.rng.pick(&self.plan.locks).clone();
            let mode = *self.rng.pick(&lock.kind.modes());
            let owner = format!("{}-{iteration}", self.caller.number());
            if let Some((fence, deadline)) = self.acquire(&lock, &owner, mode) {
                self.hold(Held { lock: &lock, owner: &owner, mode, fence, deadline });
                match self.plan.die_one_in {
                    one_in if one_in > 0 && self.rng.one_in(one_in) => self.caller.disconnect(),
                    _ => self.release(&lock, &owner, mode),
                }
                if mode.is_exclusive() {
                    self.former.push((lock, owner));
                }
            }
            self.write_late();
        }
    }

    /// Requests the lock with the same token until it is granted; returns its fencing token, and until when it is held.
    /// None if the workers are to stop.
    fn acquire(&mut self, lock: &Lock, owner: &str, mode: Mode) -> Option<(i64, Duration)> {
        let (lease, block) = (self.plan.lease, self.plan.block);
        let mut end = End::default();
        loop {
            let deadline = self.caller.recorder().now() + lease;
            match self.caller.acquire(lock, owner, mode, lease, Some(block)) {
                Outcome::Granted { fence } => return Some((fence, deadline)),
                // Nothing is held, and no earlier request is still in flight.
                Outcome::NotGranted if self.is_stopping() => return None,
                // An adopted client polls.
                Outcome::NotGranted if mode == Mode::Adopted => thread::sleep(PACE),
                Outcome::NotGranted => {}
                _ => thread::sleep(PACE),
            }
            end.assert_in_time(self.is_stopping(), "acquire", lock);
        }
    }

    /// Uses the lock until it releases it, or a reply says that it does not hold it.
    fn hold(&mut self, mut held: Held) {
        let steps = 2 + self.rng.below(3);
        for _ in 0..steps {
            let still_holds = match (self.rng.below(4), held.mode) {
                (0, _) => self.renew(&mut held),
                (1, mode) if mode.is_exclusive() => {
                    let value = self.next_value();
                    self.retry_until_reply(&held, |caller| caller.write(held.lock, held.owner, value))
                }
                (2, mode) if mode.is_exclusive() => {
                    let value = self.next_value();
                    let Held { lock, owner, fence, .. } = held;
                    self.caller.write_by_fence(&self.guarded, lock, owner, fence, value) == Outcome::Done
                }
                _ => self.retry_until_reply(&held, |caller| caller.read(held.lock, held.owner)),
            };
            if !still_holds {
                return;
            }
            let longest_us = usize::try_from(self.plan.hold.as_micros()).expect("a lock is held for a while");
            thread::sleep(Duration::from_micros(self.rng.below(longest_us + 1) as u64));
        }
    }

    fn renew(&mut self, held: &mut Held) -> bool {
        let lease = self.plan.lease;
        let deadline = self.caller.recorder().now() + lease;
        match self.caller.renew(held.lock, held.owner, held.mode, lease) {
            Outcome::Done => held.deadline = deadline,
            Outcome::NotHeld => return false,
            _ => thread::sleep(PACE),
        }
        true
    }

    /// Sends requests until the server replies or the lease has expired by this worker's clock. Returns whether it
    /// still holds the lock.
    fn retry_until_reply(&mut self, held: &Held, mut ask: impl FnMut(&mut Caller) -> Outcome) -> bool {
        while self.caller.recorder().now() < held.deadline {
            match ask(&mut self.caller) {
                Outcome::Done | Outcome::Value(_) => return true,
                Outcome::NotHeld => return false,
                _ => thread::sleep(PACE),
            }
        }
        false
    }

    fn release(&mut self, lock: &Lock, owner: &str, mode: Mode) {
        let mut end = End::default();
        while !matches!(self.caller.release(lock, owner, mode), Outcome::Done | Outcome::NotHeld) {
            thread::sleep(PACE);
            end.assert_in_time(self.is_stopping(), "release", lock);
        }
    }

    /// Now and then a client writes as if it had been paused while its lock was granted to another.
    fn write_late(&mut self) {
        if self.former.len() < FORMER || self.rng.one_in(2) {
            return;
        }
        let which = self.rng.below(self.former.len());
        let (lock, owner) = self.former.swap_remove(which);
        let value = self.next_value();
        self.caller.write(&lock, &owner, value);
    }

    fn next_value(&mut self) -> u64 {
        self.values += 1;
        (self.caller.number() as u64 + 1) * 1_000_000_000 + self.values
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The end of a run, as seen by one worker.
#[derive(Default)]
struct End {
    since: Option<Instant>,
}

impl End {
    /// Faults are healed before workers stop: from then on each request must get its reply in time.
    fn assert_in_time(&mut self, is_stopping: bool, command: &str, lock: &Lock) {
        if is_stopping {
            let since = self.since.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < LIMIT, "{command} of {}: no reply in {LIMIT:?} after the last fault", lock.key);
        }
    }
}
