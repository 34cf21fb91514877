//! What every family promises alike about waiting: the order, the hand-off, time-outs, retries, kept places, and what
//! becomes of waiters when their key, their client or their server changes.

use crate::support::families::{each_way, rows, wait_for, WAYS};
use crate::support::waiting::*;
use crate::support::{until, Reply, Server};
use std::time::{Duration, Instant};

#[test]
fn a_release_hands_over_in_one_step_and_in_order() {
    each_way(quiet, |way, server, client| {
        let first = way.hold(client, "k", "a");
        assert_eq!(client.run(&way.acquire("k", "z")), Reply::NullArray);
        let (mut b, mut c) = (wait_for(way, server, "k", "b"), wait_for(way, server, "k", "c"));
        let replies = multi(client, &[&way.release("k", "a"), "EXISTS k", "LOCK.HELD k b", &way.acquire("k", "z")]);
        assert_eq!(replies[1], Reply::Int(1), "{way:?}: the lock was free in between");
        assert_eq!(replies[3], Reply::NullArray, "{way:?}");
        let second = b.granted("b");
        assert_eq!(replies[2].items()[0], Reply::Int(second), "{way:?}");
        assert!(second > first);
        c.assert_silent();
        way.give_back(client, "k", "b");
        assert!(c.granted("c") > second);
        way.give_back(client, "k", "c");
        assert_eq!(client.run("DBSIZE"), Reply::Int(0), "{way:?}");
        assert_nobody_waits(server, &["k"]);
    });
}

#[test]
fn a_free_lock_is_granted_without_waiting() {
    each_way(quiet, |way, server, client| {
        let grant = client.run(&format!("{} BLOCK 0", way.acquire("k", "a")));
        assert_eq!(grant.items()[0], Reply::bulk("a"), "{way:?}");
        assert!(grant.fence() > 0);
        assert_nobody_waits(server, &["k"]);
    });
}

/// A key of each other family, a string, and a lock with readers: every request names what is wrong and changes
/// nothing.
#[test]
fn a_key_of_another_type_or_family_is_refused_and_left_as_it_is() {
    each_way(quiet, |way, server, client| {
        client.run("SET string v");
        let mut keys =
            vec![("string".to_string(), "WRONGTYPE Operation against a key holding the wrong kind of value")];
        for other in WAYS.iter().filter(|other| other.kind != way.kind) {
            let key = format!("of-{}", other.prefix());
            other.hold(client, &key, "a");
            keys.push((key, "WRONGKIND "));
        }
        if way.kind != "rw" {
            client.run("RWLOCK.ACQUIRE readers a READ PX 60000").fence();
            keys.push(("readers".to_string(), "WRONGKIND "));
        }
        let size = client.run("DBSIZE");
        for (key, error) in keys {
            let before = client.stored(&key);
            for line in [
                way.acquire(&key, "a"),
                way.acquire(&key, "b"),
                format!("{} BLOCK 0", way.acquire(&key, "b")),
                format!("{} BLOCK 0 NOTIFY ch", way.acquire(&key, "b")),
                way.release(&key, "a"),
                way.renew(&key, "a"),
            ] {
                let reply = client.run(&line);
                assert!(reply.error().starts_with(error), "{line}: {reply:?}");
            }
            assert_eq!(client.stored(&key), before, "{way:?}: {key}");
        }
        assert_eq!(client.run("DBSIZE"), size, "{way:?}");
        server.wait_blocked(0);
    });
}

#[test]
fn resp3_waiters_are_answered_alike() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let line = format!("{} BLOCK 0", way.acquire("k", "b"));
        let mut b = Waiter::park_over(server.client3(), server, &line);
        way.give_back(client, "k", "a");
        let grant = b.reply();
        assert_eq!(grant.items().len(), if way.has_holds { 3 } else { 2 }, "{way:?}");
        assert_eq!(grant.items()[0], Reply::bulk("b"));
        let mut resp3 = server.client3();
        assert_eq!(resp3.run(&format!("{} BLOCK 5", way.acquire("k", "c"))), Reply::Null, "{way:?}");
    });
}

#[test]
fn whose_time_runs_out_gets_nil_and_never_too_early() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let start = Instant::now();
        client.send_line(&format!("{} BLOCK 60", way.acquire("k", "b")));
        assert_eq!(client.read_soon(Duration::from_millis(60) + SOON), Some(Reply::NullArray), "{way:?}");
        assert!(ms_since(start) >= 60, "{way:?}: {:?}", start.elapsed());
        assert_nobody_waits(server, &["k"]);
    });
}

