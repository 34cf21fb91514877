//! Prints the section of results/benchmarks-clients.md about Rust: what a lock costs with this client, raw commands and
//! rslock. `--quick` is a short run. The page's introduction (clients/bench) explains the table.

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{cmd, AsyncConnectionConfig, Cmd};
use redis_lock_client::{Client, Lock};
use rslock::LockManager;
use support::{cpu_time, CountingAllocator, Info, Server};
use tokio::task::LocalSet;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const LEASE: Duration = Duration::from_secs(30);
const LEASE_MS: u64 = 30_000;
const UNLOCK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const SCRIPT: &str = "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end \
                      local n = redis.call('INCR', KEYS[2]) redis.call('DEL', KEYS[1]) return n";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A way to lock, as one caller uses it.
#[derive(Clone)]
enum Contender {
    /// The acquire and the release.
    RawLock(MultiplexedConnection, Cmd, Cmd),
    /// SET NX PX and a script that compares and deletes.
    RawSet(MultiplexedConnection, Cmd, Cmd),
    /// A script that locks, increments and unlocks.
    Script(MultiplexedConnection, Cmd),
    Ours(Lock),
    /// One command under the lock.
    Run(Lock, Cmd),
    Rslock(LockManager),
    /// With the connection for one command under the lock.
    RslockIncr(LockManager, MultiplexedConnection),
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Contender::RawLock(..) => "raw `LOCK.ACQUIRE` + `LOCK.RELEASE`",
            Contender::RawSet(..) => "raw `SET NX PX` + EVALSHA",
            Contender::Script(..) => "raw script: SET NX, INCR, DEL",
            Contender::Ours(_) => "**redis-lock-client**",
            Contender::Run(..) => "**redis-lock-client**, `run`",
            Contender::Rslock(_) | Contender::RslockIncr(..) => "rslock",
        }
    }

    /// Acquires the lock, however long that takes, calls `held`, and releases it.
    async fn turn(&mut self, held: impl FnOnce()) -> Outcome<()> {
        match self {
            Contender::RawLock(connection, acquire, release) | Contender::RawSet(connection, acquire, release) => {
                acquire.query_async::<()>(connection).await?;
                held();
                release.query_async::<()>(connection).await?;
            }
            Contender::Script(connection, script) => {
                script.query_async::<u64>(connection).await?;
                held();
            }
            Contender::Ours(lock) => {
                let guard = lock.acquire().await?;
                held();
                guard.release().await?;
            }
            Contender::Run(lock, command) => {
                lock.run::<u64>(command).await?;
                held();
            }
            Contender::Rslock(locks) => {
                let guard = locks.acquire("rslock", LEASE).await?;
                held();
                guard.release().await;
            }
            Contender::RslockIncr(locks, connection) => {
                let guard = locks.acquire("rslock", LEASE).await?;
                cmd("INCR").arg("n").query_async::<u64>(connection).await?;
                held();
                guard.release().await;
            }
        }
        Ok(())
    }
}

async fn connected(url: &str) -> Outcome<MultiplexedConnection> {
    // The client's own limit. The default is too short for a busy machine.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn loaded(connection: &mut MultiplexedConnection, script: &str) -> Outcome<Cmd> {
    let sha: String = cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await?;
    Ok(cmd("EVALSHA").arg(sha).to_owned())
}

fn token(caller: usize) -> String {
    format!("bench:{caller}:0123456789abcdef")
}

/// A contender for each caller. The server delays everything after a waiting request, so each of them has a separate
/// connection.
async fn raw_lock(url: &str, callers: usize) -> Outcome<Vec<Contender>> {
    let mut all = Vec::new();
    for caller in 0..callers {
        let named = |name: &str| cmd(name).arg("raw").arg(token(caller)).to_owned();
        let acquire = named("LOCK.ACQUIRE").arg("PX").arg(LEASE_MS).arg("BLOCK").arg(0).to_owned();
        all.push(Contender::RawLock(connected(url).await?, acquire, named("LOCK.RELEASE")));
    }
    Ok(all)
}

async fn raw_set(url: &str) -> Outcome<Contender> {
    let mut connection = connected(url).await?;
    let acquire = cmd("SET").arg("set").arg(token(0)).arg("NX").arg("PX").arg(LEASE_MS).to_owned();
    let release = loaded(&mut connection, UNLOCK).await?.arg(1).arg("set").arg(token(0)).to_owned();
    Ok(Contender::RawSet(connection, acquire, release))
}

