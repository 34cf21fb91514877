//! Locks with several holders, each with a deadline of its own: how they are stored, replicated, promoted, how EXPIRE and PERSIST
//! meet them, and what they cost.

use crate::support::families::{held, left, rows, until_ended};
use crate::support::waiting::*;
use crate::support::{assert_just_began, in_sync, until, Client, Reply, Rng, Server};
use std::time::{Duration, Instant};

/// The keys of [`take_locks`].
const KEYS: [&str; 4] = ["readers", "writer", "permits", "mutex"];

/// Locks of every family, with as many holders and deadlines as make a difference.
fn take_locks(client: &mut Client) {
    for line in [
        "RWLOCK.ACQUIRE readers a READ HOLDS 2 PX 600000",
        "RWLOCK.ACQUIRE readers b READ PX 700000",
        "RWLOCK.ACQUIRE readers c READ PX 90000",
        "RWLOCK.ACQUIRE writer a WRITE HOLDS 2 PX 600000",
        "RWLOCK.ACQUIRE writer a READ HOLDS 3 PX 700000",
        "SEM.ACQUIRE permits a LIMIT 9 PERMITS 4 PX 600000",
        "SEM.ACQUIRE permits b LIMIT 9 PERSIST",
        "SEM.ACQUIRE permits c LIMIT 9 PERMITS 2 PX 90000",
        "SEM.ACQUIRE permits c LIMIT 8 PX 80000",
        "MLOCK.ACQUIRE 2 mutex mutex2 a PX 600000",
    ] {
        assert!(client.run(line).fence() > 0, "{line}");
    }
}

fn stored(client: &mut Client) -> Vec<(Reply, Reply)> {
    KEYS.iter().map(|key| client.stored(key)).collect()
}

/// What must still hold wherever [`take_locks`] has come to.
#[track_caller]
fn assert_locks_still_work(client: &mut Client) {
    assert_eq!(client.run("LOCK.INFO permits").get("limit"), &Reply::Int(8));
    assert!(client.run("SEM.ACQUIRE permits d LIMIT 8").is_nil(), "eight permits are out");
    assert_eq!(client.run("SEM.RELEASE permits a PERMITS 2"), Reply::Int(2));
    assert_eq!(client.run("SEM.ACQUIRE permits d LIMIT 8 PERMITS 2").items()[2], Reply::Int(2));
    assert!(client.run("SEM.ACQUIRE permits e LIMIT 8").is_nil());

    assert!(client.run("RWLOCK.ACQUIRE readers a WRITE").is_nil());
    assert_eq!(client.run("RWLOCK.RELEASE readers a READ"), Reply::Int(1));
    assert_eq!(client.run("RWLOCK.RELEASE readers b READ"), Reply::Int(0));
    assert_just_began(client.pttl("readers"), 600_000);
    assert_eq!(client.run("RWLOCK.RELEASE readers c READ"), Reply::Int(0));
    assert!(client.run("RWLOCK.ACQUIRE readers a WRITE").fence() > 0, "the only reader");

    assert!(client.run("RWLOCK.ACQUIRE writer b READ").is_nil());
    assert_eq!(client.run("RWLOCK.RELEASE writer a WRITE HOLDS 0"), Reply::Int(0));
    assert!(client.run("RWLOCK.ACQUIRE writer b READ").fence() > 0);
    assert_eq!(client.run("RWLOCK.RELEASE writer a READ"), Reply::Int(2));
    assert_eq!(client.run("MLOCK.RELEASE 2 mutex mutex2 a"), Reply::Int(2));
}

mod persistence {
    use super::*;

    #[test]
    fn an_rdb_keeps_every_holder_and_its_deadline() {
        let mut server = Server::builder().start();
        let mut client = server.client();
        take_locks(&mut client);
        let before = stored(&mut client);
        assert_eq!(client.run("SAVE"), Reply::ok());
        server.kill();
        server.restart();
        let mut client = server.client();
        assert_eq!(stored(&mut client), before);
        assert_locks_still_work(&mut client);
    }

    #[test]
    fn debug_reload_keeps_them() {
        let server = Server::start();
        let mut client = server.client();
        take_locks(&mut client);
        let before = stored(&mut client);
        assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
        assert_eq!(stored(&mut client), before);
        assert_locks_still_work(&mut client);
    }

    #[track_caller]
    fn assert_aof_keeps_them(preamble: &str, rewrite: bool) {
        let mut server = Server::builder().appendonly().config(format!("aof-use-rdb-preamble {preamble}")).start();
        let mut client = server.client();
        take_locks(&mut client);
        if rewrite {
            client.run("BGREWRITEAOF");
            server.wait_aof_rewritten();
            // Something behind the rewrite too.
            client.run("RWLOCK.RELEASE readers a READ");
            client.run("RWLOCK.ACQUIRE readers a READ PX 600000");
        }
        let before = stored(&mut client);
        server.kill();
        server.restart();
        let mut client = server.client();
        assert_eq!(stored(&mut client), before);
        assert_locks_still_work(&mut client);
    }

