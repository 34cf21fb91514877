//! A real server of the test's own: in a directory of its own, on a port of its own, gone when the test is over,
//! however it ends.

use super::{until, Client};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use tempfile::TempDir;

/// Ports are taken from below the range out of which systems pick the ports of outgoing connections (32768 on Linux,
/// 49152 on macOS), so that no client of another test ever sits on the port of a server that restarts.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

/// How often to look for another port when someone else was quicker.
const ATTEMPTS: usize = 20;

/// How a server is to be started.
#[derive(Clone)]
pub struct Builder {
    module: Option<String>,
    config: Vec<String>,
    env: Vec<(String, String)>,
    clock: Option<String>,
}

impl Builder {
    /// Adds a line of redis.conf. Later lines win.
    pub fn config(mut self, line: impl Into<String>) -> Builder {
        self.config.push(line.into());
        self
    }

    /// Arguments on the loadmodule line.
    pub fn module_args(mut self, args: impl Into<String>) -> Builder {
        self.module = Some(args.into());
        self
    }

    /// A plain server, without the module.
    pub fn no_module(mut self) -> Builder {
        self.module = None;
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Builder {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Persists to an AOF, each command at once.
    pub fn appendonly(self) -> Builder {
        self.config("appendonly yes").config("appendfsync always")
    }

    pub fn replica_of(self, master: &Server) -> Builder {
        self.config(format!("replicaof 127.0.0.1 {}", master.port()))
    }

    /// A node of a cluster; it owns no slots yet.
    pub fn cluster(self) -> Builder {
        // The bus has a port of its own: the default, 10,000 above the client port, is nobody's to choose here.
        let bus = free_port();
        self.config("cluster-enabled yes").config(format!("cluster-port {bus}"))
    }

    /// Shifts the server's clock, in faketime's notation: `+0`, `-2d`, `+90s`. [`Server::set_clock`] shifts it again.
    pub fn clock(mut self, offset: &str) -> Builder {
        self.clock = Some(offset.into());
        self
    }

    /// Starts it and waits until it answers; fails the test, with the server's log, when it does not.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(log) => panic!("the server did not start; its log:\n{log}"),
        }
    }

    /// Starts it, or returns the log of the server that refused to start.
    pub fn try_start(self) -> Result<Server, String> {
        let mut server =
            Server { dir: TempDir::new().expect("a temporary directory"), port: 0, builder: self, child: None };
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            if server.try_launch() {
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

/// A running server. Dropping it kills and reaps it, also while a panic unwinds; on Linux it also dies with the thread
/// that started it (so a server belongs to one test, never to a `static`), even when the test process is killed.
pub struct Server {
    dir: TempDir,
    port: u16,
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
        Builder { module: Some(String::new()), config: Vec::new(), env: Vec::new(), clock: None }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A new connection, RESP2.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).of_process(self.pid())
    }

    /// A new connection, RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        self.client().into_resp3()
    }

    /// One section of INFO, read over a connection of its own.
    #[track_caller]
    pub fn info(&self, section: &str) -> Info {
        Info::parse(self.client().cmd(&["INFO", section]).text())
    }

    /// How many clients are blocked right now.
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

    /// Waits until no AOF is being rewritten any more, and the last rewrite went well.
    #[track_caller]
    pub fn wait_aof_rewritten(&self) {
        until("the AOF is rewritten", || {
            let info = self.info("persistence");
            info.number("aof_rewrite_in_progress") == 0 && info.number("aof_rewrite_scheduled") == 0
        });
        assert_eq!(self.info("persistence").text("aof_last_bgrewrite_status"), "ok");
    }