async fn script(url: &str) -> Outcome<Contender> {
    let mut connection = connected(url).await?;
    let script = loaded(&mut connection, SCRIPT).await?.arg(2).arg("script").arg("n").arg(token(0)).to_owned();
    Ok(Contender::Script(connection, script))
}

fn ours(url: &str) -> Outcome<Lock> {
    Ok(Client::open(url)?.mutex("ours").lease(LEASE))
}

fn rslock(url: &str) -> LockManager {
    LockManager::new(vec![url.to_string()])
}

/// The figures of a round, in the order of the columns: as counters, or per unit of work.
type Figures = [f64; 7];

const CLIENT_CPU: usize = 0;
const RATIO: usize = 1;
const SERVER_CPU: usize = 2;
const REQUESTS: usize = 3;
const BYTES: usize = 4;
const CONNECTIONS: usize = 5;
const ALLOCATIONS: usize = 6;

/// A row: a contender for each caller, and what a unit of work costs.
struct Row {
    callers: Vec<Contender>,
    connections: f64,
    rounds: Vec<Figures>,
}

struct Bench {
    admin: support::Client,
    /// What the measurement itself costs: one INFO request.
    own: Figures,
}

impl Bench {
    fn server_figures(&mut self) -> Figures {
        let info = Info::parse(self.admin.run("INFO stats cpu").text());
        let mut figures = Figures::default();
        figures[SERVER_CPU] = info.cpu_us();
        figures[REQUESTS] = info.number("total_commands_processed") as f64;
        figures[BYTES] = (info.number("total_net_input_bytes") + info.number("total_net_output_bytes")) as f64;
        figures[CONNECTIONS] = info.number("total_connections_received") as f64;
        figures
    }

    /// What `work` costs.
    async fn measure<T>(&mut self, work: impl Future<Output = Outcome<T>>) -> Outcome<(Figures, T)> {
        let client_figures = |figures: &mut Figures| {
            let cpu = cpu_time(std::process::id()).expect("Linux reports the CPU time of a process");
            figures[CLIENT_CPU] = cpu.as_secs_f64() * 1e6;
            figures[ALLOCATIONS] = CountingAllocator::count() as f64;
        };
        let mut before = self.server_figures();
        let mut used = Figures::default();
        client_figures(&mut before);
        let result = work.await?;
        client_figures(&mut used);
        let after = self.server_figures();
        for (column, used) in used.iter_mut().enumerate() {
            *used += after[column] - before[column] - self.own[column];
        }
        Ok((used, result))
    }

    /// Connects and warms up.
    async fn row(&mut self, contenders: impl Future<Output = Outcome<Vec<Contender>>>, time: Duration) -> Outcome<Row> {
        let warm_up = async {
            let mut callers = contenders.await?;
            turns(&mut callers, time).await?;
            Ok(callers)
        };
        let (figures, callers) = self.measure(warm_up).await?;
        Ok(Row { callers, connections: figures[CONNECTIONS], rounds: Vec::new() })
    }

    /// Runs the rows in turns, and prints them. They are compared with row `base`.
    async fn work(
        &mut self,
        name: &str,
        base: usize,
        mut rows: Vec<Row>,
        rounds: usize,
        time: Duration,
    ) -> Outcome<()> {
        for _ in 0..rounds {
            for row in &mut rows {
                let (figures, units) = self.measure(turns(&mut row.callers, time)).await?;
                row.rounds.push(figures.map(|figure| figure / f64::from(units)));
            }
        }
        let base: Vec<f64> = rows[base].rounds.iter().map(|figures| figures[CLIENT_CPU]).collect();
        for row in &mut rows {
            for (figures, base) in row.rounds.iter_mut().zip(&base) {
                figures[RATIO] = figures[CLIENT_CPU] / base;
            }
            let sorted = |column: usize| {
                let mut values: Vec<f64> = row.rounds.iter().map(|figures| figures[column]).collect();
                values.sort_by(f64::total_cmp);
                values
            };
            let median = |column| sorted(column)[rounds / 2];
            let cpu = sorted(CLIENT_CPU).into_iter().map(whole).collect::<Vec<_>>();
            println!(
                "| {name} | {} | {} ({} to {}) | {:.2} | {} | {:.1} | {} | {} | {} |",
                row.callers[0].name(),
                cpu[rounds / 2],
                cpu[0],
                cpu[rounds - 1],
                median(RATIO),
                whole(median(SERVER_CPU)),
                median(REQUESTS),
                whole(median(BYTES)),
                row.connections,
                whole(median(ALLOCATIONS)),
            );
        }
        Ok(())
    }
}

