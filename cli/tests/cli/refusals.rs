//! If a server grants nothing or takes no new requests, `ls`, `graph` and `top` say why.

use std::fs;
use std::time::Duration;

use faults::Cluster;
use serde_json::{json, Value};
use support::{in_sync, until, Client, Reply, Server};

use crate::connecting::with_password;
use crate::screen::Screen;
use crate::tool::{at, Output};

const LINES: [&str; 3] = ["ls", "graph", "top --once --interval 100ms"];

/// The part of the output meant for people: `ls` writes it to standard error, the others to standard output.
fn reported<'a>(line: &str, output: &'a Output) -> &'a str {
    if line == "ls" {
        &output.stderr
    } else {
        &output.stdout
    }
}

#[track_caller]
fn all_say(server: &Server, options: &str, expected: &str, code: &str) {
    let expected = format!("127.0.0.1:{} {expected}", server.port());
    for line in LINES {
        let output = at(server, &format!("{options} {line}"));
        assert_eq!(output.status, 0, "{line}: {}", output.stderr);
        assert!(reported(line, &output).contains(&expected), "{line}: {}\n{}", output.stdout, output.stderr);
    }
    for line in &LINES[1..] {
        let json = at(server, &format!("{options} {line} --json")).json();
        assert_eq!(json["servers"][0]["refusals"], json!([code]), "{line}");
    }
}

#[track_caller]
fn none_says(server: &Server) {
    for line in LINES {
        let output = at(server, line);
        let reported = reported(line, &output);
        let words = ["grants nothing", "rejects new", "held back"];
        assert!(!words.iter().any(|word| reported.contains(word)), "{line}: {reported}");
    }
    assert_eq!(at(server, "graph --json").json()["servers"][0]["refusals"], json!([]));
}

/// A lock that has a holder and a waiter.
fn contended(server: &Server) -> (Client, Client) {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k holder PERSIST").fence();
    let mut waiter = server.client();
    waiter.send_line("LOCK.ACQUIRE k waiter BLOCK 0");
    server.wait_blocked(1);
    (client, waiter)
}

#[test]
fn a_failed_save() {
    let server = Server::builder().config("save 3600 1").config("dbfilename dump.rdb").start();
    let (mut client, _waiter) = contended(&server);
    none_says(&server);
    // A directory with the file's name makes the save fail.
    fs::create_dir(server.dir().join("dump.rdb")).expect("the server's folder is ours");
    assert!(!client.run("BGSAVE").is_error());
    until("the save has failed", || server.info("persistence").text("rdb_last_bgsave_status") == "err");
    assert!(client.run("LOCK.RELEASE k holder").error().starts_with("MISCONF "));
    let reason = "grants nothing: MISCONF, its last save failed (see its log), and stop-writes-on-bgsave-error is yes";
    all_say(&server, "", reason, "MISCONF");
    // A user that may not read the settings gets the same message.
    client.run("ACL SETUSER viewer on >secret ~* &* +@all -config");
    all_say(&server, "--user viewer -a secret", reason, "MISCONF");
    assert_eq!(client.run("CONFIG SET stop-writes-on-bgsave-error no"), Reply::ok());
    none_says(&server);
}

#[test]
fn too_few_replicas() {
    let server = Server::start();
    let (mut client, _waiter) = contended(&server);
    client.run("CONFIG SET min-replicas-to-write 2");
    assert!(client.run("LOCK.RELEASE k holder").error().starts_with("NOREPLICAS "));
    let reason = "grants nothing: NOREPLICAS, 0 good replicas, fewer than min-replicas-to-write";
    all_say(&server, "", reason, "NOREPLICAS");
    client.run("CONFIG SET min-replicas-to-write 0");
    none_says(&server);
}

#[test]
fn no_memory() {
    let server = Server::start();
    let (mut client, _waiter) = contended(&server);
    client.run("CONFIG SET maxmemory 1");
    assert!(client.run("LOCK.ACQUIRE other w").error().starts_with("OOM "));
    all_say(&server, "", "rejects new requests: OOM, it uses ", "OOM");
    let output = at(&server, "ls");
    assert!(output.stderr.contains(" and maxmemory is 1.0B\n"), "{}", output.stderr);
    client.run("CONFIG SET maxmemory 0");
    none_says(&server);
}

#[test]
fn a_grace_period_and_a_replica() {
    let primary = Server::builder().config("lock.grace 60000").start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    all_say(&primary, "", "grants nothing for ", "GRACE");
    all_say(&replica, "", "is a replica, which has no waiters: ask its primary", "READONLY");
}

/// The message about a pause: Valkey reports how long it lasts.
fn paused(server: &Server) -> &'static str {
    match server.info("clients").find("paused_reason") {
        Some(_) => "grants nothing for ",
        None => "grants nothing: it is paused, for example by CLIENT PAUSE",
    }
}