    #[test]
    fn an_aof_of_plain_commands_keeps_them() {
        assert_aof_keeps_them("no", false);
    }

    #[test]
    fn a_rewritten_aof_keeps_them_with_and_without_an_rdb_preamble() {
        assert_aof_keeps_them("yes", true);
        assert_aof_keeps_them("no", true);
    }

    #[test]
    fn dump_and_restore_carry_them_to_another_server() {
        let (from, to) = (Server::start(), Server::start());
        let (mut ours, mut theirs) = (from.client(), to.client());
        take_locks(&mut ours);
        for key in KEYS.iter().chain(&["mutex2"]) {
            let (dump, deadline) = ours.stored(key);
            // -1 as PEXPIRETIME's answer is 0 as RESTORE's argument: none.
            let deadline = deadline.int().max(0).to_string();
            let restore: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), deadline.as_bytes(), dump.bytes(), b"ABSTTL"];
            assert_eq!(theirs.cmd(&restore), Reply::ok(), "{key}");
        }
        assert_eq!(stored(&mut theirs), stored(&mut ours));
        assert_locks_still_work(&mut theirs);
    }

    #[test]
    fn a_restore_without_a_time_to_live_changes_no_holder() {
        let server = Server::start();
        let mut client = server.client();
        take_locks(&mut client);
        let dump = client.run("DUMP readers");
        assert_eq!(client.cmd(&[b"RESTORE" as &[u8], b"copy", b"0", dump.bytes()]), Reply::ok());
        for (owner, ms) in [("a", 600_000), ("b", 700_000), ("c", 90_000)] {
            assert_just_began(left(&mut client, "copy", owner), ms);
        }
        assert_eq!(client.cmd(&[b"RESTORE" as &[u8], b"copy", b"50000", dump.bytes(), b"REPLACE"]), Reply::ok());
        for owner in ["a", "b", "c"] {
            assert_just_began(left(&mut client, "copy", owner), 50_000);
        }
    }

    #[test]
    fn a_lease_that_ends_while_the_server_is_down_is_gone_and_the_others_are_not() {
        for mode in ["rdb", "aof"] {
            let builder = Server::builder();
            let mut server = if mode == "aof" { builder.appendonly() } else { builder }.start();
            let mut client = server.client();
            take_locks(&mut client);
            client.run("RWLOCK.RENEW readers b PX 150");
            client.run("SEM.RENEW permits a PX 150");
            if mode == "rdb" {
                client.run("SAVE");
            }
            server.kill();
            let_pass(Duration::from_millis(200));
            server.restart();
            let mut client = server.client();
            assert_eq!(holders(&mut client, "readers"), ["a", "c"], "{mode}");
            assert_eq!(holders(&mut client, "permits"), ["b", "c"], "{mode}");
            assert_eq!(client.run("SEM.ACQUIRE permits d LIMIT 8 PERMITS 4").items()[2], Reply::Int(4));
            assert!(client.run("SEM.ACQUIRE permits d LIMIT 8").is_nil());
            assert_eq!(client.run("RWLOCK.RELEASE readers b READ"), Reply::Int(-1));
        }
    }
}

mod replication {
    use super::*;

    fn pair() -> (Server, Server) {
        let master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        in_sync(&master, &replica);
        (master, replica)
    }

    #[track_caller]
    fn assert_same(master: &Server, replica: &Server, key: &str, after: &str) {
        in_sync(master, replica);
        assert_eq!(master.client().stored(key), replica.client().stored(key), "{key} after {after}");
    }

    #[track_caller]
    fn assert_follows(lines: &[&str]) {
        let (master, replica) = pair();
        let mut client = master.client();
        for line in lines {
            assert!(!client.run(line).is_error(), "{line}");
            assert_same(&master, &replica, "k", line);
        }
        let key = client.stored("k");
        assert_eq!(client.run("DEBUG RELOAD"), Reply::ok());
        assert_eq!(client.stored("k"), key);
    }

