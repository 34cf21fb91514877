//! Runs the exporter and promtool as users do.

use crate::support::skip::skip;
use crate::support::{die_with_parent, free_port, until};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::exposition::{samples, Sample};

/// The root of the repository, to which the paths in docs/metrics.md are relative.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program listed by scripts/metrics-tools. If it is not installed, the running test is skipped.
pub fn tool(name: &str) -> Option<PathBuf> {
    let list = Command::new("bash").arg("scripts/metrics-tools").arg("--list").current_dir(root()).output();
    let list = String::from_utf8(list.expect("bash is there").stdout).expect("a list");
    // Lines have the form `name version path`.
    let path = list.lines().find_map(|line| line.strip_prefix(name)?.split(' ').nth(2).map(PathBuf::from));
    if path.is_none() {
        skip(&format!("there is no {name}: scripts/metrics-tools fetches it"));
    }
    path
}

/// Runs promtool on the files of a directory, and returns its output; it must report no errors.
#[track_caller]
pub fn promtool(program: &Path, folder: &Path, arguments: &[&str]) -> String {
    let run = Command::new(program).args(arguments).current_dir(folder).output().expect("promtool runs");
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(run.status.success(), "promtool {arguments:?}:\n{said}");
    said
}

/// A running exporter. Dropping it ends it.
pub struct Exporter {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Exporter {
    /// Starts it with the command of docs/metrics.md for the server on this port, with additional arguments. Its log
    /// goes to `folder`.
    pub fn start(program: &Path, command: &str, server: u16, folder: &Path, arguments: &str) -> Exporter {
        let port = free_port();
        let command = command
            .replace("prometheus-redis-exporter", &format!("exec {}", program.display()))
            .replace(":6379", &format!(":{server}"))
            .replace(":9121", &format!(":{port}"));
        let log = folder.join(format!("exporter-{port}.log"));
        let file = fs::File::create(&log).expect("the log opens");
        let mut shell = Command::new("sh");
        shell.args(["-euc", &format!("{command} {arguments}")]).current_dir(root()).stdin(Stdio::null());
        shell.stdout(file.try_clone().expect("the log opens twice")).stderr(file);
        die_with_parent(&mut shell);
        let mut exporter = Exporter { child: shell.spawn().expect("sh runs"), port, log };
        until("the exporter replies", || {
            let ended = exporter.child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "the exporter ended: {}", exporter.log());
            exporter.get("/health").is_ok()
        });
        exporter
    }

    /// What it currently exports.
    #[track_caller]
    pub fn scrape(&self) -> Vec<Sample> {
        samples(&self.get("/metrics").expect("the exporter replies"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn get(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let is_ok = head.lines().next().is_some_and(|status| status.ends_with("200 OK"));
        is_ok.then(|| body.to_string()).ok_or_else(|| io::Error::other(head.to_string()))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
