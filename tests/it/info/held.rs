//! How many keys hold a lock: the count equals what SCAN finds, after any commands.

use crate::support::lock_types::WAYS;
use crate::support::{in_sync, until, Client, Reply, Rng, Server};
use std::collections::BTreeMap;

const DBS: usize = 3;

/// The counts in INFO, by kind.
fn counted(server: &Server) -> BTreeMap<String, i64> {
    let info = server.info("lock");
    ["mutex", "reentrant", "rw", "semaphore"]
        .into_iter()
        .map(|kind| (kind.to_string(), info.number(&format!("lock_held_{kind}"))))
        .collect()
}

/// The keys found by SCAN; a read removes expired ones.
fn scanned(server: &Server) -> BTreeMap<String, i64> {
    let mut client = server.client();
    let mut found: BTreeMap<String, i64> =
        ["mutex", "reentrant", "rw", "semaphore"].map(|kind| (kind.to_string(), 0)).into();
    for db in 0..DBS {
        client.run(&format!("SELECT {db}"));
        let keys = client.run("KEYS *");
        for key in keys.items() {
            if client.cmd(&[b"TYPE", key.bytes()]) != Reply::Status("redislock".into()) {
                continue;
            }
            let info = client.cmd(&[b"LOCK.INFO", key.bytes()]);
            if !info.is_null() {
                *found.get_mut(info.get("kind").text()).expect("a known kind") += 1;
            }
        }
    }
    found
}

#[track_caller]
fn assert_agrees(server: &Server, what: &str) {
    let mut last = Default::default();
    for _ in 0..400 {
        // Expired keys count until a command accesses them, so access them first.
        last = (scanned(server), counted(server));
        if last.0 == last.1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{what}: SCAN finds {:?}, INFO says {:?}", last.0, last.1);
}

fn hold_one_of_each(client: &mut Client) {
    for way in WAYS {
        way.hold(client, &format!("held-{}", way.prefix()), "a");
    }
}

#[test]
fn each_way_to_add_and_remove_keys() {
    let server = Server::builder().config("save \"\"").start();
    let mut client = server.client();
    let lines: [&str; 22] = [
        "DEL held-lock",
        "UNLINK held-rwlock",
        "SET held-rlock v",
        "RENAME held-lock other",
        "RENAME held-lock held-sem",
        "MOVE held-sem 1",
        "SWAPDB 0 1",
        "COPY held-lock copied",
        "PEXPIRE held-lock 1",
        "PEXPIREAT held-sem 1",
        "FLUSHDB",
        "FLUSHDB ASYNC",
        "FLUSHDB SYNC",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHALL SYNC",
        "DEBUG RELOAD",
        "LOCK.RELEASE held-lock a",
        "RLOCK.RELEASE held-rlock a",
        "RWLOCK.ACQUIRE held-rwlock a READ",
        "SEM.RELEASE held-sem a",
        "SORT held-list STORE held-lock",
    ];
    for line in lines {
        hold_one_of_each(&mut client);
        client.run("RPUSH held-list 1 2");
        client.run(line);
        assert_agrees(&server, line);
        client.run("FLUSHALL");
        assert_agrees(&server, "FLUSHALL");
    }
}

/// Locks that another thread has not freed yet still count, and none is subtracted twice. A flush of the only database
/// with keys counts as a flush of all.
#[test]
fn a_flush_of_all_databases_leaves_nothing_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let many = |client: &mut Client| {
        let lines: Vec<_> = (0..30_000).map(|number| format!("LOCK.ACQUIRE k{number} a")).collect();
        client.pipeline(&lines);
    };
    for line in ["FLUSHALL ASYNC", "FLUSHALL SYNC", "FLUSHDB ASYNC"] {
        many(&mut client);
        assert_eq!(counted(&server)["mutex"], 30_000);
        client.run(line);
        client.run("LOCK.ACQUIRE new a");
        assert_eq!(counted(&server)["mutex"], 1, "{line}");
        until("all is freed", || server.info("memory").number("lazyfree_pending_objects") == 0);
        assert_agrees(&server, line);
        assert_eq!(counted(&server)["mutex"], 1, "{line}");
        client.run("DEL new");
    }
}

#[test]
fn a_flush_of_one_of_multiple_databases_keeps_the_others() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["FLUSHDB ASYNC", "FLUSHDB SYNC"] {
        client.run("SELECT 2");
        hold_one_of_each(&mut client);
        client.run("SELECT 0");
        hold_one_of_each(&mut client);
        client.run(line);
        assert_agrees(&server, line);
        client.run("FLUSHALL");
    }
}

