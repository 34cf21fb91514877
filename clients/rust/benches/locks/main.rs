//! Compares this client's mutex with rslock's, in one run on one server: how fast one task acquires and releases, how
//! fast a lock passes from one of 48 to the next, and what each costs the server. Then one command under a lock: in one
//! packet, in three, in a script. Prints a section of Markdown; `--quick` is a short run. `--cost` compares only what
//! each costs the client.

mod cost;

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{cmd, AsyncConnectionConfig, Cmd};
use redis_lock_client::{Client, Lock};
use rslock::LockManager;
use support::{Info, Server};
use tokio::task::LocalSet;

const TASKS: usize = 48;
const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A mutex, called as by its users.
trait Mutex: Clone + 'static {
    /// Its name, and how it waits.
    fn title(&self) -> String;

    /// Acquires it, however long that takes, calls `held`, and releases it.
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

/// With the longest pause between two attempts; each pause is random.
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

/// The commands of a pair with nothing around them: the lower bound for a client.
#[derive(Clone)]
struct Raw(MultiplexedConnection, Cmd, Cmd);

impl Raw {
    async fn to(url: &str) -> Outcome<Raw> {
        // The client's own limit. The default is too short for a busy machine.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        let named = |name: &str| cmd(name).arg("raw").arg("bench:1:0123456789abcdef").to_owned();
        let acquire = named("LOCK.ACQUIRE").arg("PX").arg(30_000).arg("BLOCK").arg(3750).to_owned();
        Ok(Raw(connection, acquire, named("LOCK.RELEASE")))
    }
}

impl Mutex for Raw {
    fn title(&self) -> String {
        "the redis crate, LOCK.ACQUIRE and LOCK.RELEASE | in the queue".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        let mut connection = self.0.clone();
        self.1.query_async::<()>(&mut connection).await?;
        held();
        Ok(self.2.query_async(&mut connection).await?)
    }
}

/// The acquire, one INCR and the release in one packet.
#[derive(Clone)]
struct InOnePacket(Lock, Cmd);

impl Mutex for InOnePacket {
    fn title(&self) -> String {
        "`run`: one packet".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        self.0.run::<u64>(&self.1).await?;
        held();
        Ok(())
    }
}

/// One after another.
#[derive(Clone)]
struct InThree(Lock, Cmd);

impl Mutex for InThree {
    fn title(&self) -> String {
        "`acquire`, `exec`, `release`: three round trips".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        let guard = self.0.acquire().await?;
        guard.exec::<u64>(&self.1).await?;
        held();
        Ok(guard.release().await?)
    }
}

/// A script, which no other command interrupts: it does not wait.
#[derive(Clone)]
struct InScript(MultiplexedConnection, Cmd);

const SCRIPT: &str = "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end \
                      local n = redis.call('INCR', KEYS[2]) redis.call('DEL', KEYS[1]) return n";

impl InScript {
    async fn over(mut connection: MultiplexedConnection) -> Outcome<InScript> {
        let sha: String = cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut connection).await?;
        let keys_and_token = ["script", "n", "bench:1:0123456789abcdef"];
        Ok(InScript(connection, cmd("EVALSHA").arg(sha).arg(2).arg(&keys_and_token).to_owned()))
    }
}

impl Mutex for InScript {
    fn title(&self) -> String {
        "a Lua script: SET NX, INCR, DEL".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        self.1.query_async::<u64>(&mut self.0.clone()).await?;
        held();
        Ok(())
    }
}

/// Which turns are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Only hand-offs between tasks, or every turn of a single task.
    HandOffs,
    All,
}

/// The CPU time of this process, which has one thread.
fn own_cpu() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(times.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// The work of the server and of this process so far.
#[derive(Clone, Copy)]
struct Counters {
    at: Instant,
    own_cpu: Duration,
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
        // Only what clients send; the server also counts the commands within rslock's scripts.
        let requests = ["lock.acquire", "lock.exec", "lock.release", "lock.cancel", "set", "eval", "evalsha"];
        let is_request = |line: &&str| requests.iter().any(|name| line.starts_with(&format!("cmdstat_{name}:")));
        let lines = stats.text().lines().filter(is_request);
        let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
        let (requests, cpu) = (calls.sum(), Duration::from_secs_f64(seconds));
        Counters { at: Instant::now(), own_cpu: own_cpu(), requests, cpu }
    }
}

