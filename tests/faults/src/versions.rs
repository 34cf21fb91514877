//! Other servers than the tested one, and earlier versions of the module: the builds of `scripts/servers` and
//! `scripts/old-modules`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Builder, Server};

/// A server and the module that it loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub server: Program,
    pub module: Module,
}

/// A server's program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// As `Redis 7.0`.
    pub line: String,
    pub path: PathBuf,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Module {
    /// This one.
    New,
    Old(OldModule),
}

/// A version of the module before this one.
#[derive(Clone, Debug, PartialEq)]
pub struct OldModule {
    /// As `0.1.0`.
    pub version: String,
    pub path: PathBuf,
}

impl Version {
    pub fn builder(&self) -> Builder {
        self.apply_to(Server::builder())
    }

    /// The builder, for a server of this kind.
    pub fn apply_to(&self, builder: Builder) -> Builder {
        let builder = builder.program(&self.server.path);
        match &self.module {
            Module::New => builder.built_module(),
            Module::Old(old) => builder.module(&old.path),
        }
    }
}

impl Program {
    /// The server under test: `REDIS_SERVER`, or `redis-server`.
    pub fn tested() -> Program {
        let path = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let version = Server::builder().no_module().start().info("server").version();
        Program { line: line_of(&version), path: path.into() }
    }

    /// The servers of other versions than the one under test.
    pub fn others() -> Vec<Program> {
        let tested = Program::tested();
        let servers = lines_of("servers").into_iter().map(|line| {
            let [name, version, path] = fields(&line);
            let name = if name == "valkey" { "Valkey" } else { "Redis" };
            Program { line: line_of(&format!("{name} {version}")), path: path.into() }
        });
        servers.filter(|server| server.line != tested.line).collect()
    }
}

impl OldModule {
    /// Oldest first. `REDIS_LOCK_OLD_MODULE=version:path` names another one, instead of all.
    pub fn all() -> Vec<OldModule> {
        match env::var("REDIS_LOCK_OLD_MODULE") {
            Ok(named) => {
                let (version, path) = named.split_once(':').expect("REDIS_LOCK_OLD_MODULE is version:path");
                vec![OldModule { version: version.into(), path: path.into() }]
            }
            Err(_) => lines_of("old-modules")
                .into_iter()
                .map(|line| {
                    let [version, path] = fields(&line);
                    OldModule { version: version.into(), path: path.into() }
                })
                .collect(),
        }
    }
}

/// The output of `scripts/… --list`: the builds, if there are any.
fn lines_of(script: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
    let output = Command::new(path).arg("--list").output().expect("the script runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(String::from).collect()
}

fn fields<const N: usize>(line: &str) -> [&str; N] {
    line.split(' ').collect::<Vec<_>>().try_into().expect("a line of the script")
}

/// `Redis 7.0.15` is of the line `Redis 7.0`.
fn line_of(version: &str) -> String {
    version.rsplit_once('.').expect("three numbers").0.into()
}
