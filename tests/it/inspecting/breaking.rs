//! LOCK.BREAK: expired holders, replicas, thousands of holders, a server that refuses writes.

use std::time::Duration;

use crate::support::waiting::*;
use crate::support::{in_sync, until, Reply, Server};

#[test]
fn an_expired_holder_does_not_count() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("LOCK.ACQUIRE mutex a PX 1").fence();
    client.run("SEM.ACQUIRE alone a LIMIT 3 PX 1").fence();
    let_time_pass(Duration::from_millis(5));
    for key in ["mutex", "alone"] {
        assert_eq!(client.run("DBSIZE").int(), if key == "mutex" { 2 } else { 1 }, "no command has accessed it yet");
        assert_eq!(client.cmd(&["LOCK.BREAK", key]), Reply::Int(0), "{key}");
    }
    // In the iteration in which a lease expires, the server has not noticed it yet.
    client.run("SEM.ACQUIRE several a LIMIT 3 PX 30").fence();
    client.run("SEM.ACQUIRE several b LIMIT 3 PX 60000").fence();
    let replies = client.pipeline(&["DEBUG SLEEP 0.05", "LOCK.BREAK several"]);
    assert_eq!(replies[1], Reply::Int(1), "b");
}

#[test]
fn replicas_and_the_append_only_file_follow() {
    let master = plain_aof(quiet()).start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    let mut waiters = Vec::new();
    for key in ["one", "all", "handed", "free"] {
        for owner in ["a", "b", "c"] {
            client.run(&format!("SEM.ACQUIRE {key} {owner} LIMIT 3 {LONG}")).fence();
        }
    }
    hold(&mut client, "mutex", "a");
    waiters.push(Waiter::park(&master, &format!("SEM.ACQUIRE handed d LIMIT 3 PERMITS 3 {LONG} BLOCK 0")));
    waiters.push(Waiter::park(&master, &format!("LOCK.ACQUIRE mutex d {LONG} BLOCK 0")));
    for (line, broken) in [("one OWNER b", 1), ("all", 3), ("handed", 3), ("mutex", 1)] {
        assert_eq!(client.run(&format!("LOCK.BREAK {line}")), Reply::Int(broken), "{line}");
    }
    waiters.iter_mut().for_each(|waiter| _ = waiter.granted("d"));
    in_sync(&master, &replica);
    let locks = all_locks(&master);
    assert_eq!(locks.len(), 4, "{locks:?}");
    assert_eq!(all_locks(&replica), locks);
    assert_eq!(client.run("DEBUG LOADAOF"), Reply::ok());
    assert_eq!(all_locks(&master), locks);
}

#[test]
fn each_of_ten_thousand_holders_is_counted() {
    let server = quiet().start();
    let mut client = server.client();
    let lines: Vec<String> = (0..10_000).map(|n| format!("SEM.ACQUIRE k o{n} LIMIT 10000 {LONG}")).collect();
    client.pipeline(&lines);
    let mut next = Waiter::park(&server, &format!("SEM.ACQUIRE k next LIMIT 10000 PERMITS 10000 {LONG} BLOCK 0"));
    assert_eq!(client.run("LOCK.BREAK k OWNER o77"), Reply::Int(1));
    next.assert_silent();
    assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(9_999));
    next.granted("next");
    assert_eq!(client.run("LOCK.INFO k").get("holding"), &Reply::Int(1));
}

#[test]
fn while_the_server_refuses_writes_it_is_refused_like_a_release() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    client.run("CONFIG SET min-replicas-to-write 1");
    let refused = client.run("LOCK.BREAK k");
    assert_eq!(refused, client.run("LOCK.RELEASE k a"));
    assert!(refused.error().starts_with("NOREPLICAS "));
    client.run("CONFIG SET min-replicas-to-write 0");
    // It works without free memory.
    client.run("CONFIG SET maxmemory 1");
    assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(1));
    b.granted("b");
    client.run("CONFIG SET maxmemory 0");
    client.run("REPLICAOF 127.0.0.1 1");
    until("it is a replica", || client.run("LOCK.BREAK k").is_error());
    assert!(client.run("LOCK.BREAK k").error().starts_with("READONLY "));
}
