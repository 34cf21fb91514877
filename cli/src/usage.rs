//! Hints for invalid command lines: options that flock(1) and `consul lock` call by another name, and where the command
//! belongs.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// `-n` is an option of three programs, with three meanings.
pub const MEANING_OF_N: &str = "-n is the database, as in redis-cli; flock's -n is --no-wait, consul lock's is --limit";

/// An error of `redis-lock run` that clap does not detect. `command`: the definition of the whole command line.
pub fn of_run(mut command: Command, problem: String) -> Error {
    command.build();
    let run = command.find_subcommand_mut("run").expect("there is one");
    run.error(ErrorKind::ArgumentConflict, problem)
}

/// Why `run` has no command; `words` are the words before `--`.
pub fn no_command(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    match words.split_first() {
        Some((key, [])) => format!("missing command: redis-lock run {key} -- COMMAND [ARGUMENT…]"),
        Some((key, command)) => {
            format!("put the command after `--`: redis-lock run {key} -- {}", command.join(" "))
        }
        None => "missing KEY and command".to_string(),
    }
}

/// Adds a hint to a clap error.
pub fn with_hint(mut error: Error) -> Error {
    let is_of_run = error.get(ContextKind::Usage).is_none_or(|usage| usage.to_string().contains("redis-lock run "));
    let argument = error.get(ContextKind::InvalidArg).map(ContextValue::to_string).unwrap_or_default();
    let hint = match error.kind() {
        ErrorKind::UnknownArgument if is_of_run => Some(other_name(&argument)),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if argument.starts_with("-n ") => Some(MEANING_OF_N),
        // An option before KEY took it for its value.
        ErrorKind::MissingRequiredArgument if is_of_run && argument.contains("<KEY>") => {
            Some("put the KEY before --; -s, -n and -u take a value (flock's -s is --shared, its -n --no-wait)")
        }
        _ => None,
    };
    if let Some(hint) = hint {
        // Replaces clap's own: "to pass '-w' as a value, use '-- -w'" would run a command of this name.
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

/// The name that an option of flock(1) or `consul lock` has here.
fn other_name(argument: &str) -> &'static str {
    match argument {
        "-w" | "--timeout" => "--wait 30s waits up to 30 seconds (flock -w 30)",
        "-x" | "-e" => "locks are exclusive by default; --exclusive is the write lock for use with --shared",
        "-E" => "--conflict-exit-code STATUS is the exit status if the lock is not granted",
        "--nb" | "--nonblock" | "--nonblocking" => "--no-wait does not wait for the lock",
        _ => {
            "put options before `--`, and the command with its own after it: redis-lock run KEY -- COMMAND [ARGUMENT…]"
        }
    }
}
