//! LOCK.LOG: long holds and waits, leases that expired while requests waited, refused deadlocks.

use crate::support::waiting::*;
use crate::support::{each_protocol, until, Client, Reply, Server};

/// Waits until the server's clock has advanced by a millisecond.
fn let_a_millisecond_pass(client: &mut Client) {
    let time = |client: &mut Client| {
        let time = client.run("TIME");
        let number = |at: usize| time.items()[at].text().parse::<u64>().expect("a number");
        number(0) * 1_000 + number(1) / 1_000
    };
    let start = time(client);
    until("two milliseconds have passed", || time(client) >= start + 2);
}

fn get(client: &mut Client) -> Vec<Reply> {
    client.run("LOCK.LOG GET -1").items().to_vec()
}

/// Waits until the newest entry has this event, and returns it.
#[track_caller]
fn newest(client: &mut Client, event: &str) -> Reply {
    until(&format!("the log has an entry {event}"), || {
        get(client).first().is_some_and(|entry| entry.get("event").text() == event)
    });
    get(client).swap_remove(0)
}

#[track_caller]
fn assert_is_about(entry: &Reply, key: &str, owner: &str, waiters: i64) {
    assert_eq!((entry.get("key").text(), entry.get("owner").text()), (key, owner), "{entry:?}");
    assert_eq!((entry.get("db").int(), entry.get("waiters").int()), (0, waiters), "{entry:?}");
}

#[track_caller]
fn assert_is_by(entry: &Reply, client: Option<(i64, String)>) {
    let (id, address) = client.unwrap_or_default();
    assert_eq!((entry.get("client").int(), entry.get("addr").text()), (id, address.as_str()), "{entry:?}");
}

#[test]
fn only_holds_longer_than_log_hold_are_logged() {
    each_protocol(|client| {
        let fields = ["id", "time", "event", "key", "db", "owner", "ms", "waiters", "client", "addr"];
        let pairs = [("LOCK.ACQUIRE k a", "LOCK.RELEASE k a"), ("SEM.ACQUIRE k a LIMIT 2", "SEM.RELEASE k a")];
        for (acquire, release) in pairs {
            client.run("CONFIG SET lock.log-hold 0");
            client.run(acquire).fence();
            let_a_millisecond_pass(client);
            client.run(release);
            assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(0), "0: nothing");
            client.run("CONFIG SET lock.log-hold 600000");
            client.run(acquire).fence();
            let_a_millisecond_pass(client);
            client.run(release);
            assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(0), "it was not held that long");
            client.run("CONFIG SET lock.log-hold 1");
            client.run(acquire).fence();
            let_a_millisecond_pass(client);
            client.run(release);
            let entry = newest(client, "hold");
            let names: Vec<_> = entry.pairs().iter().map(|(name, _)| name.text().to_string()).collect();
            assert_eq!(names, fields);
            assert_is_about(&entry, "k", "a", 0);
            let connection = (client.id(), client.address());
            assert_is_by(&entry, Some(connection));
            assert!((1..60_000).contains(&entry.get("ms").int()), "{entry:?}");
            let now = client.run("TIME").items()[0].text().parse::<i64>().expect("seconds") * 1_000;
            assert!((now - 60_000..=now + 1_000).contains(&entry.get("time").int()), "{entry:?}");
            assert_eq!(client.run("LOCK.LOG RESET"), Reply::ok());
        }
    });
}

#[test]
fn a_long_hold_is_logged_if_its_lease_its_session_or_a_command_of_the_module_ends_it() {
    let server = quiet().config("lock.log-hold 1").start();
    let mut client = server.client();
    let mut other = server.client();
    let other_id = other.id();
    for (acquire, end) in [
        ("LOCK.ACQUIRE k a PX 60000", "LOCK.RELEASE k a"),
        ("LOCK.ACQUIRE k a PX 60000", "LOCK.BREAK k"),
        ("LOCK.ACQUIRE k a PX 20", "PING"),
        ("RWLOCK.ACQUIRE k a READ PX 20", "PING"),
        ("LOCK.ACQUIRE k a PX 60000 SESSION", "CLIENT KILL ID "),
    ] {
        client.run("LOCK.LOG RESET");
        other.run(acquire).fence();
        let_a_millisecond_pass(&mut client);
        let end = if end.ends_with("ID ") { format!("{end}{other_id}") } else { end.into() };
        client.run(&end);
        let_a_millisecond_pass(&mut client);
        client.run("EXISTS k");
        until(&end, || get(&mut client).iter().any(|entry| entry.get("event").text() == "hold"));
        let entry = get(&mut client).into_iter().find(|entry| entry.get("event").text() == "hold").expect("found");
        assert_is_about(&entry, "k", "a", 0);
    }
}

