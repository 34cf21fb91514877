use std::time::Duration;

use faults::Cluster;
use serde_json::json;
use support::Server;

use crate::screen::Screen;
use crate::tool::{at, fields, redis_lock};

#[test]
fn every_lock_of_any_type_is_listed_once_by_key() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET no-lock x");
    client.run("SEM.ACQUIRE permits a LIMIT 5 PERMITS 2").fence();
    client.run("SEM.ACQUIRE permits b LIMIT 5").fence();
    client.run("LOCK.ACQUIRE forever w PERSIST").fence();
    client.run("RWLOCK.ACQUIRE book r READ PX 90000").fence();
    client.run("RLOCK.ACQUIRE again o PX 90000").fence();
    let output = at(&server, "ls");
    let rows = output.rows();
    assert_eq!(rows[0], ["KEY", "KIND", "OWNER", "HOLDERS", "WAITERS", "LEFT"]);
    let without_time: Vec<&[&str]> = rows[1..].iter().map(|row| &row[..5]).collect();
    let expected = [
        ["again", "reentrant", "o", "1", "0"],
        ["book", "rw", "r", "1", "0"],
        ["forever", "mutex", "w", "1", "0"],
        ["permits", "semaphore", "a", "2", "0"],
    ];
    assert_eq!(without_time, expected);
    assert_eq!(rows[3][5], "no deadline");
    assert!(["1m30s", "1m29s"].contains(&rows[2][5]), "{:?}", rows[2]);
}

#[test]
fn in_80_columns_long_keys_get_a_separate_line_and_no_row_is_wrapped() {
    let server = Server::start();
    let mut client = server.client();
    let (key, owner) = ("k".repeat(96), "a-host-wit:1234567:0123456789abcdef");
    client.run(&format!("RWLOCK.ACQUIRE {key} {owner} READ PX 3600000 SESSION")).fence();
    client.run(&format!("SEM.ACQUIRE permits {owner} LIMIT 3 PERSIST")).fence();
    let mut waiter = server.client();
    waiter.send_line(&format!("SEM.ACQUIRE permits {owner}x LIMIT 3 PERMITS 3 BLOCK 100000"));
    server.wait_blocked(1);
    for line in ["ls".to_string(), format!("info {key}"), "info permits".to_string(), "waiters permits".to_string()] {
        let mut screen = Screen::start_with(&format!("-p {} {line}", server.port()), 80, &[]);
        assert_eq!(screen.status(), 0);
        screen.until("the whole table", |text| text.lines().count() > 2);
        let text = screen.text();
        let is_key = |line: &str| line.trim_start_matches("key").trim().chars().all(|char| char == 'k');
        let rows = text.lines().filter(|line| !is_key(line));
        assert!(rows.clone().all(|row| row.chars().count() <= 80), "{line}:\n{text}");
        // In a pipe or a file, each lock is one line.
        let whole = at(&server, &line);
        assert!(whole.text().lines().any(|row| row.contains(owner)) && !whole.stdout.contains('…'), "{}", whole.stdout);
        assert!(line != "ls" || whole.text().lines().count() == 3, "{}", whole.stdout);
    }
}

#[test]
fn in_narrower_terminals_no_row_is_wrapped_either() {
    let server = Server::start();
    let mut client = server.client();
    let owner = "a-host-wit:1234567:0123456789abcdef";
    client.run(&format!("SEM.ACQUIRE permits:of:the:gpu {owner} LIMIT 3 PX 3600000 SESSION")).fence();
    let mut waiter = server.client();
    waiter.send_line(&format!("SEM.ACQUIRE permits:of:the:gpu {owner}x LIMIT 3 PERMITS 3 BLOCK 100000"));
    server.wait_blocked(1);
    let key = "permits:of:the:gpu";
    let lines = ["ls", "info permits:of:the:gpu", "waiters permits:of:the:gpu", "top --once --interval 100ms", "graph"];
    for columns in [80, 60, 40] {
        for line in lines {
            let mut screen = Screen::start_with(&format!("-p {} {line}", server.port()), columns, &[]);
            assert_eq!(screen.status(), 0, "{line}");
            screen.until("the whole table", |text| text.lines().count() > 2);
            let text = screen.text();
            // Sentences above the table may be wrapped; here each is one line.
            let is_header = |row: &str| ["KEY", "OWNER", "LOCK,"].iter().any(|title| row.contains(title));
            let mut table = text.lines().skip_while(|row| !is_header(row));
            assert!(table.all(|row| row.chars().count() <= usize::from(columns)), "{line}, {columns}:\n{text}");
            if !["info", "waiters", "graph"].iter().any(|of| line.starts_with(of)) {
                assert!(text.contains(key), "{line}, {columns}:\n{text}");
            }
        }
    }
}

