//! Upper time bounds on machines that pause now and then: measures the time that a server actually had.

use std::fs;
use std::time::{Duration, Instant};

/// How often to check a server while time is measured.
pub const TICK: Duration = Duration::from_millis(5);

/// The system's unit of CPU time, a hundredth of a second, whatever its clock does.
const CPU_TICK: Duration = Duration::from_millis(10);

/// Measures how long a server has had to do something: the time in which it slept or worked while the test watched.
///
/// A busy machine takes hundreds of milliseconds at any point from one process or from all of them, so a bound in
/// wall-clock time would fail. Time taken away does not count here. A missed wake-up is different: the server keeps
/// sleeping, or works for too long, and every millisecond of that counts. So one attempt is enough, and the bound can
/// be tight.
///
/// It must be checked every `TICK`: the time between two checks counts as two ticks at most.
pub struct Stopwatch {
    /// The server's process; without one, only pauses of the test itself are excluded.
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

    /// Checks the server, and returns the time that it has had so far.
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

/// Whether a process sleeps voluntarily, and how much CPU time it has used. If the system does not report it (other
/// than Linux, or the process is gone), the process counts as sleeping, so that all time counts.
fn look(process: Option<u32>) -> (bool, Duration) {
    let stat = process.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok()).unwrap_or_default();
    // The name in parentheses may contain anything; the state and many numbers follow it: proc_pid_stat(5).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let cpu_ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).unwrap_or(0);
    let sleeps = fields.first().is_none_or(|state| *state == "S");
    (sleeps, CPU_TICK * (cpu_ticks(11) + cpu_ticks(12)))
}
