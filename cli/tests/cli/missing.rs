//! One shard of a cluster is down: the output shows what the others have, and names the dead node.

use std::time::Duration;

use faults::{Cluster, Takeover};
use serde_json::{json, Value};
use support::{free_port, until, Client, Info, Server};

use crate::screen::Screen;
use crate::tool::{redis_lock, Output};

/// The primary `dead` is down, and no replica takes over. Each other primary has a lock with a waiter, and a log entry.
struct Broken {
    cluster: Cluster,
    dead: usize,
    /// The address of the dead node.
    address: String,
    /// The locks of the live primaries in alphabetical order, and one of the dead primary.
    keys: [String; 2],
    lost: String,
    _waiters: Vec<Client>,
}

const LONG: Duration = Duration::from_secs(60);

impl Broken {
    fn start(node_timeout: Duration) -> Broken {
        let mut cluster = Cluster::start(node_timeout, Server::builder);
        let key_of = |primary: usize| {
            let keys = (0..).map(|index| format!("key-{index}"));
            keys.into_iter().find(|key| cluster.primary_of(cluster.slot(key)) == primary).expect("it has slots")
        };
        let dead = 1;
        let lost = key_of(dead);
        let mut keys = [key_of(0), key_of(2)];
        let mut waiters = Vec::new();
        for (node, key) in [0, 2].into_iter().zip(&keys) {
            let mut client = cluster.node(node).client();
            client.run(&format!("LOCK.ACQUIRE {key} broken PERSIST")).fence();
            assert_eq!(client.run(&format!("LOCK.BREAK {key}")).int(), 1);
            client.run(&format!("LOCK.ACQUIRE {key} holder PERSIST")).fence();
            client.run(&format!("LOCK.ACQUIRE {key} waiter BLOCK 0 NOTIFY {{{key}}}"));
            waiters.push(client);
        }
        keys.sort();
        let address = format!("127.0.0.1:{}", cluster.node(dead).port());
        cluster.kill(dead);
        Broken { cluster, dead, address, keys, lost, _waiters: waiters }
    }

    /// Runs the program against a live node.
    fn query(&self, line: &str) -> Output {
        redis_lock(&format!("-c -p {} {line}", self.cluster.node(0).port()))
    }

    /// The error names the dead node, and no other.
    #[track_caller]
    fn names_the_dead(&self, line: &str, output: &Output) {
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        let expected = format!("redis-lock: not shown: {} (no connection: Connection refused", self.address);
        assert!(output.stderr.starts_with(&expected), "{line}: {}", output.stderr);
        assert_eq!(output.stderr.matches("127.0.0.1").count(), 1, "{line}: {}", output.stderr);
    }
}

fn keys_of(locks: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        locks.as_array().expect("a list").iter().map(|lock| lock["key"].as_str().expect("text")).collect();
    keys.sort();
    keys
}

#[test]
fn the_locks_of_the_live_shards_are_shown_and_the_dead_node_is_named() {
    let broken = Broken::start(LONG);
    for line in ["ls", "log", "graph", "top --once --interval 100ms"] {
        let output = broken.query(line);
        broken.names_the_dead(line, &output);
        assert!(broken.keys.iter().all(|key| output.stdout.contains(key)), "{line}: {}", output.stdout);
        let has_a_header = !["ls", "log"].contains(&line);
        assert_eq!(output.stdout.contains("2 of 3 primaries   module "), has_a_header, "{line}: {}", output.stdout);
        let output = broken.query(&format!("{line} --json"));
        broken.names_the_dead(line, &output);
        let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
        match json.get("missing") {
            None => assert!(json.is_array(), "{line}: {json}"),
            Some(missing) => {
                assert_eq!(missing[0]["server"], json!(broken.address), "{line}");
                assert_eq!(missing.as_array().map(Vec::len), Some(1), "{line}");
                assert!(missing[0]["error"].as_str().is_some_and(|error| error.starts_with("no connection: ")));
            }
        }
        let locks = json.get("locks").unwrap_or(&json);
        let mut found = keys_of(locks);
        found.dedup();
        assert_eq!(found, broken.keys, "{line}");
    }
}

#[test]
fn only_commands_about_a_lock_on_the_dead_node_fail() {
    let broken = Broken::start(LONG);
    let (lost, key) = (&broken.lost, &broken.keys[0]);
    for line in ["info", "waiters", "break"] {
        let output = broken.query(&format!("{line} {lost}"));
        let expected = format!("redis-lock: no connection to {}: Connection refused", broken.address);
        assert!(output.stderr.starts_with(&expected), "{line}: {}", output.stderr);
        assert_eq!((output.status, output.stdout.as_str()), (69, ""), "{line}");
        if line != "break" {
            assert_eq!(broken.query(&format!("{line} {key}")).status, 0, "{line}");
        }
    }
    // It is unknown whether the lock is held.
    let output = broken.query(&format!("graph {lost}"));
    broken.names_the_dead("graph", &output);
    assert_eq!(output.stdout, "");
    let output = broken.query(&format!("graph {key}"));
    assert!(output.stdout.contains(key), "{}", output.stdout);
    let output = broken.query("graph no-such-lock");
    assert!([1, 69].contains(&output.status), "{}", output.stderr);
    // A run that does not wait, and one that times out.
    for options in ["--no-wait", "--wait 100ms"] {
        let output = broken.query(&format!("run {options} {lost} -- true"));
        let last = output.stderr.lines().last().unwrap_or_default();
        let expected = format!("redis-lock: no connection to {}: Connection refused", broken.address);
        assert!(output.status == 69 && last.starts_with(&expected), "{options}: {}", output.stderr);
    }
}

