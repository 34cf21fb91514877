//! What every family promises alike: waiting in all its forms, sessions, and deadlocks that go from one family into the next.

use crate::support::families::{each_way, held, rows, Way, WAYS};
use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Rng, Server};
use serde_json::{json, Value as Json};
use std::thread;
use std::time::{Duration, Instant};

/// `owner` waits for `key` this way, for ever.
#[track_caller]
fn wait_for(way: Way, server: &Server, key: &str, owner: &str) -> Waiter {
    Waiter::park(server, &format!("{} {LONG} BLOCK 0", way.acquire(key, owner)))
}

mod queueing {
    use super::*;

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
    fn every_removal_serves_the_next() {
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
            let replies = multi(client, &["DEL k k:too", "EXISTS k", &newcomer, "LOCK.INFO k", &way.acquire("k", "a")]);
            assert_eq!(replies[1], Reply::Int(0), "{way:?}");
            assert_eq!(replies[2], Reply::NullArray, "{way:?}");
            assert_eq!(replies[3].get("kind"), &Reply::bulk(way.kind));
            assert_eq!(replies[3].get("ttl"), &Reply::Int(-2), "{way:?}: free but waited for");
            assert_eq!(replies[3].get("waiters"), &Reply::Int(1));
            assert_eq!(replies[4], Reply::NullArray, "{way:?}: nor does who held it before");
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
    fn inside_multi_and_scripts_block_is_ignored() {
        each_way(quiet, |way, server, client| {
            way.hold(client, "k", "a");
            let line = format!("{} BLOCK 0", way.acquire("k", "b"));
            assert_eq!(multi(client, &[&line]), [Reply::NullArray], "{way:?}");
            let script = "return redis.call(unpack(ARGV)) and 'granted' or 'refused'";
            let in_script: Vec<&str> = ["EVAL", script, "0"].into_iter().chain(line.split(' ')).collect();
            assert_eq!(client.cmd(&in_script), Reply::bulk("refused"), "{way:?}");
            for option in [&["SESSION"][..], &["BLOCK", "0", "NOTIFY", "ch"]] {
                let request = way.acquire("free", "b");
                let line: Vec<&str> =
                    ["EVAL", script, "0"].into_iter().chain(request.split(' ')).chain(option.iter().copied()).collect();
                assert!(client.cmd(&line).is_error(), "{way:?} {option:?}");
                assert_eq!(client.run("EXISTS free"), Reply::Int(0));
            }
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
    fn while_the_server_refuses_writes_nobody_is_granted_anything() {
        each_way(Server::builder, |way, server, client| {
            way.hold(client, "k", "a");
            let mut b = wait_for(way, server, "k", "b");
            // In one journey: the lease must not end before the pause.
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
}

mod notify {
    use super::*;

    #[track_caller]
    fn subscribe(server: &Server) -> Client {
        let mut news = server.client();
        assert_eq!(news.run("SUBSCRIBE ch").items()[0], Reply::bulk("subscribe"));
        news
    }

    /// The next message, which must come now.
    #[track_caller]
    fn next(news: &mut Client) -> Json {
        let message = news.read_soon(SOON).expect("a message comes");
        serde_json::from_slice(message.items()[2].bytes()).expect("messages are JSON")
    }

    #[track_caller]
    fn queue_up(way: Way, client: &mut Client, owner: &str, wait: &str) {
        let reply = client.run(&format!("{} {LONG} {wait} NOTIFY ch", way.acquire("k", owner)));
        assert_eq!(reply, way.queued(owner), "{way:?}");
    }

    #[track_caller]
    fn assert_outcome(way: Way, message: &Json, owner: &str, outcome: &str) {
        let said = (&message["key"], &message["token"], &message["outcome"]);
        assert_eq!(said, (&json!("k"), &json!(owner), &json!(outcome)), "{way:?}: {message}");
    }

    #[test]
    fn who_waits_without_blocking_is_told_of_its_grant() {
        each_way(quiet, |way, server, client| {
            let mut news = subscribe(server);
            way.hold(client, "k", "a");
            queue_up(way, client, "b", "BLOCK 0");
            let mut c = wait_for(way, server, "k", "c");
            assert_eq!(queue(client, "k"), ["b", "c"]);
            way.give_back(client, "k", "a");
            let message = next(&mut news);
            assert_outcome(way, &message, "b", "granted");
            let (fence, holds, _) = held(client, "k", "b").expect("it holds");
            assert_eq!((&message["fence"], &message["holds"]), (&json!(fence), &json!(holds)), "{way:?}");
            c.assert_silent();
            way.give_back(client, "k", "b");
            c.granted("c");
        });
    }

    #[test]
    fn a_free_lock_is_granted_in_the_reply() {
        each_way(quiet, |way, _, client| {
            let reply = client.run(&format!("{} BLOCK 0 NOTIFY ch", way.acquire("k", "a")));
            assert!(reply.fence() > 0, "{way:?}");
        });
    }

    #[test]
    fn every_other_outcome_is_told_too() {
        each_way(quiet, |way, server, client| {
            let mut news = subscribe(server);
            way.hold(client, "k", "a");
            queue_up(way, client, "b", "BLOCK 30");
            assert_outcome(way, &next(&mut news), "b", "timeout");
            queue_up(way, client, "c", "BLOCK 0");
            assert_eq!(client.run("LOCK.CANCEL k c"), Reply::Int(1));
            assert_outcome(way, &next(&mut news), "c", "cancelled");
            queue_up(way, client, "d", "BLOCK 0");
            client.run("SET k v");
            assert_outcome(way, &next(&mut news), "d", "wrongtype");
            client.run("FLUSHALL");
            way.hold(client, "k", "a");
            queue_up(way, client, "e", "BLOCK 0");
            client.run(if way.kind == "rw" { "SEM.ACQUIRE other x LIMIT 2" } else { "RWLOCK.ACQUIRE other x READ" });
            client.run("RENAME other k");
            assert_outcome(way, &next(&mut news), "e", "wrongkind");
            assert_nobody_waits(server, &["k"]);
        });
    }

    #[test]
    fn readers_that_are_granted_together_are_all_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = subscribe(&server);
        client.run("RWLOCK.ACQUIRE k a WRITE PX 60000");
        for n in 0..20 {
            let line = format!("RWLOCK.ACQUIRE k r{n} READ HOLDS 2 PX 60000 BLOCK 0 NOTIFY ch");
            assert_eq!(client.run(&line).items()[1], Reply::Int(0));
        }
        client.run("RWLOCK.RELEASE k a WRITE");
        let mut last = 0;
        for n in 0..20 {
            let message = next(&mut news);
            assert_eq!((&message["token"], &message["holds"]), (&json!(format!("r{n}")), &json!(2)));
            let fence = message["fence"].as_i64().expect("a fence");
            assert!(fence > last);
            last = fence;
        }
        assert_eq!(rows(&mut client, "k").len(), 20);
    }

    #[test]
    fn a_request_whose_own_limit_admits_it_is_queued_and_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = subscribe(&server);
        client.run("SEM.ACQUIRE k a LIMIT 1 PX 60000");
        for (owner, limit) in [("b", 1), ("c", 3)] {
            let line = format!("SEM.ACQUIRE k {owner} LIMIT {limit} PX 60000 BLOCK 0 NOTIFY ch");
            assert_eq!(client.run(&line).items()[1], Reply::Int(0));
        }
        for owner in ["b", "c"] {
            let message = next(&mut news);
            assert_eq!((&message["token"], &message["outcome"]), (&json!(owner), &json!("granted")));
        }
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_refusal_by_a_smaller_limit_is_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = subscribe(&server);
        client.run("SEM.ACQUIRE k a LIMIT 4 HOLDS 2 PX 60000");
        client.run("SEM.ACQUIRE k b LIMIT 4 PERMITS 4 BLOCK 0 NOTIFY ch");
        client.run("SEM.ACQUIRE k a LIMIT 3 HOLDS 2 PX 60000");
        let message = next(&mut news);
        assert_eq!((&message["token"], &message["outcome"]), (&json!("b"), &json!("unblocked")));
    }
}

mod sessions {
    use super::*;

    /// A lease that is renewed before it ends even where the machine stands still for a second.
    const BRIEF: &str = "PX 2000";

    /// A key for each of [`WAYS`], all on one server, so that time has to pass only once.
    const KEYS: [&str; WAYS.len()] = ["k0", "k1", "k2", "k3", "k4"];

    fn each_key<T>(mut step: impl FnMut(Way, &str) -> T) -> [T; WAYS.len()] {
        std::array::from_fn(|n| step(WAYS[n], KEYS[n]))
    }

    #[test]
    fn the_lock_is_released_the_moment_the_connection_ends() {
        each_way(quiet, |way, server, client| {
            let mut session = server.client();
            session.run(&format!("{} PX 60000 SESSION", way.acquire("k", "a"))).fence();
            assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("session"), &Reply::Int(session.id()));
            let mut b = wait_for(way, server, "k", "b");
            drop(session);
            b.granted("b");
            assert_eq!(holders(client, "k"), ["b"], "{way:?}");
        });
    }

    #[test]
    fn the_server_renews_it_for_as_long_as_the_connection_lives() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        let fences = each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        let mut waiters = each_key(|way, key| wait_for(way, &server, key, "b"));
        // Time passes for all of them at once.
        until_all_renewed(&mut client, &KEYS);
        until_all_renewed(&mut client, &KEYS);
        waiters.iter_mut().for_each(|b| b.assert_silent());
        let held = each_key(|_, key| held(&mut client, key, "a").map(|held| held.0));
        assert_eq!(held, fences.map(Some));
        drop(session);
        waiters.iter_mut().for_each(|b| assert!(b.granted("b") > 0));
    }

    #[test]
    fn it_is_renewed_too_where_nobody_waits_and_nobody_looks() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        session.run("SEM.ACQUIRE crowd long LIMIT 5 PX 60000").fence();
        session.run("SEM.ACQUIRE crowd unbound LIMIT 5 PX 150").fence();
        session.run(&format!("SEM.ACQUIRE crowd bound LIMIT 5 {BRIEF} SESSION")).fence();
        // More than the lease.
        let_pass(Duration::from_millis(2200));
        each_key(|way, key| assert_eq!(holders(&mut client, key), ["a"], "{way:?}"));
        until_all_renewed(&mut client, &KEYS);
        assert_eq!(holders(&mut client, "crowd"), ["long", "bound"]);
    }

    #[test]
    fn acquiring_again_with_session_moves_it_and_without_leaves_it() {
        each_way(quiet, |way, server, client| {
            let acquire = way.acquire("k", "a").replace("LIMIT 1", "LIMIT 5");
            let (mut old, mut new) = (server.client(), server.client());
            let fence = old.run(&format!("{acquire} PX 60000 SESSION")).fence();
            client.run(&format!("{acquire} PX 60000"));
            let session =
                |client: &mut Client| client.run("LOCK.INFO k").get("holders").items()[0].get("session").int();
            assert_eq!(session(client), old.id(), "{way:?}");
            assert_eq!(new.run(&format!("{acquire} PX 60000 SESSION")).fence(), fence);
            assert_eq!(session(client), new.id(), "{way:?}");
            old.run("LOCK.ACQUIRE last x SESSION");
            drop(old);
            until("the old connection's locks are gone", || client.run("EXISTS last") == Reply::Int(0));
            assert_eq!(holders(client, "k"), ["a"], "{way:?}");
            drop(new);
            until("the lock is free", || client.run("EXISTS k") == Reply::Int(0));
        });
    }

    #[test]
    fn a_waiters_session_begins_with_its_grant() {
        let server = quiet().start();
        let mut client = server.client();
        let sessions = each_key(|way, key| {
            way.hold(&mut client, key, "a");
            let mut b = Waiter::park(&server, &format!("{} {BRIEF} BLOCK 0 SESSION", way.acquire(key, "b")));
            way.give_back(&mut client, key, "a");
            b.granted("b");
            let info = client.cmd(&["LOCK.INFO", key]);
            assert_eq!(info.get("holders").items()[0].get("session"), &Reply::Int(b.id), "{way:?}");
            b
        });
        let mut waiters = each_key(|way, key| wait_for(way, &server, key, "c"));
        // Time passes for all of them at once.
        until_all_renewed(&mut client, &KEYS);
        until_all_renewed(&mut client, &KEYS);
        waiters.iter_mut().for_each(|c| c.assert_silent());
        for (b, c) in sessions.into_iter().zip(&mut waiters) {
            c.assert_silent();
            drop(b);
            c.granted("c");
        }
    }

    #[test]
    fn the_end_of_one_connection_releases_all_its_holds_of_all_families_and_nobody_elses() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        for line in [
            "RWLOCK.ACQUIRE rw a READ HOLDS 3 PX 60000 SESSION",
            "RWLOCK.ACQUIRE written a WRITE HOLDS 2 PX 60000 SESSION",
            "RWLOCK.ACQUIRE written a READ PX 60000",
            "SEM.ACQUIRE sem a LIMIT 6 PERMITS 3 PX 60000 SESSION",
            "SEM.ACQUIRE sem a2 LIMIT 6 PX 60000 SESSION",
            "MLOCK.ACQUIRE 3 x y z a PX 60000 SESSION",
            "RLOCK.ACQUIRE nested a HOLDS 2 PX 60000 SESSION",
        ] {
            session.run(line).fence();
        }
        client.run("RWLOCK.ACQUIRE rw other READ PX 60000").fence();
        client.run("SEM.ACQUIRE sem other LIMIT 6 PERMITS 2 PX 60000").fence();
        let mut writer = Waiter::park(&server, "RWLOCK.ACQUIRE rw w WRITE PX 60000 BLOCK 0");
        let mut reader = Waiter::park(&server, "RWLOCK.ACQUIRE written r READ PX 60000 BLOCK 0");
        let mut permits = Waiter::park(&server, "SEM.ACQUIRE sem next LIMIT 6 PERMITS 4 PX 60000 BLOCK 0");
        let mut several = Waiter::park(&server, "MLOCK.ACQUIRE 2 z x next PX 60000 BLOCK 0");
        drop(session);
        reader.granted("r");
        permits.granted("next");
        several.granted("next");
        writer.assert_silent();
        until("y and nested are free", || client.run("EXISTS y nested") == Reply::Int(0));
        assert_eq!(rows(&mut client, "rw"), [("other".into(), "read".into(), 1)]);
        assert_eq!(rows(&mut client, "sem").len(), 2);
        client.run("RWLOCK.RELEASE rw other READ");
        writer.granted("w");
    }

    #[test]
    fn two_readers_of_two_connections_end_each_for_itself() {
        let server = quiet().start();
        let mut client = server.client();
        let (mut one, mut two) = (server.client(), server.client());
        one.run("RWLOCK.ACQUIRE k a READ PX 60000 SESSION");
        two.run("RWLOCK.ACQUIRE k b READ PX 60000 SESSION");
        let mut w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
        drop(one);
        until("a has gone", || holders(&mut client, "k") == ["b"]);
        w.assert_silent();
        drop(two);
        w.granted("w");
    }

    #[test]
    fn the_only_reader_left_by_a_connections_end_upgrades() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("RWLOCK.ACQUIRE k gone READ PX 60000 SESSION");
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        let mut a = Waiter::park(&server, "RWLOCK.ACQUIRE k a WRITE PX 60000 BLOCK 0");
        drop(session);
        a.granted("a");
        assert_eq!(rows(&mut client, "k"), [("a".into(), "write".into(), 1), ("a".into(), "read".into(), 1)]);
    }

