//! In a terminal with a job-control shell: Ctrl-C, Ctrl-Z, fg, bg, and programs that need the terminal.
//!
//! dash, used as `sh`, starts a program with vfork. A SIGINT at that moment is lost, and after a SIGTSTP dash hangs,
//! even without redis-lock. So where a test presses a key at once, the command is a program that `sh` has replaced
//! itself with, or bash.

use support::{until, Server};

use super::runner::{is_held, line, until_stopped};
use super::shell::Shell;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

fn shell_with(server: &Server) -> Shell {
    let mut shell = Shell::start();
    shell.command(&format!("R='{}'", line(server, "k")));
    shell
}

#[test]
fn a_command_has_the_terminal_for_itself() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    let script =
        "stty size; test -t 0 && test -t 1 && echo group $$ of $(ps -o tpgid= -p $$); read line; echo read $line";
    shell.enter(&format!("$R sh -c '{script}'"));
    shell.until_shows("24 100");
    let shown = shell.until_shows(" of ") + &shell.until_shows("\n");
    let numbers: Vec<&str> = shown.split_whitespace().filter(|word| word.parse::<i32>().is_ok()).collect();
    assert_eq!(numbers[0], numbers[1], "{shown}");
    shell.enter("typed");
    shell.until_shows("read typed");
    shell.until_prompt();
    assert!(shell.command("echo status $?").contains("status 0"));
    assert!(!is_held(&server, "k"));
}

#[test]
fn an_interactive_shell_has_its_own_jobs() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.enter("PS1='inner> ' $R sh -i");
    shell.until_shows("inner> ");
    let shell_group = shell.foreground();
    shell.enter("sleep 300");
    until("the job has the terminal", || shell.foreground() != shell_group);
    shell.press(CTRL_C);
    shell.until_shows("inner> ");
    shell.enter("echo status $?");
    shell.until_shows("status 130");
    shell.enter("exit 5");
    shell.until_prompt();
    assert!(shell.command("echo status $?").contains("status 5"));
}

#[test]
fn ctrl_c_ends_first_the_command_and_then_us() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    for (key, status) in [(CTRL_C, "status 130"), (CTRL_BACKSLASH, "status 131")] {
        shell.enter("$R sh -c 'echo ready; exec sleep 300'");
        shell.until_shows("ready");
        shell.press(key);
        shell.until_prompt();
        assert!(shell.command("echo status $?").contains(status));
        assert!(!is_held(&server, "k"));
    }
}

#[test]
fn ctrl_c_during_the_wait_leaves_nothing_behind() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let mut shell = shell_with(&server);
    shell.enter("$R echo ran");
    super::runner::until_waiters(&server, "k", 1);
    shell.press(CTRL_C);
    shell.until_prompt();
    assert!(shell.command("echo status $?").contains("status 130"));
    assert_eq!(super::runner::waiters(&server, "k"), 0);
}

#[test]
fn ctrl_z_stops_both_and_fg_resumes_both() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.enter("$R sh -c 'echo command $$; read line; echo read $line; exit 7'");
    shell.until_shows("command ");
    let command: i32 = shell.until_shows("\n").trim().parse().expect("a process id");
    for _ in 0..2 {
        shell.press(CTRL_Z);
        let shown = shell.until_prompt();
        assert!(shown.contains("Stopped"), "{shown}");
        until_stopped(command);
        assert!(shell.command("jobs -l").contains("Stopped"));
        shell.enter("fg");
        until("the command has the terminal", || shell.foreground() == command);
    }
    shell.enter("typed");
    shell.until_shows("read typed");
    shell.until_prompt();
    assert!(shell.command("echo status $?").contains("status 7"));
}

#[test]
fn in_the_background_it_runs_until_it_reads_the_terminal() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.enter("$R sh -c 'echo ready; read line; echo read $line' &");
    shell.until_prompt();
    let mut shown = String::new();
    until("the job asks for the terminal", || {
        shown = shell.command("jobs -l");
        shown.contains("Stopped (tty input)")
    });
    shell.enter("fg");
    until("the command has the terminal", || {
        let shell_id = shell.mark().processes();
        shell_id.contains(&shell.foreground()) && !shown.contains(&format!(" {} ", shell.foreground()))
    });
    shell.enter("typed");
    shell.until_shows("read typed");
    shell.until_prompt();
}

#[test]
fn bg_continues_a_stopped_command() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.enter("$R bash -c 'echo ready; while :; do sleep 0.05; done'");
    shell.until_shows("ready");
    shell.press(CTRL_Z);
    shell.until_prompt();
    shell.command("bg");
    assert!(shell.command("jobs").contains("Running"));
    assert!(is_held(&server, "k"));
    let shell_group = shell.foreground();
    shell.enter("fg");
    until("the job has the terminal", || shell.foreground() != shell_group);
    shell.press(CTRL_C);
    shell.until_prompt();
    until("it is released", || !is_held(&server, "k"));
}