#[test]
fn a_wait_longer_than_log_wait_is_logged_once_per_request() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for (setting, is_logged) in [("0", false), ("600000", false), ("1", true)] {
        client.run(&format!("CONFIG SET lock.log-wait {setting}"));
        let [mut b] = line_up(&server, "k", ["b"]);
        let [_c] = line_up(&server, "k", ["c"]);
        let_a_millisecond_pass(&mut client);
        client.run("LOCK.RELEASE k a");
        b.granted("b");
        client.run("LOCK.CANCEL k c");
        client.run("LOCK.RELEASE k b");
        hold(&mut client, "k", "a");
        assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(is_logged.into()), "{setting}");
        if is_logged {
            let entry = newest(&mut client, "wait");
            assert_is_about(&entry, "k", "b", 1);
            assert_is_by(&entry, Some((b.id, b.client.address())));
            assert!((1..60_000).contains(&entry.get("ms").int()), "{entry:?}");
        }
    }
    client.run("LOCK.LOG RESET");
    let mut both = Waiter::park(&server, "MLOCK.ACQUIRE 2 k l d BLOCK 0");
    let_a_millisecond_pass(&mut client);
    client.run("LOCK.RELEASE k a");
    both.granted("d");
    assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(1));
    // One wait of two requests; a release between them frees the lock.
    client.run("LOCK.LOG RESET");
    client.run("CONFIG SET lock.log-wait 40");
    hold(&mut client, "m", "a");
    let mut waiter = server.client();
    assert!(waiter.run("LOCK.ACQUIRE m e BLOCK 50").is_nil());
    client.run("LOCK.RELEASE m a");
    assert!(!waiter.run("LOCK.ACQUIRE m e BLOCK 50").is_nil());
    let entry = newest(&mut client, "wait");
    assert_is_about(&entry, "m", "e", 0);
    assert_is_by(&entry, Some((waiter.id(), waiter.address())));
    assert!((50..60_000).contains(&entry.get("ms").int()), "{entry:?}");
}

#[test]
fn a_lease_that_expires_while_requests_wait_is_logged() {
    let server = quiet().start();
    let mut client = server.client();
    for (acquire, wait) in [
        ("LOCK.ACQUIRE k a PX 30", "LOCK.ACQUIRE k b BLOCK 0"),
        ("RLOCK.ACQUIRE k a PX 30", "RLOCK.ACQUIRE k b BLOCK 0"),
        ("RWLOCK.ACQUIRE k a READ PX 30", "RWLOCK.ACQUIRE k b WRITE BLOCK 0"),
        ("SEM.ACQUIRE k a LIMIT 1 PX 30", "SEM.ACQUIRE k b LIMIT 1 BLOCK 0"),
    ] {
        // If the machine pauses for this long, the request may come too late to wait.
        until("b has waited for the end of the lease", || {
            client.run("DEL k");
            client.run("LOCK.LOG RESET");
            client.run(acquire).fence();
            Waiter::request(&server, wait).granted("b");
            client.run("LOCK.LOG LEN").int() > 0
        });
        let entry = newest(&mut client, "expired");
        assert_is_about(&entry, "k", "a", 1);
        assert!(entry.get("ms").int() >= 30, "{acquire}: {entry:?}");
        assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(1), "{acquire}");
    }
    // Without waiters, lease expiry is routine.
    client.run("LOCK.LOG RESET");
    for observed in ["lock.log-hold 600000", "lock.keyspace-events yes"] {
        client.run(&format!("CONFIG SET {observed}"));
        for acquire in ["LOCK.ACQUIRE other a PX 1", "SEM.ACQUIRE other a LIMIT 1 PX 1"] {
            client.run(acquire).fence();
            let_a_millisecond_pass(&mut client);
            until("it is gone", || client.run("EXISTS other").int() == 0);
            assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(0), "{observed}, {acquire}");
        }
    }
}

