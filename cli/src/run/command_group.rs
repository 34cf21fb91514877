//! The command as a separate process group: starts it, sends it signals, and waits for it. `supervise` decides how to
//! react to its changes.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use rustix::process::{
    getpid, kill_process, kill_process_group, setpgid, test_kill_process_group, wait, Pid, Signal, WaitOptions,
    WaitStatus,
};

use super::dispositions::{self, AllBlocked, Mask};
use super::signals::{Receiver, HANDLED};
use super::terminal::Terminal;
use super::watchdog::{self, Dismissed, Watchdog};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(u8),
    /// By the signal with this number; real-time signals have no name.
    Killed(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By the signal with this number: after Ctrl-Z, or because the command does not have the terminal.
    Stopped(i32),
    Ended(Ended),
}

/// A started command. It leads its process group, so the group's id is the command's pid.
pub struct CommandGroup {
    leader: Pid,
    /// The leader's pid is valid only until it is reaped; the group's id is valid while the group has a process.
    leader_ended: bool,
    /// Present until the command has ended.
    watchdog: Option<Watchdog>,
    /// Reaped at the end, so that the lock is not held any longer for it.
    dismissed: Option<Dismissed>,
}

impl CommandGroup {
    /// Starts the command with our environment and `variables`, our standard streams, and the signal state that `mask`
    /// and our parent had. With `terminal`, the command has the terminal from its first instruction. If SIGKILL ends
    /// this process, the lock is no longer renewed, and the group gets SIGTERM, then SIGKILL after `kill_after`.
    pub fn start(
        command: &[OsString],
        variables: &[(&str, OsString)],
        terminal: Option<&Terminal>,
        mask: Mask,
        kill_after: Duration,
    ) -> io::Result<CommandGroup> {
        let (program, arguments) = command.split_first().expect("clap requires a command");
        let mut process = Command::new(program);
        // A command may itself be a `run`: only the first one may have a slot.
        process.args(arguments).env_remove("REDIS_LOCK_SLOT").envs(variables.iter().cloned());
        let terminal = terminal.map(|terminal| terminal.device().as_raw_fd());
        let watchdog = Watchdog::start(kill_after)?;
        let pipe = watchdog.descriptor();
        // SAFETY: system calls only. Terminal and pipe stay open until `start` returns, which is after the exec.
        unsafe { dispositions::before_exec(&mut process, mask, HANDLED, move || lead_a_group(terminal, pipe)) };
        // A signal to the group must not run our handlers in the new process, where it would be lost.
        let _blocked = AllBlocked::new();
        match process.spawn() {
            Ok(child) => {
                let leader = Pid::from_raw(child.id() as i32).expect("no process has the number 0");
                Ok(CommandGroup { leader, leader_ended: false, watchdog: Some(watchdog), dismissed: None })
            }
            Err(error) => {
                drop(watchdog.dismiss());
                Err(error)
            }
        }
    }

    /// The command has ended, or was ended with its group. Processes that it left running are not ended any more.
    pub fn is_over(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            self.dismissed = Some(watchdog.dismiss());
        }
    }

    pub fn id(&self) -> Pid {
        self.leader
    }

    pub fn send(&self, signal: Signal, receiver: Receiver) {
        // Fails if the group is empty; then SIGCHLD reports the end.
        let _ = match receiver {
            Receiver::Group => kill_process_group(self.leader, signal),
            Receiver::Command if !self.leader_ended => kill_process(self.leader, signal),
            Receiver::Command => Ok(()),
        };
    }

    /// True if the group has no process left.
    pub fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader) == Err(rustix::io::Errno::SRCH)
    }

    /// The changes of the command's state since the last call. As PID 1 this also reaps the container's orphans, which
    /// become our children.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid == self.leader {
                changes.extend(change(status));
            }
        }
        self.leader_ended |= changes.iter().any(|change| matches!(change, Change::Ended(_)));
        changes
    }
}

/// Runs between fork and exec. The watchdog learns the group before the command runs, so the command is never without
/// one.
fn lead_a_group(terminal: Option<i32>, watchdog: i32) -> io::Result<()> {
    setpgid(None, None)?;
    watchdog::introduce(watchdog)?;
    if let Some(terminal) = terminal {
        // SAFETY: the descriptor is open in our parent, and so here. The call is allowed from the background, because
        // every signal is blocked.
        let terminal = unsafe { std::os::fd::BorrowedFd::borrow_raw(terminal) };
        rustix::termios::tcsetpgrp(terminal, getpid())?;
    }
    Ok(())
}

fn change(status: WaitStatus) -> Option<Change> {
    if let Some(signal) = status.stopping_signal() {
        return Some(Change::Stopped(signal));
    }
    if let Some(signal) = status.terminating_signal() {
        return Some(Change::Ended(Ended::Killed(signal)));
    }
    let status = status.exit_status()?;
    Some(Change::Ended(Ended::Exited(u8::try_from(status).expect("the system keeps eight bits of a status"))))
}
