//! A real server for one test: in its own directory, on its own port, gone when the test ends, however it ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;
use crate::info::Info;
use crate::module::{built_clock, built_module};
use crate::ports::free_port;
use crate::process::{die_with_parent, faketime, request_shutdown};
use crate::wait::{until, LIMIT};

/// How often to try another port if the first one was taken in the meantime.
const ATTEMPTS: usize = 20;

/// How to start a server.
#[derive(Clone)]
pub struct Builder {
    program: PathBuf,
    module: Module,
    module_args: String,
    config: Vec<String>,
    is_node: bool,
    is_sentinel: bool,
    clock: Option<String>,
    clocks: Option<Clocks>,
    /// A program that runs the server, with its arguments.
    runner: Vec<String>,
    keeps_file: bool,
    args: Vec<String>,
}

/// The time shown by the server's clocks, which do not advance by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Since the epoch.
    pub wall: Duration,
    /// Never set, and never goes back.
    pub monotonic: Duration,
}

/// What a server loads.
#[derive(Clone)]
enum Module {
    Built,
    At(PathBuf),
    None,
}

impl Builder {
    /// Uses another program than `REDIS_SERVER` or the `redis-server` in the path.
    pub fn program(mut self, name: impl Into<PathBuf>) -> Builder {
        self.program = name.into();
        self
    }

    /// Uses another build of the module than [`built_module`].
    pub fn module(mut self, path: impl Into<PathBuf>) -> Builder {
        self.module = Module::At(path.into());
        self
    }

    /// Adds a line of redis.conf. Later lines win.
    pub fn config(mut self, line: impl Into<String>) -> Builder {
        self.config.push(line.into());
        self
    }

    /// Arguments on the loadmodule line.
    pub fn module_args(mut self, args: impl Into<String>) -> Builder {
        self.module_args = args.into();
        self
    }

    /// Runs the server without the module.
    pub fn no_module(mut self) -> Builder {
        self.module = Module::None;
        self
    }

    /// Persists to an AOF, with an fsync after each command.
    pub fn appendonly(self) -> Builder {
        self.config("appendonly yes").config("appendfsync always")
    }

    pub fn replica_of(self, master: &Server) -> Builder {
        self.config(format!("replicaof 127.0.0.1 {}", master.port()))
    }

    /// Makes it a cluster node, without slots yet.
    pub fn cluster(mut self) -> Builder {
        self.is_node = true;
        self
    }

    /// Makes it a Sentinel, without the module and without a primary yet.
    pub fn sentinel(mut self) -> Builder {
        self.is_sentinel = true;
        self.no_module()
    }

    /// Keeps the configuration file as CONFIG REWRITE left it; otherwise each start writes it again.
    pub fn keeps_file(mut self) -> Builder {
        self.keeps_file = true;
        self
    }

    /// Adds an argument after the configuration file.
    pub fn arg(mut self, arg: impl Into<String>) -> Builder {
        self.args.push(arg.into());
        self
    }

    /// Runs the server under another program in the same process, for example valgrind, with its arguments. The default
    /// is the program named by `REDIS_LOCK_RUN_BY`.
    pub fn run_by(mut self, runner: &[&str]) -> Builder {
        self.runner = runner.iter().map(|word| word.to_string()).collect();
        self
    }

    /// Shifts the server's clock, in faketime's notation: `+0`, `-2d`, `+90s`. [`Server::set_clock`] changes it later.
    pub fn clock(mut self, offset: &str) -> Builder {
        self.clock = Some(offset.into());
        self
    }

    /// Stops its clocks at these times. [`Server::put_clocks`] changes them.
    pub fn clocks(mut self, clocks: Clocks) -> Builder {
        self.clocks = Some(clocks);
        self
    }

    /// Starts it and waits until it replies; otherwise fails the test with the server's log.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(log) => panic!("the server did not start; its log:\n{log}"),
        }
    }

    /// Starts it, or returns the log of the server that failed to start.
    pub fn try_start(self) -> Result<Server, String> {
        let dir = tempfile::Builder::new().prefix("redis-lock-").tempdir().expect("a temporary directory");
        let mut server = Server { dir, port: 0, bus_port: None, builder: self, child: None };
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            // Otherwise the bus uses the port plus 10,000, which may belong to another program.
            server.bus_port = server.builder.is_node.then(free_port);
            server.write_config();
            if server.try_launch().map_err(|error| error.to_string())? {
                return Ok(server);
            }
            log = server.log();
            if !log.contains("Address already in use") {
                break;
            }
        }
        Err(log)
    }
}

/// The program that runs every server, with its arguments: `REDIS_LOCK_RUN_BY`. Usually none.
fn runner_of_all() -> Vec<String> {
    let line = std::env::var("REDIS_LOCK_RUN_BY").unwrap_or_default();
    line.split_whitespace().map(String::from).collect()
}

