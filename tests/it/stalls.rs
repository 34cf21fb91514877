//! A server that was paused: another one may have taken over and granted its locks. It makes no hand-offs by itself
//! before its replicas have acknowledged.

use crate::support::cluster::*;
use crate::support::waiting::*;
use crate::support::{in_sync, until, Builder, Reply, Server};
use std::process::Command;
use std::time::{Duration, Instant};

/// A lease that expires while the server is paused. A replica may take a second to acknowledge it, and the server is
/// stopped only then.
const LEASE: Duration = Duration::from_millis(4_000);

/// The shortest pause of the server, long enough for it to notice. Its cron runs every 100 ms.
const STOP: Duration = Duration::from_millis(1_200);

/// The longest time for which a server may hold back its grants.
const LIMIT: Duration = Duration::from_secs(2);

fn signal(server: &Server, name: &str) {
    let kill = Command::new("kill").args([name, &server.pid().to_string()]).status().expect("there is a kill");
    assert!(kill.success());
}

/// `a` holds `k` for a moment, and `b` waits; then the server is paused until the lease has expired, while
/// `during_pause` runs. That many replicas know of the lease.
#[track_caller]
fn stop(server: &Server, replicas: usize, during_pause: impl FnOnce()) -> Waiter {
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(server, "k", ["b"]);
    let lines = [format!("PEXPIRE k {}", LEASE.as_millis()), format!("WAIT {replicas} 0")];
    assert_eq!(client.pipeline(&lines), [Reply::Int(1), Reply::Int(replicas as i64)]);
    let sent = Instant::now();
    signal(server, "-STOP");
    let_time_pass(STOP.max(LEASE.saturating_sub(sent.elapsed())));
    during_pause();
    b.assert_silent();
    signal(server, "-CONT");
    b
}

/// `server`, which has taken over, grants the lock.
#[track_caller]
fn acquire(server: &Server, owner: &str) -> i64 {
    let mut client = server.client();
    until("the lease has ended", || client.run("LOCK.HELD k a").is_nil());
    hold(&mut client, "k", owner)
}

/// Waits until `server` streams its writes to its replica: it starts when the replica has acknowledged for the first
/// time, which may be a second after the replica has loaded everything.
#[track_caller]
fn until_online(server: &Server) {
    until("the replica is online", || {
        server.info("replication").find("slave0").is_some_and(|replica| replica.contains("state=online"))
    });
}

#[track_caller]
fn pair(builder: Builder) -> (Server, Server) {
    let master = builder.start();
    let replica = Server::builder().replica_of(&master).start();
    until_online(&master);
    (master, replica)
}

#[test]
fn a_replaced_cluster_primary_makes_no_hand_offs() {
    // A busy machine may need longer than the limit until the primary learns that it was replaced.
    until("it learns in time that it was replaced", a_replaced_cluster_primary_learns_it_in_time);
}

/// False if it handed off after the limit, because it had not yet learned that it was replaced.
fn a_replaced_cluster_primary_learns_it_in_time() -> bool {
    let primary = single_node();
    let replica = Server::builder().cluster().start();
    meet(&primary, &replica);
    expect_ok(&replica, &format!("CLUSTER REPLICATE {}", node_id(&primary)));
    until_online(&primary);
    let (mut fence, mut paused_until) = (0, Instant::now());
    let mut b = stop(&primary, 1, || {
        expect_ok(&replica, "CLUSTER FAILOVER TAKEOVER");
        until_cluster(&replica, "ok", 2);
        fence = acquire(&replica, "n");
        paused_until = Instant::now();
    });
    let reported = b.client.read();
    if !reported.is_error() {
        assert!(paused_until.elapsed() >= LIMIT, "{reported:?}");
        return false;
    }
    until("it is a replica", || primary.info("replication").text("role") == "slave");
    in_sync(&replica, &primary);
    for server in [&primary, &replica] {
        let mut client = server.client();
        client.run("READONLY");
        assert_eq!(client.run("LOCK.HELD k n").items()[0], Reply::Int(fence));
    }
    true
}

#[test]
fn a_primary_makes_no_hand_offs_after_its_replica_was_promoted() {
    let configured = Server::builder().config("min-replicas-to-write 1").config("min-replicas-max-lag 2");
    for builder in [Server::builder(), configured] {
        let (primary, replica) = pair(builder);
        let mut b = stop(&primary, 1, || {
            expect_ok(&replica, "REPLICAOF NO ONE");
            acquire(&replica, "n");
        });
        b.assert_silent_for(LIMIT / 2);
        expect_ok(&primary, &format!("REPLICAOF 127.0.0.1 {}", replica.port()));
        assert!(b.reply().is_error());
    }
}

#[test]
fn a_primary_with_a_connected_replica_hands_off_at_once() {
    let (primary, replica) = pair(Server::builder());
    let mut b = stop(&primary, 1, || {});
    let fence = b.granted("b");
    in_sync(&primary, &replica);
    assert_eq!(replica.client().run("LOCK.HELD k b").items()[0], Reply::Int(fence));
}

#[test]
fn a_primary_without_its_replica_hands_off_after_a_limit() {
    let (primary, mut replica) = pair(Server::builder());
    let mut b = stop(&primary, 1, || replica.kill());
    b.assert_silent_for(LIMIT / 2);
    b.granted_within("b", LIMIT);
}

#[test]
fn a_server_without_replicas_hands_off_at_once() {
    for server in [Server::start(), single_node()] {
        let mut b = stop(&server, 0, || {});
        b.granted_within("b", Duration::from_millis(100));
    }
}
