//! Runs a command under a lock from its start to its end. Forwards signals, hands the terminal to the command and back,
//! stops and resumes together with the command, and ends the command when the lock is lost. Nothing here knows about
//! Redis.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::time::Duration;

use rustix::process::{kill_current_process_group, Signal};
use tokio::time::{sleep_until, Instant};

use super::command_group::{Change, CommandGroup, Ended};
use super::dispositions::{self, Mask, PutAside, Substitute};
use super::signals::{receiver_of, Receiver, Signals, ENDING};
use super::supervise::{upon_stop, Foreground, Stop, StopScope, UponStop};
use super::terminal::Terminal;

/// Poll interval for a group whose command has ended: no signal reports the end of its last process.
const GROUP_CHECK: Duration = Duration::from_millis(20);

/// What a running command needs to know of the lock.
pub trait Watched {
    /// Resolves when the lock is lost.
    fn lost(&self) -> impl Future<Output = ()>;
    /// True if the lease has expired by our own clock. Correct even right after this process was stopped.
    fn is_over(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ended(Ended),
    /// The lock was lost, and the command is still running.
    LockLost,
}

pub struct Job {
    command: CommandGroup,
    terminal: Option<Terminal>,
    signals: Signals,
    /// A terminating signal was forwarded, or has ended the command.
    is_terminating: bool,
}

impl Job {
    /// Starts the command with `variables` in its environment. If SIGKILL ends this process, the command and its group
    /// get SIGTERM, then SIGKILL after `kill_after`.
    ///
    /// # Errors
    /// If the command does not exist or cannot be executed.
    pub fn start(
        command: &[OsString],
        variables: &[(&str, OsString)],
        signals: Signals,
        mask: Mask,
        kill_after: Duration,
    ) -> io::Result<Job> {
        let signals = signals.with_a_command()?;
        let mut terminal = Terminal::controlling();
        let at_once = terminal.as_mut().filter(|terminal| terminal.is_for_command_at_once());
        let lent = at_once.map(|terminal| {
            terminal.lent();
            &*terminal
        });
        let started = CommandGroup::start(command, variables, lent, mask, kill_after);
        match (started, terminal) {
            (Ok(command), terminal) => Ok(Job { command, terminal, signals, is_terminating: false }),
            (Err(error), terminal) => {
                // The process that failed to become the command may already have taken the terminal.
                terminal.into_iter().for_each(|mut terminal| terminal.reclaim());
                Err(error)
            }
        }
    }

    /// Waits for the end of the command or of the lock. After the command's end, the terminal is ours again.
    pub async fn outcome_under(&mut self, lock: &impl Watched) -> Outcome {
        let outcome = tokio::select! {
            biased;
            () = lock.lost() => Outcome::LockLost,
            outcome = self.follow(lock) => outcome,
        };
        if let Outcome::Ended(ended) = outcome {
            self.command.is_over();
            // Ctrl-C reaches only the command while it has the terminal.
            self.is_terminating |= matches!(ended, Ended::Killed(by) if ENDING.iter().any(|one| one.as_raw() == by));
            self.reclaim_terminal(ended);
        }
        outcome
    }

    /// Forwards signals, and stops together with the command, until the command or the lock ends.
    async fn follow(&mut self, lock: &impl Watched) -> Outcome {
        loop {
            match self.signals.next().await {
                Signal::CHILD => {
                    for change in self.command.changes() {
                        match change {
                            Change::Ended(ended) => return Outcome::Ended(ended),
                            Change::Stopped(signal) => self.command_stopped(signal, lock),
                        }
                    }
                }
                // We have just been resumed. The command must not continue without its lock.
                Signal::CONT if lock.is_over() => return Outcome::LockLost,
                Signal::CONT => {
                    let has_lent = self.terminal.as_ref().is_some_and(Terminal::is_lent);
                    self.resume(has_lent);
                }
                signal => {
                    let receiver = receiver_of(signal);
                    self.is_terminating |= ENDING.contains(&signal) && receiver == Receiver::Group;
                    self.command.send(signal, receiver);
                }
            }
        }
    }

