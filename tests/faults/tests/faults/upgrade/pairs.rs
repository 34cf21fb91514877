//! Each pair of a primary and a replica: whether the replica follows, has every lock exactly as its primary, and takes
//! over without losses; or how it fails if it cannot.

use std::collections::BTreeMap;

use faults::versions::Program;
use support::{in_sync, skip, until, Client, Reply, Server};

use super::should_follow;
use crate::failover::role;

#[test]
fn a_replica_on_another_server_follows_as_documented() {
    let (tested, others) = (Program::tested(), Program::others());
    if others.is_empty() {
        return skip("no other servers are built: make servers");
    }
    for other in others {
        eprintln!("{} follows {}", other.line, tested.line);
        if should_follow(&tested.line, &other.line) {
            follows_and_takes_over(&tested, &other);
        } else {
            cannot_read_the_rdb(&tested, &other);
        }
    }
}

/// From the first synchronization to the takeover, and back.
fn follows_and_takes_over(first: &Program, second: &Program) {
    let first = with_saves(first).config("propagation-error-behavior panic-on-replicas").start();
    take_locks(&mut first.client(), "before");
    let _waiters = queue_up(&first, "before");
    let second = with_saves(second).config("propagation-error-behavior panic-on-replicas").replica_of(&first).start();
    in_sync(&first, &second);
    assert_eq!(locks(&second), locks(&first), "after the first synchronization");
    take_locks(&mut first.client(), "later");
    hand_off(&first, "before");
    let waiters = queue_up(&first, "later");
    in_sync(&first, &second);
    let before = locks(&first);
    assert_eq!(locks(&second), before, "after effects");

    fail_over(&first, &second);
    for mut waiter in waiters {
        assert!(waiter.read().is_error(), "waiters are redirected");
    }
    assert_eq!(locks(&second), before, "nothing is lost by the hand-over");
    take_locks(&mut second.client(), "there");
    assert_greater_fences(&before, &second, "there");
    assert_eq!(second.client().run("LOCK.RENEW mutex-before a PX 900000").int(), 1);
    let _waiters = queue_up(&second, "there");
    hand_off(&second, "there");
    in_sync(&second, &first);
    let before = locks(&second);
    assert_eq!(locks(&first), before, "after effects, in the opposite direction");
    fail_over(&second, &first);
    assert_eq!(locks(&first), before, "nothing is lost on the way back");
    take_locks(&mut first.client(), "back");
    assert_greater_fences(&before, &first, "back");
}

/// A replica that cannot read its primary's RDB file never has any data, and logs why.
fn cannot_read_the_rdb(primary: &Program, replica: &Program) {
    let primary = primary.builder().start();
    take_locks(&mut primary.client(), "before");
    let replica = replica.builder().replica_of(&primary).start();
    until("the replica says why", || replica.log().contains("Can't handle RDB format version"));
    let replication = replica.info("replication");
    assert_eq!(replication.text("role"), "slave");
    assert_eq!(replication.text("master_link_status"), "down");
    assert_eq!(replica.client().run("DBSIZE").int(), 0);
}

/// Every lock type, in multiple shapes, under keys that end with `tag`.
fn take_locks(client: &mut Client, tag: &str) {
    let requests = [
        "LOCK.ACQUIRE mutex a PX 600000",
        "LOCK.ACQUIRE mutex-for-ever a PERSIST",
        "LOCK.ACQUIRE mutex-renewed a PX 600000",
        "LOCK.RENEW mutex-renewed a PX 700000",
        "LOCK.ACQUIRE mutex-given-back a PX 600000",
        "LOCK.RELEASE mutex-given-back a",
        "RLOCK.ACQUIRE reentrant a HOLDS 3 PX 600000",
        "RLOCK.RELEASE reentrant a",
        "RWLOCK.ACQUIRE read a READ PX 600000",
        "RWLOCK.ACQUIRE read b READ HOLDS 2 PX 700000",
        "PEXPIRE read 800000",
        "RWLOCK.ACQUIRE write a WRITE PX 600000",
        "RWLOCK.ACQUIRE write a READ PX 600000",
        "SEM.ACQUIRE semaphore a LIMIT 9 PERMITS 2 PX 600000",
        "SEM.ACQUIRE semaphore b LIMIT 8 PERMITS 3 PX 700000",
        "SEM.ACQUIRE semaphore c LIMIT 8 PERSIST",
        "SEM.RELEASE semaphore b",
    ];
    for request in requests {
        let mut words: Vec<String> = request.split(' ').map(String::from).collect();
        words[1] = format!("{}-{tag}", words[1]);
        let reply = client.cmd(&words);
        assert!(!reply.is_error() && !reply.is_nil(), "{request}: {reply:?}");
    }
    let owner = "an-owner-of-more-than-thirty-eight-bytes-0123456789";
    client.run(&format!("MLOCK.ACQUIRE 2 several-1-{tag} several-2-{tag} {owner} PX 600000")).fence();
}

