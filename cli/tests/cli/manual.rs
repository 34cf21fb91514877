//! The man pages that `redis-lock generate man` writes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::{skip, Server};

use crate::tool::{redis_lock, PROGRAM};

const README: &str = include_str!("../../README.md");

fn made(folder: &Path) {
    assert_eq!(redis_lock(&format!("generate man {}", folder.display())).status, 0);
}

#[test]
fn the_run_page_documents_variables_signals_statuses_and_examples() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path());
    let page = fs::read_to_string(folder.path().join("redis-lock-run.1")).expect("it is written");
    let sections = ["SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "\"ENVIRONMENT\"", "\"SIGNALS\"", "\"EXAMPLES\""];
    let positions: Vec<_> = sections.iter().map(|section| page.find(&format!(".SH {section}\n"))).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?}");
    for word in ["KEY", "TOKEN", "FENCE", "SLOT", "URL", "SENTINELS", "MASTER"] {
        assert!(page.contains(&format!("\n.TP\nREDIS_LOCK_{word}\n")), "{word}");
        assert!(README.contains(&format!("`REDIS_LOCK_{word}`")), "{word}");
    }
    for status in ["75, \\-\\-lost\\-exit\\-code", "1, \\-\\-conflict\\-exit\\-code", "126, 127", "69"] {
        assert!(page.contains(&format!("\n.TP\n{status}\n")), "{status}");
    }
    let other = fs::read_to_string(folder.path().join("redis-lock-ls.1")).expect("it is written");
    assert!(other.contains("REDIS_LOCK_URL") && !other.contains("REDIS_LOCK_FENCE"));
}

#[test]
fn the_examples_of_the_run_page_work() {
    let (folder, server) = (tempfile::tempdir().expect("a folder"), Server::start());
    made(folder.path());
    let page = fs::read_to_string(folder.path().join("redis-lock-run.1")).expect("it is written").replace("\\-", "-");
    for program in ["deploy.sh", "mirror", "train", "build.sh", "close-month.sh"] {
        let path = folder.path().join(program);
        fs::write(&path, "#!/bin/sh\necho \"$0 $*\"\n").expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may run");
    }
    let mut said = String::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("redis-lock run ")) {
        let line = format!("{PROGRAM} -p {} run {line}", server.port());
        let done =
            Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output().expect("there is a shell");
        assert!(done.status.success() && done.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        said += &String::from_utf8_lossy(&done.stdout);
    }
    let expected = "./deploy.sh production\n./deploy.sh production\n./mirror \n./train --device 0\n./build.sh 42\n\
                    ./close-month.sh \n";
    assert_eq!(said, expected);
}

#[test]
fn man_warns_about_no_page() {
    if Command::new("man").arg("--version").output().is_err() {
        return skip("there is no man");
    }
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path());
    for page in fs::read_dir(folder.path()).expect("a folder").flatten() {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(page.path()).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let shown = man.output().expect("man runs");
        assert!(shown.status.success() && shown.stderr.is_empty(), "{}", String::from_utf8_lossy(&shown.stderr));
    }
}
