//! A replica can be read, hides what has expired and ends nothing itself. After promotion it keeps every holder and
//! ends leases on time.

use super::*;

#[test]
fn a_replica_serves_reads_and_refuses_writes() {
    let (master, replica) = pair();
    let fence = master.client().run("LOCK.ACQUIRE k a PX 600000").fence();
    in_sync(&master, &replica);
    let mut client = replica.client();
    assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), fence);
    assert!(client.run("LOCK.HELD k b").is_nil());
    assert_eq!(client.run("LOCK.INFO k").get("fence").int(), fence);
    for way in WAYS {
        for line in [way.acquire("free", "b"), way.acquire("k", "a"), way.release("k", "a"), way.renew("k", "a")] {
            assert!(client.run(&line).error().starts_with("READONLY "), "{line}");
        }
    }
    assert!(client.run("LOCK.CANCEL k a").error().starts_with("READONLY "));
    assert!(!client.run("LOCK.WAITERS k").is_error());
}

/// The server lets clients write there, and a lock of the primary would be released or granted a second time. Rows: a
/// replica from its start, and one that has become a replica.
#[test]
fn a_replica_that_accepts_writes_decides_nothing_and_a_promoted_one_does() {
    let master = Server::start();
    let from_start = Server::builder().replica_of(&master).config("replica-read-only no").start();
    let later = Server::builder().config("replica-read-only no").start();
    later.client().run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    master.client().run("LOCK.ACQUIRE k a PX 600000").fence();
    for replica in [from_start, later] {
        in_sync(&master, &replica);
        let mut client = replica.client();
        assert_eq!(client.run("SET s v"), Reply::ok(), "it accepts writes");
        for way in WAYS {
            for line in [
                way.acquire("free", "b"),
                format!("{} BLOCK 0", way.acquire("free", "b")),
                way.acquire("k", "a"),
                way.release("k", "a"),
                way.renew("k", "a"),
            ] {
                assert!(client.run(&line).error().starts_with("READONLY "), "{line}");
            }
        }
        for line in ["LOCK.CANCEL k a", "LOCK.BREAK k", "LOCK.EXEC k a GET s", "LOCK.EXEC k a SET s w"] {
            assert!(client.run(line).error().starts_with("READONLY "), "{line}");
        }
        let script = ["EVAL", "return redis.pcall('LOCK.ACQUIRE', 'free', 'b').err", "0"];
        assert!(client.cmd(&script).text().starts_with("READONLY "));
        assert_eq!(client.run("LOCK.HELD k a").items().len(), 3, "reads still work");
        assert_eq!(client.run("EXISTS free"), Reply::Int(0));
        client.run("REPLICAOF NO ONE");
        assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
        client.run("LOCK.ACQUIRE free b").fence();
    }
    assert_eq!(master.client().run("LOCK.HELD k a").items().len(), 3);
}

#[test]
fn a_replica_hides_what_has_expired_and_ends_nothing_itself() {
    let (mut master, replica) = pair();
    // During the pause the master ends no lease either.
    let lines = ["LOCK.ACQUIRE mutex a PX 300", "RLOCK.ACQUIRE nested a PX 300 HOLDS 3", "CLIENT PAUSE 60000 WRITE"];
    master.client().pipeline(&lines)[..2].iter().for_each(|reply| assert!(reply.fence() > 0));
    in_sync(&master, &replica);
    // From now on no primary replicates to it that the leases have ended.
    master.kill();
    let mut client = replica.client();
    for key in ["mutex", "nested"] {
        until("the replica hides the expired lock", || client.cmd(&["LOCK.HELD", key, "a"]).is_nil());
        assert!(client.cmd(&["LOCK.INFO", key]).is_nil());
    }
    assert_eq!(client.run("DBSIZE").int(), 2, "it has hidden them, not dropped them");

    client.run("REPLICAOF NO ONE");
    client.run("LOCK.ACQUIRE mutex b").fence();
    assert_eq!(client.run("RLOCK.ACQUIRE nested b").items()[2].int(), 1);
}

/// A replica without its master: with each lock type that allows multiple holders, `short` holds for `ms` and `long`
/// much longer.
fn replica_without_master(ms: u64) -> Server {
    let mut master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    let replies = client.pipeline(&[
        format!("RWLOCK.ACQUIRE rw long READ {LONG}"),
        format!("RWLOCK.ACQUIRE rw short READ PX {ms}"),
        format!("SEM.ACQUIRE sem long LIMIT 3 {LONG}"),
        format!("SEM.ACQUIRE sem short LIMIT 3 PERMITS 2 PX {ms}"),
        // During the pause the master ends no lease, so that is left to the replica.
        "CLIENT PAUSE 60000 WRITE".into(),
    ]);
    replies[..4].iter().for_each(|reply| assert!(reply.fence() > 0));
    in_sync(&master, &replica);
    master.kill();
    replica
}

#[test]
fn a_replica_hides_an_expired_holder_and_ends_nothing_itself() {
    let replica = replica_without_master(400);
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
fn an_expired_holder_is_gone_on_the_new_master() {
    let replica = replica_without_master(300);
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
fn a_lease_that_expires_after_the_promotion_is_exact_to_the_millisecond() {
    let start = Instant::now();
    let replica = replica_without_master(2500);
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
fn a_new_masters_replica_gets_the_removal_of_expired_holders() {
    let replica = replica_without_master(300);
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

/// How often the process has gone to sleep since its start.
#[cfg(target_os = "linux")]
fn sleeps(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("Linux counts them")
}

#[test]
#[cfg(target_os = "linux")]
fn a_grant_lost_in_the_iteration_of_the_demotion_leaves_nothing_to_do() {
    let (server, other) = (quiet().start(), Server::start());
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b] = line_up(&server, "k", ["b"]);
    let replies = multi(
        &mut client,
        &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id), &format!("REPLICAOF 127.0.0.1 {}", other.port())],
    );
    assert_eq!(replies, [Reply::Int(1), Reply::Int(1), Reply::ok()]);
    in_sync(&other, &server);
    let before = sleeps(&server);
    let_time_pass(Duration::from_millis(500));
    // A timer of 10 ms would wake it at least a hundred times a second.
    let slept = sleeps(&server) - before;
    assert!(slept < 25, "it woke {slept} times in half a second");
}