    #[test]
    fn the_binding_is_never_stored() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        each_key(|way, key| session.run(&format!("{} {BRIEF} SESSION", way.acquire(key, "a"))).fence());
        assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
        each_key(|way, key| {
            let info = client.cmd(&["LOCK.INFO", key]);
            assert_eq!(info.get("holders").items()[0].get("session"), &Reply::Int(0), "{way:?}");
        });
        each_key(|way, key| {
            until(&format!("it ends with its lease: {way:?}"), || client.cmd(&["LOCK.HELD", key, "a"]).is_nil());
        });
        // Still there: its end is not what ended the locks.
        assert_eq!(session.run("PING"), Reply::Status("PONG".into()));
    }
}

mod deadlocks {
    use super::*;

    #[track_caller]
    fn assert_deadlock(client: &mut Client, line: &str, owners: &[&str]) {
        let reply = client.run(line);
        let error = reply.error();
        assert!(error.starts_with("DEADLOCK "), "{line}: {error}");
        for owner in owners {
            assert!(error.contains(&format!("'{owner}'")), "{owner} is part of the circle: {error}");
        }
    }

    #[test]
    fn a_circle_over_any_two_families_is_refused_and_disturbs_nobody() {
        let server = quiet().start();
        let mut client = server.client();
        for one in WAYS {
            for other in WAYS {
                one.hold(&mut client, "x", "alice");
                other.hold(&mut client, "y", "bob");
                let mut alice = wait_for(other, &server, "y", "alice");
                assert_deadlock(&mut client, &format!("{} BLOCK 0", one.acquire("x", "bob")), &["alice", "bob"]);
                assert!(client.run(&one.acquire("x", "bob")).is_nil(), "without BLOCK it is only a refusal");
                assert_eq!(queue(&mut client, "x"), [""; 0], "it was not queued: {one:?}, {other:?}");
                alice.assert_silent();
                assert_eq!(
                    (holders(&mut client, "x"), holders(&mut client, "y")),
                    (vec!["alice".into()], vec!["bob".into()])
                );
                other.give_back(&mut client, "y", "bob");
                alice.granted("alice");
                client.run("FLUSHALL");
            }
        }
    }

