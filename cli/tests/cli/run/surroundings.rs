//! The surroundings of a run: cron, make, a container, nohup, a caller with unusual signal state.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{skip, until, Server};

use super::runner::{has_exited, is_held, line, send, until_exited, until_waiters, Runner};
use crate::tool::PROGRAM;

const README: &str = include_str!("../../../README.md");

#[test]
fn it_works_under_cron_without_terminal_input_and_environment() {
    let server = Server::start();
    let job = format!("{} sh -c 'echo ran; tty; cat; exit 3'", line(&server, "--no-wait k"));
    // As cron runs a job: a new session, /bin/sh -c, four variables.
    let mut cron = Command::new("setsid");
    cron.args(["--wait", "env", "-i", "PATH=/usr/bin:/bin", "HOME=/", "SHELL=/bin/sh", "LOGNAME=root"]);
    let end = Runner::start(cron.args(["sh", "-c", &format!("{job} </dev/null")])).end();
    assert_eq!((end.code(), end.stdout(), end.stderr.as_str()), (Some(3), "ran\nnot a tty\n", ""));
    assert!(!is_held(&server, "k"));
}

#[test]
fn the_readmes_unit_runs_its_job_once_and_does_not_fail_if_not_granted() {
    let server = Server::start();
    let unit = README.split("```ini\n").find(|block| block.contains("ExecStart=")).expect("a unit");
    let value = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).expect("a line").to_string();
    let url = value("Environment=REDIS_LOCK_URL=");
    assert_eq!(url, "redis://redis.internal");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let job = "sh -c 'echo ran; exit 3'";
    let line = value("ExecStart=").replace("/usr/bin/redis-lock", PROGRAM).replace("/usr/local/bin/mirror", job);
    assert!(line.contains(PROGRAM) && line.ends_with(job), "{line}");
    // As systemd starts it: a new session, and hardly any environment.
    let start = || {
        let mut systemd = Command::new("setsid");
        systemd.args([
            "--wait",
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            &format!("REDIS_LOCK_URL={url}"),
            "sh",
            "-c",
            &line,
        ]);
        Runner::start(&mut systemd).end()
    };
    let first = start();
    assert_eq!((first.code(), first.stdout(), first.stderr.as_str()), (Some(3), "ran\n", ""));
    let left = server.client().pttl("mirror");
    assert!((200_000..=240_001).contains(&left), "{left}");
    let other_machine = start();
    assert_eq!((other_machine.code(), other_machine.stdout(), other_machine.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn in_a_makefile_the_status_is_the_commands() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let run = line(&server, "k");
    let rules =
        format!("ok:\n\t@{run} echo made\nfails:\n\t@{run} sh -c 'exit 3'\nkilled:\n\t@{run} sh -c 'kill -9 $$$$'\n");
    fs::write(folder.path().join("Makefile"), rules).expect("a Makefile");
    let make =
        |target: &str| Runner::start(Command::new("make").arg("-C").arg(folder.path()).args(["-s", target])).end();
    let ok = make("ok");
    assert_eq!((ok.code(), ok.stdout()), (Some(0), "made\n"));
    let fails = make("fails");
    assert_eq!(fails.code(), Some(2));
    assert!(fails.stderr.contains("Error 3"), "{}", fails.stderr);
    let killed = make("killed");
    assert!(killed.stderr.contains("Killed"), "{}", killed.stderr);
    assert!(!is_held(&server, "k"));
}

#[test]
fn a_signal_to_makes_whole_group_reaches_the_command_once() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let script = "trap 'echo got INT' INT; echo ready; while ! [ -e go ]; do sleep 0.01; done; exit 3";
    fs::write(folder.path().join("script"), script).expect("a script");
    let rules = format!("target:\n\t@{} sh script\n", line(&server, "k"));
    fs::write(folder.path().join("Makefile"), rules).expect("a Makefile");
    let mut make = Command::new("make");
    make.arg("-C").arg(folder.path()).args(["-s", "target"]).process_group(0);
    let runner = Runner::start(&mut make);
    runner.until_prints("ready");
    let group = rustix::process::Pid::from_raw(runner.id()).expect("not 0");
    rustix::process::kill_process_group(group, Signal::INT).expect("make's group");
    runner.until_prints("got INT");
    fs::write(folder.path().join("go"), "").expect("a file");
    let end = runner.end();
    assert_eq!(end.stdout(), "ready\ngot INT\n", "{}", end.stderr);
    assert!(!is_held(&server, "k"));
}

