//! This client's mutex beside rslock's, in one run on one server: how fast one task takes and gives back, how fast a lock
//! goes through the hands of 48, and what each costs the server. Prints a section of Markdown; `--quick` measures shortly.

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
    const NAME: &str;

    /// Takes it, however long that takes, and gives it back.
    fn pair(&self) -> impl Future<Output = Outcome<()>>;
}

#[derive(Clone)]
struct Ours(Lock);

impl Mutex for Ours {
    const NAME: &str = "redis-lock-client";

    async fn pair(&self) -> Outcome<()> {
        Ok(self.0.acquire().await?.release().await?)
    }
}

#[derive(Clone)]
struct Rslock(LockManager);

impl Mutex for Rslock {
    const NAME: &str = "rslock 0.10";

    async fn pair(&self) -> Outcome<()> {
        self.0.acquire("rslock", LEASE).await?.release().await;
        Ok(())
    }
}

/// What the server has done so far.
#[derive(Clone, Copy)]
struct Counters {
    at: Instant,
    commands: u64,
    cpu: Duration,
}

impl Counters {
    fn of(server: &Server) -> Counters {
        let mut client = server.client();
        let cpu = Info::parse(client.run("INFO cpu").text());
        let seconds: f64 =
            ["used_cpu_user", "used_cpu_sys"].iter().map(|field| cpu.text(field).parse::<f64>().unwrap_or(0.0)).sum();
        let stats = client.run("INFO commandstats");
        // INFO itself is not the locks'.
        let lines = stats.text().lines().filter(|line| !line.starts_with("cmdstat_info"));
        let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
        Counters { at: Instant::now(), commands: calls.sum(), cpu: Duration::from_secs_f64(seconds) }
    }
}

/// Of one round.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    commands: f64,
    cpu_us: f64,
}

impl Figures {
    fn of(turns: u64, before: Counters, after: Counters) -> Figures {
        let turns = turns as f64;
        Figures {
            per_second: turns / (after.at - before.at).as_secs_f64(),
            commands: (after.commands - before.commands) as f64 / turns,
            cpu_us: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / turns,
        }
    }

    /// The median round by turns per second.
    fn median(mut rounds: Vec<Figures>) -> Figures {
        rounds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        rounds[rounds.len() / 2]
    }
}

/// So many tasks take turns, for so long.
async fn turns(server: &Server, mutex: &impl Mutex, tasks: usize, time: Duration) -> Outcome<Figures> {
    // Connections are made, and scripts loaded, before.
    mutex.pair().await?;
    let (turns, ends) = (Rc::new(Cell::new(0)), Instant::now() + time);
    let before = Counters::of(server);
    let set = LocalSet::new();
    let mut running = Vec::new();
    for _ in 0..tasks {
        let (mutex, turns) = (mutex.clone(), turns.clone());
        running.push(set.spawn_local(async move {
            while Instant::now() < ends {
                mutex.pair().await.map_err(|error| error.to_string())?;
                turns.set(turns.get() + 1);
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
    let mut row = format!("| {} |", M::NAME);
    for (tasks, time) in [1, TASKS].into_iter().zip(times) {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(turns(server, mutex, tasks, time).await?);
        }
        let Figures { per_second, commands, cpu_us } = Figures::median(rounds);
        row += &format!(" {per_second:.0} | {commands:.1} | {cpu_us:.0} |");
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
    let theirs = Rslock(LockManager::new(vec![url]));
    println!(
        "## Rust\n\n\
         One process, one thread, one server. Left: one task takes and gives back. Right: {TASKS} tasks take turns on one\n\
         lock, which they hold for no time. The median of {ROUNDS} rounds of {:?} and {:?}.\n\n\
         | lock | pairs per second | commands per pair | server CPU µs per pair | hand-offs per second | commands per \
         hand-off | server CPU µs per hand-off |\n\
         | --- | --- | --- | --- | --- | --- | --- |",
        times[0], times[1]
    );
    row(&server, &ours, times).await?;
    row(&server, &theirs, times).await?;
    println!(
        "\nrslock has its own settings: after a failed try it deletes its token and pauses for up to 200 ms, at random. A\n\
         hand-off of it that is fast is one to the task that has just had the lock."
    );
    Ok(())
}
