//! Ten tickets, 500 buyers at once, three times: no lock, a polled `SET NX PX` lock, and `LOCK.ACQUIRE … BLOCK`.
//!
//! `make demo` runs it. Every buyer is a client of a stock library (the crate `redis`) on a TCP connection of its own,
//! and all of them are connected before the sale opens. The server is a private one, on a free port, and gone
//! afterwards: a sale begins with FLUSHALL, so it never talks to a server that it did not start. It fails (exit 1) when
//! a round under a lock does not sell exactly the ten tickets.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, RedisResult, Script};
use support::{Info, Server};

const TICKETS: usize = 10;
const BUYERS: usize = 500;

/// What lies between reading the stock and selling: a price, a seat, a card. Without a lock, it goes wrong here.
const THINK: Duration = Duration::from_millis(1);

/// How often a buyer asks for a lock that is held. Client libraries poll every 10 to 100 ms: slower spares the server,
/// and leaves the lock idle for longer.
const POLL: Duration = Duration::from_millis(10);

const LEASE_MS: u64 = 30_000;
const BLOCK_MS: u64 = 60_000;

const LOCK: &str = "lock:tickets";
const STOCK: &str = "stock";
const SALES: &str = "sales";

fn main() -> ExitCode {
    match all_three_ways() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether both locks sold what there was, and no more.
fn all_three_ways() -> Result<bool, Box<dyn Error>> {
    let server = Server::builder().try_start()?;
    let version = server.info("server").version();
    println!("{TICKETS} tickets, {BUYERS} buyers at once, each on a connection of its own; {version}\n");
    println!("{:<38} {:>5} {:>9} {:>10} {:>11}", "", "sold", "time", "commands", "server CPU");

    let mut correct = true;
    for way in [Way::NoLock, Way::PolledSet, Way::Acquire] {
        let round = sell(&server, way)?;
        println!(
            "{:<38} {:>5} {:>6} ms {:>10} {:>8.0} ms  {}",
            way.title(),
            round.sold,
            round.time.as_millis(),
            round.commands,
            round.cpu_seconds * 1000.0,
            verdict(round.sold),
        );
        correct &= way == Way::NoLock || round.sold == TICKETS;
    }

    println!(
        "\nsold: sales recorded · time: until the last buyer knew · commands, CPU: as the server's INFO counts them"
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

/// How the buyers keep out of each other's way.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    NoLock,
    PolledSet,
    Acquire,
}

impl Way {
    fn title(self) -> String {
        match self {
            Way::NoLock => "no lock".to_owned(),
            Way::PolledSet => format!("SET NX PX every {} ms, Lua to release", POLL.as_millis()),
            Way::Acquire => "LOCK.ACQUIRE … BLOCK, LOCK.RELEASE".to_owned(),
        }
    }

    /// One buyer's whole visit: it ends with a ticket, or when none is left.
    fn buy(self, client: &mut Connection, buyer: &str) -> RedisResult<()> {
        match self {
            Way::NoLock => buy_if_any_left(client, buyer),
            Way::PolledSet => {
                while !set_nx(client, buyer)? {
                    thread::sleep(POLL);
                }
                buy_if_any_left(client, buyer)?;
                compare_and_delete().key(LOCK).arg(buyer).invoke(client)
            }
            Way::Acquire => {
                // One request is enough, for the server grants it when its turn comes. It says nil only after BLOCK.
                while !acquire(client, buyer)? {
                    thread::sleep(POLL);
                }
                buy_if_any_left(client, buyer)?;
                redis::cmd("LOCK.RELEASE").arg(LOCK).arg(buyer).query(client)
            }
        }
    }
}

/// Right only if no other client does the same: the stock may change between the read and the sale.
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
    commands: i64,
    cpu_seconds: f64,
}

/// One sale: sets the stock, lets every buyer in, counts.
fn sell(server: &Server, way: Way) -> Result<Round, Box<dyn Error>> {
    let mut admin = connect(server)?;
    () = redis::cmd("FLUSHALL").query(&mut admin)?;
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
            way.buy(&mut client, &format!("buyer-{number}"))?;
            RedisResult::Ok((start, Instant::now()))
        };
        // 500 stacks of the usual 8 MB would be refused where memory is promised sparingly.
        buyers.push(thread::Builder::new().stack_size(256 * 1024).spawn(visit)?);
    }
    opening.wait();
    // The buyers measure the time: this thread may be the last to wake up.
    let visits =
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer never panics")).collect::<RedisResult<Vec<_>>>()?;
    let opened = visits.iter().map(|visit| visit.0).min().expect("there are buyers");
    let closed = visits.iter().map(|visit| visit.1).max().expect("there are buyers");
    let after = Usage::read(&mut admin)?;

    Ok(Round {
        sold: admin.llen(SALES)?,
        time: closed - opened,
        commands: after.commands - before.commands - 1, // the first INFO counts among what the second one sees
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
    })
}

/// What the server has done since it started, in its own words. What a script calls counts as commands too.
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