/// `unshare` creates a PID namespace like a container's; None: not allowed here.
fn as_pid_1(server: &Server, options: &str, script: &str) -> Option<Command> {
    let probe =
        Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut container = Command::new("unshare");
    container.args([
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        PROGRAM,
        "-p",
        &server.port().to_string(),
        "run",
    ]);
    container.args(options.split(' ')).args(["--", "sh", "-c", script]);
    Some(container)
}

const NO_NAMESPACES: &str = "unshare makes no pid namespace here (it needs root)";

#[test]
fn as_pid_1_it_ends_like_the_command_and_reaps_orphans() {
    let server = Server::start();
    // PID 1 reaps an orphan that has ended; otherwise it would stay a zombie.
    let script = "test $(cat /proc/$PPID/comm) = redis-lock && test $PPID = 1 || exit 9; \
                  for i in 1 2 3; do sh -c 'sleep 0.01 & echo orphan $!' ; done; \
                  while ps -o stat= -e | grep -q Z || pgrep sleep >/dev/null; do sleep 0.01; done; exit 3";
    let Some(mut container) = as_pid_1(&server, "k", script) else { return skip(NO_NAMESPACES) };
    let end = Runner::start(&mut container).end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(3), ""), "{}", end.stdout());
    assert!(!is_held(&server, "k"));
}

#[test]
fn as_pid_1_it_forwards_signals_and_exits_with_128_plus_the_signal() {
    let server = Server::start();
    let Some(mut container) = as_pid_1(&server, "k", "echo ready; sleep 300") else { return skip(NO_NAMESPACES) };
    let runner = Runner::start(&mut container);
    runner.until_prints("ready");
    send(pid_1_of(&runner), Signal::TERM);
    // unshare itself would die of a signal, so this is a status.
    assert_eq!(runner.end().code(), Some(143));
    assert!(!is_held(&server, "k"));
}

#[test]
fn as_pid_1_it_ends_by_a_signal_while_waiting() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let Some(mut container) = as_pid_1(&server, "k", "echo ran") else { return skip(NO_NAMESPACES) };
    let runner = Runner::start(&mut container);
    until_waiters(&server, "k", 1);
    send(pid_1_of(&runner), Signal::TERM);
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(143), ""));
    until_waiters(&server, "k", 0);
}

/// The only child process of unshare.
fn pid_1_of(runner: &Runner) -> i32 {
    let mut child = None;
    until("unshare has its child", || {
        let id = runner.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        child = children.split_whitespace().next().and_then(|child| child.parse().ok());
        child.is_some_and(|child: i32| {
            fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == "redis-lock")
        })
    });
    child.expect("it was found")
}

#[test]
fn a_script_may_lock_itself_even_when_run_under_another_lock() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("deploy");
    // The script of README.md with a different last line.
    let recipe = README.split("```sh\n").find_map(|block| block.strip_prefix("#!/bin/sh\n")).expect("a script");
    let (head, _) = recipe.split_once("curl ").expect("the script continues with curl");
    let head = head.replace("redis-lock run", &format!("{PROGRAM} -p {} run", server.port()));
    let held = format!("redis-cli -p {} LOCK.HELD deploy:production \"$REDIS_LOCK_TOKEN\" | head -n 1", server.port());
    let text = format!("#!/bin/sh\n{head}test \"$({held})\" = \"$REDIS_LOCK_FENCE\" && echo \"held, $1\"; exit 3\n");
    fs::write(&script, text).expect("a script");
    let alone = format!("chmod +x {0}; {0} 'an argument'", script.display());
    let nested = |keys: &str| format!("{} {} 'an argument'", line(&server, keys), script.display());
    for line in [alone, nested("another"), nested("another third")] {
        let end = Runner::start(Command::new("sh").arg("-c").arg(&line)).end();
        assert_eq!((end.code(), end.stdout()), (Some(3), "held, an argument\n"), "{line}: {}", end.stderr);
    }
}

