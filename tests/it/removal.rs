//! MODULE UNLOAD, and going back to a server without the module: docs/removal.md.

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

/// Restarts it without the module. It logs why it cannot; the capitalization differs between Redis and Valkey.
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
    // Otherwise Redis 7.0 would write the module's data into the RDB preamble.
    let server = builder().appendonly().config("aof-use-rdb-preamble no").start();
    server.client().run("LOCK.ACQUIRE k a PX 60000").fence();
    server.client().run("LOCK.RELEASE k a");
    assert_ends(server, "unknown command 'LOCK.APPLY'");
}

#[test]
fn the_documented_steps_lead_to_a_server_without_the_module() {
    for is_appending in [false, true] {
        let builder = if is_appending { builder().appendonly() } else { builder() };
        let mut server = builder.config("save 3600 1").start();
        type_sessions(&server, "docs/removal.md", DOCUMENT);
        let before = looked_at(&server);
        assert!(is_free_of_locks(&before), "{before:?}");
        if is_appending {
            server.wait_aof_rewritten();
            assert!(!server.client().run("BGREWRITEAOF").is_error());
        }
        server.wait_aof_rewritten();
        assert_eq!(looked_at(&server), before);
        server.stop();
        // The module's files stay as written; only the configuration is removed.
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

/// The output of the page's command.
fn looked_at(server: &Server) -> Vec<String> {
    let (_, pattern) = DOCUMENT.split_once("redis-cli INFO lock | grep -E '").expect("the line");
    let (pattern, _) = pattern.split_once('\'').expect("its end");
    let info = server.client().run("INFO lock").text().to_string();
    let is_shown = |line: &&str| pattern.split('|').any(|part| line.contains(part));
    let shown: Vec<String> = info.lines().filter(is_shown).map(String::from).collect();
    assert_eq!(shown.len(), 5, "{shown:?}");
    shown
}

fn is_free_of_locks(shown: &[String]) -> bool {
    shown.iter().filter(|line| line.starts_with("lock_held_")).all(|line| line.ends_with(":0"))
}

/// A program keeps working while the file is rewritten.
#[test]
fn a_lock_acquired_in_between_is_detected_before_the_start_fails() {
    for release in [None, Some("LOCK.RELEASE k a")] {
        let server = builder().appendonly().config("aof-use-rdb-preamble no").start();
        let before = looked_at(&server);
        let mut client = server.client();
        assert!(!client.run("BGREWRITEAOF").is_error());
        server.wait_aof_rewritten();
        client.run("LOCK.ACQUIRE k a PX 60000").fence();
        release.into_iter().for_each(|line| _ = client.run(line));
        let now = looked_at(&server);
        assert_eq!(is_free_of_locks(&now), release.is_some(), "{now:?}");
        assert_ne!(now, before);
        assert_ends(server, "unknown command 'LOCK.APPLY'");
    }
}

#[test]
fn a_server_without_the_module_does_not_start_with_its_settings() {
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
fn a_replica_without_the_module_exits_when_it_receives_a_fence() {
    let primary = Server::start();
    primary.client().run("LOCK.ACQUIRE k a").fence();
    primary.client().run("LOCK.RELEASE k a");
    let mut replica = Server::builder().no_module().start();
    replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    until("the replica has ended", || !replica.is_alive());
    assert!(replica.log().contains("AUX module data I can't load"), "{}", replica.log());
}

/// After the hand-over of docs/operations.md, before the old primary has been restarted with the module.
#[test]
fn a_connected_replica_without_the_module_continues_without_the_locks() {
    let old = Server::builder().no_module().start();
    let new = Server::builder().replica_of(&old).start();
    in_sync(&old, &new);
    assert_eq!(old.client().run("FAILOVER").text(), "OK");
    let is = |server: &Server, role: &str| server.info("replication").text("role") == role;
    until("the roles have changed", || is(&new, "master") && is(&old, "slave"));
    new.client().run("LOCK.ACQUIRE k a").fence();
    until("it logs what it cannot apply", || old.log().contains("unknown command 'LOCK.APPLY'"));
    assert_eq!(old.client().run("EXISTS k").int(), 0);
}
