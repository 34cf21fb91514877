//! LOCK.BREAK: takes a lock from its holders, and hands over.

use std::time::Duration;

use super::{SYNTAX, WRONGTYPE};
use crate::support::families::{each_way, rows, wait_for};
use crate::support::waiting::*;
use crate::support::{in_sync, until, Reply, Server};

#[test]
fn the_holder_loses_all_and_the_next_waiter_has_it_at_once() {
    each_way(quiet, |way, server, client| {
        assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(0), "{way:?}: no lock");
        let fence = way.hold(client, "k", "a");
        assert_eq!(client.run("LOCK.BREAK k OWNER b"), Reply::Int(0), "{way:?}: it holds nothing");
        let mut b = wait_for(way, server, "k", "b");
        let mut c = wait_for(way, server, "k", "c");
        assert_eq!(client.run("LOCK.BREAK k OWNER b"), Reply::Int(0), "{way:?}: it only waits");
        b.assert_silent();
        assert_eq!(client.run("LOCK.BREAK k OWNER a"), Reply::Int(1), "{way:?}");
        if way.kind == "mutex" && way.prefix() == "mlock" {
            // Only this key: the other one is still held.
            assert_eq!(holders(client, "k"), [""; 0]);
            assert_eq!(holders(client, "k:too"), ["a"]);
            assert_eq!(client.run("LOCK.BREAK k:too"), Reply::Int(1));
        }
        assert!(b.granted("b") > fence, "{way:?}");
        c.assert_silent();
        assert!(client.run(&way.release("k", "a")).int() < 1, "{way:?}: a is no holder any more");
        assert_eq!(holders(client, "k"), ["b"], "{way:?}");
    });
}

#[test]
fn however_often_its_owner_holds_it_it_is_one_owner() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RLOCK.ACQUIRE r a HOLDS 5").fence();
    client.run("RWLOCK.ACQUIRE w a WRITE HOLDS 2").fence();
    client.run("RWLOCK.ACQUIRE w a READ HOLDS 3").fence();
    client.run("SEM.ACQUIRE s a LIMIT 9 PERMITS 4").fence();
    client.run("SEM.ACQUIRE s b LIMIT 9 PERMITS 2").fence();
    for (line, broken) in [("r", 1), ("w OWNER a", 1), ("s OWNER b", 1), ("s", 1), ("s", 0)] {
        assert_eq!(client.run(&format!("LOCK.BREAK {line}")), Reply::Int(broken), "{line}");
    }
    assert_eq!(client.run("DBSIZE"), Reply::Int(0), "a lock exists only while somebody holds it");
}

#[test]
fn all_holders_go_in_one_step_and_what_they_have_queued_stays() {
    let server = quiet().start();
    let mut client = server.client();
    for owner in ["a", "b"] {
        client.run(&format!("SEM.ACQUIRE k {owner} LIMIT 2 {LONG}")).fence();
    }
    let mut more = Waiter::park(&server, &format!("SEM.ACQUIRE k b LIMIT 2 {LONG} BLOCK 0"));
    assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(2));
    more.granted("b");
    assert_eq!(rows(&mut client, "k"), [("b".to_string(), "permits".to_string(), 1)], "what it had is gone");
    // Readers make room for the writer, when the last of them has gone.
    for owner in ["a", "b", "c"] {
        client.run(&format!("RWLOCK.ACQUIRE w {owner} READ {LONG}")).fence();
    }
    let mut writer = Waiter::park(&server, &format!("RWLOCK.ACQUIRE w d WRITE {LONG} BLOCK 0"));
    assert_eq!(client.run("LOCK.BREAK w OWNER b"), Reply::Int(1));
    writer.assert_silent();
    assert_eq!(client.run("LOCK.BREAK w"), Reply::Int(2));
    writer.granted("d");
}

#[test]
fn what_is_no_lock_s_key_and_what_is_no_option_is_an_error_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET string v");
    hold(&mut client, "k", "a");
    for line in ["LOCK.BREAK string", "LOCK.BREAK string OWNER a"] {
        assert_eq!(client.run(line).error(), WRONGTYPE, "{line}");
    }
    for line in ["k a", "k OWNER", "k OWNER a OWNER a", "k TOKEN a", "k OWNER a b"] {
        assert_eq!(client.run(&format!("LOCK.BREAK {line}")).error(), SYNTAX, "{line}");
    }
    assert_eq!(client.run("LOCK.BREAK").error(), "ERR wrong number of arguments for 'lock.break' command");
    assert_eq!(client.cmd(&["LOCK.BREAK", "k", "OWNER", ""]).error(), "ERR the token must have 1 to 1024 bytes");
    assert_eq!(client.run("lock.break k owner a"), Reply::Int(1));
    assert_eq!(client.run("GET string"), Reply::bulk("v"));
}

