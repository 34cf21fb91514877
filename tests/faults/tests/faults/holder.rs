//! A client in a separate process (`src/bin/holder.rs`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use std::time::Duration;

use support::{die_with_parent, Server};

pub struct Holder {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts a process that requests a mutex.
    pub fn start(server: &Server, key: &str, owner: &str, lease: Duration) -> Holder {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        let (port, lease) = (server.port().to_string(), lease.as_millis().to_string());
        command.args([&port, key, owner, &lease]).stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = command.spawn().expect("the holder starts");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Holder { child, stdin, stdout }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is granted the lock.
    pub fn fence(&mut self) -> i64 {
        let line = self.line();
        let fence = line.strip_prefix("fence ").and_then(|fence| fence.parse().ok());
        fence.unwrap_or_else(|| panic!("no fence: {line}"))
    }

    /// Makes it send a command. If it is stopped, this is the first thing it does when it continues.
    pub fn send_command(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("the holder runs");
    }

    /// The printed reply to the next of the commands.
    pub fn reply(&mut self) -> String {
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).expect("the holder writes");
        assert!(length > 0, "the holder has ended");
        line.trim_end().into()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        self.child.wait().expect("a child can be reaped");
    }
}
