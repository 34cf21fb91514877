//! What a load has to do, and what the client of a peer has to be able to do for it.

use std::error::Error;
use std::time::Duration;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// What to do, as the run says it: `name=value` each.
#[derive(Clone, Debug)]
pub struct Task {
    pub work: Work,
    /// Host and port, with commas.
    pub endpoints: String,
    pub owners: u64,
    /// Connections, or whatever the client has for one: owners share them in turns.
    pub links: u64,
    pub first: u64,
    pub locks: u64,
    pub lease: Duration,
    /// Between two locks that one owner takes and keeps.
    pub pace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Each owner takes one of the locks and releases it, again and again.
    Cycle,
    /// The same, and all of them wait for the first lock before it begins.
    Queue,
    /// Each owner takes locks that no other owner takes, and keeps them.
    Hold,
    /// As hold, of what is free at once.
    Try,
    /// Each owner takes all of the locks, one after the other, and releases each.
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
                other => return Err(format!("there is no work {other}").into()),
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

/// One line of execution that takes locks.
pub trait Owner: 'static {
    type Held: 'static;
    /// Waits for as long as that takes; and the number for fencing, 0 where there is none.
    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, Self::Held)>;
    /// None: it is held by another.
    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, Self::Held)>>;
    async fn release(&mut self, held: Self::Held) -> Outcome<()>;
    /// Whether the client has told its user that the lock is lost.
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
