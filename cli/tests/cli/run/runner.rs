//! A `redis-lock run` in the background of a test: its output, processes and end. Nothing of it outlives the test.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{kill_process, Pid, Signal};
use support::{until, Server};

use crate::tool::{command, PROGRAM};

/// Marks every process that a test starts, and all their children.
const MARK: &str = "REDIS_LOCK_TEST";

/// The mark of one [`Runner`]: identifies its processes, whatever group or session they are in.
#[derive(Clone)]
pub struct Mark(String);

impl Mark {
    pub fn new() -> Mark {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Mark(format!("{MARK}={}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn variable(&self) -> (&str, &str) {
        self.0.split_once('=').expect("a name and a value")
    }

    /// Processes that have not ended, by id.
    pub fn processes(&self) -> Vec<i32> {
        let everyone = fs::read_dir("/proc").expect("a Linux system").flatten();
        everyone
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                let variables = fs::read(entry.path().join("environ")).ok()?;
                variables.split(|byte| *byte == 0).any(|one| one == self.0.as_bytes()).then_some(id)
            })
            .collect()
    }

    pub fn kill_all(&self) {
        for id in self.processes() {
            // It may have ended since.
            let _ = kill_process(Pid::from_raw(id).expect("not 0"), Signal::KILL);
        }
    }
}

pub struct Runner {
    child: Child,
    mark: Mark,
    stdin: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
}

/// The output so far.
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn new(mut from: impl Read + Send + 'static) -> Stream {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = bytes.clone();
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut part) {
                shared.lock().expect("the lock is not poisoned").extend_from_slice(&part[..length]);
            }
        });
        Stream { bytes, reader: Some(reader) }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("the lock is not poisoned").clone()
    }

    /// The whole output, once every process that could write has ended.
    fn whole(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it only reads");
        }
        self.bytes()
    }
}

/// How a [`Runner`] ended.
#[derive(Debug)]
pub struct End {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl End {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    pub fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }
}

/// `redis-lock run` for this server, with the words of `options`, and `sh -c script` under the lock.
#[track_caller]
pub fn run(server: &Server, options: &str, script: &str) -> Runner {
    Runner::start(
        command().args(["-p", &server.port().to_string(), "run"]).args(words(options)).args(["--", "sh", "-c", script]),
    )
}

/// Like [`run`], but waits for its end.
#[track_caller]
pub fn done(server: &Server, options: &str, script: &str) -> End {
    run(server, options, script).end()
}

pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A shell line that runs `redis-lock run` for this server and lock, for tests that start it themselves.
pub fn line(server: &Server, options: &str) -> String {
    format!("{PROGRAM} -p {} run {options} --", server.port())
}

/// Resets signals that `nohup`, or a shell that started the tests in the background, has set to be ignored.
fn signals_as_typed(command: &mut Command) {
    // SAFETY: signal(2) is async-signal-safe, and SIG_DFL calls no code.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        })
    };
}

impl Runner {
    #[track_caller]
    pub fn start(command: &mut Command) -> Runner {
        let mark = Mark::new();
        let (name, value) = mark.variable();
        command.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        signals_as_typed(command);
        let mut child = command.spawn().expect("the program is built");
        let stdout = Stream::new(child.stdout.take().expect("piped"));
        let stderr = Stream::new(child.stderr.take().expect("piped"));
        Runner { stdin: child.stdin.take(), child, mark, stdout, stderr }
    }

    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("open").write_all(bytes).expect("the output is read");
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    #[track_caller]
    pub fn until_prints(&self, what: &str) {
        until(&format!("it prints {what:?}"), || self.printed().contains(what));
    }

    #[track_caller]
    pub fn until_says(&self, what: &str) {
        until(&format!("it says {what:?} on stderr"), || String::from_utf8_lossy(&self.stderr.bytes()).contains(what));
    }

    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.stdout.bytes()).into_owned()
    }

    /// The number after this word at the start of a printed line, as `echo word $$` prints it.
    #[track_caller]
    pub fn printed_id(&self, word: &str) -> i32 {
        let mut found = None;
        until(&format!("it prints {word:?} and a number"), || {
            let printed = self.printed();
            let whole_lines = printed.rsplit_once('\n').map_or("", |(lines, _)| lines);
            found = whole_lines.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Waits until it and every process with its output have ended.
    #[track_caller]
    pub fn end(mut self) -> End {
        self.stdin = None;
        let status = self.wait();
        let stdout = self.stdout.whole();
        let stderr = String::from_utf8(self.stderr.whole()).expect("text");
        End { status, stdout, stderr }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.mark.kill_all();
        // An error means that it was already reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub fn send(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).expect("not 0"), signal).expect("the process is there");
}

/// The state of a process as `ps` shows it: R, S, T (stopped), Z; None: the process is gone.
pub fn state(id: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub fn has_exited(id: i32) -> bool {
    matches!(state(id), None | Some('Z'))
}

#[track_caller]
pub fn until_exited(id: i32) {
    until(&format!("process {id} has ended"), || has_exited(id));
}

#[track_caller]
pub fn until_stopped(id: i32) {
    until(&format!("process {id} is stopped"), || state(id) == Some('T'));
}

pub fn is_held(server: &Server, key: &str) -> bool {
    server.client().cmd(&["EXISTS", key]).int() == 1
}

pub fn waiters(server: &Server, key: &str) -> usize {
    server.client().cmd(&["LOCK.WAITERS", key]).items().len()
}

#[track_caller]
pub fn until_waiters(server: &Server, key: &str, count: usize) {
    until(&format!("{count} wait for {key}"), || waiters(server, key) == count);
}
