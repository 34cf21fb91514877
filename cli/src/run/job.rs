//! A command that runs under a lock, from its start to its end: signals go to it, the terminal goes to it and comes
//! back, it stops and resumes together with us, and it is ended when the lock is lost. Nothing in here knows of Redis.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::time::Duration;

use rustix::process::{kill_current_process_group, Signal};
use tokio::time::{sleep_until, Instant};

use super::command_group::{Change, CommandGroup, Ended};
use super::dispositions::{self, Mask, Meanwhile, PutAside};
use super::signals::{receiver_of, Receiver, Signals};
use super::supervise::{upon_stop, Foreground, Stop, UponStop, WhoStops};
use super::terminal::Terminal;

/// How often a group whose command has ended is looked at: nothing tells when the last process of it ends.
const GROUP_CHECK: Duration = Duration::from_millis(20);

/// The lock, as far as it matters to who runs under it.
pub trait Watched {
    /// Ends when the lock is lost.
    fn lost(&self) -> impl Future<Output = ()>;
    /// The lease is over by our own clock. Known at once, also after this process has stood still.
    fn is_over(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ended(Ended),
    /// The lock was lost while the command ran, and it still runs.
    LockLost,
}

pub struct Job {
    command: CommandGroup,
    terminal: Option<Terminal>,
    signals: Signals,
}

impl Job {
    /// Starts the command with `variables` in its environment.
    ///
    /// # Errors
    /// Where there is no such command, or it cannot be run.
    pub fn start(
        command: &[OsString],
        variables: &[(&str, OsString)],
        signals: Signals,
        mask: Mask,
    ) -> io::Result<Job> {
        let signals = signals.with_a_command()?;
        let mut terminal = Terminal::controlling();
        let at_once = terminal.as_mut().filter(|terminal| terminal.is_for_command_at_once());
        let lent = at_once.map(|terminal| {
            terminal.lent();
            &*terminal
        });
        let started = CommandGroup::start(command, variables, lent, mask);
        match (started, terminal) {
            (Ok(command), terminal) => Ok(Job { command, terminal, signals }),
            (Err(error), terminal) => {
                // The process that did not become the command may have taken it already.
                terminal.into_iter().for_each(|mut terminal| terminal.take_back());
                Err(error)
            }
        }
    }

    /// Waits for the end of the command, or of the lock. The terminal is ours again when the command has ended.
    pub async fn outcome_under(&mut self, lock: &impl Watched) -> Outcome {
        let outcome = tokio::select! {
            biased;
            () = lock.lost() => Outcome::LockLost,
            outcome = self.follow(lock) => outcome,
        };
        if let Outcome::Ended(ended) = outcome {
            self.take_back_terminal(ended);
        }
        outcome
    }

    /// Passes signals on and stops with the command until one of both ends.
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
                // By now we have been resumed. The command must not go on without its lock.
                Signal::CONT if lock.is_over() => return Outcome::LockLost,
                Signal::CONT => {
                    let has_lent = self.terminal.as_ref().is_some_and(Terminal::is_lent);
                    self.resume(has_lent);
                }
                signal => self.command.send(signal, receiver_of(signal)),
            }
        }
    }

    fn command_stopped(&mut self, signal: i32, lock: &impl Watched) {
        match upon_stop(signal, self.foreground()) {
            UponStop::Nothing => {}
            UponStop::Lend => self.resume(true),
            UponStop::StopToo(stop) => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.take_back();
                }
                stand_still(stop);
                // Otherwise the command is about to be ended.
                if !lock.is_over() {
                    self.resume(stop.wants_terminal);
                }
            }
        }
    }

    /// Ends the command with everything that it has started in its group, which may be what works on: by SIGTERM and,
    /// after `kill_after`, by SIGKILL.
    pub async fn end(&mut self, kill_after: Duration) {
        self.command.send(Signal::TERM, Receiver::Group);
        // Who stands still would not see it.
        self.command.send(Signal::CONT, Receiver::Group);
        let kill_at = Instant::now() + kill_after;
        let mut killed = false;
        let mut ended = None;
        // Whoever is left after SIGKILL is on its way out, or was not buried by its parent.
        while ended.is_none() || !(killed || self.command.is_empty()) {
            tokio::select! {
                () = sleep_until(kill_at), if !killed => {
                    killed = true;
                    self.command.send(Signal::KILL, Receiver::Group);
                }
                signal = self.signals.next() => ended = ended.or(self.follow_to_the_end(signal)),
                () = tokio::time::sleep(GROUP_CHECK), if ended.is_some() => {}
            }
        }
        if let Some(ended) = ended {
            self.take_back_terminal(ended);
        }
    }

    /// Does what a signal asks for while the command is being ended; Some: it has. We do not stop with it, for SIGKILL
    /// is to come.
    fn follow_to_the_end(&mut self, signal: Signal) -> Option<Ended> {
        if signal != Signal::CHILD {
            self.command.send(signal, receiver_of(signal));
            return None;
        }
        for change in self.command.changes() {
            match change {
                Change::Ended(ended) => return Some(ended),
                // It clears up, and may ask something.
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

    /// The command goes on: with the terminal if it wants that and our job has it.
    fn resume(&mut self, wants_terminal: bool) {
        let foreground = self.foreground();
        if let Some(terminal) = &mut self.terminal {
            match foreground {
                Foreground::Us if wants_terminal => terminal.lend(self.command.id()),
                // The shell has given it to another job while we stood still.
                Foreground::AnotherJob => terminal.forget(),
                _ => {}
            }
        }
        self.command.send(Signal::CONT, Receiver::Group);
    }

    fn take_back_terminal(&mut self, ended: Ended) {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_lent()) else { return };
        terminal.take_back();
        let Ended::Killed(by) = ended else { return };
        terminal.restore_modes();
        // Ctrl-C went to the command's group. A script, make or a pipeline around us would have got it too.
        if let Some(typed) = [Signal::INT, Signal::QUIT].into_iter().find(|typed| typed.as_raw() == by) {
            tell_our_group(typed);
        }
    }
}

/// Everyone in our process group but us, who act on our own.
fn tell_our_group(signal: Signal) {
    let _not_us = PutAside::new(signal, Meanwhile::Ignore);
    // We are in it, so it has somebody to signal.
    let _ = kill_current_process_group(signal);
}

/// Stops; returns when somebody resumes us. At once where the system discards the signal: in a group that no shell
/// would resume.
fn stand_still(stop: Stop) {
    let _stops = PutAside::new(stop.signal, Meanwhile::Default);
    match stop.who {
        // In one step: a shell that sees others stop may resume all of us at once. We are in the group: it cannot fail.
        WhoStops::WholeGroup => drop(kill_current_process_group(stop.signal)),
        WhoStops::Alone => dispositions::raise(stop.signal.as_raw()),
    }
}
