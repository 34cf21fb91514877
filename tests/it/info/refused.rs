//! Why the server refuses requests for free locks, and for how long hand-offs are held back.

use super::field;
use crate::support::cluster::{expect_ok, meet, single_node, slot};
use crate::support::waiting::{hold, multi, quiet, Waiter};
use crate::support::{built_caller, in_sync, until, Client, Info, Reply, Server};
use std::fs;

/// The field of INFO about requests for free locks.
fn refused(server: &Server) -> String {
    server.info("lock").text("lock_acquires_refused").to_string()
}

/// Checks that INFO shows the code of the error that a request for a free lock gets.
#[track_caller]
fn assert_refused(server: &Server, code: &str) {
    let reply = server.client().run("LOCK.ACQUIRE free x");
    assert!(reply.error().starts_with(&format!("{code} ")), "{reply:?}");
    assert_eq!(refused(server), code);
    // A script without write permission reads it too: redis-lock.lua.
    let script = "#!lua flags=no-writes,allow-stale\nreturn redis.call('INFO','lock')";
    let by_script = server.client().cmd(&["EVAL", script, "0"]);
    assert!(by_script.text().contains(&format!("lock_acquires_refused:{code}\r\n")), "{by_script:?}");
}

/// Checks that a request for a free lock is granted, and that INFO says so.
#[track_caller]
fn assert_accepted(server: &Server) {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE free x").fence();
    client.run("LOCK.RELEASE free x");
    assert_eq!((refused(server).as_str(), field(server, "held_back_ms")), ("no", 0));
}

#[test]
fn a_server_that_is_out_of_memory() {
    let server = quiet().config("maxmemory 1").start();
    assert_refused(&server, "OOM");
    server.client().run("CONFIG SET maxmemory 0");
    assert_accepted(&server);
}

#[test]
fn a_server_that_cannot_save() {
    let server = quiet().config("save 3600 1").config("dbfilename dump.rdb").start();
    fs::create_dir(server.dir().join("dump.rdb")).expect("the server's folder is ours");
    server.client().run("BGSAVE");
    until("the save has failed", || server.info("persistence").text("rdb_last_bgsave_status") == "err");
    assert_refused(&server, "MISCONF");
    server.client().run("CONFIG SET stop-writes-on-bgsave-error no");
    assert_accepted(&server);
}

#[test]
fn a_primary_whose_replicas_lag() {
    let server = quiet().config("min-replicas-to-write 1").config("min-replicas-max-lag 1").start();
    assert_refused(&server, "NOREPLICAS");
    let mut replica = Server::builder().replica_of(&server).start();
    until("the replica is there", || refused(&server) == "no");
    in_sync(&server, &replica);
    assert_accepted(&server);
    replica.kill();
    until("it lags", || refused(&server) == "NOREPLICAS");
    assert_refused(&server, "NOREPLICAS");
}

#[test]
fn a_replica_with_and_without_its_primary() {
    let mut primary = quiet().start();
    let replica = quiet().replica_of(&primary).start();
    until("the link is up", || replica.info("replication").text("master_link_status") == "up");
    assert_refused(&replica, "READONLY");
    primary.kill();
    until("the link is down", || replica.info("replication").text("master_link_status") == "down");
    assert_refused(&replica, "READONLY");
}

#[test]
fn a_server_that_is_loading() {
    let server = quiet().config("key-load-delay 2000").config("loading-process-events-interval-bytes 1024").start();
    server.client().run("DEBUG POPULATE 1000 key 100");
    let mut loader = server.client();
    loader.send_line("DEBUG RELOAD");
    until("it loads", || server.info("persistence").number("loading") == 1);
    assert_eq!(refused(&server), "LOADING");
    server.client().run("CONFIG SET key-load-delay 0");
    loader.read();
    assert_accepted(&server);
}

#[test]
fn a_node_of_a_cluster_that_is_down_and_one_without_slots() {
    let node = single_node();
    assert_accepted(&node);
    let mut client = node.client();
    // Full coverage is required.
    client.run("CLUSTER DELSLOTS 0");
    until("the cluster is down", || node.client().run("LOCK.ACQUIRE free x").is_error());
    assert_refused(&node, "CLUSTERDOWN");
    client.run("CONFIG SET cluster-require-full-coverage no");
    until("the other slots are served", || !node.client().run("LOCK.ACQUIRE free x").is_error());
    assert_eq!(refused(&node), "no");
}

