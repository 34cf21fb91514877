//! Types into a real redis-cli. It has a pipe rather than a terminal, so it prints no prompts.

use crate::support::{Server, LIMIT};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

pub struct Terminal {
    cli: Child,
    keyboard: ChildStdin,
    screen: Receiver<String>,
    /// The number of typed commands whose replies have not been read yet.
    unread: usize,
    /// The id of its connection in CLIENT LIST.
    pub id: i64,
}

/// An unfinished quotation. redis-cli reports it without sending anything to the server, so this also marks the end of
/// a reply inside MULTI.
const MARK: &str = "\"";
const MARK_SHOWN: &str = "Invalid argument(s)";

impl Terminal {
    pub fn open(server: &Server, options: &[&str]) -> Terminal {
        let program = std::env::var("REDIS_CLI").unwrap_or_else(|_| "redis-cli".into());
        let mut cli = Command::new(&program)
            .args(["-p", &server.port().to_string(), "--no-raw"])
            .args(options)
            // Without the preferences and the password of the user that runs the tests.
            .env("HOME", server.dir())
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error} (Debian, Ubuntu: apt install redis-tools)"));
        let keyboard = cli.stdin.take().expect("stdin is a pipe");
        let printed = BufReader::new(cli.stdout.take().expect("stdout is a pipe"));
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || printed.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let mut terminal = Terminal { cli, keyboard, screen, unread: 0, id: 0 };
        let id = terminal.run("CLIENT ID");
        let number = id.first().and_then(|line| line.strip_prefix("(integer) ")?.parse().ok());
        terminal.id = number.unwrap_or_else(|| panic!("CLIENT ID: {id:?}"));
        terminal
    }

    pub fn enter(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").expect("redis-cli runs");
    }

    /// Types a command; its reply is read later.
    pub fn begin(&mut self, command: &str) {
        self.enter(command);
        self.enter(MARK);
        self.unread += 1;
    }

    /// The output of the last typed command.
    pub fn finish(&mut self) -> Vec<String> {
        let mut reply = Vec::new();
        while self.unread > 0 {
            reply = self.read_to(|line| line == MARK_SHOWN);
            reply.pop();
            self.unread -= 1;
        }
        reply
    }

    /// Types a command, and returns its output.
    pub fn run(&mut self, command: &str) -> Vec<String> {
        self.begin(command);
        self.finish()
    }

    /// Reads lines up to and including the last one.
    pub fn read_to(&mut self, is_last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.read_line();
            let is_end = is_last(&line);
            lines.push(line);
            if is_end {
                return lines;
            }
        }
    }

    pub fn read_line(&mut self) -> String {
        self.screen.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("redis-cli prints nothing: {error}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.cli.kill();
        let _ = self.cli.wait();
    }
}
