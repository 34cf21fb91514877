//! Upper bounds in time, on machines that stand still now and then: time as a server has it.

use std::fs;
use std::time::{Duration, Instant};

/// How often to look at a server while time is counted.
pub const TICK: Duration = Duration::from_millis(5);

/// What the system calls a hundredth of a second of processor time, whatever its clock does.
const CPU_TICK: Duration = Duration::from_millis(10);

/// Counts how long a server has had for what it owes: the time in which it slept or worked while the test watched.
///
/// A busy machine takes hundreds of milliseconds away at any point, from one process or from all of them, and a bound
/// in plain time fails then. What is taken away does not count here. A forgotten wake-up is something else: it lets the
/// server sleep on, and a careless one lets it work for too long; every millisecond of that counts. So one attempt is
/// enough, and the bound can be a tight one.
///
/// It has to be looked at every `TICK`: what lies between two looks counts as two ticks at most.
pub struct Stopwatch {
    /// The server's process; without one only the test's own standing still is left out.
    server: Option<u32>,
    counted: Duration,
    looked: Instant,
    worked: Duration,
}

impl Stopwatch {
    pub fn start(server: Option<u32>) -> Stopwatch {
        let (_, worked) = look(server);
        Stopwatch { server, counted: Duration::ZERO, looked: Instant::now(), worked }
    }

    /// Looks at the server, and returns what it has had so far.
    pub fn elapsed(&mut self) -> Duration {
        let (sleeps, worked) = look(self.server);
        let now = Instant::now();
        let passed = now - self.looked;
        let used = if sleeps { passed } else { worked.saturating_sub(self.worked) };
        self.counted += used.min(passed).min(2 * TICK);
        (self.looked, self.worked) = (now, worked);
        self.counted
    }
}

/// Whether a process sleeps of its own will, and how long it has worked since it began. Where the system does not tell
/// (other than Linux, or the process is gone) it is said to sleep, so that all time counts.
fn look(process: Option<u32>) -> (bool, Duration) {
    let stat = process.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok()).unwrap_or_default();
    // The name in brackets may contain anything; behind it come the state and many numbers: proc_pid_stat(5).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let cpu_ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).unwrap_or(0);
    let sleeps = fields.first().is_none_or(|state| *state == "S");
    (sleeps, CPU_TICK * (cpu_ticks(11) + cpu_ticks(12)))
}
