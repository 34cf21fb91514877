//! What RWLOCK.ACQUIRE, RWLOCK.RELEASE and RWLOCK.RENEW promise: many readers or one writer, in the order in which they came.

use crate::support::families::{held, lease, left, rows, until_ended};
use crate::support::waiting::*;
use crate::support::{assert_just_began, each_protocol, until, Client, Reply, Server};
use std::time::{Duration, Instant};

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// Lets `owner` read `k` for a long time.
#[track_caller]
fn read(client: &mut Client, owner: &str) -> i64 {
    client.run(&format!("RWLOCK.ACQUIRE k {owner} READ {LONG}")).fence()
}

/// Lets `owner` write `k` for a long time.
#[track_caller]
fn write(client: &mut Client, owner: &str) -> i64 {
    client.run(&format!("RWLOCK.ACQUIRE k {owner} WRITE {LONG}")).fence()
}

/// `owner` waits to read `k`.
#[track_caller]
fn reader(server: &Server, owner: &str) -> Waiter {
    Waiter::park(server, &format!("RWLOCK.ACQUIRE k {owner} READ {LONG} BLOCK 0"))
}

/// `owner` waits to write `k`.
#[track_caller]
fn writer(server: &Server, owner: &str) -> Waiter {
    Waiter::park(server, &format!("RWLOCK.ACQUIRE k {owner} WRITE {LONG} BLOCK 0"))
}

/// `RWLOCK.RELEASE k …` leaves this many holds of the mode.
#[track_caller]
fn release(client: &mut Client, owner_and_mode: &str, left: i64) {
    assert_eq!(client.run(&format!("RWLOCK.RELEASE k {owner_and_mode}")), Reply::Int(left), "{owner_and_mode}");
}

/// What [`rows`] says of one hold.
fn row(owner: &str, mode: &str, holds: i64) -> (String, String, i64) {
    (owner.into(), mode.into(), holds)
}

mod replies {
    use super::*;

    #[test]
    fn an_acquire_answers_owner_fence_and_the_holds_of_that_mode() {
        each_protocol(|client| {
            let grant = client.run("RWLOCK.ACQUIRE k a READ");
            let fence = grant.fence();
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence), Reply::Int(1)]));
            let grant = client.run("RWLOCK.ACQUIRE w a WRITE HOLDS 3");
            assert_eq!(grant, Reply::Array(vec![Reply::bulk("a"), Reply::Int(grant.fence()), Reply::Int(3)]));
            assert!(grant.fence() > fence);
        });
    }

    #[test]
    fn a_refusal_is_nil_in_both_protocols() {
        let server = Server::start();
        let (mut client, mut resp3) = (server.client(), server.client3());
        client.run("RWLOCK.ACQUIRE read a READ");
        client.run("RWLOCK.ACQUIRE written a WRITE");
        for line in ["RWLOCK.ACQUIRE read b WRITE", "RWLOCK.ACQUIRE written b WRITE", "RWLOCK.ACQUIRE written b READ"] {
            assert_eq!(client.run(line), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(line), Reply::Null, "{line}");
            assert_eq!(client.run(&format!("{line} BLOCK 1")), Reply::NullArray, "{line}");
            assert_eq!(resp3.run(&format!("{line} BLOCK 1")), Reply::Null, "{line}");
        }
        assert_eq!(
            (holders(&mut client, "read"), holders(&mut client, "written")),
            (vec!["a".into()], vec!["a".into()])
        );
    }

    #[test]
    fn a_release_answers_the_holds_of_that_mode_that_remain() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 3");
            release(client, "a WRITE", 1);
            release(client, "a READ", 2);
            release(client, "a WRITE", 0);
            release(client, "a WRITE", -1);
            release(client, "a READ", 1);
            release(client, "a READ", 0);
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
            release(client, "a READ", -1);
        });
    }

    #[test]
    fn a_release_by_who_does_not_hold_it_in_that_mode_is_minus_1() {
        each_protocol(|client| {
            release(client, "a READ", -1);
            read(client, "a");
            let before = client.stored("k");
            for line in ["b READ", "b WRITE", "a WRITE", "b READ HOLDS 0", "a WRITE HOLDS 0"] {
                release(client, line, -1);
                assert_eq!(client.stored("k"), before, "{line}");
            }
        });
    }

    #[test]
    fn a_renewal_answers_1_or_0() {
        each_protocol(|client| {
            read(client, "a");
            assert_eq!(client.run("RWLOCK.RENEW k a PX 200000"), Reply::Int(1));
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("RWLOCK.RENEW k b PX 500000"), Reply::Int(0));
            assert_eq!(client.run("RWLOCK.RENEW free b"), Reply::Int(0));
            assert_just_began(client.pttl("k"), 200_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PERSIST"), Reply::Int(1));
            assert_eq!(client.pttl("k"), -1);
        });
    }

    #[test]
    fn a_star_makes_an_owner_of_its_own_each_time() {
        each_protocol(|client| {
            let first = client.run("RWLOCK.ACQUIRE k * READ");
            let second = client.run("RWLOCK.ACQUIRE k * READ");
            let owners = [&first, &second].map(|grant| grant.items()[0].text().to_string());
            assert_ne!(owners[0], owners[1]);
            for owner in &owners {
                assert_eq!(owner.len(), 36, "{owner}");
                release(client, &format!("{owner} READ"), 0);
            }
        });
    }

    #[test]
    fn names_are_case_insensitive_and_options_come_in_any_order() {
        each_protocol(|client| {
            assert!(client.run("rwlock.Acquire k a read hOLDS 2 block 5 px 60000").fence() > 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 2)]);
            assert_eq!(client.run("RwLock.Renew k a eX 60"), Reply::Int(1));
            assert_eq!(client.run("rwlock.release k a Read holds 0"), Reply::Int(0));
        });
    }

    #[test]
    fn it_is_a_key_of_the_modules_type() {
        let server = Server::start();
        let mut client = server.client();
        read(&mut client, "a");
        assert_eq!(client.run("TYPE k"), Reply::Status("redislock".into()));
        assert_eq!(client.run("EXISTS k"), Reply::Int(1));
        release(&mut client, "a READ", 0);
        assert_eq!(client.run("EXISTS k"), Reply::Int(0), "it exists only while somebody holds it");
    }

    #[test]
    fn a_lease_that_is_not_named_is_the_default_one() {
        let server = Server::start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ");
        assert_just_began(client.pttl("k"), 30_000);
        client.run("CONFIG SET lock.default-lease 90000");
        client.run("RWLOCK.ACQUIRE k b READ");
        assert_just_began(left(&mut client, "k", "b"), 90_000);
        assert!(left(&mut client, "k", "a") <= 30_000);
    }
}