/// There is no waiter, so the next request takes the fast path.
#[test]
fn a_lock_that_has_expired_is_logged_when_the_server_notices_it() {
    let server = quiet().config("lock.log-hold 1").start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for notice in ["LOCK.ACQUIRE k b", "LOCK.INFO k", "RLOCK.RELEASE k b"] {
        client.run("DEL k");
        client.run("LOCK.LOG RESET");
        client.run("LOCK.ACQUIRE k a PX 1").fence();
        let_a_millisecond_pass(&mut client);
        client.run(notice);
        let noticed = client.run("TIME").items()[0].text().parse::<i64>().expect("seconds");
        let_time_pass(std::time::Duration::from_millis(1_100));
        let entry = newest(&mut client, "hold");
        assert_is_about(&entry, "k", "a", 0);
        assert!(entry.get("time").int() < (noticed + 1) * 1_000, "{notice}: {entry:?}");
    }
}

/// Renewals made the hold longer than its first lease: a DEL is then not taken for lease expiry.
#[test]
fn a_lock_that_is_deleted_is_not_logged_as_expired() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 1 SESSION");
    client.run("LOCK.ACQUIRE k a PX 60000").fence();
    client.run("LOCK.RENEW k a PX 60000");
    let [mut b] = line_up(&server, "k", ["b"]);
    let_a_millisecond_pass(&mut client);
    client.run("DEL k");
    b.granted("b");
    assert_eq!(get(&mut client), []);
}

#[test]
fn a_broken_lock_is_logged_with_the_client_that_broke_it() {
    // No hold lasts this long: the setting only switches logging on.
    let server = quiet().config("lock.log-hold 600000").start();
    let (mut client, mut operator) = (server.client(), server.client());
    client.run("RWLOCK.ACQUIRE k a READ").fence();
    client.run("RWLOCK.ACQUIRE k b READ").fence();
    let mut c = Waiter::park(&server, "RWLOCK.ACQUIRE k c WRITE BLOCK 0");
    assert_eq!(operator.run("LOCK.BREAK k"), Reply::Int(2));
    c.granted("c");
    let entries = get(&mut client);
    assert_eq!(entries.len(), 2, "{entries:?}");
    let mut owners: Vec<_> = entries.iter().map(|entry| entry.get("owner").text()).collect();
    owners.sort_unstable();
    assert_eq!(owners, ["a", "b"]);
    for entry in &entries {
        assert_eq!(entry.get("event").text(), "broken");
        assert_eq!(entry.get("waiters"), &Reply::Int(1));
        assert_is_by(entry, Some((operator.id(), operator.address())));
    }
}

#[test]
fn a_refused_deadlock_is_logged() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "l", "b");
    let _a = Waiter::park(&server, "LOCK.ACQUIRE l a BLOCK 0");
    assert!(client.run("LOCK.ACQUIRE k b BLOCK 0").error().starts_with("DEADLOCK "));
    let entry = newest(&mut client, "deadlock");
    assert_is_about(&entry, "k", "b", 0);
    let connection = (client.id(), client.address());
    assert_is_by(&entry, Some(connection));
    assert_eq!(entry.get("ms"), &Reply::Int(0));
}

#[test]
fn an_undelivered_grant_is_logged() {
    for more in ["", "SESSION"] {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let b = Waiter::park(&server, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 0 {more}"));
        multi(&mut client, &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
        let entry = newest(&mut client, "undelivered");
        assert_is_about(&entry, "k", "b", 0);
        assert_is_by(&entry, None);
        client.run("CONFIG SET lock.log-hold 1");
        assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(1), "{more}");
    }
}

#[test]
fn a_long_hold_that_another_command_removes_is_not_logged() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.log-hold 1");
    client.run("CONFIG SET maxmemory-policy allkeys-random");
    for end in ["DEL k", "FLUSHALL", "CONFIG SET maxmemory 1"] {
        hold(&mut client, "k", "a");
        let_a_millisecond_pass(&mut client);
        client.run(end);
        until(end, || client.run("EXISTS k").int() == 0);
        client.run("CONFIG SET maxmemory 0");
    }
    hold(&mut client, "k", "a");
    let_a_millisecond_pass(&mut client);
    client.run("LOCK.RELEASE k a");
    newest(&mut client, "hold");
    assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(1));
}

