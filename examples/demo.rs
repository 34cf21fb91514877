//! Ten tickets, 500 buyers at once, three times: no lock, a polled `SET NX PX` lock, and `LOCK.ACQUIRE … BLOCK`.
//!
//! `make demo` runs it. Every buyer is a real client on a TCP connection of its own, all of them connected before the
//! sale opens; the server is a private one, on a free port, and gone afterwards. It never talks to a server that it did
//! not start. It fails (exit 1) when a round under a lock does not sell exactly the ten tickets.

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, RedisResult, Script};

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
    let server = Server::start()?;
    println!("{TICKETS} tickets, {BUYERS} buyers at once, each on a connection of its own; {}\n", server.version()?);
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

    /// One buyer's whole visit: it ends with a ticket, or with the news that there is none left.
    fn buy(self, shop: &mut Connection, buyer: &str) -> RedisResult<()> {
        match self {
            Way::NoLock => buy_if_any_left(shop, buyer),
            Way::PolledSet => {
                while !set_nx(shop, buyer)? {
                    thread::sleep(POLL);
                }
                buy_if_any_left(shop, buyer)?;
                compare_and_delete().key(LOCK).arg(buyer).invoke(shop)
            }
            Way::Acquire => {
                // One request is enough, for the server grants it when its turn comes. It says nil only after BLOCK.
                while !acquire(shop, buyer)? {
                    thread::sleep(POLL);
                }
                buy_if_any_left(shop, buyer)?;
                redis::cmd("LOCK.RELEASE").arg(LOCK).arg(buyer).query(shop)
            }
        }
    }
}

/// Right only while nobody else does the same: the stock that was read is old news by the time of the sale.
fn buy_if_any_left(shop: &mut Connection, buyer: &str) -> RedisResult<()> {
    let left: i64 = shop.get(STOCK)?;
    if left > 0 {
        thread::sleep(THINK);
        () = shop.decr(STOCK, 1)?;
        () = shop.rpush(SALES, buyer)?;
    }
    Ok(())
}

fn set_nx(shop: &mut Connection, token: &str) -> RedisResult<bool> {
    redis::cmd("SET").arg(LOCK).arg(token).arg("NX").arg("PX").arg(LEASE_MS).query(shop)
}

fn compare_and_delete() -> Script {
    Script::new("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end")
}

fn acquire(shop: &mut Connection, token: &str) -> RedisResult<bool> {
    let mut request = redis::cmd("LOCK.ACQUIRE");
    request.arg(LOCK).arg(token).arg("PX").arg(LEASE_MS).arg("BLOCK").arg(BLOCK_MS);
    let granted: Option<(String, u64)> = request.query(shop)?;
    Ok(granted.is_some())
}

struct Round {
    sold: usize,
    time: Duration,
    commands: u64,
    cpu_seconds: f64,
}

/// One sale: fill the shop, let everybody in, count.
fn sell(server: &Server, way: Way) -> Result<Round, Box<dyn Error>> {
    let mut office = server.connect()?;
    () = redis::cmd("FLUSHALL").query(&mut office)?;
    () = office.set(STOCK, TICKETS)?;
    compare_and_delete().prepare_invoke().load(&mut office)?;
    let crowd = (0..BUYERS).map(|_| server.connect()).collect::<RedisResult<Vec<_>>>()?;

    let before = Usage::read(&mut office)?;
    let gun = Arc::new(Barrier::new(BUYERS + 1));
    let mut buyers = Vec::new();
    for (number, mut shop) in crowd.into_iter().enumerate() {
        let gun = Arc::clone(&gun);
        let visit = move || {
            gun.wait();
            let start = Instant::now();
            way.buy(&mut shop, &format!("buyer-{number}"))?;
            RedisResult::Ok((start, Instant::now()))
        };
        // 500 stacks of the usual 8 MB would be refused where memory is promised sparingly.
        buyers.push(thread::Builder::new().stack_size(256 * 1024).spawn(visit)?);
    }
    gun.wait();
    // The buyers' own watches: this thread may be the last to be woken by the gun.
    let visits =
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer never panics")).collect::<RedisResult<Vec<_>>>()?;
    let opened = visits.iter().map(|visit| visit.0).min().expect("there are buyers");
    let closed = visits.iter().map(|visit| visit.1).max().expect("there are buyers");
    let after = Usage::read(&mut office)?;

    Ok(Round {
        sold: office.llen(SALES)?,
        time: closed - opened,
        commands: after.commands - before.commands - 1, // the first INFO counts among what the second one sees
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
    })
}

