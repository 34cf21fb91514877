//! What MLOCK.ACQUIRE, MLOCK.RELEASE and MLOCK.RENEW promise: several mutexes, all or nothing, one fence, in turn on each of them.

use crate::support::families::{held, left};
use crate::support::waiting::*;
use crate::support::{assert_just_began, each_protocol, until, Client, Reply, Rng, Server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "ERR syntax error";

/// `keys_and_owner` are held for a long time; returns the fence.
#[track_caller]
fn take(client: &mut Client, keys_and_owner: &str) -> i64 {
    client.run(&format!("MLOCK.ACQUIRE {} {LONG}", counted(keys_and_owner))).fence()
}

/// A request for several keys waits.
#[track_caller]
fn wait_for(server: &Server, keys_and_owner: &str) -> Waiter {
    Waiter::park(server, &format!("MLOCK.ACQUIRE {} {LONG} BLOCK 0", counted(keys_and_owner)))
}

#[track_caller]
fn release(client: &mut Client, keys_and_owner: &str, released: i64) {
    let line = format!("MLOCK.RELEASE {}", counted(keys_and_owner));
    assert_eq!(client.run(&line), Reply::Int(released), "{line}");
}

/// Puts numkeys in front.
fn counted(keys_and_owner: &str) -> String {
    format!("{} {keys_and_owner}", keys_and_owner.split(' ').count() - 1)
}

/// Asserts who holds each of the keys; an empty name: nobody.
#[track_caller]
fn assert_held(client: &mut Client, by_key: &[(&str, &str)]) {
    for (key, owner) in by_key {
        let owners: Vec<&str> = if owner.is_empty() { vec![] } else { vec![owner] };
        assert_eq!(holders(client, key), owners, "{key}");
    }
}

mod replies {
    use super::*;

    #[test]
    fn an_acquire_answers_the_token_and_one_fence_for_all() {
        each_protocol(|client| {
            let grant = client.run("MLOCK.ACQUIRE 3 x y z a");
            let fence = grant.fence();
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence)]));
            for key in ["x", "y", "z"] {
                let info = client.cmd(&["LOCK.INFO", key]);
                assert_eq!((info.get("kind"), info.get("fence")), (&Reply::bulk("mutex"), &Reply::Int(fence)), "{key}");
                assert_eq!(held(client, key, "a").map(|held| (held.0, held.1)), Some((fence, 1)));
                assert_just_began(client.pttl(key), 30_000);
            }
            release(client, "x y z a", 3);
            assert!(client.run("MLOCK.ACQUIRE 1 x b").fence() > fence);
        });
    }

    #[test]
    fn a_refusal_is_nil_in_both_protocols_and_takes_nothing() {
        let server = Server::start();
        let (mut client, mut resp3) = (server.client(), server.client3());
        hold(&mut client, "y", "other");
        for line in ["MLOCK.ACQUIRE 3 x y z a", "MLOCK.ACQUIRE 2 y x *", "MLOCK.ACQUIRE 2 x y a BLOCK 1"] {
            assert_eq!(client.run(line), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(line), Reply::Null, "{line}");
            assert_eq!(client.run("DBSIZE"), Reply::Int(1), "{line}");
        }
        assert_held(&mut client, &[("y", "other")]);
    }

    #[test]
    fn a_release_answers_how_many_were_released() {
        each_protocol(|client| {
            take(client, "w x y z a");
            hold(client, "other", "b");
            release(client, "w x free other a", 2);
            assert_held(client, &[("w", ""), ("x", ""), ("y", "a"), ("z", "a"), ("other", "b")]);
            release(client, "w x y z a", 2);
            release(client, "w x y z a", 0);
            release(client, "other a", 0);
            assert_held(client, &[("other", "b")]);
        });
    }

    #[test]
    fn a_renewal_renews_all_of_them_or_none() {
        each_protocol(|client| {
            take(client, "x y a");
            hold(client, "other", "b");
            assert_eq!(client.run("MLOCK.RENEW 2 x y a PX 200000"), Reply::Int(1));
            for key in ["x", "y"] {
                assert_just_began(client.pttl(key), 200_000);
            }
            let before: Vec<_> = ["x", "y", "other"].map(|key| client.stored(key)).into();
            for line in [
                "MLOCK.RENEW 3 x y free a PX 500000",
                "MLOCK.RENEW 3 x y other a PX 500000",
                "MLOCK.RENEW 2 x y b PX 500000",
                "MLOCK.RENEW 1 free a",
            ] {
                assert_eq!(client.run(line), Reply::Int(0), "{line}");
            }
            let after: Vec<_> = ["x", "y", "other"].map(|key| client.stored(key)).into();
            assert_eq!(after, before, "none was changed");
            assert_eq!(client.run("MLOCK.RENEW 1 y a PERSIST"), Reply::Int(1));
            assert_eq!(client.pttl("y"), -1);
        });
    }

    #[test]
    fn a_star_makes_one_owner_for_all() {
        each_protocol(|client| {
            let grant = client.run("MLOCK.ACQUIRE 2 x y *");
            let owner = grant.items()[0].text().to_string();
            assert_eq!(owner.len(), 36);
            assert_held(client, &[("x", &owner), ("y", &owner)]);
        });
    }

    #[test]
    fn names_are_case_insensitive_and_options_come_in_any_order() {
        each_protocol(|client| {
            assert!(client.run("mlock.Acquire 2 x y a block 5 pX 60000").fence() > 0);
            assert_eq!(client.run("Mlock.Renew 2 x y a eX 60"), Reply::Int(1));
            assert_eq!(client.run("mlock.RELEASE 2 x y a"), Reply::Int(2));
        });
    }

    #[test]
    fn it_takes_1_to_128_keys() {
        each_protocol(|client| {
            let keys: Vec<String> = (0..129).map(|n| format!("k{n}")).collect();
            let most = keys[..128].join(" ");
            let fence = client.run(&format!("MLOCK.ACQUIRE 128 {most} a")).fence();
            assert_eq!(client.run("DBSIZE"), Reply::Int(128));
            assert_eq!(held(client, "k127", "a").map(|held| held.0), Some(fence));
            assert_eq!(client.run(&format!("MLOCK.RENEW 128 {most} a")), Reply::Int(1));
            assert_eq!(client.run(&format!("MLOCK.RELEASE 128 {most} a")), Reply::Int(128));
            assert!(client.run(&format!("MLOCK.ACQUIRE 129 {} a", keys.join(" "))).is_error());
            assert_eq!(client.run("DBSIZE"), Reply::Int(0));
        });
    }

    #[test]
    fn its_keys_are_declared() {
        let server = Server::start();
        let mut client = server.client();
        for line in
            ["MLOCK.ACQUIRE 2 x y a PX 5000 BLOCK 0 NOTIFY ch", "MLOCK.RELEASE 2 x y a", "MLOCK.RENEW 2 x y a PX 5000"]
        {
            let keys = client.run(&format!("COMMAND GETKEYS {line}"));
            assert_eq!(keys, Reply::Array(vec![Reply::bulk("x"), Reply::bulk("y")]), "{line}");
        }
        client.run("ACL SETUSER limited on nopass +@all ~x ~y*");
        client.run("AUTH limited any");
        assert!(client.run("MLOCK.ACQUIRE 2 x y1 a").fence() > 0);
        assert!(client.run("MLOCK.ACQUIRE 3 x y1 z a").error().starts_with("NOPERM "));
    }

    #[test]
    fn in_a_cluster_all_keys_share_one_slot() {
        let server = Server::builder().cluster().start();
        let mut client = server.client();
        client.run("CLUSTER ADDSLOTSRANGE 0 16383");
        until("the cluster is up", || client.run("CLUSTER INFO").text().contains("cluster_state:ok"));
        assert!(client.run("MLOCK.ACQUIRE 2 {t}x {t}y a").fence() > 0);
        assert!(client.run("MLOCK.ACQUIRE 2 x y a").error().starts_with("CROSSSLOT "));
        assert_eq!(client.run("MLOCK.RELEASE 2 {t}x {t}y a"), Reply::Int(2));
    }
}

