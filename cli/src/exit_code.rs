//! The exit statuses of this program. They are documented in the help, the man pages and the README, and scripts rely
//! on them. The values of sysexits.h do not collide with the usual statuses of commands.

use std::process::ExitCode;

/// A negative result: not granted, no such lock, no holder to break, no waiter to cancel.
pub const NO: u8 = 1;
/// Invalid arguments.
pub const USAGE: u8 = 64;
/// The key holds something other than a lock, or a lock of another type.
pub const WRONG_TYPE: u8 = 65;
/// No connection, or a server without the module; applies if any server is affected.
pub const UNAVAILABLE: u8 = 69;
/// A local error: a file that cannot be read or written.
pub const MACHINE: u8 = 74;
/// An unexpected reply, quoted from the server.
pub const PROTOCOL: u8 = 76;
/// Missing permission, or a wrong password.
pub const NO_PERMISSION: u8 = 77;

/// The server's result for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> ExitCode {
        match answer {
            Answer::Yes => ExitCode::SUCCESS,
            Answer::No => ExitCode::from(NO),
        }
    }
}

/// The descriptions in help and man pages.
pub const STATUSES: [(u8, &str); 8] = [
    (0, "success"),
    (NO, "no such lock, holder or waiter; run: not granted"),
    (USAGE, "usage error"),
    (WRONG_TYPE, "the key holds another type, or another type of lock"),
    (UNAVAILABLE, "no connection, or no redis-lock module; with -c, also if only some primaries respond"),
    (MACHINE, "a file cannot be read or written"),
    (PROTOCOL, "any other error from the server"),
    (NO_PERMISSION, "no permission, or a wrong password"),
];

pub const OF_RUN: &str = "\
run exits with the status of its command (128 plus the signal number if a signal
ended it), with 75 if the lock was lost while it ran, with 126 if the command
cannot be run and 127 if it is not found; with --once, also with 0 if another run
succeeded in the meantime.";

/// The statuses of `run`, which its man page lists before [`STATUSES`].
pub const STATUSES_OF_RUN: [(&str, &str); 6] = [
    ("the command's own", "the lock was held until the command ended"),
    ("0", "also with --once, if another run succeeded in the meantime: the command did not run"),
    (
        "by its signal",
        "a signal ended the command: redis-lock ends by the same signal, which a shell reports as 128 plus its \
         number. While it waits for the lock, redis-lock ends by the signal that it receives",
    ),
    ("1, --conflict-exit-code", "not granted: held by another owner, or an operator cancelled the wait"),
    ("75, --lost-exit-code", "the lock was lost while the command ran"),
    ("126, 127", "the command cannot be run, or is not found. The lock is released"),
];

pub fn help() -> String {
    let lines = STATUSES.map(|(status, meaning)| format!("  {status:<3} {meaning}\n"));
    format!("Exit status:\n{}{OF_RUN}", lines.concat())
}
