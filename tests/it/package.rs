//! The Debian package: it is installed, Debian's redis-server is started with its own configuration and the line that
//! the package documents, and it is removed. Needs root on Debian; elsewhere the test is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::debian::{is_installed, output, Package};

use crate::support::skip::skip;
use crate::support::{until, Client, Reply, Server};

const NAME: &str = "redis-lock-module";
const CONFIGURATION: &str = "/etc/redis/redis.conf";
const PROGRAM: &str = "/usr/bin/redis-server";
const README: &str = include_str!("../../packaging/debian/README.Debian");
const METRICS: &str = include_str!("../../docs/metrics.md");
const OPERATIONS: &str = include_str!("../../docs/operations.md");

#[test]
fn the_package_is_installed_serves_debians_redis_server_and_is_removed() {
    let package = match package() {
        Ok(package) => package,
        Err(reason) => return skip(&reason),
    };
    assert_eq!(package.field("Package"), NAME);
    assert_eq!(package.field("Version"), format!("{}-1", env!("CARGO_PKG_VERSION")));
    let depends = package.field("Depends");
    assert!(
        depends.contains("libc6 (>=") && depends.contains("redis-server (>= 5:7.0.5) | valkey-server"),
        "{depends}"
    );
    let before = fs::read(CONFIGURATION).expect("Debian's configuration");

    let installed = package.install();
    let files: Vec<PathBuf> =
        output("dpkg-query", &["-L", NAME]).expect("it is installed").lines().map(PathBuf::from).collect();
    assert!(!files.iter().any(|file| file.starts_with("/etc")), "{files:?}");
    monitoring_is_where_the_page_says();
    {
        let mut server = DebianServer::start();
        for _ in 0..2 {
            assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok());
            server = server.start_again();
        }
        let mut client = server.client();
        let list = client.run("MODULE LIST");
        let module = list.items().iter().find(|module| module.get("name").text() == "lock").expect("the module");
        assert_eq!(module.get("path").text(), "/usr/lib/redis/modules/libredis_lock.so");
        client.run("LOCK.ACQUIRE k a").fence();
        assert_eq!(client.run("LOCK.RELEASE k a").int(), 1);
    }
    assert_eq!(fs::read(CONFIGURATION).expect("Debian's configuration"), before, "another package's file");

    drop(installed);
    let is_ours = |file: &&PathBuf| !file.is_dir() || file.ends_with(NAME);
    let left: Vec<&PathBuf> = files.iter().filter(is_ours).filter(|file| file.exists()).collect();
    assert!(left.is_empty(), "purged, and there is {left:?}");
    assert!(!is_installed(NAME));
}

/// docs/metrics.md names the directory.
fn monitoring_is_where_the_page_says() {
    let line = METRICS.lines().find_map(|line| line.strip_prefix("    install -m 644 ")).expect("the line");
    let (folder, _) = line.split_once("/* ").expect("a folder");
    for file in ["redis-lock.lua", "alerts.yml", "alerts_test.yml", "dashboard.json"] {
        assert!(Path::new(folder).join(file).is_file(), "{folder} has no {file}");
    }
}

/// The build of `scripts/package deb` if it can be tested here, or the reason why not.
fn package() -> Result<Package, String> {
    let package = Package::built(NAME, env!("CARGO_PKG_VERSION"), "libredis_lock.so")?;
    package.may_be_installed()?;
    let server = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    if !is_installed("redis-server") || !["redis-server", PROGRAM].contains(&server.as_str()) {
        return Err("the package is tried on Debian's own redis-server".into());
    }
    Ok(package)
}

/// Debian's server with Debian's configuration and the documented line. Only paths and ports that would collide with
/// the system's own server differ.
struct DebianServer {
    process: Child,
    port: u16,
    folder: Option<tempfile::TempDir>,
}

impl DebianServer {
    fn start() -> DebianServer {
        let line = README.lines().map(str::trim).find(|line| line.starts_with("loadmodule ")).expect("the line");
        assert!(
            OPERATIONS.contains(&format!("    echo {line} >>{CONFIGURATION}\n")),
            "another line than README.Debian"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let configuration = fs::read_to_string(CONFIGURATION).expect("Debian's configuration");
        let file = folder.path().join("redis.conf");
        fs::write(&file, format!("{configuration}\n{line}\n")).expect("written");
        DebianServer::start_with(folder)
    }

    /// Starts it with the configuration in this directory.
    fn start_with(folder: tempfile::TempDir) -> DebianServer {
        let file = folder.path().join("redis.conf");
        // A port that was free a moment ago, because a stopped server used it.
        let port = Server::builder().no_module().start().port();
        let mut command = Command::new(PROGRAM);
        let here = as_str(folder.path());
        let log = format!("{here}/log");
        command.arg(&file).args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", here]);
        command.args(["--daemonize", "no", "--pidfile", &format!("{here}/pid"), "--logfile", &log]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("Debian's server");
        let mut server = DebianServer { process, port, folder: Some(folder) };
        until("Debian's server answers", || {
            let ended = server.process.try_wait().expect("a child");
            assert!(ended.is_none(), "it has ended:\n{}", fs::read_to_string(&log).unwrap_or_default());
            let is_up = || Client::try_connect(port)?.try_cmd(&["PING"]);
            is_up().is_ok_and(|reply| !reply.is_error())
        });
        server
    }

    fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Restarts it with its configuration as CONFIG REWRITE left it.
    fn start_again(mut self) -> DebianServer {
        let folder = self.folder.take().expect("its folder");
        drop(self);
        DebianServer::start_with(folder)
    }
}

impl Drop for DebianServer {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn as_str(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
