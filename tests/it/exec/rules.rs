//! The server's rules apply to the inner command: memory, replicas, a failed save.

use super::*;
use crate::support::waiting::*;
use crate::support::{in_sync, until, Server};
use std::fs;

#[test]
fn out_of_memory_only_commands_that_need_memory_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("SET x 1");
    client.run("CONFIG SET maxmemory 1");
    for line in ["SET y 1", "LOCK.ACQUIRE free a"] {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        assert!(reply.error().starts_with("OOM "), "{line}: {reply:?}");
        let mut request = vec!["EVAL", "return redis.pcall('LOCK.EXEC', 'k', 'a', unpack(ARGV))", "0"];
        request.extend(line.split(' '));
        let reply = client.cmd(&request);
        assert!(reply.error().starts_with("OOM "), "{line} in a script: {reply:?}");
    }
    for line in ["GET x", "DEL x", "LOCK.RENEW k a", "LOCK.RELEASE k a"] {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
}

#[test]
fn a_replica_refuses_it_even_around_a_read() {
    let master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    hold(&mut master.client(), "k", "a");
    in_sync(&master, &replica);
    let mut client = replica.client();
    for line in ["LOCK.EXEC k a SET x 1", "LOCK.EXEC k a GET x"] {
        assert!(client.run(line).error().starts_with("READONLY "), "{line}");
    }
}

#[test]
fn a_replica_without_its_primary_replies_masterdown() {
    let mut master = Server::start();
    let replica = Server::builder().replica_of(&master).config("replica-serve-stale-data no").start();
    hold(&mut master.client(), "k", "a");
    in_sync(&master, &replica);
    master.kill();
    let mut client = replica.client();
    until("the link is down", || replica.info("replication").text("master_link_status") == "down");
    let reply = client.run("LOCK.EXEC k a GET x");
    let error = reply.error();
    assert!(error.starts_with("MASTERDOWN ") || error.starts_with("READONLY "), "{error}");
}

#[test]
fn too_few_replicas_and_a_failed_save_refuse_it() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("CONFIG SET min-replicas-to-write 1");
    assert!(client.run("LOCK.EXEC k a SET x 1").error().starts_with("NOREPLICAS "));
    client.run("CONFIG SET min-replicas-to-write 0");
    assert_eq!(client.run("LOCK.EXEC k a SET x 1"), Reply::ok());
    // A directory with the name of the file makes a save fail.
    assert_eq!(client.cmd(&["CONFIG", "SET", "save", "3600000 1000000"]), Reply::ok());
    fs::create_dir(server.dir().join("dump.rdb")).expect("a folder");
    fs::write(server.dir().join("dump.rdb/in-the-way"), "").expect("a file");
    client.run("BGSAVE");
    until("the save has failed", || server.info("persistence").text("rdb_last_bgsave_status") == "err");
    assert!(client.run("LOCK.EXEC k a SET x 2").error().starts_with("MISCONF "));
}
