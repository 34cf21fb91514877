//! Locks on Redis in other languages, each compared with this repository's client for that language. Their loads are
//! separate programs: `java/`, `go/`, `python/`, built by benches/peers/run, which passes their location in PEERS_JAVA
//! (a classpath), PEERS_GO (a program) and PEERS_PYTHON (an interpreter). A language whose variable is not set is
//! skipped.
//!
//! Forty-eight owners are threads of one process with four clients with default settings, like four processes of one
//! service: in Spring's registry and in Redisson, threads of one process also wait for each other inside the process.
//! All use one redis-server with the module; without `lock.adopt` it does nothing for their keys.

use std::io;
use std::path::PathBuf;
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Java,
    Go,
    Python,
}

impl Language {
    pub const ALL: [Language; 3] = [Language::Java, Language::Go, Language::Python];

    pub fn name(self) -> &'static str {
        match self {
            Language::Java => "Java",
            Language::Go => "Go",
            Language::Python => "Python",
        }
    }

    /// The location of its load; None if it was not built here.
    pub fn load(self) -> Option<String> {
        let name = match self {
            Language::Java => "PEERS_JAVA",
            Language::Go => "PEERS_GO",
            Language::Python => "PEERS_PYTHON",
        };
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    /// The command of the load with the arguments of its task.
    pub fn command(self, kind: &str) -> io::Result<Command> {
        let load = self.load().ok_or(io::ErrorKind::NotFound)?;
        let mut command = match self {
            Language::Java => {
                let mut command = Command::new("java");
                // Create no file in the system's temporary directory.
                command.args(["-XX:-UsePerfData", "-cp", &load, "Locks"]);
                command
            }
            Language::Go => Command::new(load),
            Language::Python => {
                let mut command = Command::new(load);
                command.arg(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/python/load.py")));
                command
            }
        };
        command.arg(kind);
        Ok(command)
    }
}

/// The names and versions of the measured libraries.
pub fn versions() -> Vec<(String, String)> {
    let mut versions = Vec::new();
    let pom = include_str!("java/pom.xml");
    for name in ["redisson", "spring-integration-redis", "shedlock-provider-redis-spring", "lettuce-core", "jedis"] {
        let found = pom.split_once(&format!("<artifactId>{name}</artifactId>")).and_then(|(_, rest)| {
            let (_, version) = rest.split_once("<version>")?;
            version.split('<').next()
        });
        versions.push((name.to_string(), found.unwrap_or_default().to_string()));
    }
    let modules = include_str!("go/go.mod");
    for (name, path) in [("redsync", "go-redsync/redsync/v4 v"), ("go-redis", "redis/go-redis/v9 v")] {
        let found = modules.split_once(path).and_then(|(_, rest)| rest.lines().next());
        versions.push((name.to_string(), found.unwrap_or_default().to_string()));
    }
    let asked = Language::Python.load().map(|python| {
        let script = "import platform, redis; print(platform.python_version(), redis.__version__)";
        crate::servers::run(python, &["-c", script]).unwrap_or_default()
    });
    let asked = asked.unwrap_or_default();
    let mut words = asked.split_whitespace();
    for name in ["Python", "redis-py"] {
        versions.push((name.to_string(), words.next().unwrap_or_default().to_string()));
    }
    let go = crate::servers::run("go", &["env", "GOVERSION"]).unwrap_or_default();
    versions.push(("Go".to_string(), go.trim().trim_start_matches("go").to_string()));
    versions
}
