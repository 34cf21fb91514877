//! Pauses a process: SIGSTOP.

use std::fs;
use std::process::Command;

use support::until;

/// A stopped process. It is continued when this is dropped.
pub struct Stopped {
    pid: u32,
}

impl Stopped {
    /// Stops a process, and waits until it is stopped.
    #[track_caller]
    pub fn stop(pid: u32) -> Stopped {
        assert!(signal(pid, "-STOP"), "there is no process {pid}");
        let stopped = Stopped { pid };
        until(&format!("{pid} is stopped"), || is_stopped(pid));
        stopped
    }

    /// Continues the process.
    pub fn resume(self) {}
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        signal(self.pid, "-CONT");
    }
}

fn signal(pid: u32, name: &str) -> bool {
    Command::new("kill").args([name, &pid.to_string()]).status().expect("there is a kill").success()
}

/// See proc_pid_stat(5). Without /proc, assumes that the signal has arrived.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('T')))
        || !fs::exists("/proc/self/stat").unwrap_or(false)
}