    /// The end of a power cut: SIGKILL, no goodbye.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error says that it has already ended.
            let _ = child.kill();
            child.wait().expect("a child can be reaped");
        }
    }

    /// Ends in good order. Saves an RDB only if `save` points are configured.
    #[track_caller]
    pub fn stop(&mut self) {
        let mut client = self.client();
        client.send_line("SHUTDOWN");
        // A refusal (a failed save, say) is a reply; success is the end of the connection.
        if let Ok(refusal) = client.try_read(super::LIMIT) {
            panic!("SHUTDOWN: {refusal:?}\n{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("a child can be reaped");
        }
    }

    /// Starts it again after [`Server::kill`] or [`Server::stop`]: same port, same directory, same configuration.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "the server still runs");
        if !self.try_launch() {
            panic!("the server did not start again; its log:\n{}", self.log());
        }
    }

    /// [`Server::restart`] with more lines of configuration.
    #[track_caller]
    pub fn restart_with(&mut self, lines: &[&str]) {
        self.builder.config.extend(lines.iter().map(|line| line.to_string()));
        self.restart();
    }

    /// Shifts the clock of a server that was built with [`Builder::clock`], at once or for its next start.
    pub fn set_clock(&mut self, offset: &str) {
        assert!(self.builder.clock.is_some(), "build it with a clock");
        self.builder.clock = Some(offset.into());
        self.write_clock(offset);
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

    /// Everything it has logged since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// Starts the process and waits until it answers; false when it ended instead.
    fn try_launch(&mut self) -> bool {
        self.child = Some(self.spawn());
        let mut ready = false;
        until("the server answers", || {
            if !self.is_alive() {
                self.kill();
                return true;
            }
            ready = self.answers().unwrap_or(false);
            ready
        });
        ready
    }

    /// Whether this very process accepts commands: somebody else's server may have been quicker on the port. An error
    /// says that it does not listen yet, or is ending.
    fn answers(&self) -> io::Result<bool> {
        let mut client = Client::try_connect(self.port)?;
        // While it loads, PING is refused and INFO is not.
        let reply = client.try_cmd(&["INFO", "server"])?;
        let is_ours = Info::parse(reply.text()).number("process_id") == i64::from(self.pid());
        Ok(is_ours && !client.try_cmd(&["PING"])?.is_error())
    }

    fn spawn(&self) -> Child {
        let config = self.dir().join("redis.conf");
        fs::write(&config, self.config()).expect("the configuration is written");
        let log = File::options().create(true).append(true).open(self.dir().join("log")).expect("the log opens");
        let mut command = Command::new(server_binary());
        command
            .arg(&config)
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log opens twice"))
            .stderr(log)
            .envs(self.builder.env.iter().map(|(name, value)| (name, value)));
        if let Some(offset) = &self.builder.clock {
            self.write_clock(offset);
            command
                // Without the C library's allocator the two libraries wait for each other: faketime allocates before it
                // knows the real clock, and jemalloc reads the clock before it allocates.
                .env("LD_PRELOAD", format!("{} libc.so.6", faketime().display()))
                .env("FAKETIME_TIMESTAMP_FILE", self.clock_file())
                // Look at the file for every reading, so that the clock can be set while the server runs.
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        die_with_parent(&mut command);
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", server_binary().display()))
    }

    fn config(&self) -> String {
        let mut lines = vec![
            format!("port {}", self.port),
            "bind 127.0.0.1".into(),
            format!("dir {}", self.dir().display()),
            "save \"\"".into(),
            "enable-debug-command yes".into(),
            // A replica that has just connected is not made to wait for others that might come.
            "repl-diskless-sync-delay 0".into(),
        ];
        if let Some(args) = &self.builder.module {
            lines.push(format!("loadmodule {} {args}", module().display()));
        }
        lines.extend(self.builder.config.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn clock_file(&self) -> PathBuf {
        self.dir().join("clock")
    }

    /// Replaces the file in one step: the server may read it at any moment.
    fn write_clock(&self, offset: &str) {
        let draft = self.dir().join("clock.new");
        fs::write(&draft, format!("{offset}\n")).expect("the clock is written");
        fs::rename(draft, self.clock_file()).expect("the clock is set");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- log of the server on port {}\n{}\n---", self.port, tail.join("\n"));
        }
    }
}

/// What INFO said.
pub struct Info(HashMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Info {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Info(fields.map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[track_caller]
    pub fn text(&self, field: &str) -> &str {
        self.find(field).unwrap_or_else(|| panic!("INFO has no field {field}: {:?}", self.0))
    }

    #[track_caller]
    pub fn number(&self, field: &str) -> i64 {
        let text = self.text(field);
        text.parse().unwrap_or_else(|_| panic!("{field} is no number: {text}"))
    }

    pub fn find(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }
}

/// `REDIS_SERVER`, or `redis-server` from the path.
fn server_binary() -> PathBuf {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()).into()
}

/// `REDIS_LOCK_MODULE`, or what cargo has built beside this test.
fn module() -> PathBuf {
    if let Some(path) = std::env::var_os("REDIS_LOCK_MODULE") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows where it is");
    let built = test.parent().and_then(Path::parent).expect("cargo puts tests into target/<profile>/deps");
    built.join(format!("libredis_lock{}", std::env::consts::DLL_SUFFIX))
}

fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run side by side start their search at different places.
    let start = u16::try_from(std::process::id() % u32::from(PORTS)).expect("it is below PORTS");
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + start.wrapping_add(step.wrapping_mul(7)) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Where Debian keeps libfaketime, whatever the machine.
fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect("/usr/lib is there");
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketime.so.1")))
        .find(|library| library.exists())
        .expect("libfaketime is installed (Debian, Ubuntu: apt install faketime)")
}

/// Nothing may stay behind, not even when the test process is killed and can drop nothing.
#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is a bare system call: it neither allocates nor takes a lock, so it may run between fork and exec.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