mod errors {
    use super::*;

    #[test]
    fn they_come_in_the_servers_words_and_change_nothing() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
            let before = client.stored("k");
            let cases = [
                ("RWLOCK.ACQUIRE k b", "ERR wrong number of arguments for 'rwlock.acquire' command"),
                ("RWLOCK.RELEASE k a", "ERR wrong number of arguments for 'rwlock.release' command"),
                ("RWLOCK.RENEW k", "ERR wrong number of arguments for 'rwlock.renew' command"),
                ("RWLOCK.ACQUIRE k b EXCLUSIVE", SYNTAX),
                ("RWLOCK.ACQUIRE k b PX 5000 READ", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ WRITE", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS 1 HOLDS 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PX 5000 EX 5", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PERSIST SESSION", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ PERMITS 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ LIMIT 1", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ NOTIFY ch", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ HOLDS x", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ HOLDS -1", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ HOLDS 1.5", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ PX x", NOT_AN_INTEGER),
                ("RWLOCK.ACQUIRE k b READ PX 0", "ERR invalid expire time in 'rwlock.acquire' command"),
                ("RWLOCK.RENEW k a PX 0", "ERR invalid expire time in 'rwlock.renew' command"),
                ("RWLOCK.RENEW k a READ", SYNTAX),
                ("RWLOCK.ACQUIRE k b READ BLOCK -1", "ERR timeout is negative"),
                ("RWLOCK.RELEASE k a READ PX 5", SYNTAX),
                ("RWLOCK.RELEASE k a BOTH", SYNTAX),
                ("RWLOCK.RELEASE k a READ HOLDS -1", NOT_AN_INTEGER),
            ];
            for (line, error) in cases {
                assert_eq!(client.run(line), Reply::Error(error.into()), "{line}");
                assert_eq!(client.stored("k"), before, "{line}");
            }
            assert!(client.run("RWLOCK.ACQUIRE k b READ HOLDS 0").error().starts_with("ERR "), "n is at least 1");
            assert!(client.run("RWLOCK.ACQUIRE free b READ HOLDS 0").error().starts_with("ERR "));
            assert_eq!(client.stored("k"), before);
            assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        });
    }

    #[test]
    fn a_key_of_another_type_answers_wrongtype() {
        each_protocol(|client| {
            client.run("SET s v");
            for line in [
                "RWLOCK.ACQUIRE s a READ",
                "RWLOCK.ACQUIRE s a WRITE BLOCK 0",
                "RWLOCK.RELEASE s a READ",
                "RWLOCK.RENEW s a",
            ] {
                assert_eq!(client.run(line), Reply::Error(WRONGTYPE.into()), "{line}");
            }
            assert_eq!(client.run("GET s"), Reply::bulk("v"));
        });
    }

    #[test]
    fn a_lock_of_another_family_answers_wrongkind() {
        each_protocol(|client| {
            read(client, "a");
            client.run("LOCK.ACQUIRE mutex a PX 60000");
            client.run("RLOCK.ACQUIRE nested a PX 60000");
            client.run("SEM.ACQUIRE permits a LIMIT 2 PX 60000");
            let before: Vec<_> = ["k", "mutex", "nested", "permits"].map(|key| client.stored(key)).into();
            for key in ["mutex", "nested", "permits"] {
                for line in [
                    format!("RWLOCK.ACQUIRE {key} a READ"),
                    format!("RWLOCK.ACQUIRE {key} a WRITE BLOCK 0"),
                    format!("RWLOCK.RELEASE {key} a READ"),
                    format!("RWLOCK.RENEW {key} a"),
                ] {
                    assert!(client.run(&line).error().starts_with("WRONGKIND "), "{line}");
                }
            }
            for line in ["LOCK.ACQUIRE k a", "RLOCK.ACQUIRE k a", "SEM.ACQUIRE k a LIMIT 1", "MLOCK.ACQUIRE 2 free k a"]
            {
                assert!(client.run(line).error().starts_with("WRONGKIND "), "{line}");
            }
            for line in
                ["LOCK.RELEASE k a", "RLOCK.RELEASE k a", "SEM.RENEW k a", "MLOCK.RELEASE 1 k a", "LOCK.RENEW k a"]
            {
                assert!(client.run(line).error().starts_with("WRONGKIND "), "{line}");
            }
            let after: Vec<_> = ["k", "mutex", "nested", "permits"].map(|key| client.stored(key)).into();
            assert_eq!(after, before);
            assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        });
    }

    #[test]
    fn while_anyone_waits_a_free_key_stays_a_read_write_lock() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut w = writer(&server, "w");
        let replies = multi(&mut client, &["DEL k", "SEM.ACQUIRE k z LIMIT 1", "LOCK.ACQUIRE k z", "LOCK.INFO k"]);
        assert!(replies[1].error().starts_with("WRONGKIND "), "{replies:?}");
        assert!(replies[2].error().starts_with("WRONGKIND "), "{replies:?}");
        assert_eq!(replies[3].get("kind"), &Reply::bulk("rw"));
        assert_eq!(replies[3].get("limit"), &Reply::Int(0));
        assert_eq!(replies[3].get("ttl"), &Reply::Int(-2));
        w.granted("w");
    }
}

mod admission {
    use super::*;

