//! LOCK.SCAN: whole iterations, patterns, permissions, replicas, clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{scan_all, scanned_keys};
use crate::support::cluster::single_node;
use crate::support::lock_types::rows;
use crate::support::waiting::*;
use crate::support::{built_caller, in_sync, until, Client, Reply, Rng, Server};

/// Each lock that exists during the whole iteration is returned, whatever comes and goes; SCAN guarantees the same.
#[test]
fn a_full_iteration_lists_every_lock_that_exists_throughout() {
    let server = Server::start();
    let mut client = server.client();
    let mut rng = Rng::new(7);
    let staying: BTreeSet<String> = (0..400).map(|number| format!("stays:{number}")).collect();
    for key in &staying {
        client.cmd(&["LOCK.ACQUIRE", key, "a", "PERSIST"]).fence();
    }
    for round in 0..6 {
        let mut listed = BTreeSet::new();
        let mut by_type = BTreeSet::new();
        let (mut cursor, mut other) = (Some("0".to_string()), Some("0".to_string()));
        while cursor.is_some() || other.is_some() {
            let count = *rng.pick(&["1", "3", "10", "50"]);
            if let Some(at) = &cursor {
                let reply = client.cmd(&["LOCK.SCAN", at, "COUNT", count]);
                let keys = reply.items()[1].items().iter().map(|lock| lock.get("key").text().to_string());
                listed.extend(keys);
                cursor = Some(reply.items()[0].text().to_string()).filter(|next| next != "0");
            }
            if let Some(at) = &other {
                let reply = client.cmd(&["SCAN", at, "COUNT", count, "TYPE", "redislock"]);
                by_type.extend(reply.items()[1].items().iter().map(|key| key.text().to_string()));
                other = Some(reply.items()[0].text().to_string()).filter(|next| next != "0");
            }
            // The server's table of keys grows and shrinks at the same time.
            for _ in 0..rng.below(40) {
                let number = rng.below(2_000).to_string();
                match rng.below(4) {
                    0 => client.cmd(&["LOCK.ACQUIRE", &format!("goes:{number}"), "b", "PERSIST"]),
                    1 => client.cmd(&["LOCK.RELEASE", &format!("goes:{number}"), "b"]),
                    2 => client.cmd(&["SET", &format!("string:{number}"), "v"]),
                    _ => client.cmd(&["DEL", &format!("string:{number}"), &format!("goes:{number}")]),
                };
            }
        }
        let seed = rng.seed();
        assert!(staying.is_subset(&listed), "round {round}, seed {seed}: {:?}", staying.difference(&listed));
        assert!(staying.is_subset(&by_type), "round {round}, seed {seed}: {:?}", staying.difference(&by_type));
        assert!(listed.iter().all(|key| !key.starts_with("string:")), "{listed:?}");
    }
    let all = scanned_keys(&mut client, "COUNT 100000");
    assert_eq!(client.run("SCAN 0 COUNT 100000 TYPE redislock").items()[1].items().len(), all.len());
}

#[test]
fn match_and_count_work_as_in_scan() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["order:1", "order:2", "order:[1]", "user:1"] {
        client.cmd(&["LOCK.ACQUIRE", key, "a"]).fence();
    }
    for pattern in ["*", "order:*", "order:?", "order:[12]", "order:\\[1\\]", "*:1", "none", "order:1"] {
        let ours = scanned_keys(&mut client, &format!("MATCH {pattern}"));
        let theirs = client.cmd(&["SCAN", "0", "MATCH", pattern, "COUNT", "1000"]);
        let mut theirs: Vec<&str> = theirs.items()[1].items().iter().map(Reply::text).collect();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{pattern}");
    }
    for number in 0..500 {
        client.run(&format!("LOCK.ACQUIRE k{number} a")).fence();
    }
    let calls = |client: &mut Client, command: &str, options: &str| {
        let (mut cursor, mut cursors) = ("0".to_string(), Vec::new());
        loop {
            let reply = client.run(&format!("{command} {cursor} {options}"));
            cursor = reply.items()[0].text().to_string();
            cursors.push((cursor.clone(), reply.items()[1].items().len()));
            if cursor == "0" {
                return cursors;
            }
        }
    };
    for count in ["", "COUNT 7", "COUNT 100", "COUNT 100000", "MATCH k1* COUNT 50"] {
        let theirs = calls(&mut client, "SCAN", count);
        assert_eq!(calls(&mut client, "LOCK.SCAN", count), theirs, "the same cursors, and as many keys with each");
    }
}