    #[test]
    fn a_replica_follows_readers_and_writers_to_the_millisecond() {
        assert_follows(&[
            "RWLOCK.ACQUIRE k a READ PX 600000",
            "RWLOCK.ACQUIRE k b READ PX 700000",
            "RWLOCK.ACQUIRE k b READ HOLDS 3 PX 100000",
            "RWLOCK.ACQUIRE k b READ HOLDS 3 PX 800000",
            "RWLOCK.ACQUIRE k c WRITE",
            "RWLOCK.RENEW k a PX 50000",
            "RWLOCK.RENEW k b",
            "RWLOCK.ACQUIRE k c READ PERSIST",
            "RWLOCK.RELEASE k b READ",
            "RWLOCK.RELEASE k b READ HOLDS 1",
            "RWLOCK.RELEASE k c READ",
            "RWLOCK.RELEASE k b READ",
            "RWLOCK.ACQUIRE k a WRITE HOLDS 2",
            "RWLOCK.ACQUIRE k a READ",
            "RWLOCK.RELEASE k a WRITE",
            "RWLOCK.RELEASE k a WRITE HOLDS 0",
            "RWLOCK.ACQUIRE k d READ",
            "RWLOCK.RELEASE k a READ HOLDS 0",
            "RWLOCK.RELEASE k d READ",
            "RWLOCK.ACQUIRE k e WRITE PX 600000",
        ]);
    }

    #[test]
    fn a_replica_follows_permits_and_limits_to_the_millisecond() {
        assert_follows(&[
            "SEM.ACQUIRE k a LIMIT 5 PX 600000",
            "SEM.ACQUIRE k a LIMIT 5 HOLDS 3 PX 500000",
            "SEM.ACQUIRE k b LIMIT 7 PERMITS 2 PX 700000",
            // Nothing but the limit, or the limit and the lease.
            "SEM.ACQUIRE k a LIMIT 8 HOLDS 3 PX 1000",
            "SEM.ACQUIRE k a LIMIT 9 HOLDS 3 PX 650000",
            "SEM.ACQUIRE k c LIMIT 6 PERMITS 4 BLOCK 1",
            "SEM.ACQUIRE k c LIMIT 6",
            "SEM.RENEW k a PX 900000",
            "SEM.RELEASE k a PERMITS 2",
            "SEM.RELEASE k a HOLDS 1",
            "SEM.RELEASE k b PERMITS 1",
            "SEM.ACQUIRE k d LIMIT 4 PERSIST",
            "SEM.RELEASE k d",
            "SEM.RELEASE k a",
            "SEM.RELEASE k b HOLDS 0",
            "SEM.RELEASE k c",
            "SEM.ACQUIRE k e LIMIT 3 PX 600000",
        ]);
    }

    #[test]
    fn a_replica_follows_where_expire_and_persist_meet_several_holders() {
        assert_follows(&[
            "RWLOCK.ACQUIRE k a READ PX 600000",
            "PEXPIRE k 500000",
            "RWLOCK.ACQUIRE k b READ PX 700000",
            "PEXPIRE k 400000",
            "RWLOCK.ACQUIRE k b READ PX 1000",
            "RWLOCK.ACQUIRE k c READ HOLDS 2 PX 300000",
            "PERSIST k",
            "RWLOCK.RELEASE k c READ",
            "PEXPIRE k 900000",
            "RWLOCK.ACQUIRE k c READ HOLDS 2 PX 300000",
            "PERSIST k",
            "RWLOCK.RENEW k a PX 350000",
            "PEXPIRE k 200000",
            "RWLOCK.RENEW k a PX 350000",
            "RWLOCK.RELEASE k a READ",
            "PERSIST k",
            "RWLOCK.RELEASE k c READ HOLDS 0",
            "PERSIST k",
            "RWLOCK.ACQUIRE k d READ PX 300000",
            "RWLOCK.RELEASE k b READ",
            "PEXPIRE k 800000",
            "RWLOCK.ACQUIRE k d WRITE PX 300000",
            "PERSIST k",
            "RWLOCK.ACQUIRE k d READ PX 300000",
            "RWLOCK.RELEASE k d WRITE",
        ]);
        assert_follows(&[
            "SEM.ACQUIRE k a LIMIT 4 PX 600000",
            "PERSIST k",
            "SEM.ACQUIRE k b LIMIT 4 PX 500000",
            "PERSIST k",
            // A queued request that changes the limit changes no holder.
            "SEM.ACQUIRE k c LIMIT 3 PERMITS 3 BLOCK 1",
            "PEXPIRE k 900000",
            "SEM.ACQUIRE k c LIMIT 5 PERMITS 5 BLOCK 1",
            "PEXPIRE k 100000",
            "SEM.ACQUIRE k c LIMIT 6 PERMITS 5 BLOCK 1",
            "SEM.ACQUIRE k b LIMIT 7 HOLDS 1 PX 300000",
            "PERSIST k",
            "SEM.ACQUIRE k b LIMIT 8 HOLDS 1 PX 400000",
            "SEM.ACQUIRE k a LIMIT 9 HOLDS 3 PX 400000",
            "PERSIST k",
            "SEM.RELEASE k a",
        ]);
    }