    #[test]
    fn many_readers() {
        each_protocol(|client| {
            let fences: Vec<i64> = (0..100).map(|n| read(client, &format!("r{n}"))).collect();
            assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "a fence for each, and they grow");
            assert!(client.run("RWLOCK.ACQUIRE k w WRITE").is_nil());
            let info = client.run("LOCK.INFO k");
            assert_eq!(info.get("fence"), &Reply::Int(fences[99]), "that of the latest grant");
            assert_eq!(info.get("holders").items().len(), 100);
            for (n, fence) in fences.iter().enumerate() {
                assert!(client.run("RWLOCK.ACQUIRE k w WRITE").is_nil());
                assert_eq!(held(client, "k", &format!("r{n}")).map(|held| held.0), Some(*fence));
                release(client, &format!("r{n} READ"), 0);
            }
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
            assert!(write(client, "w") > fences[99]);
        });
    }

    #[test]
    fn or_one_writer() {
        each_protocol(|client| {
            let fence = write(client, "a");
            for line in ["b READ", "b WRITE", "c READ HOLDS 3", "* WRITE", "* READ"] {
                assert!(client.run(&format!("RWLOCK.ACQUIRE k {line}")).is_nil(), "{line}");
            }
            assert_eq!(rows(client, "k"), [row("a", "write", 1)]);
            release(client, "a WRITE", 0);
            assert!(write(client, "b") > fence);
        });
    }

    #[test]
    fn it_is_reentrant_per_owner_and_mode() {
        each_protocol(|client| {
            let fence = client.run("RWLOCK.ACQUIRE k a WRITE").fence();
            for (line, holds) in [("a WRITE", 2), ("a READ", 1), ("a READ", 2), ("a WRITE", 3), ("a READ", 3)] {
                let deeper = client.run(&format!("RWLOCK.ACQUIRE k {line}"));
                assert_eq!((deeper.fence(), deeper.items()[2].int()), (fence, holds), "{line}");
            }
            assert_eq!(rows(client, "k"), [row("a", "write", 3), row("a", "read", 3)]);
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 6)));
            release(client, "a READ HOLDS 0", 0);
            release(client, "a WRITE", 2);
            assert_eq!(rows(client, "k"), [row("a", "write", 2)]);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil());
        });
    }

    #[test]
    fn readers_are_reentrant_each_for_themselves() {
        each_protocol(|client| {
            let a = read(client, "a");
            let b = read(client, "b");
            assert_eq!(read(client, "a"), a);
            assert_eq!(read(client, "a"), a);
            assert_eq!(read(client, "b"), b);
            assert_eq!(rows(client, "k"), [row("a", "read", 3), row("b", "read", 2)]);
            release(client, "a READ HOLDS 0", 0);
            assert_eq!(rows(client, "k"), [row("b", "read", 2)]);
        });
    }

    #[test]
    fn the_writer_keeps_reading_when_it_gives_write_back() {
        each_protocol(|client| {
            let fence = write(client, "a");
            assert_eq!(read(client, "a"), fence);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil(), "still a writer");
            release(client, "a WRITE", 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 1)]);
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 1)));
            assert!(read(client, "b") > fence, "a downgrade lets readers in");
            assert!(client.run("RWLOCK.ACQUIRE k c WRITE").is_nil());
            release(client, "a WRITE", -1);
        });
    }

    #[test]
    fn the_only_reader_may_write_with_a_new_fence() {
        each_protocol(|client| {
            let before = client.run("RWLOCK.ACQUIRE k a READ HOLDS 2").fence();
            let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE");
            assert!(upgrade.fence() > before, "an upgrade is a new grant");
            assert_eq!(upgrade.items()[2], Reply::Int(1), "holds of that mode");
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((upgrade.fence(), 3)));
            assert_eq!(client.run("LOCK.INFO k").get("fence"), &Reply::Int(upgrade.fence()));
            assert_eq!(rows(client, "k"), [row("a", "write", 1), row("a", "read", 2)]);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil());
            assert_eq!(read(client, "a"), upgrade.fence(), "deeper is no new grant");
            assert_eq!(write(client, "a"), upgrade.fence());
            release(client, "a WRITE HOLDS 0", 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 3)]);
            assert!(read(client, "b") > upgrade.fence());
        });
    }

    #[test]
    fn every_upgrade_of_the_same_owner_is_a_new_grant() {
        let server = Server::start();
        let mut client = server.client();
        let mut last = read(&mut client, "a");
        for _ in 0..5 {
            let fence = write(&mut client, "a");
            assert!(fence > last);
            release(&mut client, "a WRITE", 0);
            last = fence;
        }
    }

    #[test]
    fn without_block_an_upgrade_among_others_is_nil() {
        each_protocol(|client| {
            read(client, "a");
            read(client, "b");
            let before = client.stored("k");
            assert!(client.run("RWLOCK.ACQUIRE k a WRITE").is_nil());
            assert_eq!(client.stored("k"), before);
            release(client, "b READ", 0);
            assert!(client.run("RWLOCK.ACQUIRE k a WRITE").fence() > 0);
        });
    }
}

mod holds {
    use super::*;

    #[test]
    fn holds_says_how_often_and_can_be_sent_again() {
        each_protocol(|client| {
            for mode in ["READ", "WRITE"] {
                let acquire = format!("RWLOCK.ACQUIRE k a {mode} HOLDS 3");
                let first = client.run(&acquire);
                assert_eq!(first.items()[2].int(), 3);
                assert_eq!(client.run(&acquire), first);
                let deeper = client.run(&format!("RWLOCK.ACQUIRE k a {mode} HOLDS 5"));
                assert_eq!((deeper.fence(), deeper.items()[2].int()), (first.fence(), 5));
                for _ in 0..2 {
                    release(client, &format!("a {mode} HOLDS 2"), 2);
                }
                assert_eq!(client.run(&format!("RWLOCK.ACQUIRE k a {mode}")).items()[2].int(), 3);
                release(client, &format!("a {mode} HOLDS 0"), 0);
                assert_eq!(client.run("EXISTS k"), Reply::Int(0));
                assert!(!client.run(&format!("RWLOCK.RELEASE k a {mode} HOLDS 0")).is_error(), "that too, again");
            }
        });
    }

    #[test]
    fn an_upgrade_and_a_downgrade_with_holds_can_be_sent_again() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 1");
            let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 1");
            assert_eq!(client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 1"), upgrade);
            assert_eq!(client.run("RWLOCK.ACQUIRE k a READ HOLDS 1").fence(), upgrade.fence());
            assert_eq!(rows(client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
            release(client, "a WRITE HOLDS 0", 0);
            assert!(!client.run("RWLOCK.RELEASE k a WRITE HOLDS 0").is_error());
            assert_eq!(rows(client, "k"), [row("a", "read", 1)]);
        });
    }

