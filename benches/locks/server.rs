//! A private server for the benchmark: started here, measured here, gone with us.
//!
//! It runs with the stock configuration (stock save points, no AOF) except for what [`Server::start`] names, so that the
//! figures are those of a server as people run it. It must never outlive the benchmark, however that ends.

use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::resp::Reply;

/// How to start a server.
#[derive(Clone)]
pub struct Recipe {
    pub binary: PathBuf,
    /// None runs the server bare.
    pub module: Option<PathBuf>,
    pub options: Vec<(&'static str, &'static str)>,
}

impl Recipe {
    pub fn new(binary: &Path, module: Option<&Path>) -> Self {
        Recipe { binary: binary.to_owned(), module: module.map(Path::to_owned), options: Vec::new() }
    }

    pub fn option(mut self, name: &'static str, value: &'static str) -> Self {
        self.options.push((name, value));
        self
    }

    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }
}

pub struct Server {
    child: Child,
    pub port: u16,
    control: Client,
    /// Removed with the server.
    _directory: tempfile::TempDir,
}

impl Server {
    /// Starts a server on a free port of the loopback interface and waits until it answers.
    pub fn start(recipe: &Recipe) -> io::Result<Server> {
        // A port that is free now may be taken a moment later; three attempts make that a curiosity.
        let mut attempts = 0;
        loop {
            match Self::start_once(recipe) {
                Err(error) if attempts < 2 && error.kind() == io::ErrorKind::AddrInUse => attempts += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once(recipe: &Recipe) -> io::Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = tempfile::Builder::new().prefix("redis-lock-bench-").tempdir()?;
        let log = directory.path().join("server.log");
        let mut command = Command::new(&recipe.binary);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--dir".as_ref(), directory.path().as_os_str()])
            .args(["--logfile".as_ref(), log.as_os_str()])
            .args(["--maxclients", "15000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Stock save points apply only where no option is named, so they are repeated here.
        if !recipe.options.iter().any(|(name, _)| *name == "--save") {
            command.args(["--save", "3600 1 300 100 60 10000"]);
        }
        for (name, value) in &recipe.options {
            command.args([name, value]);
        }
        if let Some(module) = &recipe.module {
            command.arg("--loadmodule").arg(module);
        }
        die_with_parent(&mut command);
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", recipe.binary.display())))?;

        let patience = Instant::now() + Duration::from_secs(20);
        let control = loop {
            if let Ok(mut client) = Client::connect(port) {
                if matches!(client.command(&["PING"]), Ok(Reply::Status(_))) {
                    break client;
                }
            }
            let exited = child.try_wait()?;
            if exited.is_some() || Instant::now() > patience {
                let _ = child.kill();
                let _ = child.wait();
                let words = std::fs::read_to_string(&log).unwrap_or_default();
                let kind = if words.contains("Address already in use") {
                    io::ErrorKind::AddrInUse
                } else {
                    io::ErrorKind::Other
                };
                return Err(io::Error::new(kind, format!("{} did not start:\n{words}", recipe.binary.display())));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Server { child, port, control, _directory: directory })
    }

    /// One command on the control connection, which carries nothing that is measured.
    pub fn command(&mut self, args: &[&str]) -> io::Result<Reply> {
        self.control.command(args)
    }

    /// Like [`Self::command`], where an error reply means that the benchmark itself is wrong.
    pub fn must(&mut self, args: &[&str]) -> io::Result<Reply> {
        match self.control.command(args)? {
            Reply::Error(words) => Err(io::Error::other(format!("{args:?}: {words}"))),
            reply => Ok(reply),
        }
    }

    /// Whether the server knows a command; `COMMAND INFO` answers nil for those that it does not.
    pub fn knows(&mut self, name: &str) -> io::Result<bool> {
        let reply = self.command(&["COMMAND", "INFO", name])?;
        Ok(matches!(reply, Reply::Array(ref items) if matches!(items.first(), Some(Reply::Array(_)))))
    }

    /// CPU time of the server's process, user and system, in microseconds.
    ///
    /// `INFO cpu` reads getrusage inside the server: exact to the microsecond where /proc counts in ticks of 10 ms.
    /// Children that save in the background are not in it.
    pub fn cpu_us(&mut self) -> io::Result<f64> {
        let info = self.info("cpu")?;
        let seconds = |name: &str| field(&info, name).and_then(|value| value.parse::<f64>().ok());
        match (seconds("used_cpu_user"), seconds("used_cpu_sys")) {
            (Some(user), Some(system)) => Ok((user + system) * 1e6),
            _ => Err(io::Error::other("INFO cpu names no CPU time")),
        }
    }

    pub fn info(&mut self, section: &str) -> io::Result<String> {
        match self.must(&["INFO", section])? {
            Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            other => Err(io::Error::other(format!("INFO {section} answered {other:?}"))),
        }
    }

    /// A number out of INFO, 0 where the server does not report it.
    pub fn info_number(&mut self, section: &str, name: &str) -> io::Result<f64> {
        let info = self.info(section)?;
        Ok(field(&info, name).and_then(|value| value.parse().ok()).unwrap_or(0.0))
    }

    /// For instance `Redis 7.0.15` or `Valkey 9.1.2`.
    pub fn version(&mut self) -> io::Result<String> {
        let info = self.info("server")?;
        Ok(match field(&info, "valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field(&info, "redis_version").unwrap_or("?")),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// On Linux the kernel ends the server when the thread that started it ends, whatever ended it.
/// Elsewhere the guard in Drop has to do.
fn die_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec only async-signal-safe functions may run; prctl is a bare system call.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

/// Raises the limit of open files as far as it goes: ten thousand waiters are ten thousand sockets here and there.
/// Returns how many may be open.
pub fn raise_file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write one rlimit that outlives them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 0;
        }
        limit.rlim_cur = limit.rlim_max.min(65_536);
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
    }
    limit.rlim_cur
}
