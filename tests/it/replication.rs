//! What one server decides, its replicas and its AOF repeat: effects with absolute deadlines, never requests.

use crate::support::{decode_all, in_sync, until, Client, Reply, Server};
use std::fs;

/// A master and a replica that is connected to it.
fn pair() -> (Server, Server) {
    let master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    (master, replica)
}

/// Whether both have the same under every one of these keys, byte by byte and to the millisecond.
#[track_caller]
fn assert_same(master: &Server, replica: &Server, keys: &[&str]) {
    in_sync(master, replica);
    let (mut ours, mut theirs) = (master.client(), replica.client());
    for key in keys {
        assert_eq!(ours.stored(key), theirs.stored(key), "{key}");
    }
    assert_eq!(ours.run("DBSIZE"), theirs.run("DBSIZE"));
}

#[test]
fn a_replica_follows_every_step_to_the_millisecond() {
    let (master, replica) = pair();
    let mut client = master.client();
    for line in [
        "LOCK.ACQUIRE k a PX 600000",
        "LOCK.ACQUIRE k a PX 700000",
        "LOCK.ACQUIRE k b",
        "LOCK.RENEW k a PX 50000",
        "LOCK.RENEW k a",
        "LOCK.RENEW k a PERSIST",
        "PEXPIRE k 600000",
        "PERSIST k",
        "LOCK.RELEASE k b",
        "LOCK.RELEASE k a",
        "LOCK.ACQUIRE k a PERSIST",
        "DEL k",
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a PX 600000",
        "RLOCK.ACQUIRE k a HOLDS 5",
        "RLOCK.RENEW k a",
        "RLOCK.RELEASE k a",
        "RLOCK.RELEASE k a HOLDS 1",
        "RLOCK.RELEASE k a",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
        assert_same(&master, &replica, &["k"]);
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
}

#[test]
fn every_byte_of_an_owner_reaches_the_replica() {
    let (master, replica) = pair();
    let mut client = master.client();
    let owner: Vec<u8> = (0..=255).cycle().take(1024).collect();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"key\0with\r\nbytes", &owner]).fence();
    in_sync(&master, &replica);
    assert!(!replica.client().cmd(&[&b"LOCK.HELD"[..], b"key\0with\r\nbytes", &owner]).is_nil());
}

#[test]
fn locks_in_other_databases_reach_the_replica() {
    let (master, replica) = pair();
    let (mut ours, mut theirs) = (master.client(), replica.client());
    for database in ["SELECT 3", "SELECT 9"] {
        ours.run(database);
        ours.run("LOCK.ACQUIRE k a").fence();
    }
    in_sync(&master, &replica);
    for database in ["SELECT 3", "SELECT 9"] {
        ours.run(database);
        theirs.run(database);
        assert_eq!(ours.stored("k"), theirs.stored("k"));
        assert!(!theirs.run("LOCK.HELD k a").is_nil());
    }
}

#[test]
fn transactions_and_scripts_are_followed() {
    let (master, replica) = pair();
    let mut client = master.client();
    client.pipeline(&[
        "MULTI",
        "LOCK.ACQUIRE a t",
        "SET v 1",
        "RLOCK.ACQUIRE b t HOLDS 2",
        "RLOCK.RELEASE b t",
        "EXEC",
    ]);
    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 't', 'PX', '600000') \
        redis.call('RLOCK.ACQUIRE', KEYS[2], 't') \
        redis.call('RLOCK.ACQUIRE', KEYS[2], 't') \
        redis.call('LOCK.RENEW', KEYS[1], 't') \
        return redis.call('LOCK.RELEASE', KEYS[3], 't')";
    assert_eq!(client.cmd(&["EVAL", script, "3", "c", "d", "a"]).int(), 1);
    assert_same(&master, &replica, &["a", "b", "c", "d", "v"]);
    assert_eq!(replica.client().run("LOCK.HELD d t").items()[1].int(), 2);
}

