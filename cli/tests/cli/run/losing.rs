//! The lock is lost, or appears to be lost, while the command runs.

use faults::proxy::{Direction, Proxy, BOTH};
use rustix::process::Signal;
use support::{until, Server};

use super::runner::{has_exited, is_held, run, send, until_exited, Runner};
use crate::tool::command;

#[test]
fn a_broken_lock_ends_the_command_and_is_reported() {
    let server = Server::start();
    for options in ["--lease 1500ms k", "--lease 1500ms --session k", "--lease 1500ms k k2"] {
        let mut runner = run(&server, options, "sleep 300 & echo sleeper $!; sleep 300; echo after");
        let sleeper = runner.printed_id("sleeper");
        assert_eq!(server.client().run("LOCK.BREAK k").int(), 1);
        assert_eq!(runner.wait().code(), Some(75), "{options}");
        until_exited(sleeper);
        let end = runner.end();
        assert!(
            end.stderr.contains("k: the lock was lost: terminating")
                || end.stderr.contains("k2: the lock was lost: terminating"),
            "{}",
            end.stderr
        );
        assert!(!end.stdout().contains("after"));
        // With multiple locks, the others are released.
        assert!(!is_held(&server, "k2"));
    }
    let runner = run(&server, "--lease 1500ms --lost-exit-code 42 k", "echo ready; sleep 300");
    runner.until_prints("ready");
    server.client().run("LOCK.BREAK k");
    assert_eq!(runner.end().code(), Some(42));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_with_all_its_children() {
    let server = Server::start();
    let script = "trap '' TERM; (trap '' TERM; sleep 300) & echo ready; while :; do sleep 300; done";
    let mut runner = run(&server, "--lease 1500ms --kill-after 200ms k", script);
    runner.until_prints("ready");
    server.client().run("LOCK.BREAK k");
    assert_eq!(runner.wait().code(), Some(75));
    let mark = runner.mark().clone();
    until("no process is left", || mark.processes().is_empty());
}

#[test]
fn processes_that_outlive_the_command_are_killed_when_the_lock_is_lost() {
    let server = Server::start();
    // The shell ends by SIGTERM at once, but its child process goes on.
    let script = "(trap '' TERM; echo deaf; while :; do sleep 300; done) & sleep 300";
    let mut runner = run(&server, "--lease 1500ms --kill-after 500ms k", script);
    runner.until_prints("deaf");
    server.client().run("LOCK.BREAK k");
    assert_eq!(runner.wait().code(), Some(75));
    let mark = runner.mark().clone();
    until("no process is left", || mark.processes().is_empty());
}

#[test]
fn a_command_has_time_to_clean_up() {
    let server = Server::start();
    let script = "trap 'read _; echo cleared up; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut runner = run(&server, "--lease 1500ms --kill-after 1h k", script);
    runner.until_prints("ready");
    server.client().run("LOCK.BREAK k");
    runner.until_says("the lock was lost: terminating");
    runner.write(b"\n");
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(75), "ready\ncleared up\n"));
}

#[test]
fn a_stopped_command_is_resumed_in_order_to_end_it() {
    let server = Server::start();
    let runner = run(&server, "--lease 1500ms --kill-after 1h k", "echo command $$; sleep 300");
    let command = runner.printed_id("command");
    send(command, Signal::STOP);
    super::runner::until_stopped(command);
    server.client().run("LOCK.BREAK k");
    assert_eq!(runner.end().code(), Some(75));
    assert!(has_exited(command));
}

#[test]
fn a_loss_detected_only_on_release_is_reported() {
    let server = Server::start();
    let mut runner = run(&server, "--lease 10m k", "echo ready; read _; exit 0");
    runner.until_prints("ready");
    server.client().run("LOCK.BREAK k");
    // Another owner has acquired it, and keeps it.
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    runner.close_stdin();
    let end = runner.end();
    assert_eq!(end.code(), Some(75));
    assert!(end.stderr.contains("k: the lock was lost while the command ran"), "{}", end.stderr);
    assert!(is_held(&server, "k"));
}

#[test]
fn a_key_that_became_another_type_is_a_loss() {
    let server = Server::start();
    let runner = run(&server, "--lease 1500ms k", "echo ready; sleep 300");
    runner.until_prints("ready");
    server.client().run("SET k x");
    assert_eq!(runner.end().code(), Some(75));
}

#[test]
fn a_killed_server_is_a_loss_when_the_lease_expires_or_at_once_in_a_session() {
    for options in ["--lease 1s k", "--lease 10m --session k"] {
        let mut server = Server::start();
        let runner = run(&server, options, "echo ready; sleep 300");
        runner.until_prints("ready");
        server.kill();
        let end = runner.end();
        assert_eq!(end.code(), Some(75), "{options}: {}", end.stderr);
    }
}

