//! A server that runs under callgrind, which counts the instructions of its main thread: differences of a few
//! hundredths are below the noise of CPU time.

use std::io;
use std::process::Command;

use support::{Builder, Connection};

use crate::server::Server;

/// Counts of the same, after one that warms up. The least of them is taken: what the server does on its own, once a
/// second, only adds.
pub const COUNTS: usize = 3;

/// The server's function that runs the timers of modules. Their work in a second is not part of a pair, and under
/// valgrind a second is some fifty times as long.
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
        // Threads apart, because the main thread's alone count. Counting begins when it is asked for: a start is long.
        let callgrind = [
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            "--instr-atstart=no",
            "--callgrind-out-file=callgrind",
        ];
        // The server's own clockwork is no part of a pair: once a second is as rare as it gets.
        let builder = builder.clone().config("hz 1").config("dynamic-hz no").run_by(&callgrind);
        let server = Server::start(&builder)
            .map_err(|error| io::Error::other(format!("{error}; is valgrind there? (apt install valgrind)")))?;
        let client = Connection::connect(server.port())?;
        let counter = Counter { server, client, dumps: 0 };
        counter.tell(&["instrumentation", "on"])?;
        Ok(counter)
    }

    /// Instructions of the main thread for each of `units`.
    pub fn count(&mut self, units: usize, mut work: impl FnMut(&mut Connection) -> io::Result<()>) -> io::Result<f64> {
        work(&mut self.client)?;
        self.tell(&["zero"])?;
        let mut least = f64::INFINITY;
        for _ in 0..COUNTS {
            work(&mut self.client)?;
            least = least.min(self.counted()? / units as f64);
        }
        Ok(least)
    }

    /// The count since the last call, without the timers of modules. It begins at zero again.
    fn counted(&mut self) -> io::Result<f64> {
        self.tell(&["dump"])?;
        self.dumps += 1;
        let file = self.server.dir().join(format!("callgrind.{}-01", self.dumps));
        let text = std::fs::read_to_string(&file)?;
        std::fs::remove_file(&file)?;
        let total = total(&text).ok_or_else(|| io::Error::other(format!("{} has no total", file.display())))?;
        Ok(total - inclusive(&text, TIMERS))
    }

    /// Sends callgrind a command, and waits until it has run.
    fn tell(&self, command: &[&str]) -> io::Result<()> {
        let output = Command::new("vgdb").arg(format!("--pid={}", self.server.pid())).args(command).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("vgdb: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

/// The count of callgrind in all.
fn total(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// The count of calls of this function, with all that they call. A name is written out where it occurs first, and a
/// number stands for it after that.
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
            // The next line has the cost of the calls, behind where they are.
            let cost = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok());
            counted += cost.filter(|_| is_called).unwrap_or_default();
        }
    }
    counted
}