/// Commands that read INFO within their own call get the code while the setting is 1, and `no` when it is 0 again.
#[track_caller]
fn assert_refused_inside(server: &Server, setting: &str, code: &str) {
    let mut client = server.client();
    let script = client.run("SCRIPT LOAD return(redis.call('INFO','lock'))").text().to_string();
    let set = |value: u8| format!("CONFIG SET {setting} {value}");
    let asking = [
        "INFO lock".to_string(),
        format!("EVALSHA {script} 0"),
        format!("EVALSHA {script} 1 {{t}}x"),
        format!("EVALSHA_RO {script} 1 {{t}}x"),
        "LOCK.EXEC {t}k a INFO lock".to_string(),
    ];
    let lines = [&[set(1)], &asking[..], &[set(0)], &asking].concat();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    // The server accepts the transaction before it refuses writes.
    let replies = multi(&mut client, &lines);
    let infos = replies.iter().filter(|reply| **reply != Reply::ok());
    let refused: Vec<String> =
        infos.map(|reply| Info::parse(reply.text()).text("lock_acquires_refused").to_string()).collect();
    assert_eq!(refused, [[code; 5], ["no"; 5]].concat(), "{setting}");
}

#[test]
fn it_is_the_same_inside_transactions_scripts_and_lock_exec() {
    for server in [quiet().start(), single_node()] {
        hold(&mut server.client(), "{t}k", "a");
        assert_refused_inside(&server, "min-replicas-to-write", "NOREPLICAS");
        assert_refused_inside(&server, "maxmemory", "OOM");
        assert_accepted(&server);
    }
}

/// The server uses the same internal clients for all modules, and Valkey 9.1 does not reset all of their state.
#[test]
fn on_a_partial_node_it_is_independent_of_earlier_and_later_calls() {
    let caller = built_caller().expect("the test module is built");
    let builder = || Server::builder().cluster();
    let (server, other) = (builder().config(format!("loadmodule {}", caller.display())).start(), builder().start());
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
    expect_ok(&other, "CLUSTER ADDSLOTSRANGE 8192 16383");
    meet(&server, &other);
    let mut client = server.client();
    assert!(slot(&server, "0") > 8191 && (0..8192).contains(&slot(&server, "k")));
    hold(&mut client, "k", "a");
    let request = "return redis.call('INFO','lock')";
    for (replicas, code) in [(0, "no"), (1, "NOREPLICAS"), (0, "no")] {
        client.run(&format!("CONFIG SET min-replicas-to-write {replicas}"));
        assert!(client.cmd(&["EVAL", "return redis.call('MGET','k','x')", "0"]).is_error(), "they have two slots");
        for request in [&["INFO", "lock"][..], &["EVAL", request, "0"], &["EVAL", request, "1", "k"]] {
            let info = Info::parse(client.cmd(request).text());
            assert_eq!(info.text("lock_acquires_refused"), code, "{request:?}");
            assert_eq!(client.run("LOCK.SCAN 0").items()[1].items().len(), 1);
            if replicas == 0 {
                assert_eq!(client.run("TEST.CALL EXISTS k"), Reply::Int(1));
                assert_eq!(client.run("LOCK.EXEC k a EXISTS k"), Reply::Int(1));
                assert_eq!(client.cmd(&["EVAL", "return redis.call('EXISTS','k')", "0"]), Reply::Int(1));
            }
        }
    }
}

/// `a`'s lock has ended and `b` waits for it, while writes are paused.
fn held_back(server: &Server) -> (Client, Waiter) {
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let b = Waiter::park(server, "LOCK.ACQUIRE k b BLOCK 0");
    assert_eq!(field(server, "held_back_ms"), 0, "the lock is held");
    client.pipeline(&["PEXPIRE k 50", "CLIENT PAUSE 600000 WRITE"]);
    (client, b)
}

#[test]
fn a_pause_is_shown_with_the_time_that_hand_offs_have_been_held_back() {
    let server = Server::start();
    let (mut client, mut b) = held_back(&server);
    assert_eq!(refused(&server), "PAUSED");
    until("the lock has been free for a while", || field(&server, "held_back_ms") >= 300);
    b.assert_silent();
    client.run("CLIENT UNPAUSE");
    b.granted("b");
    assert_eq!((refused(&server).as_str(), field(&server, "held_back_ms")), ("no", 0));
}

#[test]
fn nothing_is_held_back_when_the_waiter_is_gone() {
    let server = Server::start();
    let (_client, b) = held_back(&server);
    until("the lock is free", || field(&server, "held_back_ms") > 0);
    drop(b);
    until("nothing is left to do", || field(&server, "held_back_ms") == 0);
}