    #[test]
    fn an_acquire_takes_no_hold_away_and_a_release_adds_none() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 3 PX 60000");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
            let before = client.stored("k");
            for line in [
                "RWLOCK.ACQUIRE k a WRITE HOLDS 2",
                "RWLOCK.ACQUIRE k a READ HOLDS 1 PX 200000",
                "RWLOCK.RELEASE k a WRITE HOLDS 4",
                "RWLOCK.RELEASE k a READ HOLDS 3",
            ] {
                assert!(client.run(line).error().starts_with("ERR "), "{line}");
                assert_eq!(client.stored("k"), before, "{line}");
            }
        });
    }

    #[test]
    fn a_waiting_request_with_holds_is_granted_as_many() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut b = Waiter::park(&server, "RWLOCK.ACQUIRE k b READ HOLDS 4 PX 60000 BLOCK 0");
        let mut c = Waiter::park(&server, "RWLOCK.ACQUIRE k c WRITE HOLDS 2 PX 60000 BLOCK 0");
        release(&mut client, "a WRITE", 0);
        assert_eq!(b.reply().items()[2], Reply::Int(4));
        release(&mut client, "b READ HOLDS 0", 0);
        assert_eq!(c.reply().items()[2], Reply::Int(2));
        assert_eq!(rows(&mut client, "k"), [row("c", "write", 2)]);
    }
}

mod leases {
    use super::*;

    #[test]
    fn each_holder_has_one_of_its_own_and_the_key_lives_as_long_as_the_longest() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 50000");
            client.run("RWLOCK.ACQUIRE k b READ PX 200000");
            client.run("RWLOCK.ACQUIRE k c READ PX 20000");
            for (owner, ms) in [("a", 50_000), ("b", 200_000), ("c", 20_000)] {
                assert_just_began(left(client, "k", owner), ms);
                assert_eq!(lease(client, "k", owner), ms);
            }
            assert_just_began(client.pttl("k"), 200_000);
            release(client, "b READ", 0);
            assert_just_began(client.pttl("k"), 50_000);
            client.run("RWLOCK.ACQUIRE k d READ PERSIST");
            assert_eq!(client.pttl("k"), -1);
            assert_eq!(left(client, "k", "d"), -1);
            release(client, "d READ", 0);
            assert_just_began(client.pttl("k"), 50_000);
        });
    }

    #[test]
    fn it_is_one_for_both_modes() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE PX 20000");
            client.run("RWLOCK.ACQUIRE k a READ PX 90000");
            let info = client.run("LOCK.INFO k");
            for held in info.get("holders").items() {
                assert_just_began(held.get("ttl").int(), 90_000);
            }
            release(client, "a READ", 0);
            assert_just_began(left(client, "k", "a"), 90_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PX 40000"), Reply::Int(1));
            client.run("RWLOCK.ACQUIRE k a READ PX 1000");
            release(client, "a WRITE", 0);
            assert_just_began(left(client, "k", "a"), 40_000);
        });
    }

    #[test]
    fn going_deeper_never_shortens_it() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 60000");
            let before = client.stored("k").1;
            client.run("RWLOCK.ACQUIRE k a READ PX 1000").fence();
            client.run("RWLOCK.ACQUIRE k a WRITE PX 1000").fence();
            assert_eq!(client.stored("k").1, before);
            assert!(left(client, "k", "a") > 30_000);
            client.run("RWLOCK.ACQUIRE k a READ PX 200000").fence();
            assert_just_began(left(client, "k", "a"), 200_000);
            client.run("RWLOCK.ACQUIRE k a READ PERSIST").fence();
            client.run("RWLOCK.ACQUIRE k a READ PX 1000").fence();
            assert_eq!((client.pttl("k"), left(client, "k", "a")), (-1, -1));
        });
    }

    #[test]
    fn a_renewal_is_that_owners_alone_and_may_shorten() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 50000");
            client.run("RWLOCK.ACQUIRE k b READ PX 90000");
            assert_eq!(client.run("RWLOCK.RENEW k a PX 300000"), Reply::Int(1));
            assert_just_began(left(client, "k", "a"), 300_000);
            assert_just_began(left(client, "k", "b"), 90_000);
            assert_just_began(client.pttl("k"), 300_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PX 20000"), Reply::Int(1));
            assert_just_began(left(client, "k", "a"), 20_000);
            assert_just_began(client.pttl("k"), 90_000);
            assert_eq!(client.run("RWLOCK.RENEW k a"), Reply::Int(1), "with the length last given");
            assert_just_began(left(client, "k", "a"), 20_000);
        });
    }

    #[test]
    fn a_reader_whose_lease_has_ended_is_gone_for_every_command_while_others_read_on() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k short READ HOLDS 2 PX 60");
            client.run("RWLOCK.ACQUIRE k long READ PX 60000");
            until_ended(client, "k", "short");
            assert_eq!(rows(client, "k"), [row("long", "read", 1)]);
            assert_eq!(client.run("RWLOCK.RENEW k short"), Reply::Int(0));
            release(client, "short READ", -1);
            let again = client.run("RWLOCK.ACQUIRE k short READ PX 60000");
            assert_eq!(again.items()[2], Reply::Int(1), "a first hold, not a third");
            assert!(again.fence() > held(client, "k", "long").expect("it reads").0);
        });
    }

    #[test]
    fn the_end_of_the_other_readers_lease_makes_the_only_reader() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k short READ PX 60000");
            client.run("RWLOCK.ACQUIRE k long READ PX 60000");
            assert!(client.run("RWLOCK.ACQUIRE k long WRITE").is_nil());
            client.run("RWLOCK.RENEW k short PX 60");
            until_ended(client, "k", "short");
            assert!(client.run("RWLOCK.ACQUIRE k long WRITE").fence() > 0);
            assert_eq!(rows(client, "k"), [row("long", "write", 1), row("long", "read", 1)]);
        });
    }

    #[test]
    fn the_end_of_a_lease_ends_both_modes() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2 PX 40");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 3 PX 40");
            until_ended(client, "k", "a");
            release(client, "a WRITE", -1);
            release(client, "a READ", -1);
            assert_eq!(client.run("RWLOCK.ACQUIRE k b WRITE").items()[2], Reply::Int(1));
        });
    }
}

