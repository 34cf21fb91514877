//! The command-line examples of README.md and docs/runbook.md match the program's behaviour.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{until, Server};

use crate::tool::{at, command, run, PROGRAM};

const README: &str = include_str!("../../../README.md");
const RUNBOOK: &str = include_str!("../../../docs/runbook.md");

/// The page's only block in this language.
#[track_caller]
fn block_of<'a>(document: &'a str, language: &str) -> &'a str {
    let fence = format!("\n```{language}\n");
    let mut blocks = document.split(&fence).skip(1);
    let block = blocks.next().and_then(|rest| rest.split("```\n").next()).expect("a block");
    assert!(blocks.next().is_none(), "more than one block of {language}");
    block
}

#[test]
fn the_command_line_of_the_readme_runs_under_the_lock() {
    let mut lines = README.lines().filter(|line| line.starts_with("redis-lock run "));
    let line = lines.next().expect("a line");
    assert_eq!(lines.next(), None, "more than one line");
    let server = Server::start();
    let folder = server.dir();
    let script = "#!/bin/sh\nredis-cli -p $PORT LOCK.HELD $REDIS_LOCK_KEY $REDIS_LOCK_TOKEN | head -n 1 >held\n";
    let program = folder.join("make-report");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it may run");
    let here = line.replace("redis-lock run ", "\"$REDIS_LOCK\" run -p $PORT ");
    assert_ne!(here, line, "it runs `redis-lock run`, on the default port");

    let mut client = server.client();
    let before = client.run("LOCK.ACQUIRE report somebody PX 60000").fence();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &here]).current_dir(folder).env("REDIS_LOCK", PROGRAM).env("PORT", server.port().to_string());
    let mut running = shell.spawn().expect("there is a shell");
    until("it waits, or ends", || {
        client.run("LOCK.INFO report").get("waiters").int() == 1 || running.try_wait().is_ok_and(|end| end.is_some())
    });
    assert!(running.try_wait().is_ok_and(|end| end.is_none()), "it waits for the lock");
    assert!(!folder.join("held").exists(), "it does not run before the grant");
    assert_eq!(client.run("LOCK.RELEASE report somebody").int(), 1);
    assert!(running.wait().expect("it ends").success());
    let held = fs::read_to_string(folder.join("held")).expect("the command ran");
    assert!(held.trim().parse::<i64>().is_ok_and(|fence| fence > before), "{held}");
    assert_eq!(client.run("EXISTS report").int(), 0, "it is released");
}

/// Numbers and column widths differ between runs, so only the words are compared, in order.
fn words_of(line: &str) -> Vec<String> {
    let mask = |word: &str| if word.starts_with(|c: char| c.is_ascii_digit()) { "0".into() } else { word.into() };
    line.split_whitespace().map(mask).collect()
}

#[test]
fn the_tables_of_the_runbook_match_the_output() {
    let server = Server::start();
    let mut holder = server.client();
    holder.run("LOCK.ACQUIRE billing:march worker-4 PX 60000 SESSION").fence();
    let waiters = ["worker-5", "worker-6"].map(|owner| {
        let mut waiter = server.client();
        waiter.send_line(&format!("LOCK.ACQUIRE billing:march {owner} BLOCK 0"));
        let mut observer = server.client();
        until(owner, || {
            let waiting = observer.run("LOCK.WAITERS billing:march");
            waiting.items().last().is_some_and(|last| last.get("owner").text() == owner)
        });
        waiter
    });
    let mut commands = 0;
    for session in block_of(RUNBOOK, "console").split("$ redis-lock ").skip(1) {
        let (line, written) = session.split_once('\n').expect("a command and what it prints");
        let printed = at(&server, line).text().to_string();
        let words = |text: &str| text.lines().map(words_of).collect::<Vec<_>>();
        assert_eq!(words(&printed), words(written), "redis-lock {line}\n{printed}");
        commands += 1;
    }
    assert_eq!(commands, 4);
    drop(waiters);
}

/// Each command in the runbook's table accepts the arguments shown there.
#[test]
fn every_command_of_the_runbook_exists() {
    let table = RUNBOOK.split_once("| question | redis-cli | `redis-lock` |").expect("the table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.filter_map(|row| row.split('|').nth(3)).collect();
    assert!(cells.len() > 5, "only {} rows were found", cells.len());
    for line in cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let output = run(command().args(line.split_whitespace()).arg("--help"));
        assert_eq!(output.status, 0, "redis-lock {line}: {}", output.stderr);
    }
}