mod errors {
    use super::*;

    #[test]
    fn they_change_nothing() {
        each_protocol(|client| {
            take(client, "held a");
            let before = client.stored("held");
            let cases = [
                ("MLOCK.ACQUIRE 1 x", "ERR wrong number of arguments for 'mlock.acquire' command"),
                ("MLOCK.RELEASE 1 x", "ERR wrong number of arguments for 'mlock.release' command"),
                ("MLOCK.RENEW 1 x", "ERR wrong number of arguments for 'mlock.renew' command"),
                ("MLOCK.ACQUIRE 2 x y a HOLDS 1", SYNTAX),
                ("MLOCK.ACQUIRE 1 x y a", SYNTAX),
                ("MLOCK.ACQUIRE 2 x y a PERSIST SESSION", SYNTAX),
                ("MLOCK.ACQUIRE 2 x y a NOTIFY ch", SYNTAX),
                ("MLOCK.ACQUIRE 2 x y a PX 0", "ERR invalid expire time in 'mlock.acquire' command"),
                ("MLOCK.RENEW 2 held y a PX 0", "ERR invalid expire time in 'mlock.renew' command"),
                ("MLOCK.ACQUIRE 2 x y a BLOCK -1", "ERR timeout is negative"),
                ("MLOCK.RELEASE 1 held a PX 5000", SYNTAX),
            ];
            for (line, error) in cases {
                assert_eq!(client.run(line), Reply::Error(error.into()), "{line}");
            }
            for line in [
                "MLOCK.ACQUIRE 0 x a",
                "MLOCK.ACQUIRE -1 x a",
                "MLOCK.ACQUIRE x y a",
                "MLOCK.ACQUIRE 129 x y a",
                "MLOCK.ACQUIRE 2 x a",
                "MLOCK.ACQUIRE 3 x y a",
                "MLOCK.ACQUIRE 9223372036854775807 x y a",
                "MLOCK.RELEASE 0 held a",
                "MLOCK.RENEW 5 held a",
            ] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
            }
            assert_eq!(client.stored("held"), before);
            assert_eq!(client.run("DBSIZE"), Reply::Int(1));
        });
    }

    #[test]
    fn a_key_named_twice_is_one() {
        each_protocol(|client| {
            for line in ["MLOCK.ACQUIRE 2 x x a", "MLOCK.ACQUIRE 3 x y x a", "MLOCK.ACQUIRE 2 x x a BLOCK 0"] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
            }
            assert_eq!(client.run("DBSIZE"), Reply::Int(0));
            take(client, "x y a");
            for line in ["MLOCK.RELEASE 2 x x a", "MLOCK.RENEW 3 x y y a PX 5000"] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
            }
            assert_held(client, &[("x", "a"), ("y", "a")]);
        });
    }

    #[test]
    fn a_key_of_another_type_or_family_is_one_wherever_it_stands() {
        each_protocol(|client| {
            take(client, "mine a");
            client.run("SET string v");
            client.run("RLOCK.ACQUIRE nested a PX 60000");
            client.run("RWLOCK.ACQUIRE rw a READ PX 60000");
            client.run("SEM.ACQUIRE permits a LIMIT 5 PX 60000");
            let all = ["mine", "string", "nested", "rw", "permits"];
            let before: Vec<_> = all.map(|key| client.stored(key)).into();
            for wrong in &all[1..] {
                let error = if *wrong == "string" { WRONGTYPE } else { "WRONGKIND " };
                for keys in [format!("{wrong} free mine"), format!("free {wrong} mine"), format!("mine free {wrong}")] {
                    for line in [
                        format!("MLOCK.ACQUIRE 3 {keys} a PX 90000"),
                        format!("MLOCK.ACQUIRE 3 {keys} a BLOCK 0"),
                        format!("MLOCK.RELEASE 3 {keys} a"),
                        format!("MLOCK.RENEW 3 {keys} a PX 90000"),
                    ] {
                        let reply = client.run(&line);
                        assert!(reply.error().starts_with(error), "{line}: {reply:?}");
                    }
                }
            }
            let after: Vec<_> = all.map(|key| client.stored(key)).into();
            assert_eq!(after, before);
            assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        });
    }

    #[test]
    fn a_key_of_another_type_is_one_even_where_others_are_held() {
        each_protocol(|client| {
            client.run("SET string v");
            hold(client, "x", "other");
            for keys in ["x string", "string x"] {
                assert_eq!(client.run(&format!("MLOCK.ACQUIRE 2 {keys} a BLOCK 0")), Reply::Error(WRONGTYPE.into()));
            }
        });
    }
}

