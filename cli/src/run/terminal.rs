//! The controlling terminal of this process, and the process group in its foreground. Only that group may read from it
//! and set its modes, and it alone gets Ctrl-C. It is lent to the command's group while the command needs it.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{getpgrp, getpid, Pid};
use rustix::termios::{tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp, OptionalActions, Termios};

use super::dispositions::AllBlocked;
use super::supervise::Foreground;

/// The controlling terminal. There is none under cron, after setsid, or in a container without one.
pub struct Terminal {
    device: File,
    lent: bool,
    /// The modes before the terminal was first lent.
    modes: Option<Termios>,
}

impl Terminal {
    pub fn controlling() -> Option<Terminal> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { device, lent: false, modes: None })
    }

    /// Which group is in the foreground; `command` is the command's group.
    pub fn foreground(&self, command: Pid) -> Foreground {
        match tcgetpgrp(&self.device) {
            Ok(group) if group == getpgrp() => Foreground::Us,
            Ok(group) if group == command => Foreground::Command,
            Ok(_) => Foreground::AnotherJob,
            // The terminal was hung up.
            Err(_) => Foreground::NoTerminal,
        }
    }

    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// True if this process is alone in its group: then the command gets the terminal at its start. Other processes of
    /// our group (a pipeline, a script, make) would lose the terminal, and with it Ctrl-C; then the command gets it
    /// only when it needs it (see `supervise::upon_stop`).
    pub fn is_for_command_at_once(&self) -> bool {
        let whole_conversation = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let is_ours = || tcgetpgrp(&self.device).is_ok_and(|group| group == getpgrp());
        whole_conversation && getpid() == getpgrp() && is_ours()
    }

    /// The device, with which the command takes the terminal itself before its exec.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Records that the command takes the terminal at its start.
    pub fn lent(&mut self) {
        if self.modes.is_none() {
            self.modes = tcgetattr(&self.device).ok();
        }
        self.lent = true;
    }

    /// Puts `group` into the foreground.
    pub fn lend(&mut self, group: Pid) {
        self.lent();
        // Fails if the group has ended; then SIGCHLD reports it.
        let _ = tcsetpgrp(&self.device, group);
    }

    /// Forgets the loan: the shell gave the terminal to another job while we were stopped.
    pub fn forget(&mut self) {
        self.lent = false;
    }

    /// Puts our group back into the foreground if the command's group was there.
    pub fn reclaim(&mut self) {
        if self.lent {
            self.lent = false;
            // In the background, only a process that blocks SIGTTOU may do this.
            let _blocked = AllBlocked::new();
            let _ = tcsetpgrp(&self.device, getpgrp());
        }
    }

    /// Restores echo and line editing, as a shell does after a command that was killed before it could clean up.
    pub fn restore_modes(&self) {
        if let Some(modes) = &self.modes {
            let _blocked = AllBlocked::new();
            // Does not wait for output that is held back by Ctrl-S.
            let _ = tcsetattr(&self.device, OptionalActions::Now, modes);
        }
    }
}