#[test]
fn a_pause_while_a_free_lock_has_waiters() {
    let server = Server::start();
    let (mut client, mut waiter) = contended(&server);
    client.pipeline(&["PEXPIRE k 200", "CLIENT PAUSE 600000 WRITE"]);
    until("hand-offs are held back", || server.info("lock").number("lock_held_back_ms") > 600);
    let screen = Screen::start(&format!("-p {} top --interval 100ms", server.port()));
    all_say(&server, "", paused(&server), "PAUSED");
    all_say(&server, "", "has held back hand-offs for ", "PAUSED");
    let held_back = &at(&server, "graph --json").json()["servers"][0]["held_back_ms"];
    assert!(held_back.as_u64().is_some_and(|ms| ms > 600), "{held_back}");
    screen.until_shows(paused(&server));
    screen.until_shows("has held back hand-offs for ");
    // The lock itself is free.
    let info = at(&server, "info k");
    assert_eq!(info.status, 0, "{}", info.stderr);
    assert!(info.stdout.contains("holders  0\nwaiters  1\n"), "{}", info.stdout);
    let about = format!("redis-lock: 127.0.0.1:{} {}", server.port(), paused(&server));
    assert!(
        info.stderr.starts_with(&about) && info.stderr.contains(" has held back hand-offs for "),
        "{}",
        info.stderr
    );
    client.run("CLIENT UNPAUSE");
    waiter.read().fence();
    screen.until("no refusal", |text| !text.contains("grants nothing") && text.contains("no waiters"));
    none_says(&server);
}

#[test]
fn a_pause_that_keeps_requests_out_of_the_queue() {
    let server = Server::start();
    let mut client = server.client();
    let mut popping = server.client();
    popping.send_line("BLPOP list 0");
    server.wait_blocked(1);
    // A client blocked for another reason is not a sign of a pause.
    none_says(&server);
    client.run("CLIENT PAUSE 600000 WRITE");
    let mut held_back = server.client();
    held_back.send_line("LOCK.ACQUIRE k w");
    server.wait_blocked(2);
    all_say(&server, "", paused(&server), "PAUSED");
    client.run("CLIENT UNPAUSE");
    held_back.read().fence();
    none_says(&server);
}

#[test]
fn a_free_lock_whose_waiter_waits_for_another_one_is_not_a_refusal() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE held w PERSIST").fence();
    let mut waiter = server.client();
    waiter.send_line("MLOCK.ACQUIRE 2 free held w2 BLOCK 0");
    server.wait_blocked(1);
    none_says(&server);
    assert_eq!(at(&server, "info free").stderr, "");
    // Reading has changed nothing.
    assert_eq!(client.run("LOCK.WAITERS free").items().len(), 1);
    assert_eq!(client.run("LOCK.RELEASE held w").int(), 1);
    waiter.read().fence();
}

#[test]
fn a_pause_of_all_commands_looks_like_an_unresponsive_server() {
    // With a password, the login is already silent, and its timeout is shorter than a list's.
    let server = with_password();
    let mut client = server.client();
    client.run("AUTH secret");
    client.run("CLIENT PAUSE 600000 ALL");
    let output = at(&server, "-a secret ls");
    let expected = format!("redis-lock: 127.0.0.1:{} does not respond: ", server.port());
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    assert_eq!((output.status, output.stdout.as_str()), (69, ""));
}

#[test]
fn a_read_only_user_sees_the_reason_without_permission_errors() {
    let server = Server::builder().config("lock.grace 0").start();
    let (mut client, _waiter) = contended(&server);
    let may = "+@connection +info +lock.info +lock.waiters +lock.scan +lock.top";
    client.run(&format!("ACL SETUSER dashboard on >secret resetchannels %R~* {may}"));
    for line in LINES {
        let output = at(&server, &format!("--user dashboard -a secret {line}"));
        assert_eq!(output.status, 0, "{line}: {}", output.stderr);
    }
    client.run("CONFIG SET min-replicas-to-write 1");
    all_say(&server, "--user dashboard -a secret", "grants nothing: NOREPLICAS, 0 good replicas", "NOREPLICAS");
    assert_eq!(client.run("ACL LOG").items().len(), 0);
}

#[test]
fn in_a_cluster_each_node_reports_its_own_reason() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    cluster.node(1).client().run("CONFIG SET maxmemory 1");
    let output = at(cluster.node(0), "-c ls");
    let expected = format!("redis-lock: 127.0.0.1:{} rejects new requests: OOM", cluster.node(1).port());
    assert!(output.stderr.contains(&expected) && output.stderr.matches("OOM").count() == 1, "{}", output.stderr);
    let top: Value = at(cluster.node(0), "-c top --once --interval 100ms --json").json();
    let refusing = |server: &&Value| server["refusals"] != json!([]);
    let servers = top["servers"].as_array().expect("a list");
    let refusing: Vec<&Value> = servers.iter().filter(refusing).collect();
    assert_eq!(refusing.len(), 1);
    assert_eq!(refusing[0]["server"], json!(format!("127.0.0.1:{}", cluster.node(1).port())));
}
