//! Promises of every lock type that a transcript of `tests/spec` cannot show: replicas, pauses, scripts, lists and
//! queues of hundreds.

use crate::support::lock_types::{each_way, rows, wait_for, WAYS};
use crate::support::waiting::*;
use crate::support::{until, Reply, Server};
use std::time::{Duration, Instant};

#[test]
fn a_new_request_queues_behind_waiters_when_a_lease_has_just_expired() {
    each_way(quiet, |way, server, client| {
        for round in 0..5 {
            let key = format!("k{round}");
            way.hold(client, &key, "a");
            let mut b = wait_for(way, server, &key, "b");
            client.run(&format!("{} PX 20", way.renew(&key, "a")));
            let newcomer = way.acquire(&key, "z");
            while b.client.read_within(Duration::ZERO).is_none() {
                assert_eq!(client.run(&newcomer), Reply::NullArray, "{way:?}");
            }
            assert_eq!(holders(client, &key), ["b"], "{way:?}");
        }
    });
}

#[test]
fn inside_multi_and_scripts_block_is_ignored_and_session_and_notify_are_errors_in_scripts() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let line = format!("{} BLOCK 0", way.acquire("k", "b"));
        let free = format!("{} BLOCK 0", way.acquire("free", "b"));
        let replies = multi(client, &[&line, &free, "DEL free free:too"]);
        assert_eq!(replies[0], Reply::NullArray, "{way:?}");
        assert!(replies[1].fence() > 0, "{way:?}");
        let script = "return redis.call(unpack(ARGV)) and 'granted' or 'refused'";
        let in_script: Vec<&str> = ["EVAL", script, "0"].into_iter().chain(line.split(' ')).collect();
        assert_eq!(client.cmd(&in_script), Reply::bulk("refused"), "{way:?}");
        let in_script: Vec<&str> = ["EVAL", script, "0"].into_iter().chain(free.split(' ')).collect();
        assert_eq!(client.cmd(&in_script), Reply::bulk("granted"), "{way:?}");
        client.run("DEL free free:too");
        assert!(client.run("LOCK.ACQUIRE its:own b PX 60000 SESSION").fence() > 0, "the connection itself may");
        for option in [&["SESSION"][..], &["BLOCK", "0", "NOTIFY", "ch"]] {
            let request = way.acquire("free", "b");
            let line: Vec<&str> =
                ["EVAL", script, "0"].into_iter().chain(request.split(' ')).chain(option.iter().copied()).collect();
            assert!(client.cmd(&line).is_error(), "{way:?} {option:?}");
            assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        }
        client.run("DEL its:own");
        assert_no_waiters(server, &["k"]);
    });
}

#[test]
fn a_hundred_holders_and_waiters_or_as_many_as_count_says_are_listed() {
    let server = Server::start();
    let mut client = server.client();
    let owners = |name: &str| (0..120).map(|number| format!("{name}{number:03}")).collect::<Vec<_>>();
    for (acquire, blocked) in [("RWLOCK.ACQUIRE k", "WRITE"), ("SEM.ACQUIRE s", "LIMIT 120")] {
        let key = acquire.split(' ').nth(1).expect("it has a key");
        let mode = if key == "k" { "READ" } else { blocked };
        owners("holder").iter().for_each(|owner| _ = client.run(&format!("{acquire} {owner} {mode}")));
        for owner in owners("waiter") {
            client.run(&format!("{acquire} {owner} {blocked} BLOCK 0 NOTIFY outcomes"));
        }
        for (count, listed) in
            [("", 100), (" COUNT 7", 7), (" COUNT 119", 119), (" COUNT 1000", 120), (" count 0", 120)]
        {
            let listed_owners =
                |list: &Reply| list.items().iter().map(|row| row.get("owner").text().to_owned()).collect::<Vec<_>>();
            let info = client.run(&format!("LOCK.INFO {key}{count}"));
            assert_eq!(listed_owners(info.get("holders")), owners("holder")[..listed], "{key}{count}");
            assert_eq!((info.get("holding").int(), info.get("waiters").int()), (120, 120), "{key}{count}");
            let waiters = client.run(&format!("LOCK.WAITERS {key}{count}"));
            assert_eq!(listed_owners(&waiters), owners("waiter")[..listed], "{key}{count}");
        }
    }
    for command in ["LOCK.INFO", "LOCK.WAITERS"] {
        for wrong in ["COUNT", "COUNT 1 COUNT 1", "LIMIT 1", "1"] {
            let refused = client.run(&format!("{command} k {wrong}"));
            assert!(refused.error().starts_with("ERR syntax error at "), "{wrong}: {refused:?}");
        }
        for wrong in ["-1", "x", "1.5"] {
            let refused = client.run(&format!("{command} k COUNT {wrong}"));
            let words = format!("ERR value is not an integer or out of range: COUNT '{wrong}'");
            assert_eq!(refused, Reply::Error(words), "{wrong}");
        }
    }
}

