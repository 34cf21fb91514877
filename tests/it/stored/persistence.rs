//! RDB files, every kind of AOF, DEBUG RELOAD, and DUMP with RESTORE bring every lock back unchanged.

use super::*;
use crate::support::skip::{skip, skips_shifted_clock};

#[test]
fn an_rdb_keeps_every_holder_and_its_deadline() {
    let mut server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    assert_eq!(client.run("SAVE"), Reply::ok());
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(stored(&mut client), before);
    assert_locks_still_work(&mut client);
}

#[test]
fn debug_reload_keeps_locks() {
    let server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
    assert_eq!(stored(&mut client), before);
    assert_locks_still_work(&mut client);
}

/// Kills a server that writes an AOF, restarts it, and expects the same locks.
#[track_caller]
fn assert_aof_keeps_locks(preamble: &str, rewrite: bool) {
    let mut server = Server::builder().appendonly().config(format!("aof-use-rdb-preamble {preamble}")).start();
    let mut client = server.client();
    take_locks(&mut client);
    client.run("LOCK.ACQUIRE gone a").fence();
    assert_eq!(client.run("LOCK.RELEASE gone a"), Reply::Int(1));
    client.run("LOCK.ACQUIRE rewritten-then-gone a").fence();
    if rewrite {
        rewrite_aof(&server);
    }
    // What follows the rewrite is appended.
    for line in [
        "LOCK.RELEASE rewritten-then-gone a",
        "RLOCK.ACQUIRE nested a PX 900000",
        "RLOCK.RELEASE nested a HOLDS 5",
        "LOCK.RENEW mutex a PX 700000",
        "LOCK.RENEW mutex a PX 600000",
        "RWLOCK.RELEASE readers a READ",
        "RWLOCK.ACQUIRE readers a READ PX 600000",
        "SEM.RELEASE permits a",
        "SEM.ACQUIRE permits a LIMIT 8 PX 600000",
    ] {
        let reply = client.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
    }
    let before = stored(&mut client);
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(stored(&mut client), before);
    assert_eq!(client.run("EXISTS gone rewritten-then-gone").int(), 0);
    assert_locks_still_work(&mut client);
}

#[test]
fn an_aof_of_plain_commands_keeps_locks() {
    assert_aof_keeps_locks("no", false);
}

#[test]
fn a_rewritten_aof_with_rdb_preamble_keeps_locks() {
    assert_aof_keeps_locks("yes", true);
}

#[test]
fn a_rewritten_aof_without_rdb_preamble_keeps_locks() {
    assert_aof_keeps_locks("no", true);
}

#[test]
fn dump_and_restore_move_locks_to_another_server() {
    let (here, there) = (Server::start(), Server::start());
    let (mut from, mut to) = (here.client(), there.client());
    take_locks(&mut from);
    for key in KEYS {
        let (dump, deadline) = from.stored(key);
        // No deadline is -1 in PEXPIRETIME's reply, and 0 in RESTORE's argument.
        let deadline = deadline.int().max(0).to_string();
        let restored = to.cmd(&[b"RESTORE", key.as_bytes(), deadline.as_bytes(), dump.bytes(), b"ABSTTL"]);
        assert_eq!(restored, Reply::ok(), "{key}");
    }
    assert_eq!(stored(&mut to), stored(&mut from));
    assert_locks_still_work(&mut to);
}

#[test]
fn leases_expire_while_the_server_is_down_and_persistent_locks_are_kept() {
    if skips_shifted_clock() {
        return;
    }
    for config in ["appendonly no", "appendonly yes"] {
        let mut server = Server::builder().config(config).clock("+0").start();
        let mut client = server.client();
        take_locks(&mut client);
        assert_eq!(client.run("SAVE"), Reply::ok());
        server.stop();
        server.set_clock("+1h");
        server.restart();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE mutex b").fence();
        client.run("RLOCK.ACQUIRE nested b").fence();
        client.run("RWLOCK.ACQUIRE readers d WRITE").fence();
        client.run("RWLOCK.ACQUIRE writer b WRITE").fence();
        assert_eq!(client.run("MLOCK.ACQUIRE 2 one other b").items().len(), 2);
        assert!(client.run("LOCK.ACQUIRE forever b").is_nil(), "no expiry is longer");
        assert!(client.run("RLOCK.ACQUIRE nested-forever b").is_nil());
        assert!(client.run("SEM.ACQUIRE forever-permits b LIMIT 1000000").is_nil());
    }
}

#[test]
fn after_a_downtime_only_expired_holders_are_gone() {
    for mode in ["rdb", "aof"] {
        let builder = Server::builder();
        let mut server = if mode == "aof" { builder.appendonly() } else { builder }.start();
        let mut client = server.client();
        take_locks(&mut client);
        assert_eq!(client.run("RWLOCK.RENEW readers b PX 150"), Reply::Int(1));
        assert_eq!(client.run("SEM.RENEW permits a PX 150"), Reply::Int(1));
        if mode == "rdb" {
            assert_eq!(client.run("SAVE"), Reply::ok());
        }
        server.kill();
        let_time_pass(Duration::from_millis(200));
        server.restart();
        let mut client = server.client();
        assert_eq!(holders(&mut client, "readers"), ["a", "c"], "{mode}");
        assert_eq!(holders(&mut client, "permits"), ["b", "c"], "{mode}");
        assert_eq!(client.run("SEM.ACQUIRE permits d LIMIT 8 PERMITS 4").items()[2], Reply::Int(4));
        assert!(client.run("SEM.ACQUIRE permits d LIMIT 8").is_nil());
        assert_eq!(client.run("RWLOCK.RELEASE readers b READ"), Reply::Int(-1));
    }
}

/// If no fencing token was assigned, the module saves nothing.
#[test]
fn the_rdb_of_a_server_that_never_granted_anything_loads_without_the_module() {
    let server = Server::start();
    let mut client = server.client();
    if client.run("INFO server").text().contains("redis_version:7.0.") {
        return skip("Redis 7.0 saves a word of every module that has data beside the keys");
    }
    client.run("SET k v");
    assert_eq!(client.run("SAVE"), Reply::ok());
    let plain = Server::builder().no_module().config(format!("dir {}", server.dir().display())).start();
    assert_eq!(plain.client().run("GET k"), Reply::bulk("v"));
}
