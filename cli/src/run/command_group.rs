//! The command as a process group of its own: started, signalled, and waited for. `supervise` decides how to react to
//! its changes.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::process::{
    getpid, kill_process, kill_process_group, setpgid, test_kill_process_group, wait, Pid, Signal, WaitOptions,
    WaitStatus,
};

use super::dispositions::{self, AllBlocked, Mask};
use super::signals::{Receiver, HANDLED};
use super::terminal::Terminal;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(u8),
    /// By the signal of this number; real-time signals have no name.
    Killed(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By the signal of this number: after Ctrl-Z, or because the command does not have the terminal.
    Stopped(i32),
    Ended(Ended),
}

/// A started command. It leads its process group: the group's id is the command's pid.
pub struct CommandGroup {
    leader: Pid,
    /// The leader's pid is valid only until it has been waited for; the group's id, as long as the group has a process.
    leader_ended: bool,
}

impl CommandGroup {
    /// Starts the command with our environment and `variables`, our standard streams, and the signal state that `mask`
    /// and our parent had. With `terminal`, the command has the terminal from its first instruction on.
    pub fn start(
        command: &[OsString],
        variables: &[(&str, OsString)],
        terminal: Option<&Terminal>,
        mask: Mask,
    ) -> io::Result<CommandGroup> {
        let (program, arguments) = command.split_first().expect("clap requires a command");
        let mut process = Command::new(program);
        // A command may be a `run` of its own: only the first one may have a slot.
        process.args(arguments).env_remove("REDIS_LOCK_SLOT").envs(variables.iter().cloned());
        let terminal = terminal.map(|terminal| terminal.device().as_raw_fd());
        let us = getpid();
        // SAFETY: system calls only. The terminal stays open until `start` returns, which is after the exec.
        unsafe { dispositions::before_exec(&mut process, mask, HANDLED, move || lead_a_group(terminal, us)) };
        // A signal to the group must not run our handlers in the new process: it would be lost.
        let _blocked = AllBlocked::new();
        let child = process.spawn()?;
        let leader = Pid::from_raw(child.id() as i32).expect("no process has the number 0");
        Ok(CommandGroup { leader, leader_ended: false })
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

    /// True if none of the processes that the command started in its group is left.
    pub fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader) == Err(rustix::io::Errno::SRCH)
    }

    /// The changes of the command's state since the last call. As pid 1 this also reaps the orphans of the container,
    /// which become our children.
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

/// Runs between fork and exec.
fn lead_a_group(terminal: Option<i32>, parent: Pid) -> io::Result<()> {
    setpgid(None, None)?;
    if let Some(terminal) = terminal {
        // SAFETY: the descriptor is open in our parent, and so here. From the background the call is allowed, as every
        // signal is blocked.
        let terminal = unsafe { std::os::fd::BorrowedFd::borrow_raw(terminal) };
        rustix::termios::tcsetpgrp(terminal, getpid())?;
    }
    end_with(parent)
}

/// If SIGKILL ends this process, the lock is renewed no more: the kernel then sends the command SIGTERM, as after a
/// lost lock.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn end_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Other systems have no parent-death signal.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn end_with(_: Pid) -> io::Result<()> {
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