mod grants {
    use super::*;

    #[test]
    fn what_the_token_held_before_gets_the_fence_of_the_rest() {
        each_protocol(|client| {
            let before = hold(client, "x", "a");
            let fence = take(client, "x y a");
            assert!(fence > before, "an addition is a new grant");
            for key in ["x", "y"] {
                assert_eq!(held(client, key, "a").map(|held| held.0), Some(fence), "{key}");
            }
            let wider = take(client, "z y x a");
            assert!(wider > fence);
            for key in ["x", "y", "z"] {
                assert_eq!(client.cmd(&["LOCK.INFO", key]).get("fence"), &Reply::Int(wider), "{key}");
            }
        });
    }

    #[test]
    fn what_was_taken_one_by_one_gets_one_fence() {
        each_protocol(|client| {
            hold(client, "x", "a");
            let last = hold(client, "y", "a");
            let fence = take(client, "x y a");
            for key in ["x", "y"] {
                assert_eq!(held(client, key, "a").map(|held| held.0), Some(fence), "{key}");
            }
            assert!(fence >= last);
        });
    }

    #[test]
    fn asking_again_is_a_safe_retry() {
        each_protocol(|client| {
            let first = client.run("MLOCK.ACQUIRE 2 x y a PX 60000");
            assert_eq!(client.run("MLOCK.ACQUIRE 2 x y a PX 60000"), first);
            assert_eq!(client.run("MLOCK.ACQUIRE 2 y x a PX 1000"), first, "in any order");
            for key in ["x", "y"] {
                assert!(client.pttl(key) > 30_000, "a retry shortens nothing");
            }
            assert_eq!(client.run("MLOCK.ACQUIRE 2 x y a PX 200000"), first);
            for key in ["x", "y"] {
                assert_just_began(client.pttl(key), 200_000);
            }
            release(client, "x y a", 2);
            assert_eq!(client.run("DBSIZE"), Reply::Int(0), "one release frees them");
        });
    }

