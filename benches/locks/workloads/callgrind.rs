//! A server under callgrind, which counts the instructions of its main thread. CPU time is too noisy for differences of
//! a few percent.

use std::io;
use std::process::Command;

use support::{Builder, Connection};

use crate::server::Server;

/// Repetitions of a count, after one warm-up. The minimum is used, because the server's periodic work can only add.
pub const COUNTS: usize = 3;

/// The server's function that runs module timers. Their periodic work is not part of a pair, and under valgrind there
/// is about fifty times as much of it per pair.
const TIMERS: &str = "moduleTimerHandler";

/// Whether callgrind can count here.
pub fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

pub struct Counter {
    pub server: Server,
    pub client: Connection,
    dumps: usize,
}

impl Counter {
    pub fn start(builder: &Builder) -> io::Result<Counter> {
        // Separate threads, because only the main thread counts. Counting starts on request, because startup is long.
        let callgrind = [
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            "--instr-atstart=no",
            "--callgrind-out-file=callgrind",
        ];
        // The server's cron is not part of a pair, so run it as rarely as possible: once a second.
        let builder = builder.clone().config("hz 1").config("dynamic-hz no").run_by(&callgrind);
        let server = Server::start(&builder)
            .map_err(|error| io::Error::other(format!("{error}; is valgrind there? (apt install valgrind)")))?;
        let client = Connection::connect(server.port())?;
        let counter = Counter { server, client, dumps: 0 };
        counter.control(&["instrumentation", "on"])?;
        Ok(counter)
    }

    /// Instructions of the main thread for each of `units`.
    pub fn count(&mut self, units: usize, mut work: impl FnMut(&mut Connection) -> io::Result<()>) -> io::Result<f64> {
        work(&mut self.client)?;
        self.control(&["zero"])?;
        let mut least = f64::INFINITY;
        for _ in 0..COUNTS {
            work(&mut self.client)?;
            least = least.min(self.counted()? / units as f64);
        }
        Ok(least)
    }

    /// The count since the last call, without module timers. Resets it to zero.
    fn counted(&mut self) -> io::Result<f64> {
        self.control(&["dump"])?;
        self.dumps += 1;
        let file = self.server.dir().join(format!("callgrind.{}-01", self.dumps));
        let text = std::fs::read_to_string(&file)?;
        std::fs::remove_file(&file)?;
        let total = total(&text).ok_or_else(|| io::Error::other(format!("{} has no total", file.display())))?;
        Ok(total - inclusive(&text, TIMERS))
    }

    /// Sends callgrind a command, and waits until it has run.
    fn control(&self, command: &[&str]) -> io::Result<()> {
        let output = Command::new("vgdb").arg(format!("--pid={}", self.server.pid())).args(command).output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("vgdb: {}", String::from_utf8_lossy(&output.stderr))))
        }
    }
}

/// The total count of callgrind.
fn total(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// The inclusive count of this function's calls. A name is written in full at its first occurrence and as a number
/// afterwards.
fn inclusive(text: &str, function: &str) -> f64 {
    let mut number = None;
    let mut is_called = false;
    let mut counted = 0.0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((which, name)) = line.split_once("fn=").and_then(|(_, rest)| rest.split_once(')')) {
            if name.trim() == function {
                number = Some(which);
            }
            if line.starts_with("cfn=") {
                is_called = number == Some(which);
            }
        } else if line.starts_with("calls=") {
            // The next line has the cost of the calls, after their position.
            let cost = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok());
            counted += cost.filter(|_| is_called).unwrap_or_default();
        }
    }
    counted
}