#[test]
fn a_flush_is_followed() {
    let (master, replica) = pair();
    for flush in ["FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL ASYNC"] {
        master.client().run("LOCK.ACQUIRE k a").fence();
        assert_same(&master, &replica, &["k"]);
        master.client().run(flush);
        in_sync(&master, &replica);
        assert_eq!(replica.client().run("DBSIZE").int(), 0);
    }
}

#[test]
fn the_end_of_a_lease_reaches_the_replica() {
    let (master, replica) = pair();
    master.client().run("LOCK.ACQUIRE k a PX 30").fence();
    until("the master and the replica have dropped the key", || {
        master.client().run("DBSIZE").int() == 0 && replica.client().run("DBSIZE").int() == 0
    });
    master.client().run("LOCK.ACQUIRE k b").fence();
    assert_same(&master, &replica, &["k"]);
}

#[test]
fn renaming_moving_and_restoring_are_followed() {
    let (master, replica) = pair();
    let mut client = master.client();
    client.run("LOCK.ACQUIRE k a PX 600000");
    let payload = client.run("DUMP k");
    client.run("RENAME k renamed");
    client.cmd(&[&b"RESTORE"[..], b"restored", b"600000", payload.bytes()]);
    client.run("LOCK.ACQUIRE moved a");
    client.run("MOVE moved 1");
    assert_same(&master, &replica, &["k", "renamed", "restored", "moved"]);
    let (mut ours, mut theirs) = (master.client(), replica.client());
    ours.run("SELECT 1");
    theirs.run("SELECT 1");
    assert_eq!(ours.stored("moved"), theirs.stored("moved"));
}

#[test]
fn a_replica_reads_and_does_not_write() {
    let (master, replica) = pair();
    let fence = master.client().run("LOCK.ACQUIRE k a PX 600000").fence();
    in_sync(&master, &replica);
    let mut client = replica.client();
    assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), fence);
    assert!(client.run("LOCK.HELD k b").is_nil());
    assert_eq!(client.run("LOCK.INFO k").get("fence").int(), fence);
    for line in [
        "LOCK.ACQUIRE free b",
        "LOCK.ACQUIRE k a",
        "LOCK.RELEASE k a",
        "LOCK.RENEW k a",
        "RLOCK.ACQUIRE free b",
        "RLOCK.RELEASE k a",
        "RLOCK.RENEW k a",
    ] {
        assert!(client.run(line).error().starts_with("READONLY "), "{line}");
    }
}

#[test]
fn a_replica_hides_what_has_expired_and_ends_nothing_itself() {
    let (mut master, replica) = pair();
    // While it pauses the master ends no lease either.
    let lines = ["LOCK.ACQUIRE mutex a PX 300", "RLOCK.ACQUIRE nested a PX 300 HOLDS 3", "CLIENT PAUSE 60000 WRITE"];
    master.client().pipeline(&lines)[..2].iter().for_each(|reply| assert!(reply.fence() > 0));
    in_sync(&master, &replica);
    // From now on nobody tells it that the leases have ended.
    master.kill();
    let mut client = replica.client();
    for key in ["mutex", "nested"] {
        until("the replica hides the expired lock", || client.cmd(&["LOCK.HELD", key, "a"]).is_nil());
        assert!(client.cmd(&["LOCK.INFO", key]).is_nil());
    }
    assert_eq!(client.run("DBSIZE").int(), 2, "it has hidden them, not dropped them");

    client.run("REPLICAOF NO ONE");
    client.run("LOCK.ACQUIRE mutex b").fence();
    assert_eq!(client.run("RLOCK.ACQUIRE nested b").items()[2].int(), 1);
}