    #[test]
    fn hand_offs_to_several_waiters_reach_the_replica() {
        let (master, replica) = pair();
        let mut client = master.client();
        client.run("RWLOCK.ACQUIRE k a WRITE PX 300000");
        client.run("SEM.ACQUIRE s a LIMIT 3 PERMITS 3 PX 300000");
        let waiters: Vec<Waiter> = (0..5)
            .flat_map(|n| {
                [
                    Waiter::park(&master, &format!("RWLOCK.ACQUIRE k r{n} READ PX {}00000 BLOCK 0", n + 1)),
                    Waiter::park(&master, &format!("SEM.ACQUIRE s o{n} LIMIT 3 PX {}00000 BLOCK 0", n + 1)),
                ]
            })
            .collect();
        client.run("RWLOCK.RELEASE k a WRITE");
        client.run("SEM.RELEASE s a PERMITS 2");
        assert_eq!(holders(&mut client, "k").len(), 5);
        assert_eq!(holders(&mut client, "s"), ["a", "o0", "o1"]);
        assert_same(&master, &replica, "k", "a release");
        assert_same(&master, &replica, "s", "a release");
        assert_eq!(waiters.len(), 10);
    }

    #[test]
    fn the_end_of_one_of_several_leases_reaches_the_replica_with_the_grant_that_it_made_possible() {
        let (master, replica) = pair();
        let mut client = master.client();
        client.run("SEM.ACQUIRE k short LIMIT 2 PX 600000");
        client.run("SEM.ACQUIRE k long LIMIT 2 PX 600000");
        let mut next = Waiter::park(&master, "SEM.ACQUIRE k next LIMIT 2 PX 600000 BLOCK 0");
        client.run("SEM.RENEW k short PX 100");
        next.granted("next");
        assert_same(&master, &replica, "k", "the grant");
        assert_eq!(holders(&mut replica.client(), "k"), ["long", "next"]);
    }

    #[test]
    fn a_replica_that_comes_late_gets_every_holder() {
        let master = Server::start();
        let mut client = master.client();
        take_locks(&mut client);
        for n in 0..300 {
            client.run(&format!("RWLOCK.ACQUIRE many r{n} READ PX {}", 100_000 + n));
        }
        let replica = Server::builder().replica_of(&master).start();
        in_sync(&master, &replica);
        for key in KEYS.iter().chain(&["many"]) {
            assert_same(&master, &replica, key, "a full transfer");
        }
        client.run("RWLOCK.RELEASE many r7 READ");
        client.run("RWLOCK.RENEW many r8 PX 500000");
        assert_same(&master, &replica, "many", "what came then");
    }

    /// Whatever the order of things, replicas and the AOF say the same as the master. A failure names the seed; `LOCK_TEST_SEED` repeats it.
    #[test]
    fn after_random_schedules_over_all_families_replica_and_aof_agree_with_the_master() {
        let mut master = Server::builder().appendonly().config("appendfsync no").start();
        let replica = Server::builder().replica_of(&master).start();
        let mut rng = Rng::new(20_261_121);
        let seed = rng.seed();
        let mut client = master.client();
        for round in 0..60 {
            let lines: Vec<String> = (0..100).map(|_| random_line(&mut rng)).collect();
            client.pipeline(&lines);
            in_sync(&master, &replica);
            let (mut ours, mut theirs) = (master.client(), replica.client());
            for key in RANDOM_KEYS {
                assert_eq!(ours.stored(key), theirs.stored(key), "{key}, round {round}, seed {seed}: {lines:#?}");
            }
        }
        let before: Vec<_> = RANDOM_KEYS.map(|key| client.stored(key)).into();
        master.kill();
        master.restart();
        let mut client = master.client();
        let after: Vec<_> = RANDOM_KEYS.map(|key| client.stored(key)).into();
        assert_eq!(after, before, "seed {seed}");
    }

    const RANDOM_KEYS: [&str; 5] = ["m1", "m2", "rw", "rw2", "sem"];

