//! Sentinels: three instances of the server under test in Sentinel mode. They agree on the primary, and clients ask
//! them for it.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{self, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::{die_with_parent, free_port, until, Client, Info, Reply, Server};
use tempfile::TempDir;

use crate::caller::Route;

/// Their number; two must agree.
const SENTINELS: u32 = 3;

/// The Sentinels' name for the primary.
pub const NAME: &str = "locks";

/// How often to try another port if the first one was taken in the meantime.
const ATTEMPTS: usize = 20;

/// How long a client waits for one Sentinel before asking the next.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// How often clients ask for the primary.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The Sentinels' failure detection settings.
#[derive(Clone, Copy, Debug)]
pub struct Judgement {
    /// A server that is silent for this long is down for the first Sentinel; for each other one half as long later. If
    /// all notice at the same moment, two may be elected, and each promotes another replica.
    pub down_after: Duration,
    /// A failover without progress for this long is abandoned; the next starts after twice as long.
    pub failover_timeout: Duration,
}

impl Judgement {
    fn of(self, sentinel: u32) -> Judgement {
        Judgement { down_after: self.down_after * (1 + sentinel) / 2, ..self }
    }
}

/// Three Sentinels for the same primary. Dropping them kills and reaps them.
pub struct Sentinels(Vec<Sentinel>);

struct Sentinel {
    port: u16,
    child: Child,
    dir: TempDir,
}

impl Sentinels {
    /// Starts them, and waits until each knows the others and that many replicas.
    #[track_caller]
    pub fn of(primary: &Server, replicas: usize, judgement: Judgement) -> Sentinels {
        let sentinels =
            Sentinels((1..=SENTINELS).map(|number| Sentinel::start(primary, judgement.of(number))).collect());
        for sentinel in &sentinels.0 {
            sentinel.hurry();
        }
        for sentinel in &sentinels.0 {
            until("the Sentinels know each other and the replicas", || {
                let primary = sentinel.primary();
                primary.get("num-other-sentinels").is_bulk(&(SENTINELS - 1).to_string())
                    && primary.get("num-slaves").is_bulk(&replicas.to_string())
                    && primary.get("flags").is_bulk("master")
            });
        }
        sentinels
    }

    /// The ports they listen on.
    pub fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|sentinel| sentinel.port).collect()
    }

    /// The route for clients that ask the Sentinels.
    #[track_caller]
    pub fn route(&self) -> Arc<dyn Route> {
        let ports = self.ports();
        let primary = query(&ports).expect("the Sentinels know a primary");
        Arc::new(AsSentinelsSay { ports, last: Mutex::new((primary, Instant::now())) })
    }

    /// Asks the first of them to replace a healthy primary. It does not wait for a replica that is fully in sync.
    #[track_caller]
    pub fn fail_over(&self) -> Reply {
        self.0[0].client().run(&format!("SENTINEL FAILOVER {NAME}"))
    }

    /// Whether all of them see that many healthy replicas of the primary, any of which could replace it.
    pub fn see_replicas(&self, count: usize) -> bool {
        self.0.iter().all(|sentinel| {
            let replicas = sentinel.client().run(&format!("SENTINEL REPLICAS {NAME}"));
            let is_well = |replica: &&Reply| {
                replica.get("flags").is_bulk("slave") && replica.get("master-link-status").is_bulk("ok")
            };
            replicas.items().iter().filter(is_well).count() == count
        })
    }

    /// Whether all of them report this server as the primary.
    pub fn agree_on(&self, port: u16) -> bool {
        self.0.iter().all(|sentinel| primary_of(sentinel.port).is_ok_and(|primary| primary.port() == port))
    }
}

/// The address that the Sentinels report. It is queried often, as if by clients subscribed to `+switch-master`.
struct AsSentinelsSay {
    ports: Vec<u16>,
    /// Their last reply, and when it came.
    last: Mutex<(SocketAddr, Instant)>,
}

impl Route for AsSentinelsSay {
    fn address(&self, _: &str) -> SocketAddr {
        let mut last = self.last.lock().expect("no panic while it is locked");
        if last.1.elapsed() > ASK_AGAIN {
            // If none of them replies, the address stays.
            let primary = query(&self.ports).unwrap_or(last.0);
            *last = (primary, Instant::now());
        }
        last.0
    }
}