mod queueing {
    use super::*;

    #[test]
    fn readers_behind_a_waiting_writer_wait() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut w = writer(&server, "w");
        assert!(client.run("RWLOCK.ACQUIRE k r READ").is_nil(), "no reader overtakes a waiting writer");
        let mut r = reader(&server, "r");
        assert_eq!(queue(&mut client, "k"), ["w", "r"]);
        release(&mut client, "a READ", 0);
        let written = w.granted("w");
        r.assert_silent();
        release(&mut client, "w WRITE", 0);
        assert!(r.granted("r") > written);
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_stream_of_readers_does_not_starve_a_writer() {
        let server = quiet().start();
        let mut client = server.client();
        for n in 0..10 {
            read(&mut client, &format!("r{n}"));
        }
        let mut w = writer(&server, "w");
        for n in 0..10 {
            assert!(client.run(&format!("RWLOCK.ACQUIRE k new{n} READ")).is_nil());
            w.assert_silent();
            release(&mut client, &format!("r{n} READ"), 0);
        }
        w.granted("w");
    }

    #[test]
    fn who_holds_goes_deeper_past_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let a = read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        assert_eq!(read(&mut client, "a"), a);
        let deeper = client.run("RWLOCK.ACQUIRE k b READ HOLDS 5 BLOCK 1000 PX 60000");
        assert_eq!(deeper.items()[2], Reply::Int(5));
        assert_eq!(queue(&mut client, "k"), ["w"]);
        w.assert_silent();
        release(&mut client, "a READ HOLDS 0", 0);
        release(&mut client, "b READ HOLDS 0", 0);
        w.granted("w");
    }

    #[test]
    fn the_writer_goes_deeper_in_both_modes_past_the_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let fence = write(&mut client, "a");
        let (mut w, mut r) = (writer(&server, "w"), reader(&server, "r"));
        assert_eq!(write(&mut client, "a"), fence);
        assert_eq!(read(&mut client, "a"), fence);
        for waiter in [&mut w, &mut r] {
            waiter.assert_silent();
        }
    }

    #[test]
    fn readers_next_to_each_other_are_granted_together() {
        let server = quiet().start();
        let mut client = server.client();
        let mut last = write(&mut client, "a");
        let mut first = ["r1", "r2", "r3"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let mut second = ["r4", "r5"].map(|owner| reader(&server, owner));
        assert_eq!(queue(&mut client, "k"), ["r1", "r2", "r3", "w", "r4", "r5"]);

        let replies = multi(&mut client, &["RWLOCK.RELEASE k a WRITE", "LOCK.INFO k"]);
        assert_eq!(replies[1].get("holders").items().len(), 3, "in one step");
        assert_eq!(replies[1].get("waiters"), &Reply::Int(3));
        for (waiter, owner) in first.iter_mut().zip(["r1", "r2", "r3"]) {
            let fence = waiter.granted(owner);
            assert!(fence > last, "each its own fence, in the order of the queue");
            last = fence;
        }
        w.assert_silent();
        for owner in ["r2", "r1", "r3"] {
            w.assert_silent();
            release(&mut client, &format!("{owner} READ"), 0);
        }
        assert!(w.granted("w") > last);
        for waiter in &mut second {
            waiter.assert_silent();
        }
        release(&mut client, "w WRITE", 0);
        second[0].granted("r4");
        second[1].granted("r5");
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn two_thousand_readers_are_granted_together() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let lines: Vec<String> = (0..2000).map(|n| format!("RWLOCK.ACQUIRE k r{n} READ BLOCK 0 NOTIFY ch")).collect();
        assert!(client.pipeline(&lines).iter().all(|reply| reply.items()[1] == Reply::Int(0)));
        let replies = multi(&mut client, &["RWLOCK.RELEASE k a WRITE", "LOCK.INFO k"]);
        let owners = replies[1].get("holders").items().iter().map(|held| held.get("owner").text());
        assert!(owners.eq((0..2000).map(|n| format!("r{n}"))), "all of them, in the order of the queue");
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_downgrade_lets_the_readers_at_the_head_in() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        read(&mut client, "a");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let mut behind = reader(&server, "r3");
        release(&mut client, "a WRITE", 0);
        readers[0].granted("r1");
        readers[1].granted("r2");
        w.assert_silent();
        behind.assert_silent();
        assert_eq!(rows(&mut client, "k"), [row("a", "read", 1), row("r1", "read", 1), row("r2", "read", 1)]);
    }

    #[test]
    fn giving_back_one_of_two_write_holds_lets_nobody_in() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2 PX 60000");
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        let mut r = reader(&server, "r");
        release(&mut client, "a WRITE", 1);
        r.assert_silent();
        release(&mut client, "a READ", 0);
        r.assert_silent();
        release(&mut client, "a WRITE", 0);
        r.granted("r");
    }

    #[test]
    fn a_writer_waits_for_the_last_of_the_readers() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        release(&mut client, "b READ", 0);
        w.assert_silent();
        release(&mut client, "a READ", 1);
        w.assert_silent();
        release(&mut client, "a READ", 0);
        w.granted("w");
    }

    #[test]
    fn writers_take_turns_in_the_order_in_which_they_came() {
        let server = quiet().start();
        let mut client = server.client();
        let mut last = write(&mut client, "first");
        let owners: Vec<String> = (0..10).map(|n| format!("w{n}")).collect();
        let mut waiters: Vec<Waiter> = owners.iter().map(|owner| writer(&server, owner)).collect();
        let mut holder = "first";
        for (waiter, owner) in waiters.iter_mut().zip(&owners) {
            release(&mut client, &format!("{holder} WRITE"), 0);
            let fence = waiter.granted(owner);
            assert!(fence > last);
            assert_eq!(rows(&mut client, "k"), [row(owner, "write", 1)]);
            (holder, last) = (owner, fence);
        }
    }

    #[test]
    fn the_first_reader_to_come_makes_no_way_for_a_writer_that_came_later() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let (mut r, mut w) = (reader(&server, "r"), writer(&server, "w"));
        release(&mut client, "a WRITE", 0);
        r.granted("r");
        w.assert_silent();
        release(&mut client, "r READ", 0);
        w.granted("w");
    }

    #[test]
    fn one_owner_may_wait_in_both_modes_one_beside_the_other() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let (mut reads, mut writes) = (reader(&server, "b"), writer(&server, "b"));
        assert_eq!(queue(&mut client, "k"), ["b", "b"]);
        release(&mut client, "a WRITE", 0);
        let first = reads.granted("b");
        assert!(writes.granted("b") > first, "the only reader upgrades");
        assert_eq!(rows(&mut client, "k"), [row("b", "write", 1), row("b", "read", 1)]);
    }
}

