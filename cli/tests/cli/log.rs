use std::time::Duration;

use faults::Cluster;
use serde_json::{json, Value};
use support::{until, Server};

use crate::screen::Screen;
use crate::tool::{at, fields, redis_lock};

#[test]
fn entries_are_shown_newest_first() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE first one PERSIST").fence();
    client.run("LOCK.BREAK first").int();
    client.run("LOCK.ACQUIRE second two PERSIST").fence();
    client.run("LOCK.BREAK second").int();
    let output = at(&server, "log");
    let rows = output.rows();
    assert_eq!(rows[0], ["TIME", "EVENT", "AFTER", "DB", "KEY", "OWNER", "WAITERS", "CLIENT", "ADDRESS"]);
    let id = client.id().to_string();
    for (row, [key, owner]) in rows[1..].iter().zip([["second", "two"], ["first", "one"]]) {
        assert!(row[0].starts_with("20") && row[0].ends_with('Z') && row[0].len() == 24, "{row:?}");
        assert_eq!((row[1], &row[3..8]), ("broken", ["0", key, owner, "0", &id].as_slice()));
    }
    assert_eq!(rows.len(), 3);
    assert_eq!(at(&server, "log --count 1").rows().len(), 2);
}

#[test]
fn json_has_the_fields_of_lock_log_and_the_server() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k w PERSIST").fence();
    client.run("LOCK.BREAK k").int();
    let mut log = at(&server, "log --json").json();
    let entry = &mut log[0];
    for field in ["time", "ms"] {
        assert!(entry[field].take().is_u64(), "{field}");
    }
    let expected = json!([{
        "server": format!("127.0.0.1:{}", server.port()), "id": 0, "time": null, "event": "broken", "key": "k",
        "db": 0, "owner": "w", "ms": null, "waiters": 0, "client": client.id(), "addr": client.address(),
    }]);
    assert_eq!(log, expected);
}

#[test]
fn an_event_without_a_client_shows_none() {
    let server = Server::builder().module_args("log-hold 1").start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k w PX 20").fence();
    until("the lease has expired", || client.run("EXISTS k").int() == 0);
    until("it is logged", || client.run("LOCK.LOG LEN").int() > 0);
    let output = at(&server, "log");
    let rows = output.rows();
    assert_eq!((rows[1][1], &rows[1][7..]), ("hold", ["-", "-"].as_slice()));
}

#[test]
fn an_empty_log_is_not_a_failure() {
    let server = Server::start();
    let output = at(&server, "log");
    assert_eq!((output.status, output.stdout.as_str()), (0, ""));
    assert_eq!(output.stderr, "redis-lock: the log is empty\n");
    assert_eq!(at(&server, "log --json").json(), json!([]));
}

#[test]
fn the_logs_of_all_primaries_are_merged_by_time() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let keys = ["a", "b", "c", "d", "e", "f"];
    for key in keys {
        let mut home = cluster.node(cluster.primary_of(cluster.slot(key))).client();
        home.run(&format!("LOCK.ACQUIRE {key} w PERSIST")).fence();
        let before = now(&mut home);
        home.run(&format!("LOCK.BREAK {key}")).int();
        // The log's timestamps have a resolution of one millisecond, and the next entry must have a later one.
        until("a millisecond passes", || now(&mut home) > before);
    }
    let port = cluster.node(0).port();
    let log = redis_lock(&format!("-c -p {port} log --json")).json();
    let names = |log: &Value| -> Vec<String> {
        log.as_array().expect("a list").iter().map(|entry| entry["key"].as_str().expect("text").to_string()).collect()
    };
    assert_eq!(names(&log), ["f", "e", "d", "c", "b", "a"]);
    let mut servers: Vec<&str> =
        log.as_array().expect("a list").iter().map(|entry| entry["server"].as_str().expect("text")).collect();
    servers.sort();
    servers.dedup();
    assert!(servers.len() > 1, "{servers:?}");
    assert_eq!(fields(&log[0]).len(), 11);
    let newest = redis_lock(&format!("-c -p {port} log --json --count 2")).json();
    assert_eq!(names(&newest), ["f", "e"]);
}

/// The time of the server's clock in milliseconds.
fn now(client: &mut support::Client) -> i64 {
    let time = client.run("TIME");
    let number = |index: usize| time.items()[index].text().parse::<i64>().expect("a number");
    number(0) * 1000 + number(1) / 1000
}

#[test]
fn in_a_narrow_terminal_entries_are_folded_with_the_whole_key() {
    let server = Server::start();
    let mut client = server.client();
    let (long, owner) = ("orders:".to_string() + &"k".repeat(60), "a-host-wit:1234567:0123456789abcdef");
    for key in ["orders:7", &long] {
        client.run(&format!("LOCK.ACQUIRE {key} {owner} PERSIST")).fence();
        client.run(&format!("LOCK.BREAK {key}")).int();
    }
    for columns in [80, 60, 40] {
        let screen = Screen::start_with(&format!("-p {} log", server.port()), columns, &[]);
        screen.until("the whole table", |text| text.matches("broken").count() == 2 && text.contains(&client.address()));
        let text = screen.text();
        // The terminal wraps longer lines without a line break.
        let whole = text.replace('\n', "");
        assert!(whole.contains(&long), "{columns}:\n{text}");
        for word in ["orders:7", &client.address(), "WAITERS", "ADDRESS"] {
            assert!(text.contains(word), "{columns}: {word}\n{text}");
        }
        let is_own = |line: &&str| long.contains(line.trim_end());
        let rows = text.lines().filter(|line| !is_own(line));
        assert!(rows.clone().all(|row| row.chars().count() <= usize::from(columns)), "{columns}:\n{text}");
        assert_eq!(text.matches(owner).count(), 2, "{columns}:\n{text}");
    }
    // In a pipe, each entry is one line.
    assert_eq!(at(&server, "log").text().lines().count(), 3);
}
