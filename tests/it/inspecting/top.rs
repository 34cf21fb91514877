//! LOCK.TOP: the most waited-for locks.

use super::{fields, NOT_AN_INTEGER, SYNTAX};
use crate::support::families::{each_way, wait_for};
use crate::support::waiting::*;
use crate::support::{each_protocol, until, Client, Reply, Server};

/// Database, key and number of waiters of each.
#[track_caller]
fn top(client: &mut Client, options: &str) -> Vec<(i64, String, i64)> {
    let top = client.run(&format!("LOCK.TOP {options}"));
    let lock = |lock: &Reply| (lock.get("db").int(), lock.get("key").text().to_string(), lock.get("waiters").int());
    top.items().iter().map(lock).collect()
}

fn waits(server: &Server, db: usize, line: &str) -> Waiter {
    let mut client = server.client();
    client.run(&format!("SELECT {db}"));
    Waiter::park_over(client, server, line)
}

#[test]
fn it_tells_of_each_family_what_the_contract_names_in_its_order() {
    each_way(quiet, |way, server, client| {
        for mut client in [server.client(), server.client3()] {
            assert_eq!(client.run("LOCK.TOP"), Reply::Array(vec![]), "nobody waits");
        }
        way.hold(client, "k", "a");
        let _waits = wait_for(way, server, "k", "b");
        until("b has waited a while", || client.run("LOCK.WAITERS k").items()[0].get("waited").int() >= 20);
        for (mut client, is_map) in [(server.client(), false), (server.client3(), true)] {
            let before = client.run("LOCK.WAITERS k").items()[0].get("waited").int();
            let age = client.run("LOCK.INFO k").get("holders").items()[0].get("age").int();
            let top = client.run("LOCK.TOP");
            let lock = top.items().iter().find(|lock| lock.get("key").is_bulk("k")).expect("it is waited for");
            let after = client.run("LOCK.WAITERS k").items()[0].get("waited").int();
            assert_eq!(matches!(lock, Reply::Map(_)), is_map, "{lock:?}");
            assert_eq!(fields(lock), ["db", "key", "kind", "waiters", "longest", "holder", "held"]);
            assert_eq!((lock.get("db").int(), lock.get("kind").text()), (0, way.kind), "{way:?}");
            assert_eq!((lock.get("waiters").int(), lock.get("holder").text()), (1, "a"), "{way:?}");
            assert!((before..=after).contains(&lock.get("longest").int()), "{way:?}: {lock:?}");
            assert!(lock.get("held").int() >= age, "{way:?}: {lock:?}, {age} before");
        }
    });
}

#[test]
fn most_waiters_come_first_then_the_longest_wait_over_all_databases() {
    let server = quiet().start();
    let mut client = server.client();
    for (db, key) in [(0, "one"), (0, "older"), (7, "most"), (7, "one"), (9, "younger")] {
        client.run(&format!("SELECT {db}"));
        hold(&mut client, key, "a");
    }
    client.run("SELECT 5");
    let one = |key: &str, owner: &str| format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0");
    let mut waiting = vec![waits(&server, 0, &one("one", "b"))];
    for (db, key, owner) in
        [(0, "older", "c"), (9, "younger", "d"), (9, "younger", "e"), (0, "older", "f"), (7, "most", "g")]
    {
        // A millisecond tells them apart.
        let mut last = waiting.last().expect("there is one").client.stopwatch();
        until("a moment passes", || last.elapsed().as_millis() >= 5);
        waiting.push(waits(&server, db, &one(key, owner)));
    }
    for owner in ["h", "i"] {
        waiting.push(waits(&server, 7, &one("most", owner)));
    }
    let all = [(7, "most", 3), (0, "older", 2), (9, "younger", 2), (0, "one", 1)];
    let all: Vec<_> = all.iter().map(|(db, key, waiters)| (*db, key.to_string(), *waiters)).collect();
    assert_eq!(top(&mut client, ""), all);
    for count in 1..=5 {
        assert_eq!(top(&mut client, &format!("COUNT {count}")), all[..count.min(4)]);
    }
    // The client stays where it was.
    client.run("SET here v");
    assert_eq!(client.run("DBSIZE"), Reply::Int(1));
    let replies = multi(&mut client, &["LOCK.TOP", "SET too v", "DBSIZE"]);
    assert_eq!((replies[0].items().len(), &replies[2]), (4, &Reply::Int(2)));
    let script = "redis.call('LOCK.TOP') return redis.call('DBSIZE')";
    assert_eq!(client.cmd(&["EVAL", script, "0"]), Reply::Int(2));
}

