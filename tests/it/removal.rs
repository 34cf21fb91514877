//! MODULE UNLOAD, and the way back to a server without the module: docs/removal.md.

use crate::readme::type_sessions;
use crate::support::{in_sync, until, Builder, Server};

const DOCUMENT: &str = include_str!("../../docs/removal.md");

fn builder() -> Builder {
    Server::builder().config("enable-module-command yes")
}

#[test]
fn unloading_is_refused_and_every_lock_stays() {
    let server = builder().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 60000").fence();
    client.run("SEM.ACQUIRE s a LIMIT 2").fence();
    let before = client.run("LOCK.HELD k a").items()[0].int();
    let reply = client.run("MODULE UNLOAD lock");
    assert!(reply.error().contains("module-side data types, can't unload"), "{reply:?}");
    assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), before);
    assert!(client.run("LOCK.ACQUIRE k b").is_nil());
    assert_eq!(client.run("LOCK.RELEASE k a").int(), 1);
    assert_eq!(client.run("SEM.RELEASE s a").int(), 0);
}

/// Starts it again without the module. It logs why it cannot; Redis and Valkey differ in capitals.
#[track_caller]
fn assert_ends(mut server: Server, why: &str) {
    assert!(DOCUMENT.contains(&format!("`{why}")), "the document says: {why}");
    server.stop();
    let log = server.restart_without_module(&[]).expect_err("it starts");
    assert!(log.to_lowercase().contains(&why.to_lowercase()), "{log}");
}

#[test]
fn an_rdb_file_loads_where_no_lock_was_ever_granted() {
    let save = || builder().config("save 3600 1").start();
    let server = save();
    server.client().run("LOCK.ACQUIRE k a PX 60000").fence();
    assert_ends(server, "AUX module data I can't load");

    let server = save();
    server.client().run("LOCK.ACQUIRE k a PX 60000").fence();
    server.client().run("LOCK.RELEASE k a");
    assert_ends(server, "AUX module data I can't load");

    let mut server = save();
    server.client().run("SET account:7 100");
    if server.info("server").version().starts_with("Redis 7.0.") {
        return assert_ends(server, "AUX module data I can't load");
    }
    server.stop();
    server.restart_without_module(&[]).expect("it starts");
    assert_eq!(server.client().run("GET account:7").text(), "100");
}

#[test]
fn an_append_only_file_with_effects_does_not_load() {
    // Redis 7.0 would put the module's data into an RDB file at its beginning.
    let server = builder().appendonly().config("aof-use-rdb-preamble no").start();
    server.client().run("LOCK.ACQUIRE k a PX 60000").fence();
    server.client().run("LOCK.RELEASE k a");
    assert_ends(server, "unknown command 'LOCK.APPLY'");
}

#[test]
fn the_documented_way_leads_to_a_server_without_the_module() {
    for is_appending in [false, true] {
        let builder = if is_appending { builder().appendonly() } else { builder() };
        let mut server = builder.config("save 3600 1").start();
        type_sessions(&server, "docs/removal.md", DOCUMENT);
        if is_appending {
            server.wait_aof_rewritten();
            assert!(!server.client().run("BGREWRITEAOF").is_error());
        }
        server.wait_aof_rewritten();
        server.stop();
        // The files of the module stay as they were written; only the configuration is removed.
        server.restart_without_module(&["appendonly yes"]).expect("it starts");
        let mut client = server.client();
        assert_eq!(client.run("DBSIZE").int(), 1);
        assert_eq!(client.run("GET account:7").text(), "100");
        assert!(client.run("LOCK.ACQUIRE k a").error().starts_with("ERR unknown command"));

        for line in ["CONFIG SET aof-use-rdb-preamble yes", "SAVE", "CONFIG SET appendonly no"] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        server.stop();
        server.restart_without_module(&["appendonly no"]).expect("it starts");
        assert_eq!(server.client().run("GET account:7").text(), "100");
    }
}

#[test]
fn a_server_without_the_module_does_not_start_on_lines_that_name_it() {
    for line in ["lock.grace 0", "user worker on nopass ~* +lock.acquire", "user worker on nopass ~* +@lock"] {
        assert!(Server::builder().no_module().config(line).try_start().is_err(), "it starts on {line}");
    }
}

#[test]
fn a_replica_with_the_module_follows_a_primary_without_it() {
    let primary = Server::builder().no_module().start();
    primary.client().run("SET account:7 100");
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    assert_eq!(replica.client().run("GET account:7").text(), "100");
}

#[test]
fn a_replica_without_the_module_ends_when_it_receives_a_fence() {
    let primary = Server::start();
    primary.client().run("LOCK.ACQUIRE k a").fence();
    primary.client().run("LOCK.RELEASE k a");
    let mut replica = Server::builder().no_module().start();
    replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    until("the replica has ended", || !replica.is_alive());
    assert!(replica.log().contains("AUX module data I can't load"), "{}", replica.log());
}