mod upgrades {
    use super::*;

    #[test]
    fn one_among_others_waits_at_the_head_and_is_granted_before_queued_writers() {
        let server = quiet().start();
        let mut client = server.client();
        let before = read(&mut client, "a");
        read(&mut client, "b");
        let (mut w, mut r) = (writer(&server, "w"), reader(&server, "r"));
        let mut a = writer(&server, "a");
        assert_eq!(queue(&mut client, "k"), ["a", "w", "r"], "it waits at the head of the queue");
        for waiter in [&mut a, &mut w, &mut r] {
            waiter.assert_silent();
        }
        release(&mut client, "b READ", 0);
        let fence = a.granted("a");
        assert!(fence > before, "a new grant");
        assert_eq!(rows(&mut client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
        w.assert_silent();
        release(&mut client, "a WRITE", 0);
        w.assert_silent();
        r.assert_silent();
        release(&mut client, "a READ", 0);
        w.granted("w");
    }

    #[test]
    fn no_new_reader_overtakes_one_that_waits() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut a = writer(&server, "a");
        assert!(client.run("RWLOCK.ACQUIRE k r READ").is_nil());
        let mut r = reader(&server, "r");
        assert_eq!(client.run("RWLOCK.ACQUIRE k a READ PX 60000").items()[2], Reply::Int(2), "itself it goes deeper");
        release(&mut client, "b READ", 0);
        a.granted("a");
        release(&mut client, "a READ HOLDS 0", 0);
        r.assert_silent();
        release(&mut client, "a WRITE", 0);
        r.granted("r");
    }

    #[test]
    fn one_that_cannot_be_delivered_is_taken_back_and_its_owner_reads_on() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let a = writer(&server, "a");
        let mut r = reader(&server, "r");
        multi(&mut client, &["RWLOCK.RELEASE k b READ", &format!("CLIENT KILL ID {}", a.id)]);
        r.granted("r");
        assert_eq!(rows(&mut client, "k").len(), 2, "two readers");
        assert_eq!(held(&mut client, "k", "a").map(|held| held.1), Some(1));
        release(&mut client, "a WRITE", -1);
        release(&mut client, "a READ", 0);
    }

    #[test]
    fn the_only_reader_upgrades_past_queued_writers() {
        let server = quiet().start();
        let mut client = server.client();
        let before = read(&mut client, "a");
        let mut w = writer(&server, "w");
        let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE PX 60000");
        assert!(upgrade.fence() > before);
        w.assert_silent();
        release(&mut client, "a WRITE", 0);
        w.assert_silent();
        release(&mut client, "a READ", 0);
        assert!(w.granted("w") > upgrade.fence());
    }

    #[test]
    fn a_second_one_is_a_deadlock_that_disturbs_nobody() {
        each_protocol_with_server(|server, client| {
            read(client, "a");
            read(client, "b");
            read(client, "c");
            let mut a = writer(server, "a");
            let mut w = writer(server, "w");
            let before = client.stored("k");
            for wait in ["BLOCK 0", "BLOCK 5000 NOTIFY ch"] {
                let reply = client.run(&format!("RWLOCK.ACQUIRE k b WRITE {wait}"));
                let error = reply.error();
                assert!(error.starts_with("DEADLOCK "), "{error}");
                assert!(error.contains("'a'") && error.contains("'b'"), "it names the circle: {error}");
            }
            assert!(client.run("RWLOCK.ACQUIRE k b WRITE").is_nil(), "without BLOCK it is only a refusal");
            assert_eq!(queue(client, "k"), ["a", "w"]);
            assert_eq!(client.stored("k"), before);
            a.assert_silent();
            w.assert_silent();
            assert_eq!(read(client, "b"), held(client, "k", "b").expect("it reads").0, "it may still go deeper");
            release(client, "b READ HOLDS 0", 0);
            a.assert_silent();
            release(client, "c READ", 0);
            a.granted("a");
        });
    }

    #[test]
    fn a_cancelled_one_lets_another_reader_ask() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut a = writer(&server, "a");
        assert_eq!(client.run("LOCK.CANCEL k a"), Reply::Int(1));
        assert_eq!(a.only_reply(), Reply::Error("UNBLOCKED cancelled".into()));
        assert_eq!(rows(&mut client, "k"), [row("a", "read", 1), row("b", "read", 1)], "it reads on");
        let mut b = writer(&server, "b");
        release(&mut client, "a READ", 0);
        b.granted("b");
    }

    #[test]
    fn one_that_ran_out_of_time_reads_on() {
        let server = quiet().start();
        let mut client = server.client();
        let fence = read(&mut client, "a");
        read(&mut client, "b");
        assert_eq!(client.run("RWLOCK.ACQUIRE k a WRITE BLOCK 20"), Reply::NullArray);
        assert_eq!(held(&mut client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 1)));
    }

    #[test]
    fn it_is_granted_when_the_other_readers_leases_have_ended_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["a", "b", "c"] {
            read(&mut client, owner);
        }
        let mut a = writer(&server, "a");
        let start = Instant::now();
        multi(&mut client, &["RWLOCK.RENEW k b PX 300", "RWLOCK.RENEW k c PX 200"]);
        a.granted_within("a", Duration::from_millis(300) + SOON);
        assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
        assert_eq!(rows(&mut client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
    }

    #[test]
    fn who_asked_to_upgrade_and_whose_own_lease_ended_waits_like_any_writer() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut a = writer(&server, "a");
        client.run("RWLOCK.RENEW k a PX 100");
        until_ended(&mut client, "k", "a");
        a.assert_silent();
        release(&mut client, "b READ", 0);
        a.granted("a");
        assert_eq!(rows(&mut client, "k"), [row("a", "write", 1)], "what had ended is no read hold any more");
    }

    fn each_protocol_with_server(test: impl Fn(&Server, &mut Client)) {
        let server = quiet().start();
        test(&server, &mut server.client());
        let server = quiet().start();
        test(&server, &mut server.client3());
    }
}

