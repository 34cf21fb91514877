//! What the command has: variables, streams, signals, files.

use std::process::Stdio;

use support::{until, Server};

use super::runner::{done, run, Runner};
use crate::tool::command;

#[test]
fn the_command_knows_key_token_and_fence() {
    let server = Server::start();
    let mut runner = run(&server, "k", "echo \"$REDIS_LOCK_KEY|$REDIS_LOCK_TOKEN|$REDIS_LOCK_FENCE\"; read _");
    runner.until_prints("\n");
    let info = server.client().run("LOCK.INFO k");
    let expected = format!("k|{}|{}\n", info.get("holders").items()[0].get("owner").text(), info.get("fence").int());
    assert_eq!(runner.printed(), expected);
    runner.close_stdin();
    runner.end();
}

#[test]
fn several_keys_are_told_one_a_line() {
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
fn bytes_go_through_untouched_both_ways() {
    let server = Server::start();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut runner = run(&server, "k", "cat; cat /dev/null >&2");
    runner.write(&bytes);
    let end = runner.end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(0), ""));
    assert!(end.stdout == bytes, "{} of {} bytes", end.stdout.len(), bytes.len());
}

#[test]
fn a_reader_that_has_gone_ends_the_command_by_sigpipe_as_without_us() {
    let server = Server::start();
    let line = super::runner::line(&server, "k");
    let pipeline = format!("{line} sh -c 'yes; echo status $? >&2' | head -n 1");
    let end = Runner::start(std::process::Command::new("sh").args(["-c", &pipeline])).end();
    assert_eq!(end.stdout(), "y\n");
    // 128 + SIGPIPE: `yes` ended by the signal and not by an error.
    assert_eq!(end.stderr, "status 141\n");
}

#[test]
fn the_command_has_the_signals_as_the_caller_had_them() {
    let server = Server::start();
    let masks = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    assert_eq!(
        done(&server, "k", &format!("exec {masks}")).stdout(),
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
    // SIGHUP (1) as nohup leaves it, and SIGINT (2) as a shell does for what it runs in the background.
    let line = super::runner::line(&server, "k");
    let ignoring =
        Runner::start(std::process::Command::new("sh").args(["-c", &format!("trap '' HUP INT; exec {line} {masks}")]));
    assert_eq!(ignoring.end().stdout(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000003\n");
}

#[test]
fn only_the_standard_streams_reach_the_command() {
    let server = Server::start();
    let end = done(&server, "k", "ls /proc/self/fd");
    // The fourth is the folder that `ls` reads.
    assert_eq!(end.stdout(), "0\n1\n2\n3\n");
}

#[test]
fn nothing_of_ours_is_on_stdout_and_a_closed_stderr_stops_nothing() {
    let server = Server::start();
    let mut holder = run(&server, "k", "read _");
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