#[test]
fn a_lease_that_ends_passes_it_on_with_no_command_from_anyone() {
    each_way(quiet, |way, server, client| {
        let ask = |owner| Waiter::ask(server, &format!("{} {LONG} BLOCK 0", way.acquire("k", owner)));
        let start = Instant::now();
        client.run(&format!("{} PX 250", way.acquire("k", "a")));
        let (mut b, mut c) = (ask("b"), ask("c"));
        b.granted_within("b", Duration::from_millis(250) + SOON);
        assert!(ms_since(start) >= 250, "{way:?}: {:?}", start.elapsed());
        c.assert_silent();
        assert_eq!(holders(client, "k"), ["b"], "{way:?}");
    });
}

#[test]
fn removals_serve_the_next() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "first");
        let ends = [
            "DEL k",
            "UNLINK k",
            "PEXPIRE k -1",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "RENAME k elsewhere",
            "MOVE k 1",
            "SWAPDB 0 2",
        ];
        for (n, end) in ends.into_iter().enumerate() {
            let owner = format!("o{n}");
            let mut waiter = wait_for(way, server, "k", &owner);
            assert!(!client.run(end).is_error(), "{end}");
            // The companion of a request for several is somebody else's business.
            client.run("DEL k:too");
            waiter.granted(&owner);
            assert_eq!(holders(client, "k"), [owner], "{way:?}: {end}");
        }
    });
}

#[test]
fn after_a_removal_the_queue_goes_first() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let mut b = wait_for(way, server, "k", "b");
        let newcomer = way.acquire("k", "z");
        let waits = format!("{newcomer} BLOCK 0");
        let again = way.acquire("k", "a");
        let replies = multi(client, &["DEL k k:too", "EXISTS k", &newcomer, "LOCK.INFO k", &again, &waits]);
        assert_eq!(replies[1], Reply::Int(0), "{way:?}");
        assert_eq!(replies[2], Reply::NullArray, "{way:?}");
        assert_eq!(replies[3].get("kind"), &Reply::bulk(way.kind));
        assert_eq!(replies[3].get("ttl"), &Reply::Int(-2), "{way:?}: free but waited for");
        assert_eq!(replies[3].get("holders"), &Reply::Array(vec![]));
        assert_eq!(replies[3].get("waiters"), &Reply::Int(1));
        assert_eq!(replies[4], Reply::NullArray, "{way:?}: nor does who held it before");
        assert_eq!(replies[5], Reply::NullArray, "{way:?}: nor with BLOCK");
        b.granted("b");
    });
}

#[test]
fn a_newcomer_finds_the_queue_first_when_a_lease_has_just_ended() {
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
fn a_second_request_for_fewer_holds_is_told_why() {
    let server = quiet().start();
    let mut client = server.client();
    for family in ["RLOCK.ACQUIRE k OWNER", "RWLOCK.ACQUIRE k OWNER WRITE", "SEM.ACQUIRE k OWNER LIMIT 3"] {
        client.run("DEL k");
        client.run(&format!("{} HOLDS 3 PX 60000", family.replace("OWNER", "a")));
        let acquire = family.replace("OWNER", "b");
        let mut three = Waiter::park(&server, &format!("{acquire} HOLDS 3 PX 60000 BLOCK 0"));
        let mut one = Waiter::park(&server, &format!("{acquire} HOLDS 1 PX 60000 BLOCK 0"));
        client.run("DEL k");
        assert_eq!(three.reply().items()[2], Reply::Int(3), "{family}");
        let reply = one.only_reply();
        // An acquire never takes away; nothing of this is about a limit.
        assert!(reply.error().starts_with("ERR ") && reply.error().contains("holds 3"), "{family}: {reply:?}");
    }
}

#[test]
fn a_key_that_becomes_something_else_tells_its_waiters() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let mut waiters = ["b", "c"].map(|owner| wait_for(way, server, "k", owner));
        client.run("SET k v");
        for waiter in &mut waiters {
            assert!(waiter.only_reply().error().starts_with("WRONGTYPE "), "{way:?}");
        }
        client.run("FLUSHALL");
        way.hold(client, "k", "a");
        let mut waiter = wait_for(way, server, "k", "b");
        let other = if way.kind == "rw" { "SEM.ACQUIRE other x LIMIT 2" } else { "RWLOCK.ACQUIRE other x READ" };
        client.run(other);
        client.run("RENAME other k");
        assert!(waiter.only_reply().error().starts_with("WRONGKIND "), "{way:?}");
        assert_nobody_waits(server, &["k"]);
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
        assert_nobody_waits(server, &["k"]);
    });
}