#[test]
fn a_signal_does_not_wait_for_a_release_without_a_reply() {
    let server = Server::start();
    let trap = "trap 'exit 3' TERM;";
    // A signal after the command has ended; a signal that ends the command, handled or not; a signal to the command
    // alone, as Ctrl-C in a terminal.
    for (trap, to, code) in [("", "us", Some(3)), (trap, "both", Some(3)), ("", "both", None), ("", "it", None)] {
        let proxy = Proxy::to(server.port()).expect("a proxy");
        let mut runner = through(&proxy, "k", &format!("{trap} echo command $$; read _; exit 3"));
        let command = runner.printed_id("command");
        proxy.stall(&BOTH);
        if to == "us" {
            runner.close_stdin();
            until_exited(command);
        }
        let began = std::time::Instant::now();
        if to == "it" {
            send(command, Signal::TERM);
        } else {
            runner.signal(Signal::TERM);
        }
        // Before closing its input, which would also end it.
        until_exited(command);
        let end = runner.end();
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(end.code(), code);
        assert!(
            end.stderr.contains("k: the lock could not be released and will expire with its lease: "),
            "{}",
            end.stderr
        );
        proxy.cut();
        server.client().run("LOCK.BREAK k");
    }
}

#[test]
fn an_unreachable_server_at_the_end_is_reported_without_changing_the_status() {
    let mut server = Server::start();
    let mut runner = run(&server, "--lease 2s k", "echo ready; read _; exit 3");
    runner.until_prints("ready");
    server.kill();
    runner.close_stdin();
    let end = runner.end();
    assert_eq!(end.code(), Some(3), "{}", end.stderr);
    assert!(end.stderr.contains("k: the lock could not be released"), "{}", end.stderr);
}

#[test]
fn a_server_that_returns_in_time_is_not_a_loss() {
    let mut server = Server::builder().appendonly().start();
    let mut runner = run(&server, "--lease 30s k", "echo ready; read _; exit 3");
    runner.until_prints("ready");
    server.kill();
    server.restart();
    assert!(is_held(&server, "k"));
    runner.close_stdin();
    let end = runner.end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(3), ""));
    assert!(!is_held(&server, "k"));
}

fn through(proxy: &Proxy, options: &str, script: &str) -> Runner {
    let port = proxy.port().to_string();
    Runner::start(command().args(["-p", &port, "run"]).args(options.split(' ')).args(["--", "sh", "-c", script]))
}

#[test]
fn a_release_with_a_lost_reply_is_retried_and_is_not_a_loss() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let mut runner = through(&proxy, "--lease 30s k", "echo ready; read _; exit 3");
    // A waiting run checks that the server accepts writes, over the connection that it later uses for the release. The
    // connection must be established before the stall.
    until("it has checked", || server.client().run("CLIENT LIST").text().contains(" cmd=lock.cancel "));
    server.client().run("LOCK.RELEASE k other");
    runner.until_prints("ready");
    proxy.stall(&[Direction::ToClient]);
    runner.close_stdin();
    until("the server has released it", || !is_held(&server, "k"));
    proxy.cut();
    proxy.heal();
    let end = runner.end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(3), ""));
}

#[test]
fn a_grant_with_a_lost_reply_is_retried_and_counts_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let mut runner = through(&proxy, "--lease 30s k", "echo ready $REDIS_LOCK_FENCE; read _; exit 0");
    super::runner::until_waiters(&server, "k", 1);
    proxy.stall(&[Direction::ToClient]);
    server.client().run("LOCK.RELEASE k other");
    until("it is granted", || is_held(&server, "k"));
    proxy.cut();
    proxy.heal();
    runner.until_prints("ready");
    let info = server.client().run("LOCK.INFO k");
    assert_eq!(runner.printed(), format!("ready {}\n", info.get("fence").int()));
    runner.close_stdin();
    assert_eq!(runner.end().code(), Some(0));
    assert!(!is_held(&server, "k"));
}

#[test]
fn a_silent_server_is_a_loss_when_the_lease_expires() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let runner = through(&proxy, "--lease 1s k", "echo ready; sleep 300");
    runner.until_prints("ready");
    proxy.stall(&[Direction::ToClient, Direction::ToServer]);
    assert_eq!(runner.end().code(), Some(75));
}

#[test]
fn a_run_stopped_past_the_lease_notices_at_once_when_resumed() {
    let server = Server::start();
    let mut runner = run(&server, "--lease 1500ms k", "echo command $$; sleep 300");
    let command = runner.printed_id("command");
    runner.signal(Signal::STOP);
    until("the lease has expired", || !is_held(&server, "k"));
    let fence = server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    runner.signal(Signal::CONT);
    assert_eq!(runner.wait().code(), Some(75));
    assert!(has_exited(command));
    assert_eq!(server.client().run("LOCK.INFO k").get("fence").int(), fence, "the new holder keeps it");
}