#[test]
fn ctrl_c_ends_a_script_loop_around_us() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.command("export R");
    shell.enter("bash -c 'while :; do $R sh -c \"echo ready; exec sleep 300\"; echo again; done'");
    shell.until_shows("ready");
    shell.press(CTRL_C);
    let shown = shell.until_prompt();
    assert!(!shown.contains("again"), "{shown}");
    assert!(shell.command("echo status $?").contains("status 130"));
}

#[test]
fn ctrl_c_ends_a_loop_around_a_command_that_has_the_terminal() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.command("export R");
    shell.enter("bash -c 'while :; do $R sh -c \"echo command \\$\\$; read line\"; echo again; done'");
    shell.until_shows("command ");
    let command: i32 = shell.until_shows("\n").trim().parse().expect("a process id");
    until("the command has the terminal", || shell.foreground() == command);
    shell.press(CTRL_C);
    let shown = shell.until_prompt();
    assert!(!shown.contains("again"), "{shown}");
    assert!(shell.command("echo status $?").contains("status 130"));
}

#[test]
fn make_gets_ctrl_c_even_if_the_command_handles_it() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let recipe = "trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done";
    let rules = format!("target:\n\t@{} sh -c \"{recipe}\"\n\t@echo again\n", line(&server, "k"));
    std::fs::write(folder.path().join("Makefile"), rules).expect("a Makefile");
    let mut shell = Shell::start();
    shell.enter(&format!("make -s -C {} target", folder.path().display()));
    shell.until_shows("ready");
    shell.press(CTRL_C);
    let shown = shell.until_prompt();
    assert!(!shown.contains("again"), "{shown}");
    assert!(shell.command("echo status $?").contains("status 130"));
    assert!(!is_held(&server, "k"));
}

#[test]
fn ctrl_z_stops_a_script_around_a_command_that_has_the_terminal() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.command("export R");
    shell.enter("bash -c '$R sh -c \"echo command \\$\\$; read line; echo read \\$line\"; echo then'");
    shell.until_shows("command ");
    let command: i32 = shell.until_shows("\n").trim().parse().expect("a process id");
    until("the command has the terminal", || shell.foreground() == command);
    shell.press(CTRL_Z);
    let shown = shell.until_prompt();
    assert!(shown.contains("Stopped"), "{shown}");
    until_stopped(command);
    shell.enter("fg");
    until("the command has the terminal again", || shell.foreground() == command);
    shell.enter("typed");
    shell.until_shows("read typed");
    shell.until_shows("then");
    shell.until_prompt();
}

#[test]
fn a_pipeline_keeps_the_terminal_until_a_process_needs_it() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    shell.enter("echo piped | $R sh -c 'cat; echo asking; read line </dev/tty; echo got $line' | cat");
    shell.until_shows("piped");
    shell.until_shows("asking");
    shell.enter("typed");
    shell.until_shows("got typed");
    shell.until_prompt();
    assert!(shell.command("echo status $?").contains("status 0"));
}

#[test]
fn a_new_size_of_the_terminal_reaches_the_command() {
    let server = Server::start();
    let mut shell = shell_with(&server);
    // In a pipeline the terminal signals our group but not the command's.
    for end in ["", " | cat"] {
        shell.enter(&format!(
            "$R bash -c 'trap \"stty size </dev/tty; exit\" WINCH; echo ready; while :; do sleep 0.05; done'{end}"
        ));
        shell.until_shows("ready");
        shell.resize(30, 90);
        shell.until_shows("30 90");
        shell.until_prompt();
        shell.resize(24, 100);
    }
}

#[test]
fn a_terminal_in_raw_mode_is_usable_again_when_the_lock_is_lost() {
    let server = Server::start();
    let mut shell = Shell::start();
    shell.command("stty echo");
    shell.enter(&format!("{} sh -c 'stty raw -echo; echo ready; exec sleep 300'", line(&server, "--lease 1500ms k")));
    shell.until_shows("ready\n");
    server.client().run("LOCK.BREAK k");
    shell.until_prompt();
    let modes = shell.command("stty -a");
    let modes: Vec<&str> = modes.split_whitespace().collect();
    assert!(["icanon", "echo", "isig", "opost"].iter().all(|mode| modes.contains(mode)), "{modes:?}");
    assert!(shell.command("echo status $?").contains("status 0"));
}

#[test]
fn fg_ends_a_command_that_was_stopped_past_its_lease() {
    let server = Server::start();
    let mut shell = Shell::start();
    let script = "trap 'echo \"went\" on' CONT; echo ready; while :; do sleep 0.01; done";
    shell.command(&format!("SCRIPT='{}'", script.replace('\'', "'\\''")));
    shell.enter(&format!("{} bash -c \"$SCRIPT\"", line(&server, "--lease 1500ms k")));
    shell.until_shows("ready");
    shell.press(CTRL_Z);
    shell.until_prompt();
    until("the lease has expired", || !is_held(&server, "k"));
    shell.enter("fg");
    let shown = shell.until_prompt();
    assert!(shown.contains("k: the lock was lost: terminating") && !shown.contains("went on"), "{shown}");
    assert!(shell.command("echo status $?").contains("status 75"));
    shell.press(CTRL_D);
}