#[test]
fn a_promotion_keeps_the_holders() {
    let (mut master, replica) = pair();
    let mut client = master.client();
    client.run("LOCK.ACQUIRE mutex a PX 600000");
    client.run("RLOCK.ACQUIRE nested a HOLDS 3 PX 600000");
    client.run("LOCK.ACQUIRE forever a PERSIST");
    let keys = ["mutex", "nested", "forever"];
    let before: Vec<_> = keys.iter().map(|key| client.stored(key)).collect();
    in_sync(&master, &replica);
    master.kill();

    let mut client = replica.client();
    client.run("REPLICAOF NO ONE");
    let after: Vec<_> = keys.iter().map(|key| client.stored(key)).collect();
    assert_eq!(after, before);
    assert!(client.run("LOCK.ACQUIRE mutex b").is_nil());
    assert!(client.run("RLOCK.ACQUIRE nested b").is_nil());
    assert_eq!(client.run("LOCK.RENEW mutex a").int(), 1);
    assert_eq!(client.run("LOCK.RELEASE mutex a").int(), 1);
    assert_eq!(client.run("RLOCK.RELEASE nested a").int(), 2);
    assert_eq!(client.run("LOCK.RELEASE forever a").int(), 1);
}

/// Locks enough that none can be forgotten unseen; returns their keys.
fn take_many(client: &mut Client) -> Vec<String> {
    let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let lines: Vec<String> = keys.iter().map(|key| format!("LOCK.ACQUIRE {key} owner-of-{key} PX 600000")).collect();
    for reply in client.pipeline(&lines) {
        reply.fence();
    }
    keys
}

#[test]
fn a_replica_that_comes_late_gets_every_lock() {
    let master = Server::start();
    let keys = take_many(&mut master.client());
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let replica = Server::builder().replica_of(&master).start();
    assert_same(&master, &replica, &keys);
    // And what happens to the old ones from now on.
    for key in &keys[..10] {
        assert_eq!(master.client().run(&format!("LOCK.RENEW {key} owner-of-{key} PX 700000")).int(), 1);
        assert_eq!(master.client().run(&format!("LOCK.RELEASE {key} owner-of-{key}")).int(), 1);
        master.client().run(&format!("RLOCK.ACQUIRE {key} next")).fence();
    }
    assert_same(&master, &replica, &keys);
}

#[test]
fn a_replica_of_a_replica_gets_every_lock() {
    let (master, middle) = pair();
    let last = Server::builder().replica_of(&middle).start();
    master.client().run("LOCK.ACQUIRE k a PX 600000").fence();
    in_sync(&master, &middle);
    until("the last in the chain has the lock", || last.client().run("DBSIZE").int() == 1);
    assert_eq!(last.client().stored("k"), master.client().stored("k"));
}

#[test]
fn an_aof_that_is_turned_on_later_has_every_lock() {
    let mut server = Server::builder().config("appendfsync always").start();
    let mut client = server.client();
    let keys = take_many(&mut client);
    assert_eq!(client.run("CONFIG SET appendonly yes"), Reply::ok());
    // While the first AOF is being written, and after it.
    client.run("LOCK.ACQUIRE during a PX 600000");
    server.wait_aof_rewritten();
    client.run("LOCK.ACQUIRE after a PX 600000");
    client.run(&format!("LOCK.RELEASE {key} owner-of-{key}", key = keys[0]));
    let stored = |client: &mut Client| -> Vec<_> {
        let all = keys.iter().map(String::as_str).chain(["during", "after"]);
        all.map(|key| client.stored(key)).collect()
    };
    let before = stored(&mut client);
    server.kill();
    server.restart_with(&["appendonly yes"]);
    assert_eq!(stored(&mut server.client()), before);
}

#[test]
fn a_replicas_own_aof_has_the_locks() {
    let master = Server::start();
    let mut replica = Server::builder().replica_of(&master).appendonly().start();
    in_sync(&master, &replica);
    master.client().run("LOCK.ACQUIRE k a PX 600000").fence();
    in_sync(&master, &replica);
    let before = master.client().stored("k");
    replica.wait_aof_rewritten();
    replica.kill();
    drop(master);
    replica.restart();
    assert_eq!(replica.client().stored("k"), before);
}

