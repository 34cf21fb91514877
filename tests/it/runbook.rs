//! docs/runbook.md: its sessions.

use crate::readme::type_sessions;
use crate::support::cluster::{meet, until_cluster};
use crate::support::skip::skip;
use crate::support::waiting::*;
use crate::support::{in_sync, until, Client, Reply, Server};
use std::process::Command;

const DOCUMENT: &str = include_str!("../../docs/runbook.md");

/// The document without a section, and that section.
fn without(heading: &str) -> (String, &'static str) {
    let begin = DOCUMENT.find(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let rest = &DOCUMENT[begin + heading.len()..];
    let section = &rest[..rest.find("\n## ").expect("a section follows")];
    (DOCUMENT.replace(section, ""), section)
}

#[test]
fn the_runbook_matches_redis_cli() {
    let sessions = type_sessions(&Server::start(), "docs/runbook.md", &without("## After a failover\n").0);
    assert!(sessions > 8, "only {sessions} sessions were found");
}

/// Typed into a replica after its primary was killed.
#[test]
fn the_failover_runbook_matches_the_new_primary() {
    let mut primary = Server::start();
    let replica = Server::builder().replica_of(&primary).config("lock.grace 600000").start();
    primary.client().run("LOCK.ACQUIRE billing:april worker-7 PX 60000").fence();
    in_sync(&primary, &replica);
    primary.kill();
    assert_eq!(type_sessions(&replica, "docs/runbook.md", without("## After a failover\n").1), 2);
}

/// The command that queries all nodes of a cluster.
#[test]
fn every_cluster_node_reports_whether_it_grants_locks() {
    let node = |slots: &str| {
        let node = Server::builder().cluster().start();
        node.client().run(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
        node
    };
    let (first, second) = (node("0 8191"), node("8192 16383"));
    meet(&first, &second);
    until_cluster(&second, "ok", 2);
    second.client().run("CONFIG SET min-replicas-to-write 1");
    let line =
        DOCUMENT.lines().map(str::trim).find(|line| line.starts_with("redis-cli --cluster call")).expect("the line");
    let line = line.replace("host:port", &format!("127.0.0.1:{}", first.port()));
    let ran = Command::new("sh").args(["-c", &line]).output().expect("sh runs");
    let printed = String::from_utf8_lossy(&ran.stdout).replace('\r', "");
    if printed.is_empty() {
        return skip("there is no redis-cli");
    }
    for (node, reason) in [(&first, "no"), (&second, "NOREPLICAS")] {
        let of_node = printed.split_once(&format!("127.0.0.1:{}:", node.port())).expect("the node").1;
        let reported = of_node.lines().find(|line| line.starts_with("lock_")).expect("the field");
        assert_eq!(reported, format!("lock_acquires_refused:{reason}"), "{printed}");
    }
}

/// The checks of the runbook's "A client polls".
#[test]
fn a_polling_client_shows_only_in_the_counters_and_client_list() {
    let server = quiet().config("lock.adopt lock:*").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("SET lock:k a NX PX 60000");
    let (mut native, mut adopted) = (server.client(), server.client());
    let counts = || ["lock_not_granted", "lock_adopted_refusals"].map(|name| server.info("lock").number(name));
    let [before, adopted_before] = counts();
    for _ in 0..10 {
        assert!(native.run("LOCK.ACQUIRE k b").is_nil());
        assert!(adopted.run("SET lock:k b NX PX 1000").is_null());
    }
    let [now, adopted_now] = counts();
    assert!(now >= before + 10 && adopted_now == adopted_before + 10, "{now}, {adopted_now}");
    assert_eq!(client.run("LOCK.TOP"), Reply::Array(Vec::new()));
    for (poller, command) in [(&mut native, "lock.acquire"), (&mut adopted, "lock.adopted|set")] {
        let list = client.run("CLIENT LIST");
        let address = format!(" addr={} ", poller.address());
        let line = list.text().lines().find(|line| line.contains(&address)).expect("the poller");
        assert!(line.contains(&format!(" cmd={command} ")) && line.contains(" flags=N "), "{line}");
        assert!(DOCUMENT.contains(&format!("`cmd={}`", command.replace('|', "\\|"))), "{command}");
    }
}

/// LOCK.LOG entries about a hold that a worker believes it still has: event, owner, client.
fn logged(client: &mut Client) -> Vec<(String, String, i64)> {
    let log = client.run("LOCK.LOG GET -1");
    let of_entry = |entry: &Reply| {
        let text = |name| entry.get(name).text().to_string();
        (text("event"), text("owner"), entry.get("client").int())
    };
    log.items().iter().map(of_entry).collect()
}

/// The checks of the runbook's "A worker lost its lock".
#[test]
fn the_log_shows_how_a_hold_ended() {
    let server = quiet().start();
    let mut client = server.client();
    let entry = |event: &str| vec![(event.to_string(), "a".to_string(), 0)];
    // If requests wait, its expiry is logged; otherwise only if the hold is as long as lock.log-hold.
    client.run("LOCK.ACQUIRE k a PX 100").fence();
    Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0").granted_within("b", SOON);
    assert_eq!(logged(&mut client), entry("expired"));
    for (setting, expected) in [("lock.log-hold 0", Vec::new()), ("lock.log-hold 100", entry("hold"))] {
        client.run(&format!("CONFIG SET {setting}"));
        client.run("LOCK.LOG RESET");
        let key = setting.replace(' ', ":");
        client.run(&format!("LOCK.ACQUIRE {key} a PX 100")).fence();
        let expired = server.info("lock").number("lock_leases_expired");
        until("it is counted", || server.info("lock").number("lock_leases_expired") > expired);
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} a")).int(), 0);
        assert_eq!(logged(&mut client), expected, "{setting}");
    }
    // The connection of its session.
    client.run("LOCK.LOG RESET");
    let mut session = server.client();
    session.run("LOCK.ACQUIRE s a PX 60000 SESSION").fence();
    let_time_pass(std::time::Duration::from_millis(150));
    drop(session);
    until("it is free", || client.run("LOCK.HELD s a").is_nil() && !logged(&mut client).is_empty());
    assert_eq!(logged(&mut client), entry("hold"));
    // A release is logged with its client.
    client.run("LOCK.LOG RESET");
    client.run("LOCK.ACQUIRE r a PX 60000").fence();
    let_time_pass(std::time::Duration::from_millis(150));
    client.run("LOCK.RELEASE r a");
    let id = client.id();
    assert_eq!(logged(&mut client), [("hold".to_string(), "a".to_string(), id)]);
}