/// The results of one round.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    own_cpu_us: f64,
    requests: f64,
    cpu_us: f64,
}

impl Figures {
    fn of(turns: u32, before: Counters, after: Counters) -> Figures {
        let turns = f64::from(turns.max(1));
        Figures {
            per_second: turns / (after.at - before.at).as_secs_f64(),
            own_cpu_us: after.own_cpu.saturating_sub(before.own_cpu).as_secs_f64() * 1e6 / turns,
            requests: (after.requests - before.requests) as f64 / turns,
            cpu_us: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / turns,
        }
    }

    fn cells(self) -> String {
        let Figures { per_second, own_cpu_us, requests, cpu_us } = self;
        format!(" {per_second:.0} | {own_cpu_us:.0} | {requests:.1} | {cpu_us:.0} |")
    }

    /// The median round by turns per second.
    fn median(mut rounds: Vec<Figures>) -> Figures {
        rounds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        rounds[rounds.len() / 2]
    }
}

/// This many tasks take turns for this long.
async fn turns(
    server: &Server,
    mutex: &impl Mutex,
    counted: Counted,
    tasks: usize,
    time: Duration,
) -> Outcome<Figures> {
    // Opens connections and loads scripts in advance.
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
                    if last.replace(task) != task || tasks == 1 || counted == Counted::All {
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

async fn row<M: Mutex>(server: &Server, mutex: &M, counted: Counted, times: [Duration; 2]) -> Outcome<()> {
    let mut row = format!("| {} |", mutex.title());
    for (tasks, time) in [1, TASKS].into_iter().zip(times) {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(turns(server, mutex, counted, tasks, time).await?);
        }
        row += &Figures::median(rounds).cells();
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
    if std::env::args().any(|argument| argument == "--cost") {
        return cost::cost(&server, &url, &ours, is_quick).await;
    }
    println!(
        "## Rust\n\n\
         One process, one thread, one server; the median of {ROUNDS} rounds of {:?} and of {:?}. A pair is taken and\n\
         given back by one task, and nobody waits. Hand-offs are between {TASKS} tasks, each of which asks again at\n\
         once; a turn of the task that had the one before is none. They hold the lock for no time. Requests are\n\
         commands that the client sent. rslock waits for up to 200 ms if nothing is set.\n\n\
         | lock | a waiter | pairs per second | client CPU µs | requests | server CPU µs | hand-offs per second | \
         client CPU µs | requests | server CPU µs |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        times[0], times[1]
    );
    row(&server, &ours, Counted::HandOffs, times).await?;
    let raw = Raw::to(&url).await?;
    // Over one connection, so by one task only: the server delays everything after a waiting request.
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(turns(&server, &raw, Counted::HandOffs, 1, times[0]).await?);
    }
    println!("| {} |{} | | | |", raw.title(), Figures::median(rounds).cells());
    for theirs in &theirs {
        row(&server, theirs, Counted::HandOffs, times).await?;
    }
    println!(
        "\nOne INCR under a lock, by one task and by {TASKS} tasks, each of which asks again at once. The SET of the\n\
         script counts as a request too.\n\n\
         | lock, INCR, release | per second | client CPU µs | requests | server CPU µs | {TASKS} tasks: per second | \
         client CPU µs | requests | server CPU µs |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let (lock, incr) = (ours.0.clone(), cmd("INCR").arg("n").to_owned());
    row(&server, &InOnePacket(lock.clone(), incr.clone()), Counted::All, times).await?;
    row(&server, &InThree(lock, incr), Counted::All, times).await?;
    row(&server, &InScript::over(raw.0).await?, Counted::All, times).await
}