    /// Mostly what somebody would do, sometimes what nobody should; no lease ends meanwhile.
    fn random_line(rng: &mut Rng) -> String {
        let owner = *rng.pick(&["a", "b", "c", "d"]);
        let mode = *rng.pick(&["READ", "READ", "READ", "WRITE"]);
        let rw = *rng.pick(&["rw", "rw2"]);
        let lease = *rng.pick(&["PX 100000", "PX 200000", "PX 300000", "EX 400", "PERSIST", ""]);
        let count = 1 + rng.below(3);
        let limit = 3 + rng.below(4);
        match rng.below(20) {
            0..=3 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} {lease}"),
            4 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} HOLDS {count} {lease}"),
            5 | 6 => format!("RWLOCK.RELEASE {rw} {owner} {mode}"),
            7 => format!("RWLOCK.RELEASE {rw} {owner} {mode} HOLDS {}", count - 1),
            8 => format!("RWLOCK.RENEW {rw} {owner} {lease}"),
            9..=11 => format!("SEM.ACQUIRE sem {owner} LIMIT {limit} PERMITS {count} {lease}"),
            12 => format!("SEM.ACQUIRE sem {owner} LIMIT {limit} HOLDS {count} {lease} BLOCK 0 NOTIFY ch"),
            13 => format!("SEM.RELEASE sem {owner} PERMITS {count}"),
            14 => format!("SEM.RELEASE sem {owner} HOLDS {}", count - 1),
            15 => format!("SEM.RENEW sem {owner} {lease}"),
            16 => format!("MLOCK.ACQUIRE 2 m1 m2 {owner} {lease} BLOCK 0 NOTIFY ch"),
            17 => format!("MLOCK.RELEASE {count} {} {owner}", ["m1", "m2", "m3"][..count].join(" ")),
            18 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} {lease} BLOCK 0 NOTIFY ch"),
            _ => {
                let key = *rng.pick(&RANDOM_KEYS);
                match rng.below(6) {
                    0 => format!("PERSIST {key}"),
                    1 => format!("PEXPIRE {key} {}", 50_000 + rng.below(400_000)),
                    2 => format!("LOCK.CANCEL {key} {owner}"),
                    3 => format!("PEXPIRE {key} 600000"),
                    4 => "RENAME rw rw2".into(),
                    _ => format!("DEL {key}"),
                }
            }
        }
    }
}

mod promotion {
    use super::*;

    /// A replica whose master has gone, with `short` holding for `ms` and `long` for long, in both families of several holders.
    fn orphan(ms: u64) -> Server {
        let mut master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        in_sync(&master, &replica);
        let mut client = master.client();
        let replies = client.pipeline(&[
            format!("RWLOCK.ACQUIRE rw long READ {LONG}"),
            format!("RWLOCK.ACQUIRE rw short READ PX {ms}"),
            format!("SEM.ACQUIRE sem long LIMIT 3 {LONG}"),
            format!("SEM.ACQUIRE sem short LIMIT 3 PERMITS 2 PX {ms}"),
            // While it pauses the master ends no lease: that is left to the replica.
            "CLIENT PAUSE 60000 WRITE".into(),
        ]);
        replies[..4].iter().for_each(|reply| assert!(reply.fence() > 0));
        in_sync(&master, &replica);
        master.kill();
        replica
    }

    #[test]
    fn a_replica_hides_a_holder_whose_lease_has_ended_and_ends_nothing_itself() {
        let replica = orphan(400);
        let mut client = replica.client();
        let before = ["rw", "sem"].map(|key| client.stored(key));
        for key in ["rw", "sem"] {
            until_ended(&mut client, key, "short");
            assert_eq!(rows(&mut client, key).len(), 1, "{key}");
            assert_eq!(holders(&mut client, key), ["long"]);
        }
        assert_eq!(["rw", "sem"].map(|key| client.stored(key)), before, "it has hidden them, not dropped them");
        assert!(client.run("RWLOCK.ACQUIRE rw long WRITE").error().starts_with("READONLY "));
        assert!(client.run("SEM.RENEW sem long").error().starts_with("READONLY "));
        assert!(client.run("MLOCK.ACQUIRE 1 k a").error().starts_with("READONLY "));
    }

    #[test]
    fn a_holder_whose_lease_has_ended_is_gone_on_the_new_master() {
        let replica = orphan(300);
        let mut client = replica.client();
        until_ended(&mut client, "rw", "short");
        until_ended(&mut client, "sem", "short");
        client.run("REPLICAOF NO ONE");
        assert_eq!(holders(&mut client, "rw"), ["long"]);
        assert_eq!(client.run("RWLOCK.RELEASE rw short READ"), Reply::Int(-1));
        assert!(client.run("RWLOCK.ACQUIRE rw long WRITE").fence() > 0, "the only reader");
        assert_eq!(client.run("SEM.RENEW sem short"), Reply::Int(0));
        assert_eq!(client.run("SEM.ACQUIRE sem next LIMIT 3 PERMITS 2").items()[2], Reply::Int(2));
    }

    #[test]
    fn a_holder_whose_lease_ends_after_the_promotion_ends_to_the_millisecond() {
        let start = Instant::now();
        let replica = orphan(2500);
        let mut client = replica.client();
        client.run("REPLICAOF NO ONE");
        assert!(client.run("RWLOCK.ACQUIRE rw long WRITE").is_nil());
        assert!(client.run("SEM.ACQUIRE sem next LIMIT 3 PERMITS 2").is_nil());
        let mut writer = Waiter::park(&replica, "RWLOCK.ACQUIRE rw long WRITE BLOCK 0");
        let mut next = Waiter::park(&replica, "SEM.ACQUIRE sem next LIMIT 3 PERMITS 2 BLOCK 0");
        writer.granted_within("long", Duration::from_millis(2500) + SOON);
        next.granted("next");
        assert!(ms_since(start) >= 2500, "{:?}", start.elapsed());
    }

