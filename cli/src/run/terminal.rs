//! The terminal that this process was started from, and which process group it belongs to: reading from it, its modes,
//! and Ctrl-C are for that group alone. Lent to the command's group while the command needs it.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{getpgrp, getpid, Pid};
use rustix::termios::{tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp, OptionalActions, Termios};

use super::dispositions::AllBlocked;
use super::supervise::Foreground;

/// The controlling terminal. Under cron, in a container without one, and after setsid there is none.
pub struct Terminal {
    device: File,
    lent: bool,
    /// As they were when it was first lent.
    modes: Option<Termios>,
}

impl Terminal {
    pub fn controlling() -> Option<Terminal> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { device, lent: false, modes: None })
    }

    /// Who has it now; `command` is the command's group.
    pub fn foreground(&self, command: Pid) -> Foreground {
        match tcgetpgrp(&self.device) {
            Ok(group) if group == getpgrp() => Foreground::Us,
            Ok(group) if group == command => Foreground::Command,
            Ok(_) => Foreground::AnotherJob,
            // It was hung up.
            Err(_) => Foreground::NoTerminal,
        }
    }

    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// The command gets the terminal as it starts, where it is this process's alone. Where others share our process
    /// group (a pipeline, a script, make) they would lose it, and with it Ctrl-C: there the command gets it only when
    /// it asks (see `supervise::upon_stop`).
    pub fn is_for_command_at_once(&self) -> bool {
        let whole_conversation = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let is_ours = || tcgetpgrp(&self.device).is_ok_and(|group| group == getpgrp());
        whole_conversation && getpid() == getpgrp() && is_ours()
    }

    /// The device, for the command to take it before it runs.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// The command takes it as it starts.
    pub fn lent(&mut self) {
        if self.modes.is_none() {
            self.modes = tcgetattr(&self.device).ok();
        }
        self.lent = true;
    }

    /// Puts `group` into the foreground.
    pub fn lend(&mut self, group: Pid) {
        self.lent();
        // Fails where the group has ended meanwhile, of which SIGCHLD tells.
        let _ = tcsetpgrp(&self.device, group);
    }

    /// The shell has given the terminal to someone else while we stood still.
    pub fn forget(&mut self) {
        self.lent = false;
    }

    /// Our group is in the foreground again, if the command's was.
    pub fn take_back(&mut self) {
        if self.lent {
            self.lent = false;
            // From the background that is allowed to those who block SIGTTOU.
            let _blocked = AllBlocked::new();
            let _ = tcsetpgrp(&self.device, getpgrp());
        }
    }

    /// As a shell does behind a command that was killed and could not clear up: echo and line editing are on again.
    pub fn restore_modes(&self) {
        if let Some(modes) = &self.modes {
            let _blocked = AllBlocked::new();
            // Without waiting for output that Ctrl-S holds back.
            let _ = tcsetattr(&self.device, OptionalActions::Now, modes);
        }
    }
}
