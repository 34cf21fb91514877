//! Ten tickets, 500 buyers at once, five times: no lock; a polled `SET NX PX` lock as it is, adopted, and adopted with
//! lock.adopt-wait; and `LOCK.ACQUIRE … BLOCK`.
//!
//! `make demo` runs it. Every buyer is a client of a standard library (the crate `redis`) on a separate TCP connection,
//! and all are connected before the sale opens. The demo starts a private server on a free port and stops it
//! afterwards: a sale starts with FLUSHALL, so it never connects to a server that it did not start. It fails (exit 1)
//! if a round under a lock does not sell exactly the ten tickets.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, RedisResult, Script};
use support::{Info, Server};

const TICKETS: usize = 10;
const BUYERS: usize = 500;

/// The time between reading the stock and selling (price, seat, payment). Without a lock, this is the race.
const THINK: Duration = Duration::from_millis(1);

/// The polling interval for a held lock. Client libraries poll every 10 to 100 ms: slower polling spares the server but
/// leaves the lock idle for longer.
const POLL: Duration = Duration::from_millis(10);

const LEASE_MS: u64 = 30_000;
const BLOCK_MS: u64 = 60_000;

/// Below the timeouts of most client libraries.
const ADOPT_WAIT_MS: u64 = 1_000;

const LOCK: &str = "lock:tickets";
const STOCK: &str = "stock";
const SALES: &str = "sales";

fn main() -> ExitCode {
    match all_ways() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every round with a lock sold all tickets, and no more.
fn all_ways() -> Result<bool, Box<dyn Error>> {
    let server = Server::builder().try_start()?;
    let version = server.info("server").version();
    println!("{TICKETS} tickets, {BUYERS} buyers at once, each on a separate connection; {version}\n");
    println!(
        "{:<38} {:>5} {:>9} {:>12} {:>10} {:>11} {:>13}",
        "", "sold", "time", "hand-offs/s", "commands", "server CPU", "longest wait"
    );

    let mut correct = true;
    for way in [Way::NoLock, Way::PolledSet, Way::AdoptedSet, Way::AdoptedWait, Way::Acquire] {
        let round = sell(&server, way)?;
        println!(
            "{:<38} {:>5} {:>6} ms {:>12.0} {:>10} {:>8.0} ms {:>10} ms  {}",
            way.title(),
            round.sold,
            round.time.as_millis(),
            BUYERS as f64 / round.time.as_secs_f64(),
            round.commands,
            round.cpu_seconds * 1000.0,
            round.longest_wait.as_millis(),
            verdict(round.sold),
        );
        correct &= way == Way::NoLock || round.sold == TICKETS;
    }

    println!(
        "\nsold: sales recorded · time: until the last buyer knew · commands, CPU: as the server's INFO counts them\n\
         longest wait: of one buyer, for the lock"
    );
    Ok(correct)
}

fn verdict(sold: usize) -> String {
    match sold.checked_sub(TICKETS) {
        Some(0) => String::new(),
        Some(more) => format!("oversold by {more}"),
        None => format!("{} unsold", TICKETS - sold),
    }
}

/// How the buyers exclude each other.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    NoLock,
    PolledSet,
    /// The same client, with `lock.adopt` turning its lock into a native one.
    AdoptedSet,
    /// The same with `lock.adopt-wait`: it waits in the queue.
    AdoptedWait,
    Acquire,
}

impl Way {
    fn title(self) -> String {
        match self {
            Way::NoLock => "no lock".to_owned(),
            Way::PolledSet => format!("SET NX PX every {} ms, Lua to release", POLL.as_millis()),
            Way::AdoptedSet => "the same, lock.adopt lock:*".to_owned(),
            Way::AdoptedWait => format!("the same, lock.adopt-wait {ADOPT_WAIT_MS}"),
            Way::Acquire => "LOCK.ACQUIRE … BLOCK, LOCK.RELEASE".to_owned(),
        }
    }

