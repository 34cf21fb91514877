//! This client's mutex beside rslock's, in one run on one server: how fast one task takes and gives back, how fast a
//! lock goes from one of 48 to the next, and what each costs the server. Prints a section of Markdown; `--quick`
//! measures shortly.

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis_lock_client::{Client, Lock};
use rslock::LockManager;
use support::{Info, Server};
use tokio::task::LocalSet;

const TASKS: usize = 48;
const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A mutex as its users call it.
trait Mutex: Clone + 'static {
    /// Its name, and what a waiter does.
    fn title(&self) -> String;

    /// Takes it, however long that takes, calls `held`, and gives it back.
    fn turn(&self, held: impl FnOnce()) -> impl Future<Output = Outcome<()>>;
}

#[derive(Clone)]
struct Ours(Lock);

impl Mutex for Ours {
    fn title(&self) -> String {
        "redis-lock-client | in the queue".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        let guard = self.0.acquire().await?;
        held();
        Ok(guard.release().await?)
    }
}

/// With the longest pause between two tries; each is random.
#[derive(Clone)]
struct Rslock(LockManager, Duration);

impl Mutex for Rslock {
    fn title(&self) -> String {
        format!("rslock 0.10 | asks after 0 to {} ms", self.1.as_millis())
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        let guard = self.0.acquire("rslock", LEASE).await?;
        held();
        guard.release().await;
        Ok(())
    }
}

/// What the server has done so far.
#[derive(Clone, Copy)]
struct Counters {
    at: Instant,
    requests: u64,
    cpu: Duration,
}

impl Counters {
    fn of(server: &Server) -> Counters {
        let mut client = server.client();
        let cpu = Info::parse(client.run("INFO cpu").text());
        let seconds: f64 =
            ["used_cpu_user", "used_cpu_sys"].iter().map(|field| cpu.text(field).parse::<f64>().unwrap_or(0.0)).sum();
        let stats = client.run("INFO commandstats");
        // What clients send; what rslock's scripts run inside is counted by the server too.
        let requests = ["lock.acquire", "lock.release", "lock.cancel", "set", "eval", "evalsha"];
        let is_request = |line: &&str| requests.iter().any(|name| line.starts_with(&format!("cmdstat_{name}:")));
        let lines = stats.text().lines().filter(is_request);
        let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
        Counters { at: Instant::now(), requests: calls.sum(), cpu: Duration::from_secs_f64(seconds) }
    }
}

/// Of one round.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    requests: f64,
    cpu_us: f64,
}

impl Figures {
    fn of(turns: u32, before: Counters, after: Counters) -> Figures {
        let turns = f64::from(turns.max(1));
        Figures {
            per_second: turns / (after.at - before.at).as_secs_f64(),
            requests: (after.requests - before.requests) as f64 / turns,
            cpu_us: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / turns,
        }
    }

    /// The median round by turns per second.
    fn median(mut rounds: Vec<Figures>) -> Figures {
        rounds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        rounds[rounds.len() / 2]
    }
}

/// So many tasks take turns, for so long. Counted are turns of one task alone, or those that came from another task.
async fn turns(server: &Server, mutex: &impl Mutex, tasks: usize, time: Duration) -> Outcome<Figures> {
    // Connections are made, and scripts loaded, before.
    mutex.turn(|| {}).await?;
    let (turns, last, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(tasks)), Instant::now() + time);
    let before = Counters::of(server);
    let set = LocalSet::new();
    let mut running = Vec::new();
    for task in 0..tasks {
        let (mutex, turns, last) = (mutex.clone(), turns.clone(), last.clone());
        running.push(set.spawn_local(async move {
            while Instant::now() < ends {
                let held = || {
                    if last.replace(task) != task || tasks == 1 {
                        turns.set(turns.get() + 1);
                    }
                };
                mutex.turn(held).await.map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        }));
    }
    set.run_until(async {
        for task in running {
            task.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    })
    .await?;
    Ok(Figures::of(turns.get(), before, Counters::of(server)))
}

async fn row<M: Mutex>(server: &Server, mutex: &M, times: [Duration; 2]) -> Outcome<()> {
    let mut row = format!("| {} |", mutex.title());
    for (tasks, time) in [1, TASKS].into_iter().zip(times) {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(turns(server, mutex, tasks, time).await?);
        }
        let Figures { per_second, requests, cpu_us } = Figures::median(rounds);
        row += &format!(" {per_second:.0} | {requests:.1} | {cpu_us:.0} |");
    }
    println!("{row}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let times = if is_quick { [200, 500] } else { [2000, 5000] }.map(Duration::from_millis);
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let ours = Ours(Client::open(url.as_str())?.mutex("ours").lease(LEASE));
    let theirs = [200, 10].map(Duration::from_millis).map(|pause| {
        let mut manager = LockManager::new(vec![url.clone()]);
        manager.set_retry(3, pause);
        Rslock(manager, pause)
    });
    println!(
        "## Rust\n\n\
         One process, one thread, one server; the median of {ROUNDS} rounds of {:?} and of {:?}. A pair is taken and\n\
         given back by one task, and nobody waits. Hand-offs are between {TASKS} tasks, each of which asks again at\n\
         once; a turn of the task that had the one before is none. They hold the lock for no time. Requests are\n\
         commands that the client sent, CPU is the server's own. rslock waits for up to 200 ms if nothing is set.\n\n\
         | lock | a waiter | pairs per second | requests per pair | server CPU µs per pair | hand-offs per second | \
         requests per hand-off | server CPU µs per hand-off |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |",
        times[0], times[1]
    );
    row(&server, &ours, times).await?;
    for theirs in &theirs {
        row(&server, theirs, times).await?;
    }
    Ok(())
}