    #[test]
    fn a_retry_of_a_part_keeps_the_fence() {
        each_protocol(|client| {
            let fence = take(client, "x y z a");
            assert_eq!(take(client, "x y a"), fence);
            assert_eq!(hold(client, "z", "a"), fence, "the locks are ordinary mutexes");
        });
    }

    #[test]
    fn the_deadline_becomes_the_later_one_on_each_key() {
        each_protocol(|client| {
            client.run("LOCK.ACQUIRE x a PX 200000");
            client.run("LOCK.ACQUIRE y a PX 5000");
            client.run("MLOCK.ACQUIRE 3 x y z a PX 60000").fence();
            assert_just_began(left(client, "x", "a"), 200_000);
            assert_just_began(left(client, "y", "a"), 60_000);
            assert_just_began(left(client, "z", "a"), 60_000);
        });
    }

    #[test]
    fn lock_release_frees_one_of_them() {
        each_protocol(|client| {
            let fence = take(client, "x y z a");
            assert_eq!(client.run("LOCK.RELEASE y a"), Reply::Int(1));
            assert_held(client, &[("x", "a"), ("y", ""), ("z", "a")]);
            assert!(hold(client, "y", "b") > fence);
            assert!(client.run("MLOCK.ACQUIRE 3 x y z a").is_nil());
            assert_eq!(held(client, "x", "a").map(|held| held.0), Some(fence), "nothing was changed");
            assert_eq!(client.run("MLOCK.RENEW 3 x y z a"), Reply::Int(0));
            assert_eq!(client.run("LOCK.RENEW x a PX 90000"), Reply::Int(1));
            release(client, "x y z a", 2);
            assert_held(client, &[("y", "b")]);
        });
    }

    #[test]
    fn each_ends_with_its_own_lease() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "x y a");
        client.run("PEXPIRE x 40");
        until("x is free", || client.run("EXISTS x") == Reply::Int(0));
        assert_held(&mut client, &[("y", "a")]);
    }

    #[test]
    fn in_a_transaction_and_in_a_script_it_is_granted_without_waiting() {
        let server = quiet().start();
        let mut client = server.client();
        let replies = multi(&mut client, &["MLOCK.ACQUIRE 2 x y a BLOCK 0", "MLOCK.ACQUIRE 2 y z b BLOCK 0"]);
        assert!(replies[0].fence() > 0);
        assert_eq!(replies[1], Reply::NullArray);
        let script = "return redis.call('MLOCK.ACQUIRE', 2, KEYS[1], KEYS[2], 'b', 'BLOCK', 0) and 'yes' or 'no'";
        assert_eq!(client.cmd(&["EVAL", script, "2", "y", "z"]), Reply::bulk("no"));
        assert_eq!(client.cmd(&["EVAL", script, "2", "v", "w"]), Reply::bulk("yes"));
    }
}

mod waiting {
    use super::*;