#[test]
fn client_unblock_and_cancel_take_a_waiter_out() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let mut waiters = ["b", "c", "d", "e"].map(|owner| wait_for(way, server, "k", owner));
        client.run(&format!("CLIENT UNBLOCK {}", waiters[0].id));
        assert_eq!(waiters[0].only_reply(), Reply::NullArray, "{way:?}");
        client.run(&format!("CLIENT UNBLOCK {} ERROR", waiters[1].id));
        assert!(waiters[1].only_reply().error().starts_with("UNBLOCKED "), "{way:?}");
        assert_eq!(client.run("LOCK.CANCEL k d"), Reply::Int(1));
        assert_eq!(waiters[2].only_reply(), Reply::Error("UNBLOCKED cancelled".into()), "{way:?}");
        assert_eq!(client.run("LOCK.CANCEL k d"), Reply::Int(0), "{way:?}");
        assert_eq!(client.run("LOCK.CANCEL k a"), Reply::Int(0), "{way:?}: a holder waits for nothing");
        assert_eq!(queue(client, "k"), ["e"]);
        way.give_back(client, "k", "a");
        waiters[3].granted("e");
    });
}

#[test]
fn a_waiter_whose_client_has_gone_is_passed_over() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let b = wait_for(way, server, "k", "b");
        let c = wait_for(way, server, "k", "c");
        let mut d = wait_for(way, server, "k", "d");
        drop(b);
        until_queue(client, "k", &["c", "d"]);
        // c goes in the very moment of its grant.
        multi(client, &[&way.release("k", "a"), &format!("CLIENT KILL ID {}", c.id)]);
        d.granted("d");
        assert_eq!(holders(client, "k"), ["d"], "{way:?}");
    });
}

#[test]
fn a_retry_takes_the_place_over() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let mut older = wait_for(way, server, "k", "b");
        let mut c = wait_for(way, server, "k", "c");
        let mut newer = wait_for(way, server, "k", "b");
        let superseded = Reply::Error("UNBLOCKED superseded by a newer request".into());
        assert_eq!(older.only_reply(), superseded, "{way:?}");
        assert_eq!(queue(client, "k"), ["b", "c"], "{way:?}");
        assert_eq!(client.run("LOCK.WAITERS k").items()[0].get("client"), &Reply::Int(newer.id), "{way:?}");
        way.give_back(client, "k", "a");
        newer.granted("b");
        c.assert_silent();
    });
}

#[test]
fn a_place_is_kept_while_its_request_is_away_and_lost_after_keep_place() {
    each_way(quiet, |way, server, client| {
        client.run("CONFIG SET lock.keep-place 60000");
        way.hold(client, "k", "a");
        let short = format!("{} {LONG} BLOCK 1", way.acquire("k", "b"));
        assert_eq!(client.run(&short), Reply::NullArray);
        let mut c = wait_for(way, server, "k", "c");
        drop(wait_for(way, server, "k", "d"));
        until_queue(client, "k", &["c"]);
        let _e = wait_for(way, server, "k", "e");
        let _d = wait_for(way, server, "k", "d");
        let mut b = wait_for(way, server, "k", "b");
        assert_eq!(queue(client, "k"), ["b", "c", "d", "e"], "{way:?}");
        way.give_back(client, "k", "a");
        b.granted("b");
        c.assert_silent();

        client.run("CONFIG SET lock.keep-place 30");
        assert_eq!(client.run(&format!("{} BLOCK 1", way.acquire("k", "x"))), Reply::NullArray);
        let_pass(Duration::from_millis(100));
        let _y = wait_for(way, server, "k", "y");
        let _x = wait_for(way, server, "k", "x");
        assert_eq!(queue(client, "k"), ["c", "d", "e", "y", "x"], "{way:?}");
    });
}

#[test]
fn who_is_away_is_passed_over_and_counts_as_no_waiter() {
    each_way(quiet, |way, server, client| {
        client.run("CONFIG SET lock.keep-place 60000");
        way.hold(client, "k", "a");
        assert_eq!(client.run(&format!("{} BLOCK 1", way.acquire("k", "b"))), Reply::NullArray);
        assert_eq!(client.run("LOCK.INFO k").get("waiters"), &Reply::Int(0), "{way:?}");
        way.give_back(client, "k", "a");
        assert_eq!(client.run("DBSIZE"), Reply::Int(0), "{way:?}");
        way.hold(client, "k", "z");
        let mut c = wait_for(way, server, "k", "c");
        way.give_back(client, "k", "z");
        c.granted("c");
    });
}

#[test]
fn past_max_waiters_block_is_refused() {
    each_way(quiet, |way, server, client| {
        client.run("CONFIG SET lock.max-waiters 1");
        way.hold(client, "k", "a");
        let mut b = wait_for(way, server, "k", "b");
        for wait in ["BLOCK 0", "BLOCK 9 NOTIFY ch"] {
            let reply = client.run(&format!("{} {wait}", way.acquire("k", "c")));
            assert!(reply.error().starts_with("MAXWAITERS "), "{way:?}: {reply:?}");
        }
        b.assert_silent();
    });
}