/// A running server. Dropping it kills and reaps it, even while a panic unwinds. On Linux it also dies with the thread
/// that started it, even if the test process is killed; so a server belongs to one test, never to a `static`.
pub struct Server {
    dir: TempDir,
    port: u16,
    /// The port of a cluster node's bus.
    bus_port: Option<u16>,
    builder: Builder,
    child: Option<Child>,
}

impl Server {
    /// A server with the module and nothing else: no persistence, DEBUG allowed.
    #[track_caller]
    pub fn start() -> Server {
        Server::builder().start()
    }

    pub fn builder() -> Builder {
        Builder {
            program: std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()).into(),
            module: Module::Built,
            module_args: String::new(),
            config: Vec::new(),
            is_node: false,
            is_sentinel: false,
            clock: None,
            clocks: None,
            runner: runner_of_all(),
            keeps_file: false,
            args: Vec::new(),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a RESP2 connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).of_process(self.pid())
    }

    /// Opens a RESP3 connection.
    #[track_caller]
    pub fn client3(&self) -> Client {
        self.client().into_resp3()
    }

    /// One section of INFO, read over a new connection.
    #[track_caller]
    pub fn info(&self, section: &str) -> Info {
        Info::parse(self.client().cmd(&["INFO", section]).text())
    }

    #[track_caller]
    pub fn blocked_clients(&self) -> i64 {
        self.info("clients").number("blocked_clients")
    }

    /// Waits until exactly `count` clients are blocked.
    #[track_caller]
    pub fn wait_blocked(&self, count: i64) {
        let mut observer = self.client();
        until(&format!("{count} clients are blocked"), || {
            Info::parse(observer.run("INFO clients").text()).number("blocked_clients") == count
        });
    }

    /// Waits until no AOF rewrite is running, and checks that the last one succeeded.
    #[track_caller]
    pub fn wait_aof_rewritten(&self) {
        until("the AOF is rewritten", || {
            let info = self.info("persistence");
            info.number("aof_rewrite_in_progress") == 0 && info.number("aof_rewrite_scheduled") == 0
        });
        assert_eq!(self.info("persistence").text("aof_last_bgrewrite_status"), "ok");
    }

    /// Shuts it down cleanly if that succeeds within [`LIMIT`], because a program that runs it may have work to do at
    /// the end.
    fn end(&mut self) {
        let Some(child) = &mut self.child else { return };
        request_shutdown(child);
        let started = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && started.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it with SIGKILL, like a power failure.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has already ended.
            let _ = child.kill();
            child.wait().expect("a child can be reaped");
        }
    }

    /// Shuts it down cleanly. Saves an RDB only if `save` points are configured.
    #[track_caller]
    pub fn stop(&mut self) {
        let mut client = self.client();
        client.send_line("SHUTDOWN");
        // A refusal (for example a failed save) is a reply; on success the connection closes.
        if let Ok(refusal) = client.try_read(LIMIT) {
            panic!("SHUTDOWN: {refusal:?}\n{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("a child can be reaped");
        }
    }

    /// Starts it again after [`Server::kill`] or [`Server::stop`]: same port, same directory, same configuration.
    #[track_caller]
    pub fn restart(&mut self) {
        if let Err(log) = self.try_restart() {
            panic!("the server did not restart; its log:\n{log}");
        }
    }

    /// [`Server::restart`]; returns the log if the server does not start.
    pub fn try_restart(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "the server still runs");
        if !self.builder.keeps_file {
            self.write_config();
        }
        let started = Instant::now();
        while !self.try_launch().map_err(|error| error.to_string())? {
            let log = self.log();
            // A child that a killed server was forking for its AOF keeps the port for a moment.
            let is_port_in_use = log.lines().rev().take(3).any(|line| line.contains("Address already in use"));
            if !is_port_in_use || started.elapsed() > LIMIT {
                return Err(log);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// [`Server::restart`] with additional configuration lines.
    #[track_caller]
    pub fn restart_with(&mut self, lines: &[&str]) {
        self.builder.config.extend(lines.iter().map(|line| line.to_string()));
        self.restart();
    }

    /// Changes the next start: another program, another module, additional configuration lines.
    pub fn rebuild(&mut self, change: impl FnOnce(Builder) -> Builder) {
        self.builder = change(self.builder.clone());
    }

    /// [`Server::restart_with`], without the module from now on; returns the log if the server does not start.
    pub fn restart_without_module(&mut self, lines: &[&str]) -> Result<(), String> {
        self.builder.module = Module::None;
        self.builder.config.extend(lines.iter().map(|line| line.to_string()));
        self.try_restart()
    }

    /// Shifts the clock of a server that was built with [`Builder::clock`], at once or for its next start.
    pub fn set_clock(&mut self, offset: &str) {
        assert!(self.builder.clock.is_some(), "build it with a clock");
        self.builder.clock = Some(offset.into());
        self.write_clock(offset);
    }

    /// Sets the clocks of a server that was built with [`Builder::clocks`], at once and for its next start. It notices
    /// what is due in its next event-loop iteration, which any command triggers.
    pub fn put_clocks(&mut self, clocks: Clocks) {
        assert!(self.builder.clocks.is_some(), "build it with clocks");
        self.builder.clocks = Some(clocks);
        self.write_clocks(clocks);
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The process id, for signals.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// Everything it has logged since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// Starts the process and waits until it replies; false if it ended instead.
    fn try_launch(&mut self) -> io::Result<bool> {
        self.child = Some(self.spawn()?);
        let mut ready = false;
        until("the server replies", || {
            if !self.is_alive() {
                self.kill();
                return true;
            }
            ready = self.accepts_commands().unwrap_or(false);
            ready
        });
        Ok(ready)
    }

    /// Whether this process accepts commands: another server may have been faster to take the port. An error means that
    /// it is not listening yet, or is shutting down.
    fn accepts_commands(&self) -> io::Result<bool> {
        let mut client = Client::try_connect(self.port)?;
        // During loading the server rejects PING but accepts INFO.
        let reply = client.try_cmd(&["INFO", "server"])?;
        let is_ours = Info::parse(reply.text()).number("process_id") == i64::from(self.pid());
        Ok(is_ours && !client.try_cmd(&["PING"])?.is_error())
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut program = self.builder.program.clone();
        if program.components().nth(1).is_some() {
            // A path rather than a name to search for; absolute because the server runs in its own directory.
            program = path::absolute(program)?;
        }
        let log = File::options().create(true).append(true).open(self.dir().join("log")).expect("the log opens");
        let mut command = match self.builder.runner.split_first() {
            Some((runner, args)) => {
                let mut command = Command::new(runner);
                command.args(args).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command
            .arg(self.config_file())
            .args(self.builder.is_sentinel.then_some("--sentinel"))
            .args(&self.builder.args)
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log opens twice"))
            .stderr(log);
        if let Some(offset) = &self.builder.clock {
            self.write_clock(offset);
            command
                // With jemalloc the two libraries deadlock: faketime allocates before it knows the real clock, and
                // jemalloc reads the clock before it allocates. So use the C library's allocator.
                .env("LD_PRELOAD", format!("{} libc.so.6", faketime().display()))
                .env("FAKETIME_TIMESTAMP_FILE", self.clock_file())
                // Read the file for every clock reading, so that the clock can be set while the server runs.
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        if let Some(clocks) = self.builder.clocks {
            self.write_clocks(clocks);
            let library = built_clock().expect("the clock is built: cargo build --release --workspace");
            command.env("LD_PRELOAD", path::absolute(library)?).env("TEST_CLOCK", self.clock_file());
        }
        die_with_parent(&mut command);
        command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir().join("redis.conf")
    }

    fn write_config(&self) {
        fs::write(self.config_file(), self.config()).expect("the configuration is written");
    }

    fn config(&self) -> String {
        let mut lines =
            vec![format!("port {}", self.port), "bind 127.0.0.1".into(), format!("dir {}", self.dir().display())];
        if !self.builder.is_sentinel {
            lines.extend(self.data_config());
        }
        lines.extend(self.builder.config.iter().cloned());
        lines.join("\n") + "\n"
    }

    /// The additional configuration of a server that holds data.
    fn data_config(&self) -> Vec<String> {
        let mut lines = vec![
            "save \"\"".into(),
            "enable-debug-command yes".into(),
            // Do not make a newly connected replica wait for others that might come.
            "repl-diskless-sync-delay 0".into(),
        ];
        let module = match &self.builder.module {
            Module::Built => Some(built_module().expect("the module is built: cargo build --release")),
            Module::At(path) => Some(path.clone()),
            Module::None => None,
        };
        if let Some(module) = module {
            // Absolute because the server runs in its own directory.
            let module = path::absolute(module).expect("the path of a module");
            lines.push(format!("loadmodule {} {}", module.display(), self.builder.module_args));
        }
        if let Some(bus_port) = self.bus_port {
            lines.extend(["cluster-enabled yes".into(), format!("cluster-port {bus_port}")]);
        }
        lines
    }

    fn clock_file(&self) -> PathBuf {
        self.dir().join("clock")
    }

    /// Overwrites the file in place, because the server has it mapped (tests/clock).
    fn write_clocks(&self, Clocks { wall, monotonic }: Clocks) {
        let us = |time: Duration| u64::try_from(time.as_micros()).expect("a clock of this age");
        let (wall, monotonic) = (us(wall), us(monotonic));
        let file = File::options().create(true).truncate(false).write(true).open(self.clock_file());
        let written = file
            .and_then(|mut file| file.write_all(&[wall, monotonic, wall ^ monotonic].map(u64::to_ne_bytes).concat()));
        written.expect("the clocks are written");
    }

    /// Replaces the file atomically, because the server may read it at any moment.
    fn write_clock(&self, offset: &str) {
        let draft = self.dir().join("clock.new");
        fs::write(&draft, format!("{offset}\n")).expect("the clock is written");
        fs::rename(draft, self.clock_file()).expect("the clock is set");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !runner_of_all().is_empty() {
            self.end();
        }
        self.kill();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- log of the server on port {}\n{}\n---", self.port, tail.join("\n"));
        }
    }
}
