//! A replica follows every step with each lock type, to the byte and to the millisecond; so does an AOF that is enabled
//! later.

use super::*;

#[track_caller]
fn assert_follows(lines: &[&str]) {
    let (master, replica) = pair();
    let mut client = master.client();
    for line in lines {
        assert!(!client.run(line).is_error(), "{line}");
        assert_same(&master, &replica, &["k"]);
    }
    let key = client.stored("k");
    assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
    assert_eq!(client.stored("k"), key);
}

#[test]
fn a_replica_follows_mutexes_to_the_millisecond() {
    assert_follows(&[
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
    ]);
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
fn transactions_and_scripts_are_replicated() {
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
fn a_flush_is_replicated() {
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
fn lease_expiry_reaches_the_replica() {
    let (master, replica) = pair();
    master.client().run("LOCK.ACQUIRE k a PX 30").fence();
    until("the master and the replica have dropped the key", || {
        master.client().run("DBSIZE").int() == 0 && replica.client().run("DBSIZE").int() == 0
    });
    master.client().run("LOCK.ACQUIRE k b").fence();
    assert_same(&master, &replica, &["k"]);
}

#[test]
fn renaming_moving_and_restoring_are_replicated() {
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

/// Enough locks to notice a missing one; returns their keys.
fn take_many(client: &mut Client) -> Vec<String> {
    let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let lines: Vec<String> = keys.iter().map(|key| format!("LOCK.ACQUIRE {key} owner-of-{key} PX 600000")).collect();
    for reply in client.pipeline(&lines) {
        reply.fence();
    }
    keys
}

#[test]
fn a_replica_that_joins_late_gets_every_lock() {
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
fn an_aof_enabled_later_has_every_lock() {
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

#[test]
fn a_replica_follows_readers_and_writers_to_the_millisecond() {
    assert_follows(&[
        "RWLOCK.ACQUIRE k a READ PX 600000",
        "RWLOCK.ACQUIRE k b READ PX 700000",
        "RWLOCK.ACQUIRE k b READ HOLDS 3 PX 100000",
        "RWLOCK.ACQUIRE k b READ HOLDS 3 PX 800000",
        "RWLOCK.ACQUIRE k c WRITE",
        "RWLOCK.RENEW k a PX 50000",
        "RWLOCK.RENEW k b",
        "RWLOCK.ACQUIRE k c READ PERSIST",
        "RWLOCK.RELEASE k b READ",
        "RWLOCK.RELEASE k b READ HOLDS 1",
        "RWLOCK.RELEASE k c READ",
        "RWLOCK.RELEASE k b READ",
        "RWLOCK.ACQUIRE k a WRITE HOLDS 2",
        "RWLOCK.ACQUIRE k a READ",
        "RWLOCK.RELEASE k a WRITE",
        "RWLOCK.RELEASE k a WRITE HOLDS 0",
        "RWLOCK.ACQUIRE k d READ",
        "RWLOCK.RELEASE k a READ HOLDS 0",
        "RWLOCK.RELEASE k d READ",
        "RWLOCK.ACQUIRE k e WRITE PX 600000",
    ]);
}

#[test]
fn a_replica_follows_permits_and_limits_to_the_millisecond() {
    assert_follows(&[
        "SEM.ACQUIRE k a LIMIT 5 PX 600000",
        "SEM.ACQUIRE k a LIMIT 5 HOLDS 3 PX 500000",
        "SEM.ACQUIRE k b LIMIT 7 PERMITS 2 PX 700000",
        // Only the limit changes, or the limit and the lease.
        "SEM.ACQUIRE k a LIMIT 8 HOLDS 3 PX 1000",
        "SEM.ACQUIRE k a LIMIT 9 HOLDS 3 PX 650000",
        "SEM.ACQUIRE k c LIMIT 6 PERMITS 4 BLOCK 1",
        "SEM.ACQUIRE k c LIMIT 6",
        "SEM.RENEW k a PX 900000",
        "SEM.RELEASE k a PERMITS 2",
        "SEM.RELEASE k a HOLDS 1",
        "SEM.RELEASE k b PERMITS 1",
        "SEM.ACQUIRE k d LIMIT 4 PERSIST",
        "SEM.RELEASE k d",
        "SEM.RELEASE k a",
        "SEM.RELEASE k b HOLDS 0",
        "SEM.RELEASE k c",
        "SEM.ACQUIRE k e LIMIT 3 PX 600000",
    ]);
}

#[test]
fn a_replica_follows_expire_and_persist_with_multiple_holders() {
    assert_follows(&[
        "RWLOCK.ACQUIRE k a READ PX 600000",
        "PEXPIRE k 500000",
        "RWLOCK.ACQUIRE k b READ PX 700000",
        "PEXPIRE k 400000",
        "RWLOCK.ACQUIRE k b READ PX 1000",
        "RWLOCK.ACQUIRE k c READ HOLDS 2 PX 300000",
        "PERSIST k",
        "RWLOCK.RELEASE k c READ",
        "PEXPIRE k 900000",
        "RWLOCK.ACQUIRE k c READ HOLDS 2 PX 300000",
        "PERSIST k",
        "RWLOCK.RENEW k a PX 350000",
        "PEXPIRE k 200000",
        "RWLOCK.RENEW k a PX 350000",
        "RWLOCK.RELEASE k a READ",
        "PERSIST k",
        "RWLOCK.RELEASE k c READ HOLDS 0",
        "PERSIST k",
        "RWLOCK.ACQUIRE k d READ PX 300000",
        "RWLOCK.RELEASE k b READ",
        "PEXPIRE k 800000",
        "RWLOCK.ACQUIRE k d WRITE PX 300000",
        "PERSIST k",
        "RWLOCK.ACQUIRE k d READ PX 300000",
        "RWLOCK.RELEASE k d WRITE",
    ]);
    assert_follows(&[
        "SEM.ACQUIRE k a LIMIT 4 PX 600000",
        "PERSIST k",
        "SEM.ACQUIRE k b LIMIT 4 PX 500000",
        "PERSIST k",
        // A queued request that changes the limit changes no holder.
        "SEM.ACQUIRE k c LIMIT 3 PERMITS 3 BLOCK 1",
        "PEXPIRE k 900000",
        "SEM.ACQUIRE k c LIMIT 5 PERMITS 5 BLOCK 1",
        "PEXPIRE k 100000",
        "SEM.ACQUIRE k c LIMIT 6 PERMITS 5 BLOCK 1",
        "SEM.ACQUIRE k b LIMIT 7 HOLDS 1 PX 300000",
        "PERSIST k",
        "SEM.ACQUIRE k b LIMIT 8 HOLDS 1 PX 400000",
        "SEM.ACQUIRE k a LIMIT 9 HOLDS 3 PX 400000",
        "PERSIST k",
        "SEM.RELEASE k a",
    ]);
}

#[test]
fn hand_offs_to_multiple_waiters_reach_the_replica() {
    let (master, replica) = pair();
    let mut client = master.client();
    client.run("RWLOCK.ACQUIRE k a WRITE PX 300000");
    client.run("SEM.ACQUIRE s a LIMIT 3 PERMITS 3 PX 300000");
    let waiters: Vec<Waiter> = (0..5)
        .flat_map(|n| {
            [
                Waiter::park(&master, &format!("RWLOCK.ACQUIRE k r{n} READ PX {}00000 BLOCK 0", n + 1)),
                Waiter::park(&master, &format!("SEM.ACQUIRE s o{n} LIMIT 3 PX {}00000 BLOCK 0", n + 1)),
            ]
        })
        .collect();
    client.run("RWLOCK.RELEASE k a WRITE");
    client.run("SEM.RELEASE s a PERMITS 2");
    assert_eq!(holders(&mut client, "k").len(), 5);
    assert_eq!(holders(&mut client, "s"), ["a", "o0", "o1"]);
    assert_same(&master, &replica, &["k"]);
    assert_same(&master, &replica, &["s"]);
    assert_eq!(waiters.len(), 10);
}

#[test]
fn expiry_of_one_of_multiple_leases_reaches_the_replica_with_the_resulting_grant() {
    let (master, replica) = pair();
    let mut client = master.client();
    client.run("SEM.ACQUIRE k short LIMIT 2 PX 600000");
    client.run("SEM.ACQUIRE k long LIMIT 2 PX 600000");
    let mut next = Waiter::park(&master, "SEM.ACQUIRE k next LIMIT 2 PX 600000 BLOCK 0");
    client.run("SEM.RENEW k short PX 100");
    next.granted("next");
    assert_same(&master, &replica, &["k"]);
    assert_eq!(holders(&mut replica.client(), "k"), ["long", "next"]);
}

#[test]
fn a_replica_that_joins_late_gets_every_holder() {
    let master = Server::start();
    let mut client = master.client();
    take_locks(&mut client);
    for n in 0..300 {
        client.run(&format!("RWLOCK.ACQUIRE many r{n} READ PX {}", 100_000 + n));
    }
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    for key in KEYS.iter().chain(&["many"]) {
        assert_same(&master, &replica, &[key]);
    }
    client.run("RWLOCK.RELEASE many r7 READ");
    client.run("RWLOCK.RENEW many r8 PX 500000");
    assert_same(&master, &replica, &["many"]);
}
