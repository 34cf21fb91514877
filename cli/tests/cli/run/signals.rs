//! Signals to `run` alone, to all its processes, and to the command alone.

use rustix::process::Signal;
use support::{until, Server};

use super::runner::{has_exited, is_held, run, send, state, until_exited, until_stopped, until_waiters, waiters};

#[test]
fn a_signal_to_us_reaches_the_command_and_what_it_runs() {
    let server = Server::start();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut runner = run(&server, "k", "sleep 300 & echo sleeper $!; wait; read _; exit 0");
        let sleeper = runner.printed_id("sleeper");
        runner.signal(signal);
        let status = runner.wait();
        use std::os::unix::process::ExitStatusExt;
        // A shell without job control starts background commands with SIGINT and SIGQUIT ignored.
        if signal == Signal::TERM || signal == Signal::HUP {
            until_exited(sleeper);
        }
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert!(!is_held(&server, "k"));
    }
}

#[test]
fn a_command_that_handles_a_signal_gets_it_once_and_chooses_its_end() {
    let server = Server::start();
    let script = "trap 'echo got TERM' TERM; echo ready; while :; do read line && exit 7; done";
    let mut runner = run(&server, "k", script);
    runner.until_prints("ready");
    runner.signal(Signal::TERM);
    runner.until_prints("got TERM");
    runner.write(b"end\n");
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(7), "ready\ngot TERM\n"));
}

#[test]
fn user_signals_reach_the_command_alone() {
    let server = Server::start();
    for signal in ["USR1", "USR2"] {
        let script = format!(
            "trap 'echo got {signal}' {signal}; sleep 300 & echo sleeper $!; echo ready; \
             while :; do read line && exit 0; done"
        );
        let mut runner = run(&server, "k", &script);
        runner.until_prints("ready");
        let sleeper = runner.printed_id("sleeper");
        runner.signal(if signal == "USR1" { Signal::USR1 } else { Signal::USR2 });
        runner.until_prints("got ");
        runner.write(b"end\n");
        assert_eq!(runner.wait().code(), Some(0));
        assert!(!has_exited(sleeper), "what it runs would have ended by it");
    }
}

#[test]
fn a_stop_and_a_resumption_reach_the_command_and_without_a_terminal_the_lock_is_kept() {
    let server = Server::start();
    let mut runner = run(&server, "--lease 1500ms k", "echo ready $$; read _; exit 0");
    let command = runner.printed_id("ready");
    runner.signal(Signal::TSTP);
    until_stopped(command);
    let mut client = server.client();
    let fence = client.run("LOCK.INFO k").get("fence").int();
    until("it has outlived its lease", || client.run("LOCK.INFO k").get("holders").items()[0].get("age").int() > 2000);
    assert_eq!(client.run("LOCK.INFO k").get("fence").int(), fence);
    runner.signal(Signal::CONT);
    until("it runs again", || state(command) == Some('S'));
    runner.close_stdin();
    assert_eq!(runner.wait().code(), Some(0));
}

#[test]
fn a_signal_during_the_wait_leaves_the_queue_and_ends_it() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        for options in ["k", "--session k", "k2 k"] {
            let runner = run(&server, options, "echo ran");
            until_waiters(&server, "k", 1);
            runner.signal(signal);
            let end = runner.end();
            assert_eq!((end.signal(), end.stdout(), end.stderr.as_str()), (Some(signal.as_raw()), "", ""), "{options}");
            // Not even a reserved position remains.
            assert_eq!(waiters(&server, "k"), 0);
            assert_eq!(server.info("lock").number("lock_kept_places"), 0, "{options}");
            assert!(!is_held(&server, "k2"));
        }
    }
}

#[test]
fn if_we_are_killed_the_command_group_ends_and_the_lock_expires() {
    let server = Server::start();
    // The shell ignores SIGTERM, as do its children.
    for (ignores, options) in [("", "--lease 1500ms k"), ("trap '' TERM;", "--lease 1500ms --kill-after 200ms k")] {
        let script = format!("{ignores} sh -c 'sleep 300 & echo grandchild $!; wait' & echo command $$; wait; exit 0");
        let mut runner = run(&server, options, &script);
        let (command, grandchild) = (runner.printed_id("command"), runner.printed_id("grandchild"));
        runner.signal(Signal::KILL);
        runner.wait();
        until_exited(command);
        until_exited(grandchild);
        let mark = runner.mark().clone();
        until("none of its processes is left", || mark.processes().is_empty());
        until("the lease has ended", || !is_held(&server, "k"));
    }
}

#[test]
fn processes_left_running_by_a_finished_command_are_not_ended() {
    let server = Server::start();
    let mut runner = run(&server, "--kill-after 0s k", "sleep 300 >/dev/null 2>&1 & echo left $!");
    let left = runner.printed_id("left");
    assert_eq!(runner.wait().code(), Some(0));
    let mark = runner.mark().clone();
    until("it is the only process", || mark.processes() == [left]);
}

#[test]
fn in_a_session_sigkill_releases_the_lock_at_once() {
    let server = Server::start();
    let mut runner = run(&server, "--lease 10m --session k", "echo command $$; sleep 300");
    let command = runner.printed_id("command");
    runner.signal(Signal::KILL);
    runner.wait();
    until("the session has ended", || !is_held(&server, "k"));
    until_exited(command);
}

#[test]
fn a_command_killed_together_with_us_is_noticed() {
    let server = Server::start();
    let runner = run(&server, "k", "echo command $$; exec sleep 300");
    let command = runner.printed_id("command");
    send(command, Signal::KILL);
    assert_eq!(runner.end().signal(), Some(9));
    assert!(!is_held(&server, "k"));
}