#[test]
fn restored_keys_count_and_unstored_ones_do_not() {
    let server = Server::start();
    let mut client = server.client();
    hold_one_of_each(&mut client);
    for key in ["held-lock", "held-rlock", "held-rwlock", "held-sem"] {
        let dump = client.cmd(&["DUMP", key]).bytes().to_vec();
        let restore = |client: &mut Client, to: &str, words: &[&str]| {
            let mut args: Vec<&[u8]> = vec![b"RESTORE", to.as_bytes(), b"0", &dump];
            args.extend(words.iter().map(|word| word.as_bytes()));
            client.cmd(&args)
        };
        assert!(restore(&mut client, key, &[]).is_error(), "BUSYKEY");
        assert_agrees(&server, "BUSYKEY");
        restore(&mut client, "held-lock", &["REPLACE"]);
        assert_agrees(&server, "REPLACE");
        assert_eq!(restore(&mut client, "again", &["REPLACE"]), Reply::ok());
        assert_agrees(&server, "RESTORE");
        let mut over: Vec<&[u8]> = vec![b"RESTORE", b"over", b"1", &dump];
        over.push(b"ABSTTL");
        client.cmd(&over);
        assert_agrees(&server, "over when it was restored");
    }
}

#[test]
fn after_random_schedules_the_count_equals_a_scan() {
    let mut primary = Server::builder().appendonly().config("appendfsync no").start();
    let replica = Server::builder().config("repl-diskless-load swapdb").replica_of(&primary).start();
    let mut rng = Rng::new(20_261_122);
    let seed = rng.seed();
    for round in 0..25 {
        let mut client = primary.client();
        let lines: Vec<String> = (0..150).map(|_| random_line(&mut rng)).collect();
        client.pipeline(&lines);
        assert_agrees(&primary, &format!("round {round}, seed {seed}: {lines:#?}"));
        in_sync(&primary, &replica);
        assert_agrees(&replica, &format!("the replica, round {round}, seed {seed}"));
        if round % 8 == 7 {
            // Everything is sent and loaded again.
            replica.client().run("REPLICAOF NO ONE");
            hold_one_of_each(&mut replica.client());
            replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            until("the replica is there", || replica.info("replication").find("master_link_status") == Some("up"));
            in_sync(&primary, &replica);
            assert_agrees(&replica, &format!("loaded anew, round {round}, seed {seed}"));
        }
    }
    primary.client().run("DEBUG RELOAD");
    assert_agrees(&primary, "after DEBUG RELOAD");
    primary.kill();
    primary.restart();
    assert_agrees(&primary, "after a restart");
}

fn random_line(rng: &mut Rng) -> String {
    let [key, other] = [(); 2].map(|()| format!("k{}", rng.below(6)));
    let owner = *rng.pick(&["a", "b", "c"]);
    let lease = *rng.pick(&["PX 1", "PX 3", "PX 60000", "PERSIST", "PX 60000"]);
    let (db, other_db) = (rng.below(DBS), rng.below(DBS));
    match rng.below(26) {
        0..=2 => format!("LOCK.ACQUIRE {key} {owner} {lease}"),
        3 => format!("LOCK.ACQUIRE {key} {owner} {lease} BLOCK 20 NOTIFY ch"),
        4 => format!("LOCK.RELEASE {key} {owner}"),
        5 | 6 => format!("RLOCK.ACQUIRE {key} {owner} {lease}"),
        7 => format!("RLOCK.RELEASE {key} {owner} HOLDS 0"),
        8 => format!("RWLOCK.ACQUIRE {key} {owner} READ {lease}"),
        9 => format!("RWLOCK.ACQUIRE {key} {owner} WRITE {lease} BLOCK 20 NOTIFY ch"),
        10 => format!("RWLOCK.RELEASE {key} {owner} READ"),
        11 => format!("SEM.ACQUIRE {key} {owner} LIMIT 2 {lease}"),
        12 => format!("SEM.ACQUIRE {key} {owner} LIMIT 2 {lease} BLOCK 20 NOTIFY ch"),
        13 => format!("SEM.RELEASE {key} {owner}"),
        14 if key != other => format!("MLOCK.ACQUIRE 2 {key} {other} {owner} {lease}"),
        15 if key != other => format!("MLOCK.RELEASE 2 {key} {other} {owner}"),
        16 | 17 => format!("SELECT {db}"),
        18 => format!("SWAPDB {db} {other_db}"),
        19 => format!("MOVE {key} {db}"),
        20 => format!("RENAME {key} {other}"),
        21 => format!("DEL {key}"),
        22 => format!("SET {key} v PX 2"),
        23 => format!("PEXPIRE {key} 2"),
        24 => rng.pick(&["FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL", "FLUSHALL ASYNC"]).to_string(),
        // Not DEBUG RELOAD: it omits expired keys without notifying replicas.
        _ => rng.pick(&["LOCK.CANCEL k1 a", "PERSIST k2"]).to_string(),
    }
}
