//! How this process ends, derived from the end of the command and the state of the lock.

use std::io;
use std::process::ExitCode;

use rustix::process::Signal;

use super::command_group::Ended;
use super::dispositions::{self, PutAside, Substitute};

/// The command exists but cannot be executed: the status that every shell uses.
const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
const NOT_FOUND: u8 = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Status(u8),
    /// End by the signal with this number, as timeout(1) and sudo(8) do. A shell then shows 128 plus the number, and
    /// Ctrl-C ends a shell loop.
    Signal(i32),
}

/// The state of the lock when the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAtEnd {
    Released,
    /// Held when the command ended, but the release did not reach the server. It will expire.
    LeftToExpire,
    /// For part of the command's run time the lock did not exclude other owners.
    Lost,
}

/// A lost lock is never silent: its status overrides the command's.
pub fn after(ended: Ended, lock: LockAtEnd, lost_exit_code: u8) -> Exit {
    match (lock, ended) {
        (LockAtEnd::Lost, _) => Exit::Status(lost_exit_code),
        (LockAtEnd::Released | LockAtEnd::LeftToExpire, Ended::Exited(status)) => Exit::Status(status),
        (LockAtEnd::Released | LockAtEnd::LeftToExpire, Ended::Killed(signal)) => Exit::Signal(signal),
    }
}

/// The exit status for a command that could not be started.
pub fn not_started(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::Status(NOT_FOUND),
        _ => Exit::Status(NOT_EXECUTABLE),
    }
}

/// The reason, worded like a shell's.
pub fn why_not_started(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "command not found".to_string(),
        _ => error.to_string(),
    }
}

impl Exit {
    /// Ends this process, or returns the status to end it with.
    pub fn leave(self) -> ExitCode {
        match self {
            Exit::Status(status) => ExitCode::from(status),
            Exit::Signal(signal) => {
                end_by(signal);
                // PID 1 of a container does not end by its own signals.
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
            }
        }
    }
}

fn end_by(signal: i32) {
    // A core dump of this process would say nothing about the command.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let named = Signal::from_named_raw(signal);
    let _default = named.map(|named| PutAside::new(named, Substitute::Default));
    dispositions::unblock(named.as_slice());
    dispositions::raise(signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: u8 = 75;

    #[test]
    fn the_exit_status_is_the_commands() {
        for status in [0, 1, 75, 255] {
            let exit = after(Ended::Exited(status), LockAtEnd::Released, LOST);
            assert_eq!(exit, Exit::Status(status));
        }
        assert_eq!(after(Ended::Killed(9), LockAtEnd::Released, LOST), Exit::Signal(9));
    }

    #[test]
    fn an_unreachable_server_at_the_end_does_not_change_it() {
        assert_eq!(after(Ended::Exited(3), LockAtEnd::LeftToExpire, LOST), Exit::Status(3));
        assert_eq!(after(Ended::Killed(15), LockAtEnd::LeftToExpire, LOST), Exit::Signal(15));
    }

    #[test]
    fn a_lost_lock_takes_precedence() {
        for ended in [Ended::Exited(0), Ended::Exited(3), Ended::Killed(15)] {
            assert_eq!(after(ended, LockAtEnd::Lost, LOST), Exit::Status(LOST));
        }
    }

    #[test]
    fn a_missing_command_differs_from_one_that_cannot_be_executed() {
        assert_eq!(not_started(&io::ErrorKind::NotFound.into()), Exit::Status(127));
        assert_eq!(not_started(&io::ErrorKind::PermissionDenied.into()), Exit::Status(126));
        assert_eq!(not_started(&io::Error::from_raw_os_error(libc::ENOEXEC)), Exit::Status(126));
    }
}
