//! `--at-least` and `--once`: one run does the work for all.

use rustix::process::Signal;
use support::{until, Server};

use super::runner::{done, is_held, run, send, until_waiters, words, Runner};
use crate::tool::command;

const HOUR_MS: i64 = 3_600_000;

/// The lock is held for the rest of an hour that has just begun.
#[track_caller]
fn assert_kept(server: &Server, options: &str) {
    let left = server.client().pttl("k");
    assert!((HOUR_MS / 2..=HOUR_MS + 1).contains(&left), "{options}: {left}");
}

#[test]
fn a_short_job_runs_once_on_hosts_whose_clocks_differ() {
    let server = Server::start();
    // The lease becomes longer or shorter.
    for options in ["--no-wait --at-least 1h k", "--no-wait --at-least 1h --lease 10h k"] {
        let first = done(&server, options, "echo ran");
        assert_eq!((first.code(), first.stdout(), first.stderr.as_str()), (Some(0), "ran\n", ""), "{options}");
        assert_kept(&server, options);
        // The next host starts a moment later.
        let second = done(&server, options, "echo ran");
        assert_eq!((second.code(), second.stdout(), second.stderr.as_str()), (Some(1), "", ""), "{options}");
        assert_eq!(server.client().run("LOCK.BREAK k").int(), 1);
    }
    let longer = done(&server, "--at-least 1ms k", "sleep 0.05");
    assert_eq!(longer.code(), Some(0), "{}", longer.stderr);
    assert!(!is_held(&server, "k"), "the job took longer than that");
}

#[test]
fn a_failed_job_counts_as_run_but_not_one_that_could_not_start() {
    let server = Server::start();
    assert_eq!(done(&server, "--at-least 1h k", "exit 3").code(), Some(3));
    assert_kept(&server, "exit 3");
    assert_eq!(server.client().run("LOCK.BREAK k").int(), 1);
    let port = server.port().to_string();
    let missing = words("run --at-least 1h k -- no-such-command-anywhere");
    assert_eq!(Runner::start(command().args(["-p", &port]).args(missing)).end().code(), Some(127));
    assert!(!is_held(&server, "k"), "another host may have it");
}

#[test]
fn the_others_exit_with_0_and_a_message_when_one_run_has_finished() {
    let server = Server::start();
    let mut first = run(&server, "--once k", "echo ready; read _; exit 0");
    first.until_prints("ready");
    let fence = server.client().run("LOCK.INFO k").get("fence").int();
    let others = [run(&server, "--once k", "echo ran"), run(&server, "--once --wait 1h k", "echo ran")];
    // A run without --once is granted the lock, before or after the others.
    let every = run(&server, "k", "echo ran");
    until_waiters(&server, "k", 3);
    let impatient = done(&server, "--once --wait 50ms k", "echo ran");
    assert_eq!((impatient.code(), impatient.stdout()), (Some(1), ""));
    first.close_stdin();
    assert_eq!(first.end().code(), Some(0));
    for other in others {
        let end = other.end();
        assert_eq!((end.code(), end.stdout()), (Some(0), ""));
        assert_eq!(end.stderr, format!("redis-lock: k: done by another run, fence {fence}\n"));
    }
    assert_eq!(every.end().stdout(), "ran\n");
    let free = done(&server, "--once k", "echo ran");
    assert_eq!((free.code(), free.stdout(), free.stderr.as_str()), (Some(0), "ran\n", ""));
}

#[test]
fn the_next_run_repeats_a_failed_one() {
    let server = Server::start();
    // It fails by its status, by a signal, or because `redis-lock` itself ends.
    for how in ["status", "signal", "crash"] {
        let mut first = run(&server, "--once --lease 2s k", "echo command $$; read _; exit 3");
        let command = first.printed_id("command");
        let second = run(&server, "--once k", "echo ran");
        until_waiters(&server, "k", 1);
        match how {
            "status" => first.close_stdin(),
            "signal" => send(command, Signal::TERM),
            _ => first.signal(Signal::KILL),
        }
        let end = second.end();
        assert_eq!((end.code(), end.stdout(), end.stderr.as_str()), (Some(0), "ran\n", ""), "{how}");
        let failed = first.end();
        assert!(failed.code() == (how == "status").then_some(3), "{how}: {failed:?}");
        until("a free lock", || !is_held(&server, "k"));
    }
}