/// What the server has written to its AOF since the last rewrite, command by command.
fn appended_commands(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's folder");
    let incremental = folder
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("an incremental AOF");
    let commands = decode_all(&fs::read(incremental).expect("an AOF")).expect("commands");
    let words = |command: &Reply| command.items().iter().map(|word| word.bytes().to_vec()).collect();
    commands.iter().map(words).collect()
}

/// The commands that the module has registered, in lower case.
fn module_commands(client: &mut Client) -> Vec<String> {
    let names = client.run("COMMAND LIST FILTERBY MODULE lock");
    names.items().iter().map(|name| name.text().to_lowercase()).collect()
}

#[test]
fn requests_are_never_replicated() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    for line in [
        "LOCK.ACQUIRE k a",
        "LOCK.ACQUIRE k a PX 100000",
        "LOCK.RENEW k a PX 600000",
        "LOCK.RELEASE k a",
        "RLOCK.ACQUIRE k a",
        "RLOCK.ACQUIRE k a",
        "RLOCK.RENEW k a",
        "RLOCK.RELEASE k a",
        "RLOCK.RELEASE k a",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    let appended = appended_commands(&server);
    assert!(appended.len() > 5, "{appended:?}");
    let requests = ["lock.acquire", "lock.renew", "lock.release", "rlock.acquire", "rlock.renew", "rlock.release"];
    for command in &appended {
        let name = String::from_utf8_lossy(&command[0]).to_lowercase();
        assert!(!requests.contains(&name.as_str()), "{name} was replicated");
    }
}

#[test]
fn what_was_refused_or_changed_nothing_is_not_replicated() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PERSIST").fence();
    let before = appended_commands(&server).len();
    for line in [
        "LOCK.ACQUIRE k b",
        "LOCK.ACQUIRE k b BLOCK x",
        "LOCK.RELEASE k b",
        "LOCK.RELEASE free b",
        "LOCK.RENEW k b",
        "LOCK.HELD k a",
        "LOCK.INFO k",
        "RLOCK.RELEASE k a",
    ] {
        client.run(line);
    }
    assert_eq!(appended_commands(&server).len(), before);
}

/// The very effects that the server writes for its replicas, sent by those who have no business with them.
#[test]
fn internal_commands_refuse_every_client() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    for line in [
        "LOCK.ACQUIRE k a PX 600000",
        "LOCK.RENEW k a PX 700000",
        "RLOCK.ACQUIRE nested a",
        "RLOCK.ACQUIRE nested a",
        "RLOCK.RELEASE nested a",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    let of_the_module = module_commands(&mut client);
    let effects: Vec<Vec<Vec<u8>>> = appended_commands(&server)
        .into_iter()
        .filter(|command| of_the_module.contains(&String::from_utf8_lossy(&command[0]).to_lowercase()))
        .collect();
    assert!(effects.len() >= 4, "{effects:?}");
    client.run("ACL SETUSER anyone on nopass ~* &* +@all");
    let before = (client.stored("k"), client.stored("nested"));
    for effect in &effects {
        assert!(client.cmd(effect).is_error(), "{effect:?}");

        client.run("MULTI");
        client.cmd(effect);
        let reply = client.run("EXEC");
        assert!(reply.is_error() || reply.items()[0].is_error(), "{effect:?}");

        let script = "return redis.call(unpack(ARGV))";
        let mut in_script: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"0"];
        in_script.extend(effect.iter().map(Vec::as_slice));
        assert!(client.cmd(&in_script).is_error(), "{effect:?}");

        let mut another = server.client3();
        another.run("AUTH anyone any-password");
        assert!(another.cmd(effect).is_error(), "{effect:?}");
    }
    assert_eq!((client.stored("k"), client.stored("nested")), before);

    client.run("FLUSHALL");
    for effect in &effects {
        assert!(client.cmd(effect).is_error(), "{effect:?}");
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
}