#[test]
fn a_holder_whose_lease_is_over_does_not_count() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("LOCK.ACQUIRE mutex a PX 1").fence();
    client.run("SEM.ACQUIRE alone a LIMIT 3 PX 1").fence();
    let_pass(Duration::from_millis(5));
    for key in ["mutex", "alone"] {
        assert_eq!(client.run("DBSIZE").int(), if key == "mutex" { 2 } else { 1 }, "nobody has touched it yet");
        assert_eq!(client.cmd(&["LOCK.BREAK", key]), Reply::Int(0), "{key}");
    }
    // In the turn in which a lease ends the server has not looked yet.
    client.run("SEM.ACQUIRE several a LIMIT 3 PX 30").fence();
    client.run("SEM.ACQUIRE several b LIMIT 3 PX 60000").fence();
    let replies = client.pipeline(&["DEBUG SLEEP 0.05", "LOCK.BREAK several"]);
    assert_eq!(replies[1], Reply::Int(1), "b");
}

#[test]
fn of_several_mutexes_held_at_once_only_this_one_is_broken() {
    let server = Server::start();
    let mut client = server.client();
    client.run("MLOCK.ACQUIRE 2 k l a").fence();
    assert_eq!(client.run("LOCK.BREAK k").int(), 1);
    assert!(client.run("LOCK.HELD k a").is_nil());
    assert!(!client.run("LOCK.HELD l a").is_nil());
}

#[test]
fn a_broken_hold_is_bound_to_no_connection() {
    let server = quiet().start();
    let mut client = server.client();
    let mut bound = server.client();
    bound.run(&format!("LOCK.ACQUIRE k a {LONG} SESSION")).fence();
    bound.run(&format!("SEM.ACQUIRE s a LIMIT 2 {LONG} SESSION")).fence();
    bound.run(&format!("SEM.ACQUIRE s b LIMIT 2 {LONG} SESSION")).fence();
    assert_eq!((client.run("LOCK.BREAK k"), client.run("LOCK.BREAK s")), (Reply::Int(1), Reply::Int(2)));
    for owner in ["a", "b"] {
        client.run(&format!("LOCK.ACQUIRE k {owner} {LONG}"));
        client.run(&format!("SEM.ACQUIRE s {owner} LIMIT 2 {LONG}")).fence();
    }
    let id = bound.id();
    drop(bound);
    until_gone(&mut client, id);
    assert_eq!(holders(&mut client, "k"), ["a"], "the end of the connection releases nothing");
    assert_eq!(holders(&mut client, "s"), ["a", "b"]);
}

#[test]
fn watch_trips_where_somebody_lost_a_hold() {
    let server = Server::start();
    let (mut client, mut watcher) = (server.client(), server.client());
    for (line, is_change) in [("LOCK.BREAK k OWNER z", false), ("LOCK.BREAK k OWNER a", true), ("LOCK.BREAK k", true)] {
        for owner in ["a", "b", "c"] {
            client.run(&format!("SEM.ACQUIRE k {owner} LIMIT 3 HOLDS 1 {LONG}")).fence();
        }
        watcher.run("WATCH k");
        client.run(line);
        watcher.pipeline(&["MULTI", "PING"]);
        assert_eq!(watcher.run("EXEC").is_null(), is_change, "{line}");
    }
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
fn of_ten_thousand_holders_every_one_is_counted() {
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
fn while_the_server_refuses_writes_it_is_refused_as_release_is() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    client.run("CONFIG SET min-replicas-to-write 1");
    let refused = client.run("LOCK.BREAK k");
    assert_eq!(refused, client.run("LOCK.RELEASE k a"));
    assert!(refused.error().starts_with("NOREPLICAS "));
    client.run("CONFIG SET min-replicas-to-write 0");
    // Without memory it works.
    client.run("CONFIG SET maxmemory 1");
    assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(1));
    b.granted("b");
    client.run("CONFIG SET maxmemory 0");
    client.run("REPLICAOF 127.0.0.1 1");
    until("it is a replica", || client.run("LOCK.BREAK k").is_error());
    assert!(client.run("LOCK.BREAK k").error().starts_with("READONLY "));
}