    #[test]
    fn holders_are_kept_to_the_millisecond() {
        let mut master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        let mut client = master.client();
        take_locks(&mut client);
        let before = stored(&mut client);
        in_sync(&master, &replica);
        master.kill();
        let mut client = replica.client();
        client.run("REPLICAOF NO ONE");
        assert_eq!(stored(&mut client), before);
        assert_locks_still_work(&mut client);
    }

    #[test]
    fn a_new_masters_own_replica_is_told_who_has_gone() {
        let replica = orphan(300);
        let last = Server::builder().replica_of(&replica).start();
        in_sync_with_new_master(&replica, &last);
        let mut client = replica.client();
        until_ended(&mut client, "sem", "short");
        client.run("SEM.ACQUIRE sem next LIMIT 3 PERMITS 2").fence();
        in_sync(&replica, &last);
        assert_eq!(client.stored("sem"), last.client().stored("sem"));
        assert_eq!(holders(&mut last.client(), "sem"), ["long", "next"]);
    }

    #[track_caller]
    fn in_sync_with_new_master(master: &Server, replica: &Server) {
        master.client().run("REPLICAOF NO ONE");
        in_sync(master, replica);
    }
}

mod expire_and_persist {
    use super::*;

    /// `a` reads `k` for 60 s, `b` for 90 s.
    fn two_readers(client: &mut Client) {
        client.run("RWLOCK.ACQUIRE k a READ PX 60000").fence();
        client.run("RWLOCK.ACQUIRE k b READ PX 90000").fence();
    }

    #[test]
    fn the_time_to_live_of_one_holder_is_its_lease() {
        let server = Server::start();
        let mut client = server.client();
        for acquire in ["RWLOCK.ACQUIRE k a READ", "RWLOCK.ACQUIRE k a WRITE", "SEM.ACQUIRE k a LIMIT 2"] {
            client.run("DEL k");
            client.run(&format!("{acquire} PX 60000"));
            for ms in [20_000, 300_000] {
                assert_eq!(client.run(&format!("PEXPIRE k {ms}")), Reply::Int(1));
                assert_just_began(left(&mut client, "k", "a"), ms);
                assert_just_began(client.run("LOCK.INFO k").get("ttl").int(), ms);
            }
            assert_eq!(client.run("EXPIRE k 40"), Reply::Int(1));
            assert_just_began(client.run("TTL k").int() * 1000, 40_000);
            assert_just_began(left(&mut client, "k", "a"), 40_000);
            assert_eq!(client.run("PERSIST k"), Reply::Int(1));
            assert_eq!(left(&mut client, "k", "a"), -1, "{acquire}");
            assert_eq!(client.run("EXPIREAT k 1"), Reply::Int(1));
            assert!(client.run("LOCK.INFO k").is_nil(), "{acquire}");
        }
    }

    #[test]
    fn with_one_holder_it_counts_also_when_others_join_and_leave() {
        let server = Server::start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        client.run("PEXPIRE k 300000");
        client.run("RWLOCK.ACQUIRE k b READ PX 90000");
        assert_just_began(left(&mut client, "k", "a"), 300_000);
        assert_just_began(client.pttl("k"), 300_000);
        client.run("RWLOCK.RELEASE k b READ");
        assert_just_began(client.pttl("k"), 300_000);
    }

    #[test]
    fn of_several_each_ends_at_the_earlier_of_its_own_deadline_and_the_keys() {
        let server = Server::start();
        let mut client = server.client();
        two_readers(&mut client);
        assert_eq!(client.run("PEXPIRE k 75000"), Reply::Int(1));
        assert_just_began(left(&mut client, "k", "a"), 60_000);
        assert_just_began(left(&mut client, "k", "b"), 75_000);
        assert_eq!(client.run("PEXPIRE k 20000"), Reply::Int(1));
        for owner in ["a", "b"] {
            assert_just_began(left(&mut client, "k", owner), 20_000);
        }
        assert_just_began(client.run("LOCK.INFO k").get("ttl").int(), 20_000);
    }

    #[test]
    fn all_end_with_the_key() {
        let server = quiet().start();
        let mut client = server.client();
        two_readers(&mut client);
        let mut w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 0");
        let start = Instant::now();
        client.run("PEXPIRE k 150");
        w.granted_within("w", Duration::from_millis(150) + SOON);
        assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
        assert_eq!(rows(&mut client, "k"), [("w".into(), "write".into(), 1)]);
        assert_eq!(client.run("RWLOCK.RELEASE k a READ"), Reply::Int(-1));
    }