mod leaving {
    use super::*;

    /// `a` reads, `w` waits to write and two readers wait behind it. When `leave` has taken `w` away, they read at once.
    #[track_caller]
    fn assert_lets_readers_in(leave: impl FnOnce(&mut Client, Waiter)) {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let w = writer(&server, "w");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        leave(&mut client, w);
        readers[0].granted("r1");
        readers[1].granted("r2");
        assert_eq!(rows(&mut client, "k"), ["a", "r1", "r2"].map(|owner| row(owner, "read", 1)));
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_cancelled_writer_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run("LOCK.CANCEL k w"), Reply::Int(1));
            assert_eq!(w.only_reply(), Reply::Error("UNBLOCKED cancelled".into()));
        });
    }

    #[test]
    fn client_unblock_of_a_writer_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {}", w.id)), Reply::Int(1));
            assert_eq!(w.only_reply(), Reply::NullArray);
        });
        assert_lets_readers_in(|client, mut w| {
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {} ERROR", w.id)), Reply::Int(1));
            assert!(w.only_reply().error().starts_with("UNBLOCKED "));
        });
    }

    #[test]
    fn a_writer_whose_client_goes_away_lets_the_readers_behind_it_in_at_once() {
        assert_lets_readers_in(|_, w| drop(w));
        assert_lets_readers_in(|client, w| {
            assert_eq!(client.run(&format!("CLIENT KILL ID {}", w.id)), Reply::Int(1));
        });
    }

    #[test]
    fn a_writer_whose_time_runs_out_lets_the_readers_behind_it_in_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let start = Instant::now();
        let mut w = Waiter::ask(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 400");
        let mut readers =
            ["r1", "r2"].map(|owner| Waiter::ask(&server, &format!("RWLOCK.ACQUIRE k {owner} READ PX 60000 BLOCK 0")));
        for (reader, owner) in readers.iter_mut().zip(["r1", "r2"]) {
            reader.granted_within(owner, Duration::from_millis(400) + SOON);
        }
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
        assert_eq!(w.only_reply(), Reply::NullArray);
    }

    #[test]
    fn a_superseded_writer_keeps_them_waiting() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let mut older = writer(&server, "w");
        let mut r = reader(&server, "r");
        let mut newer = writer(&server, "w");
        assert_eq!(older.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        assert_eq!(queue(&mut client, "k"), ["w", "r"]);
        r.assert_silent_for(A_WHILE);
        release(&mut client, "a READ", 0);
        newer.granted("w");
        r.assert_silent();
    }

    #[test]
    fn the_other_mode_is_no_retry() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut first = writer(&server, "b");
        let _reads = reader(&server, "b");
        let _c = writer(&server, "c");
        first.assert_silent();
        assert_eq!(queue(&mut client, "k"), ["b", "b", "c"], "it queues afresh, beside it");
    }

    #[test]
    fn a_grant_to_one_of_several_readers_whose_client_has_gone_is_taken_back() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut first = reader(&server, "r1");
        let gone = reader(&server, "gone");
        let mut w = writer(&server, "w");
        multi(&mut client, &["RWLOCK.RELEASE k a WRITE", &format!("CLIENT KILL ID {}", gone.id)]);
        first.granted("r1");
        until("the undelivered grant is taken back", || rows(&mut client, "k") == [row("r1", "read", 1)]);
        w.assert_silent();
        release(&mut client, "r1 READ", 0);
        w.granted("w");
    }

    #[test]
    fn a_kept_place_of_a_writer_is_passed_over_by_readers() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        read(&mut client, "a");
        assert_eq!(client.run("RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 1"), Reply::NullArray);
        assert!(read(&mut client, "r") > 0, "who is away holds nobody up");
        let mut late = writer(&server, "late");
        let mut w = writer(&server, "w");
        assert_eq!(queue(&mut client, "k"), ["w", "late"]);
        for owner in ["a", "r"] {
            release(&mut client, &format!("{owner} READ"), 0);
        }
        w.granted("w");
        late.assert_silent();
    }
}

mod ends {
    use super::*;

    #[test]
    fn a_writers_lease_that_ends_lets_the_readers_in_with_no_command_from_anyone() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut readers = ["r1", "r2", "r3"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        let start = Instant::now();
        client.run("RWLOCK.RENEW k a PX 300");
        readers[0].granted_within("r1", Duration::from_millis(300) + SOON);
        readers[1].granted("r2");
        readers[2].granted("r3");
        assert!(ms_since(start) >= 300, "too early: {:?}", start.elapsed());
        w.assert_silent();
    }

    #[test]
    fn a_writer_is_served_when_the_last_readers_lease_has_ended() {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["a", "b", "c"] {
            read(&mut client, owner);
        }
        let mut w = writer(&server, "w");
        let start = Instant::now();
        multi(&mut client, &["RWLOCK.RENEW k a PX 400", "RWLOCK.RENEW k b PX 150", "RWLOCK.RENEW k c PX 250"]);
        w.granted_within("w", Duration::from_millis(400) + SOON);
        assert!(ms_since(start) >= 400, "too early: {:?}", start.elapsed());
    }

