//! The task of a load, and the operations that a peer's client must provide for it.

use std::error::Error;
use std::time::Duration;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The task, passed by the run as `name=value` arguments.
#[derive(Clone, Debug)]
pub struct Task {
    pub work: Work,
    /// Hosts and ports, separated by commas.
    pub endpoints: String,
    pub owners: u64,
    /// The number of connections, or the client's equivalent, shared by the owners.
    pub links: u64,
    pub first: u64,
    pub locks: u64,
    pub lease: Duration,
    /// The pause between two locks that one owner acquires and keeps.
    pub pace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Each owner acquires and releases one of the locks, repeatedly.
    Cycle,
    /// The same, but all of them wait for the first lock before it starts.
    Queue,
    /// Each owner acquires locks that no other owner requests, and keeps them.
    Hold,
    /// Like hold, but only locks that are free at once.
    Try,
    /// Each owner acquires and releases all of the locks, one after the other.
    Sweep,
}

impl Task {
    pub fn parse(words: &[String]) -> Outcome<Task> {
        let find = |name: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| format!("{name}=… is missing"))
        };
        let number = |name: &str| Outcome::Ok(find(name)?.parse::<u64>()?);
        Ok(Task {
            work: match find("work")? {
                "cycle" => Work::Cycle,
                "queue" => Work::Queue,
                "hold" => Work::Hold,
                "try" => Work::Try,
                "sweep" => Work::Sweep,
                other => return Err(format!("unknown work {other}").into()),
            },
            endpoints: find("endpoints")?.into(),
            owners: number("owners")?,
            links: number("links")?,
            first: number("first")?,
            locks: number("locks")?,
            lease: Duration::from_secs(number("lease")?),
            pace: Duration::from_millis(number("pace")?),
        })
    }

    pub fn words(&self) -> Vec<String> {
        let work = match self.work {
            Work::Cycle => "cycle",
            Work::Queue => "queue",
            Work::Hold => "hold",
            Work::Try => "try",
            Work::Sweep => "sweep",
        };
        vec![
            format!("work={work}"),
            format!("endpoints={}", self.endpoints),
            format!("owners={}", self.owners),
            format!("links={}", self.links),
            format!("first={}", self.first),
            format!("locks={}", self.locks),
            format!("lease={}", self.lease.as_secs()),
            format!("pace={}", self.pace.as_millis()),
        ]
    }
}

/// A connection, a session, a client: what one process of this peer's users has.
pub trait Link: Sized + 'static {
    type Owner: Owner;
    async fn connect(task: &Task, kind: &str) -> Outcome<Self>;
    async fn owner(&self) -> Outcome<Self::Owner>;
}

/// One thread or task that acquires locks.
pub trait Owner: 'static {
    type Held: 'static;
    /// Waits until the lock is granted; returns the fencing token, 0 if there is none.
    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, Self::Held)>;
    /// Returns None if it is held by another owner.
    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, Self::Held)>>;
    async fn release(&mut self, held: Self::Held) -> Outcome<()>;
    /// Whether the client has reported the loss of the lock.
    fn is_lost(&self, _: &Self::Held) -> bool {
        false
    }
}

/// The clock of the run and of its loads, in Rust and in Java: monotonic, in nanoseconds.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time, which outlives it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
