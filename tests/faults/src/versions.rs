//! Servers other than the one under test: the builds of `scripts/servers`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Builder, Server};

#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// For example `Redis 7.0`.
    pub line: String,
    pub path: PathBuf,
}

impl Program {
    /// A builder for servers that run this program.
    pub fn builder(&self) -> Builder {
        Server::builder().program(&self.path)
    }

    /// The server under test: `REDIS_SERVER`, or `redis-server`.
    pub fn tested() -> Program {
        let path = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let version = Server::builder().no_module().start().info("server").version();
        Program { line: line_of(&version), path: path.into() }
    }

    /// The servers of versions other than the one under test.
    pub fn others() -> Vec<Program> {
        let tested = Program::tested();
        let servers = built().into_iter().map(|line| {
            let [name, version, path] = fields(&line);
            let name = if name == "valkey" { "Valkey" } else { "Redis" };
            Program { line: line_of(&format!("{name} {version}")), path: path.into() }
        });
        servers.filter(|server| server.line != tested.line).collect()
    }
}

/// The output of `scripts/servers --list`: the builds, if any.
fn built() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
    let output = Command::new(path).arg("--list").output().expect("the script runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(String::from).collect()
}

fn fields<const N: usize>(line: &str) -> [&str; N] {
    line.split(' ').collect::<Vec<_>>().try_into().expect("a line of the script")
}

/// `Redis 7.0.15` belongs to the release line `Redis 7.0`.
fn line_of(version: &str) -> String {
    version.rsplit_once('.').expect("three numbers").0.into()
}