    #[test]
    fn it_is_granted_when_the_last_of_its_keys_is_free_and_all_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        for key in ["x", "y", "z"] {
            hold(&mut client, key, "a");
        }
        let mut b = wait_for(&server, "x y z b");
        assert_eq!(client.run("LOCK.RELEASE y a"), Reply::Int(1));
        assert_held(&mut client, &[("x", "a"), ("y", ""), ("z", "a")]);
        assert_eq!(client.run("LOCK.RELEASE x a"), Reply::Int(1));
        b.assert_silent();
        assert_held(&mut client, &[("x", ""), ("y", ""), ("z", "a")]);
        let replies = multi(&mut client, &["LOCK.RELEASE z a", "LOCK.HELD x b", "LOCK.HELD y b", "LOCK.HELD z b"]);
        let fence = b.granted("b");
        for reply in &replies[1..] {
            assert_eq!(reply.items()[0], Reply::Int(fence), "one step, one fence");
        }
        assert_nobody_waits(&server, &["x", "y", "z"]);
    }

    #[test]
    fn it_keeps_its_turn_on_each_of_its_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "x y b");
        assert_eq!(client.run("LOCK.ACQUIRE y z"), Reply::NullArray, "y is free, but b came first");
        assert_eq!(client.run("MLOCK.ACQUIRE 2 y w z"), Reply::NullArray);
        let [mut z] = line_up(&server, "y", ["z"]);
        for key in ["x", "y"] {
            assert_eq!(queue(&mut client, key)[0], "b");
        }
        client.run("LOCK.RELEASE x a");
        b.granted("b");
        z.assert_silent();
        client.run("LOCK.RELEASE y b");
        z.granted("z");
        assert_held(&mut client, &[("x", "b"), ("y", "z")]);
    }

    #[test]
    fn it_waits_its_turn_on_each_of_its_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "a");
        let [mut first] = line_up(&server, "y", ["first"]);
        let mut b = wait_for(&server, "x y b");
        client.run("LOCK.RELEASE x a");
        b.assert_silent();
        client.run("LOCK.RELEASE y a");
        first.granted("first");
        b.assert_silent();
        client.run("LOCK.RELEASE y first");
        b.granted("b");
    }

    #[test]
    fn it_overtakes_nobody_on_one_key_when_it_is_its_turn_on_another() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "z", "a");
        let mut first = wait_for(&server, "y z first");
        let mut second = wait_for(&server, "x y second");
        client.run("LOCK.RELEASE x a");
        // x and y are free, but first came first to y.
        second.assert_silent_for(A_WHILE);
        assert_held(&mut client, &[("x", ""), ("y", ""), ("z", "a")]);
        client.run("LOCK.RELEASE z a");
        first.granted("first");
        second.assert_silent();
        release(&mut client, "y z first", 2);
        second.granted("second");
    }

    #[test]
    fn an_owner_that_it_waits_for_passes_it() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "x y b");
        assert!(client.run("LOCK.ACQUIRE y a PX 60000").fence() > 0, "a has x, so b cannot go on without a");
        assert_eq!(client.run("LOCK.ACQUIRE y z"), Reply::NullArray, "nobody else passes");
        b.assert_silent();
        client.run("LOCK.RELEASE x a");
        b.assert_silent();
        client.run("LOCK.RELEASE y a");
        b.granted("b");
    }

    #[test]
    fn an_owner_that_it_waits_for_passes_it_with_a_request_for_several_too() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "x y w b");
        let fence = take(&mut client, "y x w v a");
        assert_eq!(held(&mut client, "w", "a").map(|held| held.0), Some(fence));
        release(&mut client, "x y w v a", 4);
        assert!(b.granted("b") > fence);
    }

    #[test]
    fn a_waiting_owner_that_it_waits_for_passes_it_too() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "other");
        let mut b = wait_for(&server, "x y b");
        let [mut a] = line_up(&server, "y", ["a"]);
        client.run("LOCK.RELEASE y other");
        a.granted("a");
        b.assert_silent();
        release(&mut client, "x y a", 2);
        b.granted("b");
    }

    #[test]
    fn others_behind_it_do_not_pass_with_the_owner_that_does() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "other");
        let mut b = wait_for(&server, "x y b");
        let [mut a, mut z] = line_up(&server, "y", ["a", "z"]);
        client.run("LOCK.RELEASE y other");
        a.granted("a");
        client.run("LOCK.RELEASE y a");
        z.assert_silent_for(A_WHILE);
        client.run("LOCK.RELEASE x a");
        b.granted("b");
        release(&mut client, "x y b", 2);
        z.granted("z");
    }

    #[test]
    fn who_would_have_to_pass_others_too_is_told_of_a_circle() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "other");
        let mut b = wait_for(&server, "x y b");
        let [mut z] = line_up(&server, "y", ["z"]);
        // z waits behind b, b for a: a cannot wait behind z.
        let reply = client.run("LOCK.ACQUIRE y a BLOCK 0");
        let error = reply.error();
        assert!(error.starts_with("DEADLOCK "), "{error}");
        assert!(["'a'", "'z'", "'b'"].iter().all(|name| error.contains(name)), "{error}");
        b.assert_silent();
        z.assert_silent();
    }

    #[test]
    fn crossing_requests_are_served_one_after_the_other() {
        let server = quiet().start();
        let mut client = server.client();
        take(&mut client, "x y first");
        let mut a = wait_for(&server, "x y a");
        let mut b = wait_for(&server, "y x b");
        let mut c = wait_for(&server, "z y c");
        release(&mut client, "x first", 1);
        a.assert_silent();
        release(&mut client, "y first", 1);
        a.granted("a");
        release(&mut client, "y a", 1);
        b.assert_silent();
        c.assert_silent();
        release(&mut client, "x a", 1);
        b.granted("b");
        c.assert_silent();
        release(&mut client, "x y b", 2);
        c.granted("c");
        assert_nobody_waits(&server, &["x", "y", "z"]);
    }

    #[test]
    fn who_holds_one_and_wants_the_others_is_told_of_a_circle() {
        let server = quiet().start();
        let mut client = server.client();
        let fences = (hold(&mut client, "x", "a"), hold(&mut client, "y", "b"));
        let mut a = wait_for(&server, "x y a");
        let reply = client.run("MLOCK.ACQUIRE 2 x y b BLOCK 0");
        let error = reply.error();
        assert!(error.starts_with("DEADLOCK ") && error.contains("'a'") && error.contains("'b'"), "{error}");
        a.assert_silent();
        assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fences.0));
        assert_eq!(held(&mut client, "y", "b").map(|held| held.0), Some(fences.1));
        client.run("LOCK.RELEASE y b");
        let fence = a.granted("a");
        assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fence), "also for what it held before");
    }

    #[test]
    fn a_large_set_is_not_starved_by_a_stream_of_small_ones() {
        let server = quiet().start();
        let mut client = server.client();
        let keys = ["k0", "k1", "k2", "k3"];
        for key in keys {
            hold(&mut client, key, &format!("of-{key}"));
        }
        let mut large = wait_for(&server, "k0 k1 k2 k3 large");
        let mut small: Vec<[Waiter; 1]> = Vec::new();
        for key in keys {
            assert!(client.run(&format!("LOCK.ACQUIRE {key} newcomer")).is_nil());
            small.push(line_up(&server, key, ["small"]));
        }
        for key in keys {
            large.assert_silent();
            client.run(&format!("LOCK.RELEASE {key} of-{key}"));
        }
        large.granted("large");
        release(&mut client, "k0 k1 k2 k3 large", 4);
        small.iter_mut().for_each(|[waiter]| assert!(waiter.granted("small") > 0));
    }

    #[test]
    fn it_is_granted_when_the_last_lease_has_ended_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "b");
        let mut c = wait_for(&server, "x y c");
        let start = Instant::now();
        multi(&mut client, &["LOCK.RENEW x a PX 300", "LOCK.RENEW y b PX 400"]);
        c.granted_within("c", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
        assert_held(&mut client, &[("x", "c"), ("y", "c")]);
    }

    #[test]
    fn the_end_of_its_own_hold_meanwhile_costs_it_nothing() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "b");
        let mut a = wait_for(&server, "x y a");
        client.run("LOCK.RENEW x a PX 100");
        until("its own lease has ended", || client.run("EXISTS x") == Reply::Int(0));
        assert!(client.run("LOCK.ACQUIRE x z").is_nil(), "it keeps its turn there");
        client.run("LOCK.RELEASE y b");
        a.granted("a");
        assert_held(&mut client, &[("x", "a"), ("y", "a")]);
    }

    #[test]
    fn del_of_the_one_key_in_its_way_lets_it_in() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "w x y b");
        client.run("DEL x");
        b.granted("b");
        assert_held(&mut client, &[("w", "b"), ("x", "b"), ("y", "b")]);
    }

    #[test]
    fn lock_info_of_a_free_key_that_it_waits_at_says_so() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let _b = wait_for(&server, "x y b");
        let info = client.run("LOCK.INFO y");
        assert_eq!(info.get("kind"), &Reply::bulk("mutex"));
        assert_eq!(info.get("ttl"), &Reply::Int(-2), "free but waited for");
        assert_eq!(info.get("holders"), &Reply::Array(vec![]));
        for key in ["x", "y"] {
            assert_eq!(client.cmd(&["LOCK.INFO", key]).get("waiters"), &Reply::Int(1), "{key}");
            let waiters = client.cmd(&["LOCK.WAITERS", key]);
            let waiter = &waiters.items()[0];
            assert_eq!((waiter.get("owner"), waiter.get("mode")), (&Reply::bulk("b"), &Reply::bulk("exclusive")));
            assert_eq!(waiter.get("permits"), &Reply::Int(1));
        }
        assert!(client.run("RLOCK.ACQUIRE y z").error().starts_with("WRONGKIND "), "it keeps the queue's family");
    }

    #[test]
    fn a_key_that_becomes_something_else_dismisses_it_and_frees_its_turn_on_the_others() {
        for (overwrite, error) in
            [(vec!["SET x v"], WRONGTYPE), (vec!["SEM.ACQUIRE s a LIMIT 2", "RENAME s x"], "WRONGKIND ")]
        {
            let server = quiet().start();
            let mut client = server.client();
            hold(&mut client, "x", "a");
            let mut b = wait_for(&server, "y x z b");
            let [mut c] = line_up(&server, "z", ["c"]);
            multi(&mut client, &overwrite);
            let reply = b.only_reply();
            assert!(reply.error().starts_with(error), "{reply:?}");
            c.granted("c");
            assert_nobody_waits(&server, &["y", "z"]);
            assert_eq!(client.run("EXISTS y"), Reply::Int(0));
        }
    }

    #[test]
    fn it_leaves_all_its_queues_when_it_leaves_one() {
        let server = quiet().start();
        let mut client = server.client();
        for leave in ["LOCK.CANCEL y b", "CLIENT UNBLOCK", "CLIENT KILL ID"] {
            client.run("FLUSHALL");
            hold(&mut client, "x", "a");
            let b = wait_for(&server, "x y z b");
            let [mut c] = line_up(&server, "z", ["c"]);
            let [mut d] = line_up(&server, "y", ["d"]);
            let line = if leave.starts_with("CLIENT") { format!("{leave} {}", b.id) } else { leave.to_string() };
            assert_eq!(client.run(&line), Reply::Int(1), "{line}");
            c.granted("c");
            d.granted("d");
            assert_nobody_waits(&server, &["x", "y", "z"]);
        }
    }

    #[test]
    fn its_time_runs_out_on_all_keys_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let start = Instant::now();
        let mut b = Waiter::ask(&server, "MLOCK.ACQUIRE 2 x y b BLOCK 300");
        let mut c = Waiter::ask(&server, &format!("LOCK.ACQUIRE y c {LONG} BLOCK 0"));
        assert_eq!(b.client.read(), Reply::NullArray);
        assert!(ms_since(start) >= 300);
        c.granted("c");
        assert_nobody_waits(&server, &["x", "y"]);
    }

    #[test]
    fn a_retry_takes_the_place_over_whatever_the_order_of_the_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut older = wait_for(&server, "x y b");
        let [_c] = line_up(&server, "y", ["c"]);
        let mut newer = wait_for(&server, "y x b");
        assert_eq!(older.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        assert_eq!(queue(&mut client, "y"), ["b", "c"]);
        client.run("LOCK.RELEASE x a");
        newer.granted("b");
    }

    #[test]
    fn another_set_of_keys_is_no_retry() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut both = wait_for(&server, "x y b");
        let mut more = wait_for(&server, "x y z b");
        let [mut one] = line_up(&server, "x", ["b"]);
        assert_eq!(queue(&mut client, "x"), ["b", "b", "b"]);
        client.run("LOCK.RELEASE x a");
        let first = both.granted("b");
        assert!(more.granted("b") > first);
        one.granted("b");
        assert_held(&mut client, &[("x", "b"), ("y", "b"), ("z", "b")]);
    }

    #[test]
    fn it_keeps_its_place_on_each_key_while_it_is_away() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "a");
        assert_eq!(client.run("MLOCK.ACQUIRE 2 x y b PX 60000 BLOCK 1"), Reply::NullArray);
        let [mut c] = line_up(&server, "x", ["c"]);
        let [mut d] = line_up(&server, "y", ["d"]);
        let mut b = wait_for(&server, "x y b");
        for (key, behind) in [("x", "c"), ("y", "d")] {
            assert_eq!(queue(&mut client, key), ["b", behind]);
        }
        release(&mut client, "x y a", 2);
        b.granted("b");
        c.assert_silent();
        d.assert_silent();
    }

    #[test]
    fn it_counts_as_one_of_max_waiters() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 2");
        hold(&mut client, "x", "a");
        let _b = wait_for(&server, "x y z b");
        let _c = wait_for(&server, "x y z c");
        assert!(client.run("MLOCK.ACQUIRE 2 x y d BLOCK 0").error().starts_with("MAXWAITERS "));
    }

    #[test]
    fn a_grant_that_cannot_be_delivered_is_taken_back_from_all_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let b = wait_for(&server, "x y z b");
        let [mut c] = line_up(&server, "x", ["c"]);
        let [mut d] = line_up(&server, "y", ["d"]);
        multi(&mut client, &["LOCK.RELEASE x a", &format!("CLIENT KILL ID {}", b.id)]);
        c.granted("c");
        d.granted("d");
        until("z is free", || client.run("EXISTS z") == Reply::Int(0));
        assert_nobody_waits(&server, &["x", "y", "z"]);
    }

    #[test]
    fn a_grant_that_cannot_be_delivered_leaves_its_owner_what_it_held_before() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "b");
        let both = wait_for(&server, "x y a");
        let [mut c] = line_up(&server, "y", ["c"]);
        multi(&mut client, &["LOCK.RELEASE y b", &format!("CLIENT KILL ID {}", both.id)]);
        c.granted("c");
        assert_held(&mut client, &[("x", "a"), ("y", "c")]);
    }

    #[test]
    fn without_block_the_queue_is_left_alone() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "x y b");
        assert!(client.run("MLOCK.ACQUIRE 2 x y b").is_nil());
        assert_eq!(client.run("LOCK.WAITERS y").items()[0].get("client"), &Reply::Int(b.id));
        b.assert_silent();
    }
}

