//! The load: owners that acquire locks of one peer and record the times. It is a separate process, so that its cost is
//! separate from the servers and the run, and so that it can be killed. `peers/java/Load.java`, `peers/go/main.go` and
//! `peers/python/load.py` are the same program in other languages.
//!
//! Prints `ready`, waits for `go`, works until `stop`, then prints the grants. It does not evaluate them.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::{spawn_local, LocalSet};

use crate::peers::{etcd, postgres, redis_lock, set_lua};
use crate::task::{now, Link, Outcome, Owner, Task, Work};

/// Each link acquires a separate lock above this number once, to check that the servers respond. Each attempt uses a
/// different lock, because a failed attempt may hold its lock until the lease expires.
const TRIAL_LOCK: u64 = 90_000;
const TRIAL_LOCKS: u64 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn main(words: &[String]) -> Outcome<()> {
    let kind = words.first().ok_or("load KIND name=value…")?.clone();
    let task = Task::parse(&words[1..])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        match kind.split(':').next().unwrap_or_default() {
            "redis-lock" => work::<redis_lock::Client>(task, &kind).await,
            "set-lua" => work::<set_lua::Client>(task, &kind).await,
            "etcd" => work::<etcd::Channel>(task, &kind).await,
            "postgres" => work::<postgres::Session>(task, &kind).await,
            _ => Err(format!("there is no {kind}").into()),
        }
    })
}

#[derive(Default)]
struct State {
    /// `lock owner asked granted released fence`.
    cycles: RefCell<Vec<[u64; 6]>>,
    asking: Cell<u64>,
    is_over: Cell<bool>,
    errors: Cell<u64>,
    last_error: RefCell<String>,
}

impl State {
    fn failed(&self, error: &dyn Error) {
        self.errors.set(self.errors.get() + 1);
        *self.last_error.borrow_mut() = format!("{error:?}");
    }
}

async fn work<L: Link>(task: Task, kind: &str) -> Outcome<()> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let state = Rc::new(State::default());
    let mut links = Vec::new();
    let connecting: Vec<_> =
        (0..task.links).map(|number| spawn_local(serving::<L>(task.clone(), kind.into(), number))).collect();
    for link in connecting {
        links.push(Rc::new(link.await??));
    }
    let mut barrier = links[0].owner().await?;
    let mut closed = match task.work {
        Work::Queue => Some(barrier.acquire(task.first).await?.1),
        _ => None,
    };
    if closed.is_none() {
        say("ready");
        expect(&mut input, "go").await?;
    }
    for (first, link) in (0..task.owners).zip(&links) {
        let (link, task, state) = (link.clone(), task.clone(), state.clone());
        // One after the other on each link: creating an owner may cost a round trip or a disk write, and servers would
        // refuse thousands at once.
        spawn_local(async move {
            for number in (first..task.owners).step_by(task.links as usize) {
                let owner = loop {
                    match link.owner().await {
                        Ok(owner) => break owner,
                        Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                    }
                };
                let (task, state) = (task.clone(), state.clone());
                match task.work {
                    Work::Cycle | Work::Queue => spawn_local(cycle(owner, number, task, state)),
                    Work::Hold | Work::Try => spawn_local(hold(owner, number, task, state)),
                    Work::Sweep => spawn_local(sweep(owner, number, task, state)),
                };
            }
        });
    }
    if let Some(held) = closed.take() {
        while state.asking.get() < task.owners {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        say("ready");
        expect(&mut input, "go").await?;
        barrier.release(held).await?;
    }
    expect(&mut input, "stop").await?;
    state.is_over.set(true);
    let mut lines = String::new();
    for [lock, owner, asked, granted, released, fence] in state.cycles.borrow().iter() {
        lines += &format!("cycle {lock} {owner} {asked} {granted} {released} {fence}\n");
    }
    if state.errors.get() > 0 {
        let last = state.last_error.borrow().replace('\n', " ");
        lines += &format!("errors {} {last}\n", state.errors.get());
    }
    lines += "end";
    say(&lines);
    // Holds and waits end with the process, as in a crash.
    std::process::exit(0);
}

