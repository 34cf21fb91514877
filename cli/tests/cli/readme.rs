//! The examples of README.md match the program's output, apart from times, ports and fencing tokens.

use support::{until, Server};

use crate::tool::at;

const README: &str = include_str!("../../README.md");

/// Each command line of the README's examples, with the output shown below it.
fn examples() -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    for block in README.split("```console\n").skip(1) {
        let block = block.split("```").next().expect("split gives one");
        for line in block.lines() {
            match line.strip_prefix("$ redis-lock ") {
                Some(command) => examples.push((command.to_string(), String::new())),
                None => {
                    let (_, output) = examples.last_mut().expect("a command comes first");
                    output.push_str(line);
                    output.push('\n');
                }
            }
        }
    }
    examples
}

#[test]
fn the_examples_match_the_output() {
    let server = Server::builder().module_args("log-wait 1").start();
    let mut session = server.client();
    session.run("LOCK.ACQUIRE orders:7 web-1:4121:9f2c PX 60000 SESSION").fence();
    let mut client = server.client();
    client.run("SEM.ACQUIRE exports batch-3:88:01aa LIMIT 4 PX 3600000").fence();
    client.run("SEM.ACQUIRE exports batch-5:91:77e0 LIMIT 4 PX 3600000").fence();
    client.run("LOCK.ACQUIRE migration ops-1:7:c3d1 PERSIST").fence();
    let mut first = server.client();
    first.send_line("LOCK.ACQUIRE orders:7 web-2:517:b00d PX 60000 BLOCK 0");
    server.wait_blocked(1);
    let mut second = server.client();
    second.send_line("LOCK.ACQUIRE orders:7 web-3:99:5ec0 PX 60000 BLOCK 90000");
    server.wait_blocked(2);
    client.run("LOCK.ACQUIRE invoice:7 web-2:517:b00d PX 60000").fence();
    let mut third = server.client();
    third.send_line("LOCK.ACQUIRE invoice:7 mail-1:40:6d1e PX 60000 BLOCK 0");
    server.wait_blocked(3);
    until("the wait is long enough for the log", || {
        client.run("LOCK.WAITERS orders:7").items()[0].get("waited").int() > 2
    });
    let examples = examples();
    assert_eq!(examples.len(), 9);
    for (command, shown) in examples {
        if command.starts_with("top") {
            second.read();
            second.send_line("LOCK.ACQUIRE orders:7 web-3:99:5ec0 PX 60000 BLOCK 90000");
            server.wait_blocked(2);
        }
        let output = at(&server, &command);
        assert_eq!(without_numbers(output.text()), without_numbers(&shown), "{command}: {}", output.stdout);
    }
}

/// Times, ports, fencing tokens and client ids differ between runs, and so do the widths of columns.
fn without_numbers(text: &str) -> Vec<String> {
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let shape = |line: &str| {
        let words = line.split([' ', ',', ':', '}']).filter(|word| !word.is_empty());
        words.map(|word| if is_number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(shape).collect()
}

#[test]
fn all_exit_statuses_and_subcommands_are_listed() {
    let help = crate::tool::redis_lock("--help");
    let statuses = help.text().lines().skip_while(|line| *line != "Exit status:").skip(1);
    let mut count = 0;
    for status in statuses.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()) {
        assert!(README.contains(&format!("\n| {status} | ")), "{status}");
        count += 1;
    }
    assert_eq!(count, 8);
    for subcommand in ["run", "top", "graph", "ls", "info", "waiters", "break", "cancel", "log", "adopt"] {
        assert!(README.contains(&format!("\n| `{subcommand}")), "{subcommand}");
    }
}