mod stored {
    use super::*;
    use crate::support::in_sync;

    #[test]
    fn replicas_and_the_aof_get_all_of_it_or_nothing() {
        let server = plain_aof(Server::builder()).start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        let start = aof(&server).len();
        take(&mut client, "x y z a");
        let mut b = wait_for(&server, "x y z b");
        release(&mut client, "x y z a", 3);
        b.granted("b");
        assert_eq!(client.run("MLOCK.RENEW 3 x y z b PX 90000"), Reply::Int(1));
        // And one that no command makes: the leases end.
        let mut c = wait_for(&server, "x y z c");
        assert_eq!(client.run("MLOCK.RENEW 3 x y z b PX 50"), Reply::Int(1));
        c.granted("c");
        in_sync(&server, &replica);
        assert_eq!(all_locks(&server), all_locks(&replica));

        let mut open = false;
        let mut changes = 0;
        for command in &aof(&server)[start..] {
            match command[0].to_ascii_uppercase().as_slice() {
                b"MULTI" => open = true,
                b"EXEC" => open = false,
                b"SELECT" => {}
                _ => {
                    assert!(open, "{command:?} stands alone");
                    changes += 1;
                }
            }
        }
        assert!(changes >= 15, "{changes}");
    }

    #[test]
    fn they_survive_a_power_cut_with_their_one_fence() {
        let mut server = Server::builder().appendonly().start();
        let mut client = server.client();
        let fence = take(&mut client, "x y a");
        hold(&mut client, "z", "a");
        let wider = take(&mut client, "y z a");
        server.kill();
        server.restart();
        let mut client = server.client();
        assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fence));
        for key in ["y", "z"] {
            assert_eq!(held(&mut client, key, "a").map(|held| held.0), Some(wider), "{key}");
        }
        assert_eq!(take(&mut client, "y z a"), wider, "a retry finds them");
    }

    #[test]
    fn a_session_releases_all_of_them() {
        let server = quiet().start();
        let mut client = server.client();
        let mut session = server.client();
        session.run("MLOCK.ACQUIRE 3 x y z a PX 60000 SESSION").fence();
        let mut b = wait_for(&server, "y x b");
        drop(session);
        b.granted("b");
        until("z is free", || client.run("EXISTS z") == Reply::Int(0));
    }
}

