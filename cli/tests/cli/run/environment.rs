//! The command's environment: variables, streams, signals, files.

use std::process::Stdio;

use support::{until, Server};

use super::runner::{run, Runner};
use crate::tool::command;

#[test]
fn the_command_gets_key_token_and_fence() {
    let server = Server::start();
    let mut runner = run(&server, "k", "echo \"$REDIS_LOCK_KEY|$REDIS_LOCK_TOKEN|$REDIS_LOCK_FENCE\"; read _; exit 0");
    runner.until_prints("\n");
    let info = server.client().run("LOCK.INFO k");
    let expected = format!("k|{}|{}\n", info.get("holders").items()[0].get("owner").text(), info.get("fence").int());
    assert_eq!(runner.printed(), expected);
    runner.close_stdin();
    runner.end();
}

#[test]
fn multiple_keys_are_passed_one_per_line() {
    let server = Server::start();
    let port = server.port().to_string();
    let end = Runner::start(command().args([
        "-p",
        &port,
        "run",
        "a",
        "with space",
        "--",
        "sh",
        "-c",
        "printf %s \"$REDIS_LOCK_KEY\"",
    ]))
    .end();
    assert_eq!(end.stdout(), "a\nwith space");
}

#[test]
fn bytes_pass_through_unchanged_both_ways() {
    let server = Server::start();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut runner = run(&server, "k", "cat; cat /dev/null >&2");
    runner.write(&bytes);
    let end = runner.end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(0), ""));
    assert!(end.stdout == bytes, "{} of {} bytes", end.stdout.len(), bytes.len());
}

#[test]
fn a_closed_pipe_ends_the_command_by_sigpipe_as_without_us() {
    let server = Server::start();
    let line = super::runner::line(&server, "k");
    let pipeline = format!("{line} sh -c 'yes; echo status $? >&2' | head -n 1");
    let end = Runner::start(std::process::Command::new("sh").args(["-c", &pipeline])).end();
    assert_eq!(end.stdout(), "y\n");
    // 128 + SIGPIPE: `yes` ended by the signal, not with an error.
    assert_eq!(end.stderr, "status 141\n");
}

/// The output of `line` without redis-lock, and with redis-lock inserted before its last part.
fn without_and_with_us(server: &Server, before: &str, line: &str) -> (String, String) {
    let shell = |line: &str| Runner::start(std::process::Command::new("sh").args(["-c", line])).end();
    let us = super::runner::line(server, "k");
    let (without, with) = (shell(&format!("{before} exec {line}")), shell(&format!("{before} exec {us} {line}")));
    (without.stdout().to_string(), with.stdout().to_string())
}

#[test]
fn the_command_has_the_signals_as_the_caller_had_them() {
    let server = Server::start();
    // SIGHUP as set by nohup, and SIGINT as set by a shell for background commands.
    for before in ["", "trap '' HUP INT;", "trap '' USR1 WINCH TSTP;"] {
        let (without, with) = without_and_with_us(&server, before, "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status");
        assert_eq!(with, without, "{before}");
    }
}

#[test]
fn the_command_inherits_the_callers_files_but_none_of_ours() {
    let server = Server::start();
    for before in ["", "exec 7</dev/null;"] {
        let (without, with) = without_and_with_us(&server, before, "ls /proc/self/fd");
        assert_eq!(with, without, "{before}");
    }
}

#[test]
fn we_write_nothing_to_stdout_and_a_closed_stderr_is_harmless() {
    let server = Server::start();
    let mut holder = run(&server, "k", "read _; exit 0");
    until("it is held", || super::runner::is_held(&server, "k"));
    let port = server.port().to_string();
    let status = command()
        .args(["-p", &port, "run", "--no-wait", "--verbose", "k", "--", "true"])
        .stderr(Stdio::null())
        .output()
        .expect("the program is built");
    assert_eq!((status.status.code(), status.stdout.as_slice()), (Some(1), &b""[..]));
    let line = super::runner::line(&server, "--no-wait --verbose k");
    let closed = Runner::start(std::process::Command::new("sh").args(["-c", &format!("{line} true 2>&-")])).end();
    assert_eq!(closed.code(), Some(1));
    holder.close_stdin();
    assert_eq!(holder.end().code(), Some(0));
}