    #[test]
    fn one_reader_that_renews_keeps_the_writer_waiting() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        client.run("RWLOCK.ACQUIRE k b READ PX 50");
        let mut w = writer(&server, "w");
        let start = Instant::now();
        assert_eq!(multi(&mut client, &["RWLOCK.RENEW k a PX 100", "RWLOCK.RENEW k a PX 400"])[1], Reply::Int(1));
        assert_eq!(w.client.read().items()[0], Reply::bulk("w"));
        assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
    }

    #[test]
    fn a_release_and_the_end_of_a_lease_together_let_the_writer_in() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        client.run("RWLOCK.RENEW k a PX 100");
        release(&mut client, "b READ", 0);
        w.granted_within("w", Duration::from_millis(100) + SOON);
    }

    #[test]
    fn del_ends_every_hold_and_the_queue_goes_first() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        let replies = multi(&mut client, &["DEL k", "RWLOCK.ACQUIRE k z READ", "EXISTS k", "RWLOCK.ACQUIRE k a WRITE"]);
        assert_eq!(replies[1], Reply::NullArray);
        assert_eq!(replies[2], Reply::Int(0));
        assert_eq!(replies[3], Reply::NullArray, "who held it before is a newcomer");
        w.granted("w");
        release(&mut client, "a READ", -1);
        release(&mut client, "b READ", -1);
    }

    #[test]
    fn del_lets_the_readers_at_the_head_in_together() {
        let server = quiet().start();
        let mut client = server.client();
        write(&mut client, "a");
        let mut readers = ["r1", "r2"].map(|owner| reader(&server, owner));
        let mut w = writer(&server, "w");
        assert_eq!(client.run("DEL k"), Reply::Int(1));
        readers[0].granted("r1");
        readers[1].granted("r2");
        w.assert_silent();
    }

    #[test]
    fn rename_brings_all_readers_along() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        read(&mut client, "b");
        let mut w = writer(&server, "w");
        let before = client.run("DUMP k");
        assert_eq!(client.run("RENAME k elsewhere"), Reply::ok());
        w.granted("w");
        assert_eq!(client.run("DUMP elsewhere"), before);
        assert_eq!(rows(&mut client, "elsewhere"), [row("a", "read", 1), row("b", "read", 1)]);
        assert_eq!(client.run("RWLOCK.RELEASE elsewhere a READ"), Reply::Int(0));
    }
}

mod looking {
    use super::*;

    #[test]
    fn lock_info_tells_all_that_it_promises() {
        each_protocol(|client| {
            let a = client.run("RWLOCK.ACQUIRE k a READ HOLDS 2 PX 60000").fence();
            let b = client.run("RWLOCK.ACQUIRE k b READ PX 90000 SESSION").fence();
            let info = client.run("LOCK.INFO k");
            let names: Vec<&str> = info.pairs().iter().map(|(name, _)| name.text()).collect();
            assert_eq!(names, ["kind", "limit", "fence", "ttl", "holders", "waiters"]);
            assert_eq!(info.get("kind"), &Reply::bulk("rw"));
            assert_eq!(info.get("limit"), &Reply::Int(0));
            assert_eq!(info.get("fence"), &Reply::Int(b));
            assert_just_began(info.get("ttl").int(), 90_000);
            assert_eq!(info.get("waiters"), &Reply::Int(0));
            let id = client.id();
            let expected = [("a", 2, a, 60_000, 0), ("b", 1, b, 90_000, id)];
            for (held, (owner, holds, fence, lease, session)) in info.get("holders").items().iter().zip(expected) {
                let names: Vec<&str> = held.pairs().iter().map(|(name, _)| name.text()).collect();
                assert_eq!(names, ["owner", "mode", "holds", "fence", "ttl", "lease", "age", "session"]);
                assert_eq!(held.get("owner"), &Reply::bulk(owner));
                assert_eq!(held.get("mode"), &Reply::bulk("read"));
                assert_eq!(held.get("holds"), &Reply::Int(holds));
                assert_eq!(held.get("fence"), &Reply::Int(fence));
                assert_just_began(held.get("ttl").int(), lease);
                assert_eq!(held.get("lease"), &Reply::Int(lease));
                assert!((0..10_000).contains(&held.get("age").int()));
                assert_eq!(held.get("session"), &Reply::Int(session));
            }
        });
    }

    #[test]
    fn lock_waiters_tells_the_modes() {
        let server = quiet().start();
        let mut client = server.client();
        read(&mut client, "a");
        let (_w, _r) = (writer(&server, "w"), reader(&server, "r"));
        let waiters = client.run("LOCK.WAITERS k");
        let modes: Vec<&str> = waiters.items().iter().map(|waiter| waiter.get("mode").text()).collect();
        assert_eq!(modes, ["write", "read"]);
        assert!(waiters.items().iter().all(|waiter| waiter.get("permits") == &Reply::Int(1)));
        assert_eq!(client.run("LOCK.INFO k").get("waiters"), &Reply::Int(2));
    }

    fn survives_watch(client: &mut Client, watcher: &mut Client, line: &str) -> bool {
        watcher.run("WATCH k");
        assert!(!client.run(line).is_error(), "{line}");
        let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
        !replies[2].is_nil()
    }

    #[test]
    fn watch_trips_on_every_change_of_holders_or_holds_and_not_on_a_renewal() {
        let server = quiet().start();
        let (mut client, mut watcher) = (server.client(), server.client());
        for line in [
            "RWLOCK.ACQUIRE k a READ PX 60000",
            "RWLOCK.ACQUIRE k b READ PX 60000",
            "RWLOCK.ACQUIRE k b READ PX 60000",
            "RWLOCK.RELEASE k b READ",
            "RWLOCK.RELEASE k b READ",
            "RWLOCK.ACQUIRE k a WRITE PX 60000",
            "RWLOCK.RELEASE k a WRITE",
            "RWLOCK.RELEASE k a READ",
        ] {
            assert!(!survives_watch(&mut client, &mut watcher, line), "{line}");
        }
        read(&mut client, "a");
        read(&mut client, "b");
        for line in [
            "RWLOCK.RENEW k a PX 90000",
            "RWLOCK.RENEW k a PX 1000000",
            "RWLOCK.ACQUIRE k a WRITE",
            "RWLOCK.ACQUIRE k c WRITE BLOCK 1",
            "RWLOCK.RELEASE k c READ",
            "LOCK.INFO k",
        ] {
            assert!(survives_watch(&mut client, &mut watcher, line), "{line}");
        }
    }
}