/// Twelve clients take random pairs and triples of ten keys, 10,000 times in all.
#[test]
fn random_pairs_and_triples_never_overlap_and_never_stand_still() {
    const CLIENTS: usize = 12;
    const TAKEN: usize = 10_000;
    const KEYS: usize = 10;

    let server = Server::start();
    let port = server.port();
    let done = AtomicBool::new(false);
    let rng = Rng::new(4);
    let seed = rng.seed();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::connect(port);
                    let mut rng = Rng::with_seed(seed.wrapping_add(number as u64));
                    // Some take one more, so that all take exactly as many as promised.
                    let mine = TAKEN / CLIENTS + usize::from(number < TAKEN % CLIENTS);
                    for _ in 0..mine {
                        take_random_keys(&mut client, &mut rng, number, KEYS);
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| watch_for_partial_holds(&server, &done, KEYS));
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().expect("nothing partial is ever seen") > 0, "it has looked");
        results.into_iter().for_each(|result| result.unwrap_or_else(|_| panic!("seed {seed}")));
    });

    let mut client = server.client();
    assert_eq!(client.run("GET taken"), Reply::bulk(TAKEN.to_string()));
    for key in 0..KEYS {
        assert_eq!(client.run(&format!("GET inside:{key}")), Reply::bulk("0"), "key {key}");
        assert_eq!(client.run(&format!("EXISTS {{s}}:{key}")), Reply::Int(0));
    }
    assert_eq!(server.blocked_clients(), 0);
}

