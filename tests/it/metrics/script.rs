//! The script alone, as the exporter runs it: the exporter can read every result.

use crate::support::waiting::quiet;
use crate::support::{until, Client, Reply, Server};
use std::collections::BTreeMap;

const SCRIPT: &str = include_str!("../../../contrib/prometheus/redis-lock.lua");

/// The exported values, by the exporter's rules: names and numbers alternate.
#[track_caller]
fn run(client: &mut Client) -> BTreeMap<String, f64> {
    // As redis_exporter calls it: no keys and one argument.
    let reply = client.cmd(&["EVAL", SCRIPT, "0", "0"]);
    assert!(!reply.is_error(), "{reply:?}");
    let pair = |pair: &[Reply]| {
        let [Reply::Bulk(name), Reply::Bulk(value)] = pair else { panic!("no pair of strings: {pair:?}") };
        let [name, value] = [name, value].map(|bytes| String::from_utf8(bytes.clone()).expect("UTF-8"));
        let number = value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}"));
        (name, number)
    };
    reply.items().chunks(2).map(pair).collect()
}

/// Checks that it exports the module's fields.
#[track_caller]
fn assert_exports(values: &BTreeMap<String, f64>) {
    assert!(values.contains_key("lock_waiters") && !values.contains_key("lock_version"), "{values:?}");
}

#[test]
fn every_numeric_field_of_info_is_exported() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    let values = run(&mut client);
    assert_exports(&values);
    let info = client.run("INFO lock");
    let fields = info.text().lines().filter_map(|line| line.split_once(':'));
    let mut seen = 0;
    for (name, value) in fields.filter(|(name, _)| !["lock_version", "lock_acquires_refused"].contains(name)) {
        assert!(values.contains_key(name), "{name}");
        // These do not change by themselves.
        if ["held", "grants", "releases", "last"].iter().any(|part| name.starts_with(&format!("lock_{part}"))) {
            assert_eq!(values[name].to_string(), value, "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} fields were compared");
    for name in values.keys().filter(|name| !["lock_top_", "lock_refused_"].iter().any(|part| name.starts_with(part))) {
        assert!(info.text().contains(&format!("\n{name}:")), "{name} is not of INFO");
    }
}

#[test]
fn a_server_without_the_module_exports_nothing() {
    let server = Server::builder().no_module().start();
    assert_eq!(run(&mut server.client()), BTreeMap::new());
}

#[test]
fn a_user_without_info_gets_nothing_and_one_without_lock_top_the_rest() {
    let server = Server::start();
    let mut client = server.client();
    client.run("ACL SETUSER blind on nopass +@all -info");
    client.run("ACL SETUSER narrow on nopass -@all +eval +info");
    let mut blind = server.client();
    blind.run("AUTH blind x");
    assert_eq!(run(&mut blind), BTreeMap::new());
    client.run("ACL LOG RESET");
    let mut narrow = server.client();
    narrow.run("AUTH narrow x");
    let values = run(&mut narrow);
    assert_exports(&values);
    assert!(!values.contains_key("lock_top_waiters"));
    assert_eq!(client.run("ACL LOG"), Reply::Array(Vec::new()), "what may not be is not tried");
}

#[test]
fn it_runs_while_writes_are_refused() {
    // Out of memory.
    let server = quiet().config("maxmemory 1").start();
    assert!(server.client().run("SET k v").error().starts_with("OOM "));
    assert_exports(&run(&mut server.client()));
    // Paused.
    server.client().run("CONFIG SET maxmemory 0");
    server.client().run("CLIENT PAUSE 600000 WRITE");
    assert_exports(&run(&mut server.client()));
    // Not enough replicas.
    let server = quiet().config("min-replicas-to-write 1").start();
    assert!(server.client().run("SET k v").error().starts_with("NOREPLICAS "));
    assert_exports(&run(&mut server.client()));
    // Unable to save.
    let server = quiet().config("save 3600 1").config("dbfilename folder").start();
    std::fs::create_dir_all(server.dir().join("folder/full")).expect("a folder");
    let mut client = server.client();
    assert_eq!(client.run("BGSAVE"), Reply::Status("Background saving started".into()));
    until("writes are refused", || client.run("SET k v").is_error());
    assert_exports(&run(&mut client));
}

#[test]
fn it_runs_on_a_replica_with_and_without_its_primary() {
    let mut primary = quiet().start();
    let replica = quiet().replica_of(&primary).config("replica-serve-stale-data no").start();
    let mut client = replica.client();
    until("the link is up", || replica.info("replication").text("master_link_status") == "up");
    assert_exports(&run(&mut client));
    primary.kill();
    until("the link is down", || replica.info("replication").text("master_link_status") == "down");
    assert!(client.run("GET k").error().starts_with("MASTERDOWN "));
    assert_exports(&run(&mut client));
}

#[test]
fn it_runs_in_a_cluster_and_by_eval_ro() {
    let node = quiet().cluster().start();
    assert_exports(&run(&mut node.client()));
    let by_eval_ro = node.client().cmd(&["EVAL_RO", SCRIPT, "0", "0"]);
    assert!(!by_eval_ro.items().is_empty());
}