#[test]
fn lock_info_and_lock_waiters_tell_of_everybody() {
    each_way(quiet, |way, server, client| {
        let fence = way.hold(client, "k", "a");
        let b = wait_for(way, server, "k", "b");
        client.run(&format!("{} BLOCK 50000 NOTIFY ch", way.acquire("k", "c")));
        let info = client.run("LOCK.INFO k");
        assert_eq!(info.get("kind"), &Reply::bulk(way.kind));
        assert_eq!(info.get("limit"), &Reply::Int(i64::from(way.kind != "rw")), "{way:?}");
        assert_eq!(info.get("fence"), &Reply::Int(fence));
        assert_eq!(info.get("waiters"), &Reply::Int(2));
        assert_eq!(rows(client, "k"), [("a".into(), way.mode.into(), 1)]);
        let waiters = client.run("LOCK.WAITERS k");
        let [first, second] = waiters.items() else { panic!("{waiters:?}") };
        for (waiter, owner, id) in [(first, "b", b.id), (second, "c", client.id())] {
            let names: Vec<&str> = waiter.pairs().iter().map(|(name, _)| name.text()).collect();
            assert_eq!(names, ["owner", "mode", "permits", "client", "addr", "waited", "remaining"]);
            assert_eq!(waiter.get("owner"), &Reply::bulk(owner));
            assert_eq!(waiter.get("mode"), &Reply::bulk(way.mode), "{way:?}");
            assert_eq!(waiter.get("permits"), &Reply::Int(1));
            assert_eq!(waiter.get("client"), &Reply::Int(id), "{way:?}");
        }
        assert_eq!(first.get("remaining"), &Reply::Int(-1));
        assert!((1..=50_000).contains(&second.get("remaining").int()));
    });
}

#[test]
fn a_hundred_holders_and_waiters_are_listed_or_as_many_as_count_says() {
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
            assert_eq!(client.run(&format!("{command} k {wrong}")), Reply::Error("ERR syntax error".into()), "{wrong}");
        }
        for wrong in ["-1", "x", "1.5"] {
            let refused = client.run(&format!("{command} k COUNT {wrong}"));
            assert_eq!(refused, Reply::Error("ERR value is not an integer or out of range".into()), "{wrong}");
        }
    }
}

#[test]
fn during_client_pause_nobody_is_granted_anything() {
    each_way(Server::builder, |way, server, client| {
        way.hold(client, "k", "a");
        let mut b = wait_for(way, server, "k", "b");
        // In one round trip: the lease must not end before the pause.
        client.pipeline(&[&format!("{} PX 100", way.renew("k", "a")), "CLIENT PAUSE 60000 WRITE"]);
        b.assert_silent_for(Duration::from_millis(200));
        assert_eq!(queue(client, "k"), ["b"], "{way:?}");
        client.run("CLIENT UNPAUSE");
        b.granted("b");
    });
}

#[test]
fn whose_server_becomes_a_replica_gets_an_error() {
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
        way.give_back(&mut client, "k", "a");
        let prefix = way.prefix();
        for command in aof(&server) {
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            let is_request = ["acquire", "renew", "release"].iter().any(|verb| name == format!("{prefix}.{verb}"));
            assert!(!is_request, "{name} was logged");
        }
    }
}

#[test]
fn two_thousand_readers_are_granted_together() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE k a WRITE PX 60000").fence();
    let lines: Vec<String> = (0..2000).map(|n| format!("RWLOCK.ACQUIRE k r{n} READ BLOCK 0 NOTIFY ch")).collect();
    assert!(client.pipeline(&lines).iter().all(|reply| reply.items()[1] == Reply::Int(0)));
    assert_eq!(client.run("RWLOCK.RELEASE k a WRITE"), Reply::Int(0));
    until("all of them read", || queue(&mut client, "k").is_empty());
    let owners = holders(&mut client, "k");
    assert!(owners.into_iter().eq((0..2000).map(|n| format!("r{n}"))), "all of them, in the order of the queue");
    assert_nobody_waits(&server, &["k"]);
}

#[test]
fn leases_of_many_holders_end_one_by_one() {
    let server = quiet().start();
    let mut client = server.client();
    // Far more than are walked through, with deadlines in no order.
    let lines: Vec<String> =
        (0..200).map(|n| format!("SEM.ACQUIRE k o{n} LIMIT 200 PX {}", 200 + (n * 37) % 200)).collect();
    let start = Instant::now();
    client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
    let mut large = Waiter::ask(&server, "SEM.ACQUIRE k large LIMIT 200 PERMITS 200 PX 60000 BLOCK 0");
    let reply = large.reply_within(Duration::from_secs(1) + SOON);
    assert_eq!(reply.items()[2], Reply::Int(200));
    assert!(ms_since(start) >= 399, "the last lease ends after 399 ms, not {:?}", start.elapsed());
    assert_eq!(rows(&mut client, "k"), [("large".into(), "permits".into(), 200)]);
}
