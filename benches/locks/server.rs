//! The measured server, and a control connection that sends none of the measured commands.
//!
//! It runs with the stock configuration (stock save points, no AOF) except for what a workload names, so that the
//! figures are typical of servers in use.
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use support::{Builder, Connection, Info, Reply};

/// A server with its default configuration, with this module or without one.
pub fn stock(program: &Path, module: Option<&Path>) -> Builder {
    let builder = support::Server::builder()
        .program(program)
        // The launcher starts servers without save points.
        .config("save 3600 1 300 100 60 10000")
        .config("maxclients 15000");
    match module {
        Some(module) => builder.module(module),
        None => builder.no_module(),
    }
}

pub struct Server {
    server: support::Server,
    control: Connection,
}

impl Server {
    pub fn start(builder: &Builder) -> io::Result<Server> {
        let server = builder.clone().try_start().map_err(io::Error::other)?;
        let control = Connection::connect(server.port())?;
        Ok(Server { server, control })
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The process id, for signals and tools.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The server's working directory.
    pub fn dir(&self) -> &Path {
        self.server.dir()
    }

    /// Sends one command on the control connection.
    pub fn command(&mut self, args: &[&str]) -> io::Result<Reply> {
        self.control.command(args)
    }

    /// Like [`Self::command`], but an error reply is an error, because it means a bug in the benchmark.
    pub fn must(&mut self, args: &[&str]) -> io::Result<Reply> {
        match self.control.command(args)? {
            Reply::Error(text) => Err(io::Error::other(format!("{args:?}: {text}"))),
            reply => Ok(reply),
        }
    }

    /// Whether the server knows a command; `COMMAND INFO` returns nil for unknown ones.
    pub fn knows(&mut self, name: &str) -> io::Result<bool> {
        let reply = self.command(&["COMMAND", "INFO", name])?;
        Ok(matches!(reply, Reply::Array(ref items) if matches!(items.first(), Some(Reply::Array(_)))))
    }

    /// One section of INFO.
    pub fn info(&mut self, section: &str) -> io::Result<Info> {
        match self.must(&["INFO", section])? {
            Reply::Bulk(text) => Ok(Info::parse(&String::from_utf8_lossy(&text))),
            other => Err(io::Error::other(format!("INFO {section} answered {other:?}"))),
        }
    }

    /// A number from INFO, 0 if the server does not report it.
    pub fn info_number(&mut self, section: &str, field: &str) -> io::Result<f64> {
        Ok(self.info(section)?.find(field).and_then(|text| text.parse().ok()).unwrap_or(0.0))
    }

    /// See [`Info::cpu_us`].
    pub fn cpu_us(&mut self) -> io::Result<f64> {
        Ok(self.info("cpu")?.cpu_us())
    }
}

/// Returns `None` if it took longer than `limit`; the server was then killed.
pub fn within<T>(
    limit: Duration,
    server: &mut Server,
    measure: impl FnOnce(&mut Server) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let pid = server.pid();
    let (done, is_done) = channel::<()>();
    let guard = thread::spawn(move || {
        let is_late = is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if is_late {
            // SIGKILL, because a server in a long command does not react to other signals.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        is_late
    });
    let measured = measure(server);
    drop(done);
    match guard.join() {
        Ok(true) => Ok(None),
        _ => measured.map(Some),
    }
}