/// Breaks the lock under this key.
fn log_one(client: &mut Client, key: &str) {
    client.run(&format!("LOCK.ACQUIRE {key} a")).fence();
    assert_eq!(client.run(&format!("LOCK.BREAK {key}")), Reply::Int(1));
}

fn ids(entries: &Reply) -> Vec<i64> {
    entries.items().iter().map(|entry| entry.get("id").int()).collect()
}

#[test]
fn it_is_read_and_reset_like_slowlog() {
    each_protocol(|client| {
        for number in 0..12 {
            log_one(client, &format!("k{number}"));
        }
        assert_eq!(ids(&client.run("LOCK.LOG GET")), (2..12).rev().collect::<Vec<_>>(), "the newest ten first");
        assert_eq!(ids(&client.run("lock.log get 2")), [11, 10]);
        assert_eq!(ids(&client.run("LOCK.LOG GET 100")).len(), 12);
        assert_eq!(ids(&client.run("LOCK.LOG GET -1")).len(), 12);
        assert_eq!(client.run("LOCK.LOG GET 0"), Reply::Array(vec![]));
        assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(12));
        assert_eq!(client.run("LOCK.LOG RESET"), Reply::ok());
        assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(0));
        log_one(client, "k");
        assert_eq!(ids(&client.run("LOCK.LOG GET")), [12], "ids keep increasing");
        // With the wording of SLOWLOG.
        for (line, like) in [
            ("LOCK.LOG GET x", "SLOWLOG GET x"),
            ("LOCK.LOG GET -2", "SLOWLOG GET -2"),
            ("LOCK.LOG LEN 1", "SLOWLOG LEN 1"),
            ("LOCK.LOG nonsense", "SLOWLOG nonsense"),
            ("LOCK.LOG", "SLOWLOG"),
        ] {
            let words = client.run(like).error().replace("SLOWLOG HELP", "LOCK.HELP").replace("slowlog", "lock.log");
            assert_eq!(client.run(line).error(), words, "{line}");
        }
    });
}

#[test]
fn no_more_entries_are_kept_than_log_max_len_and_lowering_it_trims() {
    let server = Server::builder().config("lock.log-max-len 3").start();
    let mut client = server.client();
    for number in 0..5 {
        log_one(&mut client, &format!("k{number}"));
    }
    assert_eq!(ids(&client.run("LOCK.LOG GET")), [4, 3, 2]);
    client.run("CONFIG SET lock.log-max-len 2");
    assert_eq!(ids(&client.run("LOCK.LOG GET")), [4, 3]);
    client.run("CONFIG SET lock.log-max-len 0");
    log_one(&mut client, "k");
    assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(0));
    client.run("CONFIG SET lock.log-max-len 128");
    log_one(&mut client, "k");
    assert_eq!(ids(&client.run("LOCK.LOG GET")), [6]);
}

#[test]
fn long_names_are_kept_as_far_as_an_operator_needs_them() {
    let server = Server::start();
    let mut client = server.client();
    let (key, owner) = ("k".repeat(5_000), [&[0, 255, b'%'][..], &[b'o'; 1_021]].concat());
    client.cmd(&[b"LOCK.ACQUIRE", key.as_bytes(), &owner]).fence();
    client.cmd(&["LOCK.BREAK", &key]);
    let entry = get(&mut client).swap_remove(0);
    assert_eq!(entry.get("key").text(), format!("{}... (3976 more bytes)", "k".repeat(1_024)));
    assert_eq!(entry.get("owner").bytes(), owner, "whole: LOCK.BREAK and LOCK.CANCEL take it");
}

#[test]
fn it_is_local_to_the_server_and_works_on_a_replica() {
    let server = Server::start();
    let mut client = server.client();
    let replica = Server::builder().replica_of(&server).start();
    crate::support::in_sync(&server, &replica);
    log_one(&mut client, "k");
    assert_eq!(client.run("LOCK.LOG LEN"), Reply::Int(1));
    assert_eq!(replica.client().run("LOCK.LOG LEN"), Reply::Int(0));
}