#[test]
fn a_cluster_node_queried_alone_is_reported() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let address = format!("127.0.0.1:{}", cluster.node(0).port());
    let expected = format!(
        "redis-lock: {address} is a node of a cluster: the locks of other nodes are not shown \
         (use -c to query all primaries)"
    );
    for line in ["ls", "ls --json", "log", "log --json", "graph", "graph --json", "graph --dot"] {
        let output = at(cluster.node(0), line);
        assert_eq!(output.status, 0, "{line}");
        assert!(output.stderr.lines().any(|shown_text| shown_text == expected), "{line}: {}", output.stderr);
    }
    for line in ["top --once --interval 100ms", "top --once --interval 100ms --json"] {
        let output = at(cluster.node(0), line);
        assert_eq!((output.status, output.stderr.lines().collect::<Vec<_>>()), (0, vec![expected.as_str()]), "{line}");
    }
    for line in ["-c ls", "-c log", "-c graph", "-c top --once --interval 100ms"] {
        let output = at(cluster.node(0), line);
        assert!(!output.stderr.contains("a node of a cluster"), "{line}: {}", output.stderr);
    }
    let screen = Screen::start(&format!("-p {} top", cluster.node(0).port()));
    screen.until_shows(&format!("{address} is a node of a cluster"));
    assert!(!at(&Server::start(), "ls").stderr.contains("cluster"));
}

#[test]
fn json_has_the_fields_of_lock_scan_and_the_server() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k w PERSIST").fence();
    let locks = at(&server, "ls --json").json();
    let expected = json!([{
        "server": format!("127.0.0.1:{}", server.port()),
        "key": "k", "kind": "mutex", "owner": "w", "holders": 1, "ttl": -1, "waiters": 0,
    }]);
    assert_eq!(locks, expected);
}

#[test]
fn a_pattern_chooses_keys() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["orders:1", "orders:2", "bills:1"] {
        client.run(&format!("LOCK.ACQUIRE {key} w")).fence();
    }
    let locks = at(&server, "ls orders:* --json").json();
    let keys: Vec<&str> =
        locks.as_array().expect("a list").iter().map(|lock| lock["key"].as_str().expect("text")).collect();
    assert_eq!(keys, ["orders:1", "orders:2"]);
}

#[test]
fn locks_from_multiple_scan_steps_are_all_listed() {
    let server = Server::start();
    let mut client = server.client();
    let lines: Vec<String> = (0..5000).map(|index| format!("LOCK.ACQUIRE key:{index} w")).collect();
    client.pipeline(&lines);
    let output = at(&server, "ls --json");
    let locks = output.json();
    let mut keys: Vec<&str> =
        locks.as_array().expect("a list").iter().map(|lock| lock["key"].as_str().expect("text")).collect();
    assert!(keys.is_sorted());
    keys.dedup();
    assert_eq!(keys.len(), 5000);
}

#[test]
fn no_locks_is_not_a_failure() {
    let server = Server::start();
    let output = at(&server, "ls");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (0, "", "redis-lock: no locks\n"));
    assert_eq!(at(&server, "ls --json").json(), json!([]));
}

#[test]
fn binary_keys_are_escaped_in_text_and_base64_in_json() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd(&[b"LOCK.ACQUIRE".as_slice(), b"\x1b[2J\xff", b"w\n", b"PERSIST"]).fence();
    assert_eq!(at(&server, "ls").rows()[1][..3], ["\\x1b[2J\\xff", "mutex", "w\\n"]);
    let locks = at(&server, "ls --json").json();
    assert_eq!(locks[0]["key"], json!({"base64": "G1sySv8="}));
    assert_eq!(locks[0]["owner"], "w\n");
}

#[test]
fn in_a_cluster_all_primaries_and_no_replicas_are_queried() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut homes: Vec<String> = Vec::new();
    for key in keys {
        let home = cluster.node(cluster.primary_of(cluster.slot(key)));
        home.client().run(&format!("LOCK.ACQUIRE {key} w PERSIST")).fence();
        homes.push(format!("127.0.0.1:{}", home.port()));
    }
    let locks = redis_lock(&format!("-c -p {} ls --json", cluster.node(0).port())).json();
    let locks = locks.as_array().expect("a list");
    let found: Vec<(&str, &str)> = locks
        .iter()
        .map(|lock| (lock["key"].as_str().expect("text"), lock["server"].as_str().expect("text")))
        .collect();
    let expected: Vec<(&str, &str)> = keys.into_iter().zip(homes.iter().map(String::as_str)).collect();
    assert_eq!(found, expected);
    assert_eq!(fields(&locks[0]), ["holders", "key", "kind", "owner", "server", "ttl", "waiters"]);
}