    #[test]
    fn a_circle_through_all_families_is_found_and_named() {
        let server = quiet().start();
        let mut client = server.client();
        let owners = ["alice", "bob", "carol", "dora", "eve"];
        for (n, way) in WAYS.iter().enumerate() {
            way.hold(&mut client, &format!("k{n}"), owners[n]);
        }
        let _waiters: Vec<Waiter> =
            (0..4).map(|n| wait_for(WAYS[n + 1], &server, &format!("k{}", n + 1), owners[n])).collect();
        assert_deadlock(&mut client, &format!("{} BLOCK 0", WAYS[0].acquire("k0", "eve")), &owners);
    }

    #[test]
    fn a_reader_that_waits_for_a_mutex_whose_owner_waits_for_the_write_lock() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k reader READ PX 60000");
        client.run("RWLOCK.ACQUIRE k other READ PX 60000");
        hold(&mut client, "m", "owner");
        let mut writer = Waiter::park(&server, "RWLOCK.ACQUIRE k owner WRITE PX 60000 BLOCK 0");
        assert_deadlock(&mut client, "LOCK.ACQUIRE m reader BLOCK 0", &["reader", "owner"]);
        // The other way round.
        assert_eq!(client.run("LOCK.CANCEL k owner"), Reply::Int(1));
        writer.reply();
        let [mut reader] = line_up(&server, "m", ["reader"]);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k owner WRITE BLOCK 0", &["reader", "owner"]);
        reader.assert_silent();
        client.run("LOCK.RELEASE m owner");
        reader.granted("reader");
    }

    #[test]
    fn a_reader_waits_for_the_writer_ahead_of_it() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        hold(&mut client, "m", "late");
        let _w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
        let mut late = Waiter::park(&server, "RWLOCK.ACQUIRE k late READ PX 60000 BLOCK 0");
        // late waits behind w, and w for a.
        assert_deadlock(&mut client, "LOCK.ACQUIRE m a BLOCK 0", &["a", "w", "late"]);
        late.assert_silent();
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        let server = quiet().start();
        let mut client = server.client();
        // r1 is ahead of r2 on k, and waits for it on m: they will read together.
        client.run("RWLOCK.ACQUIRE k writer WRITE PX 60000");
        hold(&mut client, "m", "r2");
        let mut r1 = Waiter::park(&server, "RWLOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0");
        let mut r2 = Waiter::park(&server, "RWLOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0");
        let [mut again] = line_up(&server, "m", ["r1"]);
        client.run("RWLOCK.RELEASE k writer WRITE");
        r1.granted("r1");
        r2.granted("r2");
        client.run("LOCK.RELEASE m r2");
        again.granted("r1");
    }

    #[test]
    fn a_reader_does_not_wait_for_the_readers_that_hold_it() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        hold(&mut client, "m", "b");
        let [_a] = line_up(&server, "m", ["a"]);
        assert!(client.run("RWLOCK.ACQUIRE k b READ PX 60000 BLOCK 0").fence() > 0);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k b WRITE BLOCK 0", &["a", "b"]);
    }

    #[test]
    fn any_of_the_readers_in_its_way_closes_a_writers_circle() {
        let server = quiet().start();
        let mut client = server.client();
        for n in 0..50 {
            client.run(&format!("RWLOCK.ACQUIRE k r{n} READ PX 60000"));
        }
        hold(&mut client, "m", "w");
        let [_waits] = line_up(&server, "m", ["r37"]);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k w WRITE BLOCK 0", &["w", "r37"]);
    }

    #[test]
    fn a_request_for_several_waits_for_the_holders_of_all_its_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "b");
        client.run("SEM.ACQUIRE s c LIMIT 1 PX 60000");
        let _b = Waiter::park(&server, "SEM.ACQUIRE s b LIMIT 1 PX 60000 BLOCK 0");
        assert_deadlock(&mut client, "MLOCK.ACQUIRE 3 free x y c BLOCK 0", &["b", "c"]);
        let mut d = Waiter::park(&server, "MLOCK.ACQUIRE 3 free x y d PX 60000 BLOCK 0");
        d.assert_silent();
    }

    #[test]
    fn one_free_way_is_enough_for_a_semaphore() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE s a LIMIT 2 PX 60000");
        client.run("SEM.ACQUIRE s free LIMIT 2 PX 60000");
        client.run("RWLOCK.ACQUIRE k b WRITE PX 60000");
        let mut a = Waiter::park(&server, "RWLOCK.ACQUIRE k a READ PX 60000 BLOCK 0");
        let mut b = Waiter::park(&server, "SEM.ACQUIRE s b LIMIT 2 PX 60000 BLOCK 0");
        client.run("SEM.RELEASE s free");
        b.granted("b");
        client.run("RWLOCK.RELEASE k b WRITE");
        a.granted("a");
    }

    #[test]
    fn who_has_left_or_ended_closes_no_circle() {
        each_way(quiet, |way, server, client| {
            way.hold(client, "x", "alice");
            hold(client, "m", "bob");
            assert_eq!(client.run("LOCK.ACQUIRE m alice BLOCK 1"), Reply::NullArray);
            let mut bob = wait_for(way, server, "x", "bob");
            way.give_back(client, "x", "alice");
            bob.granted("bob");
        });
    }
}