    #[test]
    fn of_several_lengthening_or_persist_changes_no_holder() {
        let server = Server::start();
        let mut client = server.client();
        two_readers(&mut client);
        for line in ["PEXPIRE k 500000", "PERSIST k"] {
            assert_eq!(client.run(line), Reply::Int(1));
            assert_just_began(left(&mut client, "k", "a"), 60_000);
            assert_just_began(left(&mut client, "k", "b"), 90_000);
        }
        assert_eq!(client.pttl("k"), -1);
    }

    #[test]
    fn of_several_holders_one_ends_in_time_though_the_key_persists() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE k a LIMIT 2 PX 60000");
        client.run("SEM.ACQUIRE k b LIMIT 2 PX 60000");
        let mut next = Waiter::park(&server, "SEM.ACQUIRE k next LIMIT 2 PX 60000 BLOCK 0");
        assert_eq!(multi(&mut client, &["SEM.RENEW k a PX 200", "PERSIST k"]), [Reply::Int(1), Reply::Int(1)]);
        next.granted_within("next", Duration::from_millis(200) + SOON);
        assert_eq!(holders(&mut client, "k"), ["b", "next"]);
    }

    #[test]
    fn when_the_last_of_several_has_ended_the_key_is_free_though_it_was_persisted() {
        let server = quiet().start();
        let mut client = server.client();
        let lines = ["SEM.ACQUIRE k a LIMIT 2 PX 40", "SEM.ACQUIRE k b LIMIT 2 PX 60", "PERSIST k"];
        assert_eq!(multi(&mut client, &lines)[2], Reply::Int(1));
        until_ended(&mut client, "k", "b");
        assert!(client.run("LOCK.INFO k").is_nil());
        assert!(client.run("LOCK.ACQUIRE k z").fence() > 0, "of any family");
    }

    #[test]
    fn any_change_of_holders_sets_the_keys_to_the_latest_of_theirs() {
        let server = Server::start();
        let mut client = server.client();
        two_readers(&mut client);
        client.run("PEXPIRE k 500000");
        client.run("RWLOCK.ACQUIRE k c READ PX 10000");
        assert_just_began(client.pttl("k"), 90_000);
        client.run("PERSIST k");
        client.run("RWLOCK.RELEASE k c READ");
        assert_just_began(client.pttl("k"), 90_000);
        client.run("PEXPIRE k 30000");
        client.run("RWLOCK.ACQUIRE k c READ PX 5000");
        assert_just_began(client.pttl("k"), 30_000);
        assert_just_began(left(&mut client, "k", "b"), 30_000);
        client.run("RWLOCK.ACQUIRE k c READ PX 200000");
        assert_just_began(client.pttl("k"), 200_000);
        assert_just_began(left(&mut client, "k", "a"), 30_000);
    }

    #[test]
    fn a_renewal_after_expire_brings_one_holder_back_and_no_other() {
        let server = Server::start();
        let mut client = server.client();
        two_readers(&mut client);
        client.run("PEXPIRE k 20000");
        assert_eq!(client.run("RWLOCK.RENEW k a"), Reply::Int(1));
        assert_just_began(left(&mut client, "k", "a"), 60_000);
        assert_just_began(left(&mut client, "k", "b"), 20_000);
        assert_just_began(client.pttl("k"), 60_000);
    }
}

mod cost {
    use super::*;

    const READERS: usize = 2_000;
    const PERMITS: usize = 10_000;

    /// Gives `key` to so many owners, which have names of the same length.
    fn crowd(client: &mut Client, key: &str, count: usize) {
        let line = |n: usize| match key {
            "readers" => format!("RWLOCK.ACQUIRE readers owner-{n:05} READ PX 600000"),
            _ => format!("SEM.ACQUIRE permits owner-{n:05} LIMIT 1000000 PX 600000"),
        };
        for batch in (0..count).collect::<Vec<_>>().chunks(500) {
            let lines: Vec<String> = batch.iter().map(|n| line(*n)).collect();
            client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
        }
    }

    /// One of everything that changes a holder, beside as many others as there are.
    fn changes(key: &str) -> [String; 4] {
        let (command, options) = match key {
            "readers" => ("RWLOCK", "READ"),
            _ => ("SEM", ""),
        };
        let limit = if command == "SEM" { "LIMIT 1000000" } else { "" };
        [
            format!("{command}.ACQUIRE {key} someone {options} {limit} PX 700000"),
            format!("{command}.ACQUIRE {key} someone {options} {limit} PX 700000"),
            format!("{command}.RENEW {key} someone PX 800000"),
            format!("{command}.RELEASE {key} someone {options} HOLDS 0"),
        ]
    }

