//! The output of `redis-lock generate completions`, tested in each shell by pressing Tab.

use std::process::Command;

use crate::screen::Screen;
use crate::tool::redis_lock;

/// The typed text, and its completion.
const COMPLETED: [(&str, &str); 3] = [
    ("redis-lock wai", "redis-lock waiters"),
    ("redis-lock run --confl", "redis-lock run --conflict-exit-code"),
    ("redis-lock graph --wai", "redis-lock graph --waiters"),
];

fn completions() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let made = redis_lock(&format!("generate completions {}", folder.path().display()));
    assert_eq!(made.status, 0, "{}", made.stderr);
    folder
}

/// Tests of a shell that is not installed are skipped.
fn is_installed(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {shell} here");
    }
    found
}

#[test]
fn bash_completes() {
    let folder = completions();
    let script = folder.path().join("redis-lock.bash");
    presses_tab("bash", &["--noprofile", "--norc", "-i"], &[&format!("source {}", script.display())]);
}

#[test]
fn zsh_completes() {
    if !is_installed("zsh") {
        return;
    }
    let folder = completions();
    let path = format!("fpath=({} $fpath)", folder.path().display());
    presses_tab("zsh", &["-f", "-i"], &[&path, "autoload -U compinit", "compinit -u -D"]);
}

#[test]
fn fish_completes() {
    if !is_installed("fish") {
        return;
    }
    let folder = completions();
    let script = folder.path().join("redis-lock.fish");
    for (typed, completed) in COMPLETED {
        let query = format!("source {}; complete -C '{typed}'", script.display());
        let said = Command::new("fish").args(["--no-config", "-c", &query]).output().expect("fish runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let last = completed.split_whitespace().last().expect("a word");
        assert!(said.lines().any(|line| line.split('\t').next() == Some(last)), "{typed}: {said}");
    }
}

fn presses_tab(shell: &str, arguments: &[&str], before: &[&str]) {
    let mut screen = Screen::shell(shell, arguments);
    for line in before {
        screen.press(&format!("{line}\n"));
    }
    screen.press("echo rea''dy\n");
    screen.until_shows("ready");
    for (typed, completed) in COMPLETED {
        screen.press(&format!("{typed}\t"));
        screen.until_shows(completed);
        // Ctrl-U clears the line.
        screen.press("\x15");
    }
}
