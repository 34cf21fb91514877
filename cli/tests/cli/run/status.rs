//! The exit status depends on how the command ended.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use support::Server;

use super::runner::{done, is_held, words, Runner};
use crate::tool::command;

#[test]
fn the_exit_status_is_the_commands() {
    let server = Server::start();
    for status in [0, 1, 3, 64, 75, 125, 255] {
        let end = done(&server, "k", &format!("exit {status}"));
        assert_eq!((end.code(), end.stderr.as_str()), (Some(status), ""));
    }
    assert!(!is_held(&server, "k"));
}

#[test]
fn a_command_that_ends_by_a_signal_ends_us_by_the_same_signal() {
    let server = Server::start();
    for signal in [Signal::TERM, Signal::KILL, Signal::INT, Signal::SEGV, Signal::HUP] {
        let end = done(&server, "k", &format!("kill -{} $$", signal.as_raw()));
        assert_eq!(end.signal(), Some(signal.as_raw()), "{signal:?} {end:?}");
        assert!(!is_held(&server, "k"));
    }
    // A real-time signal, which has no name.
    assert_eq!(done(&server, "k", "kill -40 $$").signal(), Some(40));
}

#[test]
fn only_the_command_dumps_core() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let line = super::runner::line(&server, "k");
    let script = format!("ulimit -c unlimited; cd {}; exec {line} sh -c 'kill -SEGV $$'", folder.path().display());
    let end = Runner::start(std::process::Command::new("sh").args(["-c", &script])).end();
    assert_eq!((end.signal(), end.status.core_dumped()), (Some(Signal::SEGV.as_raw()), false));
}

#[test]
fn a_missing_command_exits_with_127_and_a_non_executable_one_with_126_and_both_release() {
    let server = Server::start();
    let port = server.port().to_string();
    let run = |line: &str| Runner::start(command().args(["-p", &port]).args(words(line))).end();
    let missing = run("run k -- no-such-command-anywhere");
    assert_eq!(missing.code(), Some(127));
    assert!(missing.stderr.contains("no-such-command-anywhere: command not found"), "{}", missing.stderr);
    assert!(!is_held(&server, "k"));
    let forbidden = run("run k -- /etc/passwd");
    assert_eq!(forbidden.code(), Some(126));
    assert!(forbidden.stderr.contains("/etc/passwd: Permission denied"), "{}", forbidden.stderr);
    assert!(!is_held(&server, "k"));
    assert_eq!(run("run k -- /").code(), Some(126), "a folder");
}

#[test]
fn the_lock_is_released_when_the_command_ends_even_if_its_children_continue() {
    let server = Server::start();
    let mut runner = super::runner::run(&server, "k", "sleep 300 & echo left $!; exit 4");
    assert_eq!(runner.wait().code(), Some(4));
    let left = runner.printed_id("left");
    assert!(!is_held(&server, "k"));
    assert!(!super::runner::has_exited(left), "what a command leaves behind is its own business");
}

#[test]
fn usage_errors_exit_with_64_without_contacting_the_server() {
    for line in [
        "run k",
        "run -- true",
        "run k --shared --limit 2 -- true",
        "run k --lease 0s -- true",
        "run a b --shared -- true",
    ] {
        let end = Runner::start(command().args(words(line))).end();
        assert_eq!(end.code(), Some(64), "{line}: {end:?}");
        assert_eq!(end.stdout(), "");
    }
}