mod together {
    use super::*;

    const CLIENTS: usize = 12;
    const ROUNDS: usize = 800;

    /// Twelve clients take locks of all families at random and count themselves in and out, in the server, where all can see it.
    /// A failure names the seed; `LOCK_TEST_SEED` repeats it as far as the order of arrival allows.
    #[test]
    fn at_random_nobody_is_where_it_must_not_be() {
        let server = Server::start();
        let port = server.port();
        let seed = Rng::new(1121).seed();
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|number| scope.spawn(move || visit_at_random(port, seed, number))).collect();
            for client in clients {
                client.join().unwrap_or_else(|_| panic!("seed {seed}"));
            }
        });
        let mut client = server.client();
        for counter in ["readers", "writers", "permits", "x", "y", "z"] {
            assert_eq!(client.run(&format!("GET in:{counter}")), Reply::bulk("0"), "{counter}");
        }
        assert_nobody_waits(&server, &["rw", "sem", "x", "y", "z"]);
        assert_eq!(client.run("EXISTS rw sem x y z"), Reply::Int(0), "everything was given back");
    }

    fn visit_at_random(port: u16, seed: u64, number: usize) {
        let mut client = Client::connect(port);
        let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64));
        for _ in 0..ROUNDS {
            match rng.below(5) {
                0 | 1 => read(&mut client, number),
                2 => write(&mut client, number),
                3 => take_permits(&mut client, &mut rng, number),
                _ => take_mutexes(&mut client, &mut rng, number),
            }
        }
    }

    /// Requests, releases, cancellations, removals and leases that end, at random: whoever waits, waits for somebody.
    /// A failure names the seed; `LOCK_TEST_SEED` repeats it as far as time allows.
    #[test]
    fn at_random_no_waiter_is_left_behind_a_lock_that_would_admit_it() {
        let server = quiet().start();
        let mut client = server.client();
        let mut rng = Rng::new(411);
        let seed = rng.seed();
        client.run("CONFIG SET lock.keep-place 20");
        let mut waited = 0;
        for round in 0..150 {
            let lines: Vec<String> = (0..40).map(|_| random_line(&mut rng)).collect();
            client.pipeline(&lines);
            let mut watch = client.stopwatch();
            while let Some(who) = left_behind(&mut client) {
                assert!(watch.elapsed() < SOON, "{who}, round {round}, seed {seed}: {lines:#?}");
            }
            waited += queue(&mut client, "rw").len() + queue(&mut client, "sem").len() + queue(&mut client, "x").len();
        }
        assert!(waited > 150, "somebody waited: {waited}");
    }

    fn random_line(rng: &mut Rng) -> String {
        let owner = rng.below(6);
        let lease = *rng.pick(&["PX 15", "PX 40", "PX 60000", "PX 60000", "PX 60000"]);
        let wait = *rng.pick(&["BLOCK 0 NOTIFY ch", "BLOCK 0 NOTIFY ch", "BLOCK 10 NOTIFY ch", ""]);
        let mode = *rng.pick(&["READ", "READ", "WRITE"]);
        let permits = 1 + rng.below(4);
        match rng.below(24) {
            0..=3 => format!("RWLOCK.ACQUIRE rw o{owner} {mode} {lease} {wait}"),
            4..=6 => format!("RWLOCK.RELEASE rw o{owner} {mode}"),
            7..=9 => format!("SEM.ACQUIRE sem o{owner} LIMIT {} PERMITS {permits} {lease} {wait}", 4 + rng.below(3)),
            10 | 11 => format!("SEM.RELEASE sem o{owner} HOLDS {}", rng.below(2)),
            // Those who want both have names of their own, by which they are known in the queue.
            12..=14 => format!("MLOCK.ACQUIRE 2 x y both{owner} {lease} {wait}"),
            15 => format!("LOCK.ACQUIRE x o{owner} {lease} {wait}"),
            16 => format!("LOCK.ACQUIRE y o{owner} {lease} {wait}"),
            17 | 18 => format!("MLOCK.RELEASE 2 x y {}{owner}", rng.pick(&["o", "both"])),
            19 => format!("LOCK.RELEASE {} both{owner}", rng.pick(&["x", "y"])),
            20 => format!("LOCK.CANCEL {} o{owner}", rng.pick(&["rw", "sem", "x", "y"])),
            21 => format!("LOCK.CANCEL x both{owner}"),
            22 => format!("PEXPIRE {} {}", rng.pick(&["rw", "sem", "x", "y"]), rng.pick(&[1, 20, 90_000])),
            _ => format!("DEL {}", rng.pick(&["rw", "sem", "x", "y"])),
        }
    }

    /// Who waits at the head of a queue though the lock would admit it.
    fn left_behind(client: &mut Client) -> Option<String> {
        let keys = ["rw", "sem", "x", "y"];
        let lines: Vec<String> =
            keys.iter().flat_map(|key| [format!("LOCK.INFO {key}"), format!("LOCK.WAITERS {key}")]).collect();
        let replies = multi(client, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        let [rw, sem, x, y] = [0, 2, 4, 6].map(|at| Seen::of(&replies[at], &replies[at + 1]));
        let both_are_free = x.holders.is_empty() && y.holders.is_empty();
        let alone_in_front = |seen: &Seen| seen.head.as_ref().is_some_and(|(owner, ..)| !owner.starts_with("both"));
        let is_admissible = [
            rw.head.as_ref().is_some_and(|(owner, mode, _)| match mode.as_str() {
                "read" => !rw.holders.iter().any(|(other, mode, _)| mode == "write" && other != owner),
                _ => rw.holders.iter().all(|(other, ..)| other == owner),
            }),
            sem.head.as_ref().is_some_and(|(_, _, permits)| sem.out() + permits <= sem.limit),
            x.holders.is_empty() && alone_in_front(&x) || both_are_free && x.head.is_some() && x.head == y.head,
            y.holders.is_empty() && alone_in_front(&y),
        ];
        let at = is_admissible.iter().position(|is_admissible| *is_admissible)?;
        Some(format!("left behind on {}: {:?} {:?}", keys[at], replies[2 * at], replies[2 * at + 1]))
    }

    /// What a lock looks like from outside.
    struct Seen {
        limit: i64,
        /// Owner, mode and holds of each.
        holders: Vec<(String, String, i64)>,
        /// Owner, mode and permits of the first in the queue.
        head: Option<(String, String, i64)>,
    }

    impl Seen {
        fn of(info: &Reply, waiters: &Reply) -> Seen {
            let row = |row: &Reply, count: &str| {
                (row.get("owner").text().to_string(), row.get("mode").text().to_string(), row.get(count).int())
            };
            let (limit, holders) = match info.is_nil() {
                true => (0, Vec::new()),
                false => (
                    info.get("limit").int(),
                    info.get("holders").items().iter().map(|held| row(held, "holds")).collect(),
                ),
            };
            Seen { limit, holders, head: waiters.items().first().map(|waiter| row(waiter, "permits")) }
        }

        fn out(&self) -> i64 {
            self.holders.iter().map(|(_, _, permits)| permits).sum()
        }
    }

    /// Sometimes it asks to write as well, which others may forbid.
    fn read(client: &mut Client, number: usize) {
        assert!(client.run(&format!("RWLOCK.ACQUIRE rw o{number} READ PX 60000 BLOCK 20000")).fence() > 0);
        let inside = client.pipeline(&["INCR in:readers", "GET in:writers"]);
        assert!(matches!(inside[1], Reply::NullBulk) || inside[1] == Reply::bulk("0"), "a reader beside a writer");
        let upgrade = client.run(&format!("RWLOCK.ACQUIRE rw o{number} WRITE PX 60000 BLOCK 3"));
        if let Reply::Array(_) = upgrade {
            assert_eq!(client.pipeline(&["INCR in:writers", "GET in:readers", "DECR in:writers"])[1], Reply::bulk("1"));
            assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} WRITE")), Reply::Int(0));
        } else {
            assert!(upgrade.is_nil() || upgrade.error().starts_with("DEADLOCK "), "{upgrade:?}");
        }
        client.run("DECR in:readers");
        assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} READ")), Reply::Int(0));
    }

    fn write(client: &mut Client, number: usize) {
        assert!(client.run(&format!("RWLOCK.ACQUIRE rw o{number} WRITE PX 60000 BLOCK 20000")).fence() > 0);
        let inside = client.pipeline(&["INCR in:writers", "GET in:readers"]);
        assert_eq!(inside[0], Reply::Int(1), "two writers");
        assert!(matches!(inside[1], Reply::NullBulk) || inside[1] == Reply::bulk("0"), "a writer beside readers");
        client.run("DECR in:writers");
        assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} WRITE")), Reply::Int(0));
    }

    fn take_permits(client: &mut Client, rng: &mut Rng, number: usize) {
        let permits = 1 + rng.below(5);
        let line = format!("SEM.ACQUIRE sem o{number} LIMIT 5 PERMITS {permits} PX 60000 BLOCK 20000");
        assert_eq!(client.run(&line).items()[2].int(), permits as i64);
        assert!(client.run(&format!("INCRBY in:permits {permits}")).int() <= 5, "more permits than the limit");
        client.run(&format!("DECRBY in:permits {permits}"));
        assert_eq!(client.run(&format!("SEM.RELEASE sem o{number} HOLDS 0")), Reply::Int(0));
    }

    /// Two of three at once, or one alone.
    fn take_mutexes(client: &mut Client, rng: &mut Rng, number: usize) {
        let names = *rng.pick(&["x y", "y z", "z x", "y"]);
        let keys: Vec<&str> = names.split(' ').collect();
        let line = format!("MLOCK.ACQUIRE {} {names} o{number} PX 60000 BLOCK 20000", keys.len());
        assert!(client.run(&line).fence() > 0);
        for key in &keys {
            assert_eq!(client.run(&format!("INCR in:{key}")), Reply::Int(1), "two hold {key}");
        }
        for key in &keys {
            client.run(&format!("DECR in:{key}"));
        }
        let released = client.run(&format!("MLOCK.RELEASE {} {names} o{number}", keys.len()));
        assert_eq!(released, Reply::Int(keys.len() as i64));
    }
}