/// What the server has done since it started, in its own words. What a script calls counts as commands too.
struct Usage {
    commands: u64,
    cpu_seconds: f64,
}

impl Usage {
    fn read(office: &mut Connection) -> Result<Usage, Box<dyn Error>> {
        let info: String = redis::cmd("INFO").arg("stats").arg("cpu").query(office)?;
        let user: f64 = info_field(&info, "used_cpu_user")?.parse()?;
        let system: f64 = info_field(&info, "used_cpu_sys")?.parse()?;
        Ok(Usage { commands: info_field(&info, "total_commands_processed")?.parse()?, cpu_seconds: user + system })
    }
}

fn info_field<'a>(info: &'a str, name: &str) -> Result<&'a str, String> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| format!("INFO has no field {name}"))
}

/// A redis-server of our own, with the module, in a directory of its own under the system's temporary one.
struct Server {
    guard: Child,
    port: u16,
    dir: tempfile::TempDir,
}

/// The server's parent is a shell that waits for the end of its standard input, a pipe from us. However we end, by
/// return, panic, Ctrl-C or kill -9, the pipe closes, and the shell stops the server and removes its directory.
const GUARD: &str = r#""$@" --dir "$0" >"$0/log" 2>&1 & cat >/dev/null; kill $! 2>/dev/null; wait $!; rm -rf "$0""#;

impl Server {
    fn start() -> Result<Server, Box<dyn Error>> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let module = module_path()?;
        let dir = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let guard = Command::new("sh")
            .args(["-c", GUARD])
            .arg(dir.path())
            .arg(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--loadmodule"])
            .arg(module)
            .stdin(Stdio::piped())
            .process_group(0) // Ctrl-C is for us alone: the guard has to outlive us
            .spawn()?;
        let server = Server { guard, port, dir };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<(), Box<dyn Error>> {
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            match self.is_ours() {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(format!("somebody else took port {} first; try again", self.port).into()),
                Err(error) if Instant::now() > give_up => {
                    let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                    return Err(format!("no server came up ({error}); its log:\n{log}").into());
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// A sale begins with FLUSHALL: never on a server that is not ours, should one have taken the free port meanwhile.
    fn is_ours(&self) -> Result<bool, Box<dyn Error>> {
        let (_, dir): (String, String) = redis::cmd("CONFIG").arg("GET").arg("dir").query(&mut self.connect()?)?;
        Ok(Path::new(&dir) == self.dir.path().canonicalize()?)
    }

    fn connect(&self) -> RedisResult<Connection> {
        Client::open(("127.0.0.1", self.port))?.get_connection()
    }

    fn version(&self) -> Result<String, Box<dyn Error>> {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.connect()?)?;
        let valkey = info_field(&info, "valkey_version").map(|version| format!("Valkey {version}"));
        Ok(valkey.or_else(|_| info_field(&info, "redis_version").map(|version| format!("Redis {version}")))?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if let Err(error) = self.guard.wait() {
            eprintln!("the server's guard: {error}");
        }
    }
}

/// Cargo puts the module two floors above its examples: target/release/examples/demo, target/release/libredis_lock.so.
fn module_path() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("REDIS_LOCK_MODULE") {
        return PathBuf::from(path).canonicalize();
    }
    let demo = std::env::current_exe()?;
    let name = format!("{}redis_lock{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let release = demo.ancestors().nth(2).ok_or(io::ErrorKind::NotFound)?;
    release
        .join(&name)
        .canonicalize()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}; make build first")))
}