#[test]
fn if_no_node_replies_the_one_from_the_options_is_named() {
    let port = free_port();
    for line in ["ls", "log", "graph", "top --once", "info k"] {
        let output = redis_lock(&format!("-c -p {port} {line}"));
        assert_eq!((output.status, output.stdout.as_str()), (69, ""), "{line}");
        assert!(output.stderr.starts_with(&format!("redis-lock: no connection to 127.0.0.1:{port}: ")));
    }
}

#[test]
fn top_continues_with_the_live_shards_and_finds_the_promoted_replica() {
    let mut broken = Broken::start(LONG);
    broken.cluster.restart(broken.dead);
    broken.cluster.until_whole();
    let port = broken.cluster.node(0).port();
    let screen = Screen::start(&format!("-c -p {port} top --interval 100ms"));
    screen.until("all shards", |text| text.contains("3 primaries") && !text.contains(" of "));
    let replica = broken.cluster.replica_of(broken.dead);
    // Even if it is the node that the options name: the others are known by now.
    for dead in [broken.dead, 0] {
        broken.cluster.kill(dead);
    }
    let left_out = format!("{} is not shown: no connection: Connection refused", broken.address);
    screen.until("the dead node", |text| text.contains(&left_out) && text.contains("1 of 3 primaries"));
    // Entries of the live node appear.
    let mut client = broken.cluster.node(2).client();
    let key = broken.keys.iter().find(|key| broken.cluster.slot(key) > 16_384 / 3 * 2).expect("one is of node 2");
    client.run(&format!("LOCK.ACQUIRE {key} second BLOCK 0 NOTIFY {{{key}}}"));
    screen.until("the second waiter", |text| {
        text.lines().any(|line| line.contains(key) && line.split_whitespace().next() == Some("2"))
    });
    broken.cluster.restart(0);
    broken.cluster.fail_over(replica, Takeover::Alone);
    screen.until("all shards", |text| text.contains("3 primaries") && !text.contains("is not shown"));
}

#[test]
fn a_paused_node_does_not_delay_the_numbers_of_the_others() {
    let broken = Broken::start(LONG);
    let mut cluster = broken.cluster;
    cluster.restart(broken.dead);
    cluster.until_whole();
    let screen = Screen::start(&format!("-c -p {} top --interval 100ms", cluster.node(0).port()));
    screen.until("all shards", |text| text.contains("3 primaries"));
    let pid = cluster.node(broken.dead).pid().to_string();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().is_ok_and(|done| done.success()))
    };
    signal("STOP");
    let left_out = format!("{} is not shown: it does not respond: no reply within 2s", broken.address);
    screen.until("the silent node", |text| text.contains(&left_out) && text.contains("2 of 3 primaries"));
    signal("CONT");
    screen.until("all shards", |text| text.contains("3 primaries") && !text.contains("is not shown"));
}

#[test]
fn a_cluster_that_is_down_is_reported() {
    let mut broken = Broken::start(Duration::from_secs(2));
    let replica = 3 + broken.dead;
    broken.cluster.kill(replica);
    for node in [0, 2] {
        let mut client = broken.cluster.node(node).client();
        until("the cluster is down", || Info::parse(client.run("CLUSTER INFO").text()).text("cluster_state") == "fail");
    }
    let down = |node: usize| {
        let port = broken.cluster.node(node).port();
        format!("127.0.0.1:{port} grants nothing: CLUSTERDOWN, some slots have no primary")
    };
    for line in ["ls", "graph", "top --once --interval 100ms"] {
        let output = broken.query(line);
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        let shown_text = if line == "ls" { &output.stderr } else { &output.stdout };
        assert!(shown_text.contains(&down(0)) && shown_text.contains(&down(2)), "{line}: {shown_text}");
        assert!(output.stderr.contains(&format!("not shown: {}", broken.address)), "{line}: {}", output.stderr);
    }
    let output = broken.query("graph");
    assert!(output.stdout.contains("not shown while the cluster is down: 2 locks"), "{}", output.stdout);
    let json: Value = serde_json::from_str(&broken.query("top --once --interval 100ms --json").stdout).expect("JSON");
    assert_eq!(json["servers"][0]["refusals"], json!(["CLUSTERDOWN"]));
}