fn whole(value: f64) -> String {
    let mut digits = format!("{value:.0}");
    for at in (1..digits.len()).rev().filter(|at| (digits.len() - at).is_multiple_of(3)).collect::<Vec<_>>() {
        digits.insert(at, ',');
    }
    digits
}

/// The callers acquire the lock in turn. Returns the turns of a single caller, or the hand-offs, of which there is at
/// least one.
async fn turns(callers: &mut [Contender], time: Duration) -> Outcome<u32> {
    let (counted, last, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)), Instant::now() + time);
    let is_alone = callers.len() == 1;
    let set = LocalSet::new();
    let mut running = Vec::new();
    for (number, contender) in callers.iter().enumerate() {
        let (mut contender, counted, last) = (contender.clone(), counted.clone(), last.clone());
        running.push(set.spawn_local(async move {
            while Instant::now() < ends || counted.get() == 0 {
                let held = || {
                    let before = last.replace(Some(number));
                    if is_alone || before.is_some_and(|before| before != number) {
                        counted.set(counted.get() + 1);
                    }
                };
                contender.turn(held).await.map_err(|error| error.to_string())?;
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
    Ok(counted.get())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, time, hand_off_rounds, hand_off_time) = if is_quick { (3, 50, 3, 200) } else { (15, 150, 5, 1500) };
    println!(
        "## Rust\n\n\
         redis {}, rslock {}; {rounds} rounds of {time} ms, and for\n\
         hand-offs {hand_off_rounds} of {hand_off_time} ms. The callers are tasks of one thread.\n\n\
         | workload | lock | client CPU, µs | to raw commands | server CPU, µs | requests | bytes | connections | \
         allocations |\n| --- | --- | --: | --: | --: | --: | --: | --: | --: |",
        version("redis"),
        version("rslock")
    );
    let [time, hand_off_time] = [time, hand_off_time].map(Duration::from_millis);
    let server = Server::start();
    let url = &format!("redis://127.0.0.1:{}", server.port());
    let mut bench = Bench { admin: server.client(), own: Figures::default() };
    bench.own = bench.measure(async { Ok(()) }).await?.0;
    for (name, callers) in [("pair", 1), ("hand-off, 2", 2), ("hand-off, 48", 48)] {
        let (rounds, time) = if callers == 1 { (rounds, time) } else { (hand_off_rounds, hand_off_time) };
        let mut rows = Vec::new();
        if callers == 1 {
            rows.push(bench.row(async { Ok(vec![raw_set(url).await?]) }, time).await?);
        }
        rows.push(bench.row(raw_lock(url, callers), time).await?);
        rows.push(bench.row(async { Ok(vec![Contender::Ours(ours(url)?); callers]) }, time).await?);
        rows.push(bench.row(async { Ok(vec![Contender::Rslock(rslock(url)); callers]) }, time).await?);
        let base = rows.len() - 3;
        bench.work(name, base, rows, rounds, time).await?;
    }
    let incr = cmd("INCR").arg("n").to_owned();
    let rows = vec![
        bench.row(async { Ok(vec![script(url).await?]) }, time).await?,
        bench.row(async { Ok(vec![Contender::Run(ours(url)?, incr)]) }, time).await?,
        bench.row(async { Ok(vec![Contender::RslockIncr(rslock(url), connected(url).await?)]) }, time).await?,
    ];
    bench.work("INCR under the lock", 0, rows, rounds, time).await
}

/// The version of a crate in Cargo.lock.
fn version(name: &str) -> &'static str {
    let after = include_str!("../../../Cargo.lock").split_once(&format!("name = \"{name}\"\nversion = \"")).unwrap().1;
    after.split_once('"').unwrap().0
}