/// Queues waiters for a mutex and a semaphore, and returns them.
fn queue_up(server: &Server, tag: &str) -> Vec<Client> {
    let mut client = server.client();
    client.run(&format!("LOCK.ACQUIRE queue-{tag} holder PX 600000")).fence();
    client.run(&format!("SEM.ACQUIRE permits-{tag} holder LIMIT 3 PERMITS 3 PX 600000")).fence();
    let blocked = server.blocked_clients();
    let requests = [
        format!("LOCK.ACQUIRE queue-{tag} first PX 600000 BLOCK 0"),
        format!("LOCK.ACQUIRE queue-{tag} second PX 600000 BLOCK 0"),
        format!("MLOCK.ACQUIRE 2 queue-{tag} free-{tag} third PX 600000 BLOCK 0"),
        format!("SEM.ACQUIRE permits-{tag} other LIMIT 2 PX 600000 BLOCK 0"),
    ];
    let mut waiters = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let mut waiter = server.client();
        waiter.send_line(request);
        server.wait_blocked(blocked + number as i64 + 1);
        waiters.push(waiter);
    }
    waiters
}

/// Ends the holds that the waiters of [`queue_up`] wait for: by releases, and by the expiry of a lease.
fn hand_off(server: &Server, tag: &str) {
    let mut client = server.client();
    client.run(&format!("LOCK.RELEASE queue-{tag} holder"));
    client.run(&format!("PEXPIRE queue-{tag} 1"));
    client.run(&format!("SEM.RELEASE permits-{tag} holder PERMITS 2"));
    until("both are granted", || {
        let holds = |client: &mut Client, key: &str, owner| !client.cmd(&["LOCK.HELD", key, owner]).is_nil();
        holds(&mut client, &format!("queue-{tag}"), "second") && holds(&mut client, &format!("permits-{tag}"), "other")
    });
}

/// An orderly failover: `to` has everything before it is promoted.
fn fail_over(from: &Server, to: &Server) {
    let mut operator = from.client();
    until("the failover begins", || {
        let begun = operator.run(&format!("FAILOVER TO 127.0.0.1 {}", to.port()));
        // Right after its first synchronization.
        assert!(begun == Reply::ok() || begun.error().contains("is not online"), "{begun:?}");
        begun == Reply::ok()
    });
    until("the roles have changed", || {
        // The old primary may exit as soon as it is a replica.
        to.info("replication").text("role") == "master" && role(from).is_none_or(|role| role == "slave")
    });
}

/// Every key: type, limit, latest fencing token, deadline, and each holder's owner, mode, holds, fencing token and
/// lease.
fn locks(server: &Server) -> BTreeMap<String, String> {
    let mut client = server.client();
    let keys = client.run("KEYS *");
    let keys = keys.items().iter().map(|key| key.text().to_string());
    keys.map(|key| {
        let info = client.cmd(&["LOCK.INFO", &key]);
        let fields = |map: &Reply, names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{:?}", map.get(name))).collect()
        };
        let mut words = fields(&info, &["kind", "limit", "fence"]);
        words.push(client.cmd(&["PEXPIRETIME", &key]).int().to_string());
        for holder in info.get("holders").items() {
            words.extend(fields(holder, &["owner", "mode", "holds", "fence", "lease"]));
        }
        (key, words.join(" "))
    })
    .collect()
}

/// Checks that every lock of `tag` was granted after all locks in `before`.
#[track_caller]
fn assert_greater_fences(before: &BTreeMap<String, String>, server: &Server, tag: &str) {
    let fence = |words: &String| words.split(' ').nth(2).and_then(|word| word.parse::<i64>().ok()).expect("a fence");
    let last = before.values().map(fence).max().expect("locks");
    let later = locks(server);
    let smallest = later.iter().filter(|(key, _)| key.ends_with(tag)).map(|(_, words)| fence(words)).min();
    assert!(smallest.is_some_and(|smallest| smallest > last), "a fence went back: {smallest:?} after {last}");
}

/// As Debian configures it: the server saves on exit.
fn with_saves(server: &Program) -> support::Builder {
    server.builder().config("save 3600 1")
}