#[test]
fn during_client_pause_no_lock_is_granted() {
    each_way(Server::builder, |way, server, client| {
        way.hold(client, "k", "a");
        let mut b = wait_for(way, server, "k", "b");
        // In one round trip, because the lease must not expire before the pause.
        client.pipeline(&[&format!("{} PX 100", way.renew("k", "a")), "CLIENT PAUSE 60000 WRITE"]);
        b.assert_silent_for(Duration::from_millis(200));
        assert_eq!(queue(client, "k"), ["b"], "{way:?}");
        client.run("CLIENT UNPAUSE");
        b.granted("b");
    });
}

#[test]
fn a_waiter_gets_an_error_when_its_server_becomes_a_replica() {
    let master = Server::start();
    each_way(Server::builder, |way, server, client| {
        way.hold(client, "k", "a");
        let mut b = wait_for(way, server, "k", "b");
        client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        assert!(b.reply().is_error(), "{way:?}");
        server.wait_blocked(0);
    });
}

#[test]
fn requests_that_wait_reach_neither_replicas_nor_the_aof() {
    for way in WAYS {
        let server = plain_aof(Server::builder()).start();
        let mut client = server.client();
        way.hold(&mut client, "k", "a");
        let written = aof(&server).len();
        let _b = wait_for(way, &server, "k", "b");
        client.run(&format!("{} BLOCK 1", way.acquire("k", "c")));
        client.run(&format!("{} BLOCK 0 NOTIFY ch", way.acquire("k", "d")));
        client.run("LOCK.CANCEL k b");
        assert_eq!(aof(&server).len(), written, "{:?}", aof(&server));
        client.run(&format!("{} PX 90000", way.renew("k", "a")));
        way.release_held(&mut client, "k", "a");
        let prefix = way.prefix();
        for command in aof(&server) {
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            let is_request = ["acquire", "renew", "release"].iter().any(|verb| name == format!("{prefix}.{verb}"));
            assert!(!is_request, "{name} was logged");
        }
    }
}

#[test]
fn two_thousand_readers_are_granted_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE k a WRITE PX 60000").fence();
    let lines: Vec<String> = (0..2000).map(|n| format!("RWLOCK.ACQUIRE k r{n} READ BLOCK 0 NOTIFY ch")).collect();
    assert!(client.pipeline(&lines).iter().all(|reply| reply.items()[1] == Reply::Int(0)));
    assert_eq!(client.run("RWLOCK.RELEASE k a WRITE"), Reply::Int(0));
    until("all of them read", || queue(&mut client, "k").is_empty());
    let owners = holders(&mut client, "k");
    assert!(owners.into_iter().eq((0..2000).map(|n| format!("r{n}"))), "all of them, in the order of the queue");
    assert_no_waiters(&server, &["k"]);
}

#[test]
fn leases_of_many_holders_expire_one_by_one() {
    let server = quiet().start();
    let mut client = server.client();
    // Many more than the module searches linearly, with deadlines in random order.
    let lines: Vec<String> =
        (0..200).map(|n| format!("SEM.ACQUIRE k o{n} LIMIT 200 PX {}", 200 + (n * 37) % 200)).collect();
    let start = Instant::now();
    client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
    let mut large = Waiter::request(&server, "SEM.ACQUIRE k large LIMIT 200 PERMITS 200 PX 60000 BLOCK 0");
    let reply = large.reply_within(Duration::from_secs(1) + SOON);
    assert_eq!(reply.items()[2], Reply::Int(200));
    assert!(ms_since(start) >= 399, "the last lease ends after 399 ms, not {:?}", start.elapsed());
    assert_eq!(rows(&mut client, "k"), [("large".into(), "permits".into(), 200)]);
}