#[test]
fn ten_are_listed_or_as_many_as_count_says() {
    let server = quiet().start();
    let mut client = server.client();
    let mut notified = server.client();
    for number in 0..12 {
        hold(&mut client, &format!("k{number}"), "a");
        notified.run(&format!("LOCK.ACQUIRE k{number} b BLOCK 0 NOTIFY ch"));
    }
    for (options, listed) in [("", 10), ("COUNT 1", 1), ("COUNT 11", 11), ("count 1000", 12)] {
        assert_eq!(top(&mut client, options).len(), listed, "{options}");
    }
    for count in ["0", "1001", "-1", "x", "1.5"] {
        assert_eq!(client.run(&format!("LOCK.TOP COUNT {count}")).error(), NOT_AN_INTEGER, "{count}");
    }
    for options in ["COUNT", "5", "COUNT 5 COUNT 5", "LIMIT 5", "COUNT 5 k"] {
        assert_eq!(client.run(&format!("LOCK.TOP {options}")).error(), SYNTAX, "{options}");
    }
}

#[test]
fn a_key_that_is_free_but_waited_for_has_no_holder() {
    each_protocol(|client| {
        client.run("LOCK.ACQUIRE held a PERSIST").fence();
        client.run("MLOCK.ACQUIRE 2 held free b PERSIST BLOCK 0 NOTIFY ch");
        let top = client.run("LOCK.TOP");
        let lock = |key: &str| top.items().iter().find(|lock| lock.get("key").is_bulk(key)).expect("it is listed");
        assert!(lock("free").get("holder").is_nil(), "{:?}", lock("free"));
        assert_eq!((lock("free").get("held").int(), lock("free").get("kind").text()), (-1, "mutex"));
        assert_eq!(lock("held").get("holder").text(), "a");
    });
}

#[test]
fn the_holder_is_the_one_with_the_smallest_fence() {
    let server = quiet().start();
    let mut client = server.client();
    for owner in ["a", "b", "c"] {
        client.run(&format!("RWLOCK.ACQUIRE k {owner} READ {LONG}")).fence();
    }
    client.run("RWLOCK.RELEASE k a READ");
    client.run(&format!("RWLOCK.ACQUIRE k a READ {LONG}")).fence();
    let _waits = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 0");
    assert_eq!(client.run("LOCK.TOP").items()[0].get("holder").text(), "b");
}

#[test]
fn a_kept_place_is_no_waiter() {
    let server = quiet().module_args("keep-place 60000").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    assert!(client.run("LOCK.ACQUIRE k b BLOCK 1").is_nil());
    assert_eq!(client.run("LOCK.TOP"), Reply::Array(vec![]), "nobody waits");
    let _waits = line_up(&server, "k", ["c"]);
    assert_eq!(top(&mut client, ""), [(0, "k".to_string(), 1)]);
}

#[test]
fn it_is_empty_on_a_replica() {
    let master = Server::start();
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut notified = server.client();
    notified.run("LOCK.ACQUIRE k b BLOCK 0 NOTIFY ch");
    let [mut c] = line_up(&server, "k", ["c"]);
    assert_eq!(top(&mut client, ""), [(0, "k".to_string(), 2)]);
    let demote = format!("REPLICAOF 127.0.0.1 {}", master.port());
    // In the same write: not even those who are not sent away yet.
    let replies = client.pipeline(&[demote.as_str(), "LOCK.TOP"]);
    assert_eq!(replies, [Reply::ok(), Reply::Array(vec![])]);
    assert!(c.reply().error().starts_with("UNBLOCKED "));
    assert_eq!(client.run("LOCK.TOP"), Reply::Array(vec![]));
}
