//! Key and owner names that are not text, or that look like an option.

use support::{until, Client, Server};

use super::run::runner::Runner;
use crate::tool::{at, command, redis_lock_with, Output};

/// Bytes that no argument can contain, invalid UTF-8, a name that begins like an option, and one that looks escaped.
const NAMES: [&[u8]; 5] = [b"caf\xe9", b"a\0b", b"-k", b"back\\xe9slash", b"line\nbreak \"quoted\""];

#[track_caller]
fn query(server: &Server, words: &[&str]) -> Output {
    let port = server.port().to_string();
    redis_lock_with(&[&["-p", &port], words].concat())
}

/// The server's only lock; its key, holder and waiter all have this name.
fn held(server: &Server, name: &[u8]) -> Client {
    let mut client = server.client();
    client.run("FLUSHALL");
    client.cmd(&[b"LOCK.ACQUIRE", name, name, b"PERSIST"]).fence();
    let waiter = [b"waits for ", name].concat();
    let mut waiting = server.client();
    waiting.send(&[b"LOCK.ACQUIRE", name, &waiter[..], b"BLOCK", b"0"]);
    server.wait_blocked(1);
    waiting
}

/// The cell of the only row, found by its column title, because a name may contain two spaces.
fn cell(printed: &str, title: &str, next: &str) -> String {
    let mut lines = printed.lines();
    let header = lines.next().expect("a header");
    let (from, to) = (header.find(title).expect("its title"), header.find(next).expect("the next title"));
    let row: Vec<char> = lines.next().expect("a row").chars().collect();
    row[from..to].iter().collect::<String>().trim_end().to_string()
}

#[test]
fn every_printed_name_is_accepted_as_input() {
    let server = Server::start();
    for name in NAMES {
        let _waiting = held(&server, name);
        let key = cell(query(&server, &["ls"]).text(), "KEY", "KIND");
        let escaped = |words: &[&str]| query(&server, &[&words[..1], &["--escaped"], &words[1..]].concat());
        // A name that begins like an option must follow `--`.
        assert!(escaped(&["info", "--", &key]).text().contains(&format!("key      {key}\n")), "{key}");
        assert!(escaped(&["graph", "--", &key]).text().contains(&format!("held by {key}")), "{key}");
        assert_eq!(escaped(&["ls", "--", &key.replace('\\', "\\\\")]).status, 0);
        let waiter = cell(escaped(&["waiters", "--", &key]).text(), "OWNER", "MODE");
        let cancelled = escaped(&["cancel", "--", &key, &waiter]);
        assert_eq!(cancelled.text(), format!("{waiter} no longer waits for {key}\n"));
        let broken = escaped(&["break", &format!("--owner={key}"), "--", &key]);
        assert_eq!(broken.text(), format!("1 holder of {key} was removed\n"));
        until("the lock is free", || server.client().cmd(&[b"EXISTS", name]).int() == 0);
    }
}

#[test]
fn a_pattern_may_contain_any_bytes() {
    let server = Server::start();
    for name in NAMES {
        server.client().cmd(&[b"LOCK.ACQUIRE", name, b"w"]).fence();
    }
    let output = query(&server, &["ls", "--escaped", "caf\\xe9*"]);
    assert_eq!((output.text().lines().count(), output.stdout.contains("caf\\xe9 ")), (2, true), "{}", output.stdout);
}

#[test]
fn a_run_has_its_key_in_the_environment_as_it_was_written() {
    let server = Server::start();
    let port = server.port().to_string();
    for (written, name) in [("a\\x00b", &b"a\0b"[..]), ("caf\\xe9", b"caf\xe9"), ("\\x2dk", b"-k"), ("\\\\", b"\\")] {
        let script = ["--", "sh", "-c", "printf '%s\\n' \"$REDIS_LOCK_KEY\"; read _"];
        let mut runner = Runner::start(command().args(["-p", &port, "run", "--escaped", written]).args(script));
        runner.until_prints(&format!("{written}\n"));
        assert_eq!(server.client().cmd(&[b"EXISTS", name]).int(), 1, "{written}");
        runner.close_stdin();
        runner.wait();
    }
    let two_keys = ["run", "--escaped", "{k}\\x00", "{k}\\xff", "--", "sh", "-c", "printf '%s' \"$REDIS_LOCK_KEY\""];
    assert_eq!(query(&server, &two_keys).text(), "{k}\\x00\n{k}\\xff");
    // Without the option, names are taken literally.
    let literal = ["run", "a\\x00b", "--", "sh", "-c", "printf '%s' \"$REDIS_LOCK_KEY\""];
    assert_eq!(query(&server, &literal).text(), "a\\x00b");
}

#[test]
fn two_spellings_of_a_key_are_the_same_key() {
    let server = Server::start();
    let output = query(&server, &["run", "--escaped", "k", "\\x6b", "--", "true"]);
    assert!(
        output.status == 64 && output.stderr.contains("duplicate key: give each key only once"),
        "{}",
        output.stderr
    );
}

#[test]
fn an_invalid_escape_is_a_usage_error_that_lists_the_valid_ones() {
    let server = Server::start();
    for words in [&["info", "--escaped", "a\\q"][..], &["run", "--escaped", "a\\x1", "--", "true"]] {
        let output = query(&server, words);
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{words:?}");
        assert!(output.stderr.contains(": --escaped accepts only \\xHH, \\n, \\r, \\t and \\\\"), "{}", output.stderr);
    }
    let output = query(&server, &["cancel", "--escaped", "k", ""]);
    assert!(output.status == 64 && output.stderr.contains("it is empty"), "{}", output.stderr);
}

#[test]
fn a_printed_name_without_the_option_is_not_found_with_a_hint() {
    let server = Server::start();
    let _waiting = held(&server, b"caf\xe9");
    for line in ["info caf\\xe9", "waiters caf\\xe9", "break caf\\xe9", "cancel k caf\\xe9", "graph caf\\xe9"] {
        let output = at(&server, line);
        assert!(
            output.stderr.ends_with(" (for a name in its printed form, add --escaped)\n"),
            "{line}: {}",
            output.stderr
        );
    }
    assert!(!at(&server, "info k").stderr.contains("--escaped"));
}