    #[test]
    fn a_logged_change_is_of_constant_size() {
        let server = plain_aof(Server::builder()).start();
        let mut client = server.client();
        client.run("CONFIG SET appendfsync no");
        for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
            crowd(&mut client, key, 1);
            let few: Vec<usize> = changes(key).map(|line| logged(&server, &mut client, &line)).into();
            crowd(&mut client, key, count);
            let many: Vec<usize> = changes(key).map(|line| logged(&server, &mut client, &line)).into();
            assert_eq!(many, few, "bytes, beside {count} others and beside one");
            assert!(few.iter().all(|bytes| (1..500).contains(bytes)), "{few:?}");
        }
    }

    /// How many bytes a command adds to the AOF.
    #[track_caller]
    fn logged(server: &Server, client: &mut Client, line: &str) -> usize {
        let size = |server: &Server| server.info("persistence").number("aof_current_size");
        let before = size(server);
        assert!(!client.run(line).is_error(), "{line}");
        usize::try_from(size(server) - before).expect("an AOF grows")
    }

    #[test]
    fn a_replicated_change_is_of_constant_size() {
        let master = Server::start();
        let replica = Server::builder().replica_of(&master).start();
        in_sync(&master, &replica);
        let mut client = master.client();
        // So rare that none gets between two measurements.
        client.run("CONFIG SET repl-ping-replica-period 3600");
        let offset = |server: &Server| server.info("replication").number("master_repl_offset");
        for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
            let mut sizes = [Vec::new(), Vec::new()];
            for (sizes, holders) in sizes.iter_mut().zip([1, count]) {
                crowd(&mut client, key, holders);
                for line in changes(key) {
                    let before = offset(&master);
                    client.run(&line);
                    sizes.push(offset(&master) - before);
                }
            }
            assert_eq!(sizes[0], sizes[1], "{key}");
            in_sync(&master, &replica);
            assert_eq!(client.stored(key), replica.client().stored(key));
        }
    }

    #[test]
    fn memory_usage_counts_every_holder_and_all_of_it_comes_back() {
        let server = Server::start();
        let mut client = server.client();
        // Once before, so that the buffers of the connection have grown.
        crowd(&mut client, "readers", 1000);
        client.run("DEL readers");
        for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
            let used = |server: &Server| server.info("memory").number("used_memory");
            let before = used(&server);
            crowd(&mut client, key, count);
            let told = client.run(&format!("MEMORY USAGE {key}")).int();
            let measured = used(&server) - before;
            assert!(told * 2 > measured && told < measured * 2, "{key}: {told} told, {measured} measured");
            let each = usize::try_from(told).expect("bytes") / count;
            assert!((50..500).contains(&each), "{each} bytes for a holder of {key}");
            assert_eq!(client.run(&format!("DEL {key}")), Reply::Int(1));
            until("the memory is back", || used(&server) - before < measured / 10);
        }
    }

    /// Loosely, for machines are busy: a walk over all holders would take hundreds of times as long.
    #[test]
    fn acquire_and_release_do_not_walk_over_the_other_holders() {
        let server = Server::start();
        let mut client = server.client();
        for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
            crowd(&mut client, key, 30);
            let few = time_of_changes(&mut client, key);
            crowd(&mut client, key, count);
            let many = time_of_changes(&mut client, key);
            assert!(many < few * 10, "{key}: {many:?} beside {count} others, {few:?} beside 30");
        }
    }

    /// The best of some runs of many changes.
    fn time_of_changes(client: &mut Client, key: &str) -> Duration {
        let lines: Vec<String> = (0..500).flat_map(|_| changes(key)).collect();
        let run = |_| {
            let start = Instant::now();
            client.pipeline(&lines);
            start.elapsed()
        };
        (0..5).map(run).min().expect("some runs")
    }

    #[test]
    fn ten_thousand_leases_that_end_together_are_settled_and_the_server_goes_on() {
        let server = quiet().start();
        let mut client = server.client();
        let lines: Vec<String> =
            (0..PERMITS).map(|n| format!("SEM.ACQUIRE k owner-{n} LIMIT 1000000 PX 400")).collect();
        client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
        assert!(client.run("SEM.ACQUIRE k last LIMIT 1000000 PX 60000").fence() > 0);
        let mut all = Waiter::ask(&server, "SEM.ACQUIRE k all LIMIT 1000000 PERMITS 999999 BLOCK 0");
        assert_eq!(all.client.read().items()[2], Reply::Int(999_999));
        assert_eq!(holders(&mut client, "k"), ["last", "all"]);
        assert!(held(&mut client, "k", "owner-77").is_none());
    }
}
