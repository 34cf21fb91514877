//! Runs the built program to its end, and captures its output.

use std::process::{Command, Stdio};

use serde_json::Value;
use support::Server;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-lock");

pub struct Output {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs it with the words of a line.
#[track_caller]
pub fn redis_lock(line: &str) -> Output {
    redis_lock_with(&line.split_whitespace().collect::<Vec<_>>())
}

/// Runs it with this server.
#[track_caller]
pub fn at(server: &Server, line: &str) -> Output {
    redis_lock(&format!("-p {} {line}", server.port()))
}

#[track_caller]
pub fn redis_lock_with(arguments: &[&str]) -> Output {
    run(command().args(arguments))
}

/// The program, without environment variables about servers.
pub fn command() -> Command {
    let mut command = Command::new(PROGRAM);
    for variable in ["REDISCLI_AUTH", "REDIS_LOCK_URL", "REDIS_LOCK_SENTINELS", "REDIS_LOCK_MASTER"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let done = command.output().expect("the program is built");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    let status = done.status.code().expect("no signal ended it");
    Output { status, stdout: text(done.stdout), stderr: text(done.stderr) }
}

impl Output {
    /// Its output, after a success.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        &self.stdout
    }

    /// The cells of each line, which are separated by more than one space.
    #[track_caller]
    pub fn rows(&self) -> Vec<Vec<&str>> {
        self.text()
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// The names of an object's fields, in alphabetical order.
#[track_caller]
pub fn fields(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}