#[test]
fn arguments_invalid_for_scan_get_the_same_error() {
    let server = Server::start();
    let mut client = server.client();
    for arguments in [
        "x",
        "1.5",
        "18446744073709551616",
        "0x1",
        "0 COUNT",
        "0 COUNT 0",
        "0 COUNT -1",
        "0 COUNT x",
        "0 COUNT 1.5",
        "0 COUNT 9223372036854775808",
        "0 MATCH",
        "0 what",
        "0 what 5",
        "0 COUNT 5 what",
    ] {
        let (ours, theirs) = (client.run(&format!("LOCK.SCAN {arguments}")), client.run(&format!("SCAN {arguments}")));
        // Ours adds the position after the same message.
        assert!(ours.error().starts_with(theirs.error()), "{arguments}: {ours:?}, and SCAN says {theirs:?}");
    }
    assert_eq!(client.run("LOCK.SCAN").error(), "ERR wrong number of arguments for 'lock.scan' command");
    for twice in ["COUNT 5 COUNT 5", "MATCH a MATCH a", "TYPE redislock"] {
        assert!(client.run(&format!("LOCK.SCAN 0 {twice}")).error().starts_with(super::SYNTAX), "{twice}");
    }
}

#[test]
fn keys_that_the_caller_may_not_read_are_omitted() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["mine:1", "shown:1", "written:1", "other:1"] {
        client.cmd(&["LOCK.ACQUIRE", key, "a", "PERSIST"]).fence();
    }
    // Without permission for SCAN or any other command.
    client.run("ACL SETUSER worker on nopass -@all +lock.scan +eval +multi +exec ~mine:* %R~shown:* %W~written:*");
    let mut worker = server.client();
    worker.run("AUTH worker any-password");
    assert_eq!(scanned_keys(&mut worker, ""), ["mine:1", "shown:1"]);
    let names = "local found = {} for _, lock in ipairs(redis.call('LOCK.SCAN', '0')[2]) do \
                 found[#found + 1] = lock[2] end table.sort(found) return found";
    let shown = Reply::Array(vec![Reply::bulk("mine:1"), Reply::bulk("shown:1")]);
    assert_eq!(worker.cmd(&["EVAL", names, "0"]), shown, "in a script");
    let replies = multi(&mut worker, &["LOCK.SCAN 0"]);
    assert_eq!(replies[0].items()[1].items().len(), 2, "in a transaction");
    assert_eq!(client.run("ACL LOG"), Reply::Array(vec![]), "and nothing of it is a denial");
    // Permission changes apply at once.
    client.run("ACL SETUSER worker resetkeys");
    assert_eq!(scanned_keys(&mut worker, ""), [""; 0]);
}

#[test]
fn another_module_sees_all_locks() {
    let caller = built_caller().expect("cargo build --workspace");
    let server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    // The other module calls for itself, without a user.
    let reply = client.run("TEST.CALL LOCK.SCAN 0");
    assert_eq!(reply.items()[1].items().len(), 1, "{reply:?}");
    let script = client.cmd(&["EVAL", "return #redis.call('TEST.CALL', 'LOCK.SCAN', '0')[2]", "0"]);
    assert_eq!(script, Reply::Int(1), "out of a script too");
}

#[test]
fn a_replica_hides_what_has_expired() {
    let master = Server::builder().config("hz 1").start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let (mut ours, mut theirs) = (master.client(), replica.client());
    ours.run("DEBUG SET-ACTIVE-EXPIRE 0");
    ours.run("LOCK.ACQUIRE over a PX 300").fence();
    ours.run("RWLOCK.ACQUIRE several a READ PX 300").fence();
    ours.run("RWLOCK.ACQUIRE several b READ PERSIST").fence();
    ours.run("RWLOCK.ACQUIRE several c READ PERSIST").fence();
    // Leases no longer end: an expired lock is only hidden.
    ours.run("CLIENT PAUSE 600000 WRITE");
    in_sync(&master, &replica);
    until("both leases have expired", || {
        theirs.run("LOCK.HELD over a").is_nil() && theirs.run("LOCK.HELD several a").is_nil()
    });
    assert_eq!(theirs.run("DBSIZE"), Reply::Int(2), "the replica still stores both");
    let locks = scan_all(&mut theirs, "");
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!((locks[0].get("owner").text(), locks[0].get("holders").int()), ("b", 2));
    assert_eq!(rows(&mut theirs, "several").len(), 2);
}

#[test]
fn in_a_cluster_it_lists_the_locks_of_all_slots() {
    let node = single_node();
    let mut client = node.client();
    for key in ["a", "b", "c"] {
        client.cmd(&["LOCK.ACQUIRE", key, "a"]).fence();
    }
    // On Valkey 9.1, later calls with the same internal client fail after this one.
    let broken = "return redis.pcall('MSET', 'a1', 'v', 'b1', 'v')";
    for _ in 0..3 {
        client.cmd(&["EVAL", &format!("#!lua flags=allow-cross-slot-keys\n{broken}"), "0"]);
        client.cmd(&["EVAL", broken, "0"]);
        assert_eq!(scanned_keys(&mut client, ""), ["a", "b", "c"]);
    }
}

#[test]
fn without_scan_it_returns_an_error() {
    let server = Server::builder().config("rename-command SCAN \"\"").start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    let refused = "ERR LOCK.SCAN requires the server's SCAN command, which is renamed or disabled";
    assert_eq!(client.run("LOCK.SCAN 0").error(), refused);
    assert!(client.read_within(Duration::from_millis(1)).is_none(), "one reply");
}