/// The reply of the first Sentinel that replies.
fn query(sentinels: &[u16]) -> io::Result<SocketAddr> {
    let mut primary_found = Err(io::Error::other("there is no Sentinel"));
    for port in sentinels {
        primary_found = primary_of(*port);
        if primary_found.is_ok() {
            break;
        }
    }
    primary_found
}

fn primary_of(sentinel: u16) -> io::Result<SocketAddr> {
    let mut client = Client::try_connect(sentinel)?;
    client.send_line(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"));
    let address = match client.try_read(REPLY_TIMEOUT)? {
        Reply::Array(parts) => parts.iter().map(Reply::text).collect::<Vec<_>>().join(":"),
        other => return Err(io::Error::other(format!("{other:?}"))),
    };
    address.parse().map_err(io::Error::other)
}

impl Sentinel {
    #[track_caller]
    fn start(primary: &Server, judgement: Judgement) -> Sentinel {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            let dir = tempfile::Builder::new().prefix("redis-lock-sentinel-").tempdir().expect("a temporary directory");
            let port = free_port();
            let mut sentinel = Sentinel::spawn(dir, port, primary.port(), judgement).expect("the program is there");
            let mut is_ready = false;
            until("the Sentinel replies", || {
                is_ready = sentinel.replies().unwrap_or(false);
                is_ready || !sentinel.is_alive()
            });
            if is_ready {
                return sentinel;
            }
            log = sentinel.log();
            if !log.contains("Address already in use") {
                break;
            }
        }
        panic!("the Sentinel did not start; its log:\n{log}");
    }

    fn spawn(dir: TempDir, port: u16, primary: u16, judgement: Judgement) -> io::Result<Sentinel> {
        let config = dir.path().join("sentinel.conf");
        let lines = [
            format!("port {port}"),
            format!("bind {}", Ipv4Addr::LOCALHOST),
            format!("dir {}", dir.path().display()),
            format!("sentinel monitor {NAME} {} {primary} {}", Ipv4Addr::LOCALHOST, SENTINELS / 2 + 1),
            format!("sentinel down-after-milliseconds {NAME} {}", judgement.down_after.as_millis()),
            format!("sentinel failover-timeout {NAME} {}", judgement.failover_timeout.as_millis()),
        ];
        fs::write(&config, lines.join("\n") + "\n")?;
        let log = File::create(dir.path().join("log"))?;
        let mut program: PathBuf = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()).into();
        if program.components().nth(1).is_some() {
            // A path rather than a name to search for; absolute because the Sentinel runs in its own directory.
            program = path::absolute(program)?;
        }
        let mut command = Command::new(program);
        command.arg(&config).arg("--sentinel").current_dir(dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        die_with_parent(&mut command);
        Ok(Sentinel { port, child: command.spawn()?, dir })
    }

    /// Whether this process replies, not another one on its port.
    fn replies(&self) -> io::Result<bool> {
        let mut client = Client::try_connect(self.port)?;
        let reply = client.try_cmd(&["INFO", "server"])?;
        Ok(Info::parse(reply.text()).number("process_id") == i64::from(self.child.id()))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A Sentinel publishes hello messages every 2 s, treats an old primary as a replica after four times that, and
    /// reconnects after 15 s, which is too long for a test. And a Sentinel that was not scheduled for 2 s does nothing
    /// for 30 s, which is too long for a busy machine. Pings are not more frequent, because a replica that was silent
    /// for five ping periods is not promoted, and it reports its state once a second.
    #[track_caller]
    fn hurry(&self) {
        let lines = [
            "ping-period 400",
            "publish-period 250",
            "info-period 250",
            "ask-period 250",
            "min-link-reconnect-period 1000",
            "tilt-trigger 60000",
        ];
        for line in lines {
            assert_eq!(self.client().run(&format!("SENTINEL DEBUG {line}")), Reply::ok(), "{line}");
        }
    }

    #[track_caller]
    fn client(&self) -> Client {
        Client::connect(self.port)
    }

    #[track_caller]
    fn primary(&self) -> Reply {
        self.client().run(&format!("SENTINEL MASTER {NAME}"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of the Sentinel on port {}\n{}\n---", self.port, self.log());
        }
    }
}