#[test]
fn with_nohup_a_hangup_reaches_neither() {
    let server = Server::start();
    let mut nohup = Command::new("sh");
    nohup.args(["-c", &format!("trap '' HUP; exec {} sh -c 'echo ready; read _; exit 3'", line(&server, "k"))]);
    let mut runner = Runner::start(&mut nohup);
    runner.until_prints("ready");
    runner.signal(Signal::HUP);
    runner.close_stdin();
    assert_eq!(runner.end().code(), Some(3));
}

#[test]
fn a_caller_that_blocks_signals_does_not_prevent_us_from_ending() {
    let server = Server::start();
    // A shell cannot block signals, but Python can.
    let script = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); \
                  os.execv(sys.argv[1], sys.argv[1:])";
    let port = server.port().to_string();
    let blocked = |line: &str| {
        let mut caller = Command::new("python3");
        caller.args(["-c", script]).args(line.split(' '));
        Runner::start(&mut caller)
    };
    let masks = "/usr/bin/grep SigBlk /proc/self/status";
    let without = blocked(masks).end();
    assert!(!without.stdout().contains("\t0000000000000000"), "{}", without.stdout());
    let with = blocked(&format!("{PROGRAM} -p {port} run k -- {masks}")).end();
    assert_eq!((with.code(), with.stdout()), (Some(0), without.stdout()));
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let waiting = blocked(&format!("{PROGRAM} -p {port} run k -- true"));
    until_waiters(&server, "k", 1);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.end().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn we_leave_no_zombie_to_a_pid_1_that_reaps_only_its_own_children() {
    let server = Server::start();
    // Like a program that is PID 1 of a container but not an init: it inherits orphans, and reaps only its own
    // children.
    let script = r#"
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
lost = 'kill -STOP $PPID; sleep 0.2; kill -CONT $PPID; exec sleep 9'
runs = [['--', 'true'], ['--', 'sh', '-c', 'kill -9 $$'], ['--', '/no/such/command'],
        ['--lease', '50ms', '--', 'sh', '-c', lost]]
ended = [subprocess.run(sys.argv[1:] + run, stderr=subprocess.DEVNULL).returncode for run in runs]
children = subprocess.run(['ps', '--ppid', str(os.getpid()), '-o', 'stat=,comm='], capture_output=True, text=True)
print(ended, [line.split() for line in children.stdout.splitlines() if line.split()[1] != 'ps'])
"#;
    let mut caller = Command::new("python3");
    caller.args(["-c", script, PROGRAM, "-p", &server.port().to_string(), "run", "k"]);
    let end = Runner::start(&mut caller).end();
    assert_eq!((end.stdout(), end.stderr.as_str()), ("[0, -9, 127, 75] []\n", ""));
}

#[test]
fn a_caller_that_ignores_sigchld_still_gets_the_status() {
    let server = Server::start();
    let mut caller = Command::new("python3");
    let script =
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])";
    let port = server.port().to_string();
    caller.args(["-c", script, PROGRAM, "-p", &port, "run", "k", "--", "sh", "-c", "exit 3"]);
    assert_eq!(Runner::start(&mut caller).end().code(), Some(3));
}

#[test]
fn children_of_the_process_we_replaced_are_not_mistaken_for_the_command() {
    let server = Server::start();
    let mut caller = Command::new("sh");
    caller
        .args(["-c", &format!("sh -c 'exit 9' & exec {} sh -c 'echo command $$; read _; exit 3'", line(&server, "k"))]);
    let mut runner = Runner::start(&mut caller);
    let command = runner.printed_id("command");
    assert!(!has_exited(command));
    runner.close_stdin();
    assert_eq!(runner.end().code(), Some(3));
    until_exited(command);
}
