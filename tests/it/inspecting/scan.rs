//! LOCK.SCAN: the locks of a database, some with each call.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{fields, scan_all, scanned_keys};
use crate::support::cluster::single_node;
use crate::support::families::{each_way, rows, wait_for};
use crate::support::waiting::*;
use crate::support::{built_caller, each_protocol, in_sync, until, Client, Reply, Rng, Server};

#[test]
fn it_lists_what_the_contract_names_in_its_order() {
    each_protocol(|client| {
        client.run("SEM.ACQUIRE k a LIMIT 5 PX 50000").fence();
        client.run("SEM.ACQUIRE k b LIMIT 5 PX 60000").fence();
        client.run("SEM.RELEASE k a");
        client.run("SEM.ACQUIRE k a LIMIT 5 PERSIST").fence();
        let reply = client.run("LOCK.SCAN 0");
        let [cursor, locks] = reply.items() else { panic!("{reply:?}") };
        assert_eq!(cursor, &Reply::bulk("0"));
        let [lock] = locks.items() else { panic!("{locks:?}") };
        assert_eq!(fields(lock), ["key", "kind", "owner", "holders", "ttl", "waiters"]);
        assert_eq!((lock.get("key"), lock.get("kind")), (&Reply::bulk("k"), &Reply::bulk("semaphore")));
        assert_eq!(lock.get("owner"), &Reply::bulk("b"), "the one with the smallest fence");
        assert_eq!((lock.get("holders").int(), lock.get("ttl").int(), lock.get("waiters").int()), (2, -1, 0));
    });
}

#[test]
fn it_is_a_map_in_resp3_and_a_flat_array_in_resp2() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k a").fence();
    for (mut client, is_map) in [(server.client(), false), (server.client3(), true)] {
        let lock = client.run("LOCK.SCAN 0").items()[1].items()[0].clone();
        assert_eq!(matches!(lock, Reply::Map(_)), is_map, "{lock:?}");
    }
}

#[test]
fn it_says_of_each_family_what_lock_info_says() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let _waits = wait_for(way, server, "k", "b");
        let locks = scan_all(client, "");
        let lock = locks.iter().find(|lock| lock.get("key").is_bulk("k")).expect("it is there");
        let info = client.run("LOCK.INFO k");
        assert_eq!(lock.get("kind"), info.get("kind"), "{way:?}");
        assert_eq!(lock.get("owner"), info.get("holders").items()[0].get("owner"), "{way:?}");
        assert_eq!(lock.get("holders"), info.get("holding"), "{way:?}");
        assert_eq!(lock.get("waiters"), &Reply::Int(1), "{way:?}");
        let ttl = lock.get("ttl").int();
        assert!((info.get("ttl").int()..=60_000).contains(&ttl), "{way:?}: {ttl}");
    });
}

#[test]
fn it_lists_the_locks_of_this_database_only_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET string v");
    client.run("RPUSH list v");
    client.run("LOCK.ACQUIRE here a").fence();
    client.run("SELECT 3");
    client.run("LOCK.ACQUIRE there a").fence();
    assert_eq!(scanned_keys(&mut client, ""), ["there"]);
    client.run("SELECT 0");
    assert_eq!(scanned_keys(&mut client, ""), ["here"]);
}

#[test]
fn a_kept_place_is_no_waiter_and_a_free_key_is_left_out_though_it_is_waited_for() {
    let server = quiet().module_args("keep-place 60000").start();
    let mut client = server.client();
    hold(&mut client, "held", "a");
    let _waits = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 held free b {LONG} BLOCK 0"));
    assert!(client.run(&format!("LOCK.ACQUIRE held c {LONG} BLOCK 1")).is_nil());
    assert_eq!(client.run("LOCK.INFO free").get("waiters").int(), 1);
    let locks = scan_all(&mut client, "");
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!((locks[0].get("key").text(), locks[0].get("waiters").int()), ("held", 1));
}

/// Each lock that is there during the whole iteration is listed, whatever comes and goes; so it is with SCAN.
#[test]
fn a_full_iteration_lists_every_lock_that_is_there_the_whole_time() {
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
            // The table of keys grows and shrinks meanwhile.
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
fn match_is_scans_glob_and_count_its_count() {
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
fn what_scan_refuses_it_refuses_in_the_same_words() {
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
        assert!(theirs.is_error() && ours == theirs, "{arguments}: {ours:?}, and SCAN says {theirs:?}");
    }
    assert_eq!(client.run("LOCK.SCAN").error(), "ERR wrong number of arguments for 'lock.scan' command");
    for twice in ["COUNT 5 COUNT 5", "MATCH a MATCH a", "TYPE redislock"] {
        assert_eq!(client.run(&format!("LOCK.SCAN 0 {twice}")).error(), super::SYNTAX, "{twice}");
    }
}

#[test]
fn what_the_caller_may_not_read_is_left_out() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["mine:1", "shown:1", "written:1", "other:1"] {
        client.cmd(&["LOCK.ACQUIRE", key, "a", "PERSIST"]).fence();
    }
    // Without SCAN, and without any other command.
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
    // Permissions go as they come.
    client.run("ACL SETUSER worker resetkeys");
    assert_eq!(scanned_keys(&mut worker, ""), [""; 0]);
}

#[test]
fn another_module_sees_all_of_them() {
    let caller = built_caller().expect("cargo build --workspace");
    let server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    // It calls on its own behalf, as nobody's user.
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
    // Nobody ends anything any more: what is over is only hidden.
    ours.run("CLIENT PAUSE 600000 WRITE");
    in_sync(&master, &replica);
    until("both leases are over", || {
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
    // On Valkey 9.1 whoever makes a call with the same internal client after this is refused it.
    let broken = "return redis.pcall('MSET', 'a1', 'v', 'b1', 'v')";
    for _ in 0..3 {
        client.cmd(&["EVAL", &format!("#!lua flags=allow-cross-slot-keys\n{broken}"), "0"]);
        client.cmd(&["EVAL", broken, "0"]);
        assert_eq!(scanned_keys(&mut client, ""), ["a", "b", "c"]);
    }
}

#[test]
fn where_scan_is_not_to_be_had_it_says_so() {
    let server = Server::builder().config("rename-command SCAN \"\"").start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    let refused = "ERR LOCK.SCAN needs the server's command SCAN, which this server does not run";
    assert_eq!(client.run("LOCK.SCAN 0").error(), refused);
    assert!(client.read_within(Duration::from_millis(1)).is_none(), "one reply");
}
