//! The hints of redis-cli while typing, with a real redis-cli on a terminal.
//!
//! The terminal is script(1), which is part of every Debian (bsdutils): a terminal crate would offer no more.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::docs::all_commands;
use crate::support::skip::skip;
use crate::support::{until, Server};

/// A redis-cli on a terminal.
struct Typist {
    script: Child,
    keyboard: ChildStdin,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl Typist {
    fn sit_down(server: &Server) -> Typist {
        let program = std::env::var("REDIS_CLI").unwrap_or_else(|_| "redis-cli".into());
        // Wide enough for every hint, because redis-cli truncates them at the edge.
        let line = format!("stty cols 500; exec {program} -p {}", server.port());
        let mut script = Command::new("script")
            .args(["-qfc", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("HOME", server.dir())
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) is there");
        let keyboard = script.stdin.take().expect("a pipe");
        let mut screen = script.stdout.take().expect("a pipe");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let seen = printed.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().expect("the lock is not poisoned").extend_from_slice(&bytes[..count]);
            }
        });
        let typist = Typist { script, keyboard, printed };
        typist.wait_for("> ", |line| line.ends_with("> "));
        typist
    }

    /// Replaces the line with this text, and reads the hint after it.
    fn hint(&mut self, line: &str) -> String {
        const CLEAR_LINE: &str = "\x15";
        write!(self.keyboard, "{CLEAR_LINE}").expect("redis-cli runs");
        self.wait_for("an empty line", |shown| shown.ends_with("> "));
        write!(self.keyboard, "{line}").expect("redis-cli runs");
        // The prompt is followed by the typed words, and by the hint in grey.
        let shown = self.wait_for(line, |shown| {
            shown.split_once("> ").is_some_and(|(_, typed)| typed.starts_with(line) && typed.ends_with(GREY_ENDS))
        });
        let (_, typed) = shown.split_once("> ").expect("a prompt");
        let hint = typed[line.len()..].split_once(GREY).expect("a hint in grey").1;
        hint.trim_end_matches(GREY_ENDS).to_string()
    }

    /// Waits until the line on the screen is as expected, and returns it. Cursor movements and deletions are ignored.
    fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        until(&format!("redis-cli shows {what}"), || {
            let printed = self.printed.lock().expect("the lock is not poisoned");
            let text = String::from_utf8_lossy(&printed).replace("\x1b[0K", "");
            // linenoise ends each update with `\r` and the cursor's column.
            let lines: Vec<&str> = text.split('\r').collect();
            let is_cursor = |line: &str| line.starts_with("\x1b[") && line.ends_with('C');
            let last = lines.iter().rev().find(|line| !is_cursor(line)).copied().unwrap_or_default();
            line = last.trim_start_matches('\n').to_string();
            is_there(&line)
        });
        line
    }
}

/// The colour of hints, and the end of colours.
const GREY: &str = "\x1b[0;90;49m";
const GREY_ENDS: &str = "\x1b[0m";

impl Drop for Typist {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn redis_cli_hints_the_remaining_arguments() {
    if !cfg!(target_os = "linux") {
        return skip("script(1) has other options here");
    }
    let server = Server::start();
    let mut typist = Typist::sit_down(&server);
    let rest = "[EX seconds|PX milliseconds|PERSIST] [BLOCK milliseconds [COALESCE] [NOTIFY channel]] [SESSION]";
    assert_eq!(typist.hint("LOCK.ACQUIRE "), format!("key token|* {rest}"));
    assert_eq!(typist.hint("LOCK.ACQUIRE k "), format!("token|* {rest}"));
    assert_eq!(typist.hint("lock.acquire k me "), rest);
    assert_eq!(typist.hint("LOCK.RELEASE k "), "token [FAILED]");
    assert_eq!(typist.hint("RWLOCK.RELEASE k me "), "READ|WRITE [HOLDS holds]");
    assert_eq!(typist.hint("MLOCK.RELEASE "), "numkeys key [key ...] token");
    for (_, name, line) in all_commands() {
        if line.contains(' ') {
            assert!(!typist.hint(&format!("{name} ")).is_empty(), "{name}");
        }
    }
}