    fn command_stopped(&mut self, signal: i32, lock: &impl Watched) {
        match upon_stop(signal, self.foreground()) {
            UponStop::Nothing => {}
            UponStop::Lend => self.resume(true),
            UponStop::StopToo(stop) => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.reclaim();
                }
                stop_ourselves(stop);
                // If it has expired, the command is about to be ended.
                if !lock.is_over() {
                    self.resume(stop.wants_terminal);
                }
            }
        }
    }

    /// Ends the command and everything that it started in its group, because a child may do the actual work: with
    /// SIGTERM and, after `kill_after`, with SIGKILL.
    pub async fn end(&mut self, kill_after: Duration) {
        self.command.send(Signal::TERM, Receiver::Group);
        // A stopped process would not handle SIGTERM.
        self.command.send(Signal::CONT, Receiver::Group);
        // None (never) if the time exceeds what the clock can represent.
        let kill_at = Instant::now().checked_add(kill_after);
        let mut killed = false;
        let mut ended = None;
        // After SIGKILL, a process still in the group is exiting, or is a zombie that its parent has not reaped.
        while ended.is_none() || !(killed || self.command.is_empty()) {
            tokio::select! {
                () = until(kill_at), if !killed => {
                    killed = true;
                    self.command.send(Signal::KILL, Receiver::Group);
                }
                signal = self.signals.next() => ended = ended.or(self.follow_to_the_end(signal)),
                () = tokio::time::sleep(GROUP_CHECK), if ended.is_some() => {}
            }
        }
        self.command.is_over();
        if let Some(ended) = ended {
            self.reclaim_terminal(ended);
        }
    }

    /// After the command has ended: resolves when a terminating signal arrives, or at once if one arrived earlier.
    pub async fn terminating(&mut self) {
        if self.is_terminating {
            return;
        }
        while !ENDING.contains(&self.signals.next().await) {}
    }

    /// Handles a signal while the command is being ended. Some: the command has ended. We do not stop when the command
    /// stops, because we still have to send the SIGKILL.
    fn follow_to_the_end(&mut self, signal: Signal) -> Option<Ended> {
        if signal != Signal::CHILD {
            self.command.send(signal, receiver_of(signal));
            return None;
        }
        for change in self.command.changes() {
            match change {
                Change::Ended(ended) => return Some(ended),
                // The command may need the terminal for its cleanup.
                Change::Stopped(signal) if upon_stop(signal, self.foreground()) == UponStop::Lend => self.resume(true),
                Change::Stopped(_) => {}
            }
        }
        None
    }

    fn foreground(&self) -> Foreground {
        match &self.terminal {
            None => Foreground::NoTerminal,
            Some(terminal) => terminal.foreground(self.command.id()),
        }
    }

    /// Resumes the command, with the terminal if the command wants it and our job has it.
    fn resume(&mut self, wants_terminal: bool) {
        let foreground = self.foreground();
        if let Some(terminal) = &mut self.terminal {
            match foreground {
                Foreground::Us if wants_terminal => terminal.lend(self.command.id()),
                // The shell gave the terminal to another job while we were stopped.
                Foreground::AnotherJob => terminal.forget(),
                _ => {}
            }
        }
        self.command.send(Signal::CONT, Receiver::Group);
    }

    fn reclaim_terminal(&mut self, ended: Ended) {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_lent()) else { return };
        terminal.reclaim();
        let Ended::Killed(by) = ended else { return };
        terminal.restore_modes();
        // Ctrl-C went to the command's group only. A script, make or a pipeline around us would have received it too.
        if let Some(typed) = [Signal::INT, Signal::QUIT].into_iter().find(|typed| typed.as_raw() == by) {
            signal_our_group(typed);
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Signals the rest of our process group, but not ourselves, because we react separately.
fn signal_our_group(signal: Signal) {
    let _not_us = PutAside::new(signal, Substitute::Ignore);
    // The group contains this process, so the call cannot fail.
    let _ = kill_current_process_group(signal);
}

/// Stops this process, and returns when it is resumed. Returns at once if the system discards the signal because no
/// shell would resume the group.
fn stop_ourselves(stop: Stop) {
    let _stops = PutAside::new(stop.signal, Substitute::Default);
    match stop.scope {
        // One call for the whole group, because a shell that sees one process stop may resume all of us at once. The
        // group contains this process, so the call cannot fail.
        StopScope::WholeGroup => drop(kill_current_process_group(stop.signal)),
        StopScope::Alone => dispositions::raise(stop.signal.as_raw()),
    }
}
