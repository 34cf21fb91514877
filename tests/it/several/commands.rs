//! What the three commands answer, which mistakes they name, and the one fence of a grant.

use super::*;

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