    /// The server's configuration for the sale.
    fn settings(self) -> [(&'static str, String); 2] {
        let adopts = matches!(self, Way::AdoptedSet | Way::AdoptedWait);
        let wait_ms = if self == Way::AdoptedWait { ADOPT_WAIT_MS } else { 0 };
        let patterns = if adopts { "lock:*" } else { "" };
        [("lock.adopt", patterns.to_owned()), ("lock.adopt-wait", wait_ms.to_string())]
    }

    /// Runs one buyer until it has a ticket or none is left; returns when it held the lock.
    fn buy(self, client: &mut Connection, buyer: &str) -> RedisResult<Instant> {
        let held;
        match self {
            Way::NoLock => {
                held = Instant::now();
                buy_if_any_left(client, buyer)?;
            }
            Way::PolledSet | Way::AdoptedSet | Way::AdoptedWait => {
                while !set_nx(client, buyer)? {
                    thread::sleep(POLL);
                }
                held = Instant::now();
                buy_if_any_left(client, buyer)?;
                () = compare_and_delete().key(LOCK).arg(buyer).invoke(client)?;
            }
            Way::Acquire => {
                // One request is enough, because the server queues it. It returns nil only when BLOCK times out.
                while !acquire(client, buyer)? {
                    thread::sleep(POLL);
                }
                held = Instant::now();
                buy_if_any_left(client, buyer)?;
                () = redis::cmd("LOCK.RELEASE").arg(LOCK).arg(buyer).query(client)?;
            }
        }
        Ok(held)
    }
}

/// Correct only if no other client does the same meanwhile: the stock may change between the read and the sale.
fn buy_if_any_left(client: &mut Connection, buyer: &str) -> RedisResult<()> {
    let left: i64 = client.get(STOCK)?;
    if left > 0 {
        thread::sleep(THINK);
        () = client.decr(STOCK, 1)?;
        () = client.rpush(SALES, buyer)?;
    }
    Ok(())
}

fn set_nx(client: &mut Connection, token: &str) -> RedisResult<bool> {
    redis::cmd("SET").arg(LOCK).arg(token).arg("NX").arg("PX").arg(LEASE_MS).query(client)
}

fn compare_and_delete() -> Script {
    Script::new("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end")
}

fn acquire(client: &mut Connection, token: &str) -> RedisResult<bool> {
    let mut request = redis::cmd("LOCK.ACQUIRE");
    request.arg(LOCK).arg(token).arg("PX").arg(LEASE_MS).arg("BLOCK").arg(BLOCK_MS);
    let granted: Option<(String, u64)> = request.query(client)?;
    Ok(granted.is_some())
}

struct Round {
    sold: usize,
    time: Duration,
    longest_wait: Duration,
    commands: i64,
    cpu_seconds: f64,
}

/// One sale: sets the stock, starts all buyers, counts the sold tickets.
fn sell(server: &Server, way: Way) -> Result<Round, Box<dyn Error>> {
    let mut admin = connect(server)?;
    () = redis::cmd("FLUSHALL").query(&mut admin)?;
    for (name, value) in way.settings() {
        () = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query(&mut admin)?;
    }
    () = admin.set(STOCK, TICKETS)?;
    compare_and_delete().prepare_invoke().load(&mut admin)?;
    let clients = (0..BUYERS).map(|_| connect(server)).collect::<RedisResult<Vec<_>>>()?;

    let before = Usage::read(&mut admin)?;
    let opening = Arc::new(Barrier::new(BUYERS + 1));
    let mut buyers = Vec::new();
    for (number, mut client) in clients.into_iter().enumerate() {
        let opening = Arc::clone(&opening);
        let visit = move || {
            opening.wait();
            let start = Instant::now();
            let held = way.buy(&mut client, &format!("buyer-{number}"))?;
            RedisResult::Ok((start, held, Instant::now()))
        };
        // 500 stacks of the default 8 MB could fail on a system with strict overcommit.
        buyers.push(thread::Builder::new().stack_size(256 * 1024).spawn(visit)?);
    }
    opening.wait();
    // The buyers measure the time: this thread may be the last to wake up.
    let visits =
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer never panics")).collect::<RedisResult<Vec<_>>>()?;
    let opened = visits.iter().map(|visit| visit.0).min().expect("there are buyers");
    let closed = visits.iter().map(|visit| visit.2).max().expect("there are buyers");
    let after = Usage::read(&mut admin)?;

    Ok(Round {
        sold: admin.llen(SALES)?,
        time: closed - opened,
        longest_wait: visits.iter().map(|visit| visit.1 - visit.0).max().unwrap_or_default(),
        commands: after.commands - before.commands - 1, // the second INFO counts the first one
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
    })
}

/// The server's statistics since its start. Commands called by scripts count too.
struct Usage {
    commands: i64,
    cpu_seconds: f64,
}

impl Usage {
    fn read(admin: &mut Connection) -> RedisResult<Usage> {
        let info: String = redis::cmd("INFO").arg("stats").arg("cpu").query(admin)?;
        let info = Info::parse(&info);
        Ok(Usage { commands: info.number("total_commands_processed"), cpu_seconds: info.cpu_us() / 1e6 })
    }
}

fn connect(server: &Server) -> RedisResult<Connection> {
    Client::open(("127.0.0.1", server.port()))?.get_connection()
}