/// A link over which a lock was acquired and released.
async fn serving<L: Link>(task: Task, kind: String, number: u64) -> Outcome<L> {
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let lock = TRIAL_LOCK + (u64::from(std::process::id()) + attempts * task.links + number) % TRIAL_LOCKS;
        attempts += 1;
        let attempt = async {
            let link = L::connect(&task, &kind).await?;
            let mut owner = link.owner().await?;
            let held = owner.acquire(lock).await?.1;
            owner.release(held).await?;
            Outcome::Ok(link)
        };
        match tokio::time::timeout(Duration::from_secs(20), attempt).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(error)) if started.elapsed() > TIMEOUT => return Err(error),
            Err(late) if started.elapsed() > TIMEOUT => return Err(late.into()),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn cycle<O: Owner>(mut owner: O, number: u64, task: Task, state: Rc<State>) {
    let mut dice = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    while !state.is_over.get() {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let lock = task.first + dice % task.locks;
        let asked = now();
        state.asking.set(state.asking.get() + 1);
        let attempt = async {
            let (fence, held) = owner.acquire(lock).await?;
            let granted = now();
            owner.release(held).await?;
            Outcome::Ok((granted, fence))
        };
        match attempt.await {
            Ok((granted, fence)) => state.cycles.borrow_mut().push([lock, number, asked, granted, now(), fence]),
            Err(error) => {
                state.failed(&*error);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn sweep<O: Owner>(mut owner: O, number: u64, task: Task, state: Rc<State>) {
    for lock in task.first..task.first + task.locks {
        let attempt = async {
            let held = owner.acquire(lock).await?.1;
            tokio::time::sleep(Duration::from_millis(1)).await;
            owner.release(held).await
        };
        if let Err(error) = attempt.await {
            state.failed(&*error);
        }
    }
    say(&format!("took {number}"));
}

/// Prints each grant at once, because the process may be killed.
async fn hold<O: Owner>(mut owner: O, number: u64, task: Task, state: Rc<State>) {
    let mut kept = Vec::new();
    for lock in (task.first..task.first + task.locks).skip(number as usize).step_by(task.owners as usize) {
        if state.is_over.get() {
            return;
        }
        let asked = now();
        let taken = match task.work {
            Work::Try => owner.try_acquire(lock).await,
            _ => owner.acquire(lock).await.map(Some),
        };
        match taken {
            Ok(Some((fence, held))) => {
                say(&format!("held {lock} {number} {asked} {} {fence}", now()));
                kept.push(Some((lock, held)));
            }
            Ok(None) => say(&format!("refused {lock} {number} {asked} {}", now())),
            Err(error) => {
                state.failed(&*error);
                say(&format!("failed {lock} {number} {asked} {} {}", now(), error.to_string().replace('\n', " ")));
            }
        }
        if !task.pace.is_zero() {
            tokio::time::sleep(task.pace).await;
        }
        report_lost(&owner, number, &mut kept);
    }
    say(&format!("took {number}"));
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        report_lost(&owner, number, &mut kept);
    }
}

fn report_lost<O: Owner>(owner: &O, number: u64, kept: &mut [Option<(u64, O::Held)>]) {
    for slot in kept {
        if let Some((lock, held)) = slot {
            if owner.is_lost(held) {
                say(&format!("lost {lock} {number} {}", now()));
                *slot = None;
            }
        }
    }
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // The run has ended: end of input ends this process too.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

async fn expect(input: &mut Lines<BufReader<Stdin>>, word: &str) -> Outcome<()> {
    match input.next_line().await? {
        Some(line) if line == word => Ok(()),
        _ => std::process::exit(1),
    }
}
