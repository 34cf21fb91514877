//! The Debian package of the command line, as `scripts/package deb` built it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use support::debian::{is_installed, output, Package};
use support::{skip, Server};

const NAME: &str = "redis-lock";
const COMPLETIONS: [&str; 3] = [
    "/usr/share/bash-completion/completions/redis-lock",
    "/usr/share/zsh/vendor-completions/_redis-lock",
    "/usr/share/fish/vendor_completions.d/redis-lock.fish",
];

fn package() -> Result<Package, String> {
    Package::built(NAME, env!("CARGO_PKG_VERSION"), "redis-lock")
}

#[test]
fn it_contains_program_man_pages_and_completions_and_requires_no_server() {
    let package = match package() {
        Ok(package) => package,
        Err(reason) => return skip(&reason),
    };
    assert_eq!(package.field("Package"), NAME);
    assert_eq!(package.field("Version"), format!("{}-1", env!("CARGO_PKG_VERSION")));
    let depends = package.field("Depends");
    assert!(depends.contains("libc6 (>=") && !depends.contains("redis") && !depends.contains("valkey"), "{depends}");
    assert_eq!((package.field("Recommends"), package.field("Pre-Depends")), (String::new(), String::new()));
    let files = package.files();
    for file in COMPLETIONS.iter().chain(&["/usr/bin/redis-lock"]) {
        assert!(files.iter().any(|has| has == file), "{file}: {files:?}");
    }
    assert!(!files.iter().any(|file| file.starts_with("/etc")), "{files:?}");

    let folder = tempfile::tempdir().expect("a folder");
    package.unpack(folder.path());
    for page in ["", "-run", "-top", "-graph", "-ls", "-info", "-waiters", "-break", "-cancel", "-log", "-adopt"] {
        let text = unzipped(&folder.path().join(format!("usr/share/man/man1/redis-lock{page}.1.gz")));
        assert!(text.contains(".SH \"EXIT STATUS\"") && text.contains(".SH SYNOPSIS"), "redis-lock{page}.1:\n{text}");
    }
    let bash = fs::read_to_string(folder.path().join(&COMPLETIONS[0][1..])).expect("the completions");
    assert!(bash.contains("--conflict-exit-code") && bash.contains("waiters"));
    let completed =
        "source \"$0\"; COMP_WORDS=(redis-lock wai); COMP_CWORD=1; _redis__lock redis-lock wai redis-lock; \
                     echo \"${COMPREPLY[@]}\"";
    let script = folder.path().join(&COMPLETIONS[0][1..]);
    let done = Command::new("bash").args(["-c", completed]).arg(&script).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "waiters", "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn it_is_installed_runs_and_is_removed() {
    let package = match package().and_then(|package| package.may_be_installed().map(|()| package)) {
        Ok(package) => package,
        Err(reason) => return skip(&reason),
    };
    let server = Server::start();
    // Installing may have to wait for another installation.
    server.client().run("LOCK.ACQUIRE k w PERSIST").fence();
    let installed = package.install();
    let files: Vec<String> = package.files().into_iter().filter(|file| Path::new(file).exists()).collect();
    assert!(files.iter().any(|file| file == "/usr/bin/redis-lock"), "{files:?}");
    let version = format!("redis-lock {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(output("/usr/bin/redis-lock", &["--version"]), Some(version));
    let list = output("/usr/bin/redis-lock", &["-p", &server.port().to_string(), "ls"]).expect("it runs");
    assert!(list.lines().nth(1).is_some_and(|line| line.starts_with("k ")), "{list}");
    // Minimal systems omit man pages.
    if output("man", &["--version"]).is_some() && files.iter().any(|file| file.ends_with("redis-lock.1.gz")) {
        let page = output("man", &["-w", "redis-lock"]);
        assert_eq!(page.as_deref(), Some("/usr/share/man/man1/redis-lock.1.gz"));
    }
    drop(installed);
    let left: Vec<&String> = files.iter().filter(|file| Path::new(file).exists()).collect();
    assert!(left.is_empty(), "purged, and there is {left:?}");
    assert!(!is_installed(NAME));
}

fn unzipped(file: &Path) -> String {
    let mut gzip = Command::new("gzip").args(["-dc"]).arg(file).stdout(Stdio::piped()).spawn().expect("gzip");
    let mut text = String::new();
    gzip.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert!(gzip.wait().expect("a child").success(), "{}", file.display());
    text
}