/// Takes two or three keys, counts itself in and out of each of them, and gives them back.
fn take_random_keys(client: &mut Client, rng: &mut Rng, number: usize, keys: usize) {
    let count = 2 + rng.below(2);
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < count {
        let key = rng.below(keys);
        if !chosen.contains(&key) {
            chosen.push(key);
        }
    }
    let names: Vec<String> = chosen.iter().map(|key| format!("{{s}}:{key}")).collect();
    let names = names.join(" ");
    let grant = client.run(&format!("MLOCK.ACQUIRE {count} {names} owner-{number} PX 60000 BLOCK 20000"));
    assert!(grant.fence() > 0);

    let mut lines: Vec<String> = chosen.iter().map(|key| format!("INCR inside:{key}")).collect();
    lines.push("INCR taken".into());
    lines.extend(chosen.iter().map(|key| format!("DECR inside:{key}")));
    lines.push(format!("MLOCK.RELEASE {count} {names} owner-{number}"));
    // In two journeys, so that others have a chance to get in between.
    let (entered, left) = lines.split_at(count);
    for reply in client.pipeline(entered) {
        assert_eq!(reply, Reply::Int(1), "somebody else is inside");
    }
    let replies = client.pipeline(left);
    assert!(replies[1..=count].iter().all(|reply| *reply == Reply::Int(0)), "{replies:?}");
    assert_eq!(replies[count + 1].int(), count as i64);
}

/// Looks at all keys at once, again and again: whoever holds one key holds two or three of one fence. Returns how often.
fn watch_for_partial_holds(server: &Server, done: &AtomicBool, keys: usize) -> usize {
    let mut client = server.client();
    let lines: Vec<String> = (0..keys).map(|key| format!("LOCK.INFO {{s}}:{key}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut seen = 0;
    while !done.load(Ordering::Relaxed) {
        let infos = multi(&mut client, &lines);
        let mut fences: Vec<(i64, String)> = infos
            .iter()
            .filter(|info| !info.is_nil())
            .flat_map(|info| info.get("holders").items())
            .map(|held| (held.get("fence").int(), held.get("owner").text().to_string()))
            .collect();
        fences.sort();
        for held in fences.chunk_by(|one, other| one == other) {
            assert!((2..=3).contains(&held.len()), "a part of a hold: {held:?} of {fences:?}");
        }
        seen += usize::from(!fences.is_empty());
        thread::sleep(Duration::from_millis(2));
    }
    seen
}
