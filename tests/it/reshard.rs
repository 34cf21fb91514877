//! Waiting in a cluster: when a slot moves, waiters for its locks are redirected, and the old node grants no more of
//! them.

use crate::support::cluster::*;
use crate::support::skip::skip;
use crate::support::waiting::*;
use crate::support::{Builder, Reply, Server, LIMIT};
use std::time::Duration;

/// Two nodes; the first has all slots.
pub struct Cluster {
    pub source: Server,
    pub target: Server,
}

impl Cluster {
    #[track_caller]
    fn start() -> Cluster {
        Cluster::of(Server::builder)
    }

    #[track_caller]
    pub fn of(node: impl Fn() -> Builder) -> Cluster {
        let source = single_node_of(node());
        let target = node().cluster().start();
        meet(&source, &target);
        Cluster { source, target }
    }

    /// Starts moving the slot of `key`: the source redirects requests for missing keys, the target imports.
    #[track_caller]
    pub fn begin_to_move(&self, key: &str) {
        let (source, target) = (node_id(&self.source), node_id(&self.target));
        let slot = slot(&self.source, key);
        expect_ok(&self.target, &format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        expect_ok(&self.source, &format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    }

    #[track_caller]
    pub fn migrate(&self, key: &str) {
        expect_ok(&self.source, &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", self.target.port()));
    }

    #[track_caller]
    pub fn finish_to_move(&self, key: &str) {
        let assign = format!("CLUSTER SETSLOT {} NODE {}", slot(&self.source, key), node_id(&self.target));
        expect_ok(&self.target, &assign);
        expect_ok(&self.source, &assign);
    }
}

/// The errors that a waiter may get when its slot is moving or has moved.
#[track_caller]
pub fn assert_redirected(reply: &Reply) {
    let error = reply.error();
    assert!(error.starts_with("MOVED ") || error.starts_with("TRYAGAIN "), "{error}");
}

#[test]
fn waiters_follow_a_lock_of_a_moving_slot() {
    let cluster = Cluster::start();
    let mut source = cluster.source.client();
    let mut target = cluster.target.client();
    let fence = hold(&mut source, "k", "a");
    hold(&mut source, "stays", "a");
    let mut waiters = line_up(&cluster.source, "k", ["b", "c"]);
    let [mut stays] = line_up(&cluster.source, "stays", ["b"]);

    cluster.begin_to_move("k");
    cluster.migrate("k");
    cluster.finish_to_move("k");
    for waiter in &mut waiters {
        assert_redirected(&waiter.client.read());
    }
    let moved = format!("MOVED {} 127.0.0.1:{}", slot(&cluster.source, "k"), cluster.target.port());
    assert_eq!(waiters[0].client.run("LOCK.ACQUIRE k b BLOCK 0"), Reply::Error(moved), "a retry finds the way");

    assert_eq!(target.run("LOCK.HELD k a").items()[0], Reply::Int(fence), "the lock moved with its fence");
    let [mut b] = line_up(&cluster.target, "k", ["b"]);
    b.assert_silent_for(A_WHILE);
    assert_eq!(target.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert!(b.granted("b") > fence);

    stays.assert_silent();
    source.run("LOCK.RELEASE stays a");
    stays.granted("b");
    assert_eq!(cluster.source.blocked_clients(), 0);
}

#[test]
fn a_lock_that_has_moved_is_not_granted_again_on_its_source() {
    let cluster = Cluster::start();
    let mut source = cluster.source.client();
    let fence = hold(&mut source, "k", "a");
    let mut waiters = line_up(&cluster.source, "k", ["b", "c"]);
    cluster.begin_to_move("k");
    cluster.migrate("k");
    // The slot still belongs to the source, where the key is gone, as with any lock that has ended.
    let mut target = cluster.target.client();
    target.run("ASKING");
    assert_eq!(target.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    // Now or when the slot has moved, they get this one error and nothing before it.
    let early_reply = waiters.each_mut().map(|waiter| waiter.client.read_within(A_WHILE));
    cluster.finish_to_move("k");
    for (waiter, early_reply) in waiters.iter_mut().zip(early_reply) {
        assert_redirected(&early_reply.unwrap_or_else(|| waiter.client.read()));
    }
    cluster.source.wait_blocked(0);
    assert_eq!(holders(&mut target, "k"), ["a"]);
    assert_eq!(target.run("DBSIZE"), Reply::Int(1));
    assert_eq!(source.run("DBSIZE"), Reply::Int(0));
}

#[test]
fn requests_that_wait_without_blocking_are_notified_that_the_slot_moved() {
    let cluster = Cluster::start();
    let mut source = cluster.source.client();
    hold(&mut source, "{k}", "a");
    // RESP3, so that messages are distinct from replies.
    let mut messages = cluster.source.client3();
    messages.send_line("SSUBSCRIBE {k}messages");
    let subscribed = messages.next_push(LIMIT).expect("subscribed");
    assert_eq!(subscribed.items()[0], Reply::bulk("ssubscribe"));

    let reply = source.run("LOCK.ACQUIRE {k} b BLOCK 0 NOTIFY elsewhere");
    assert!(reply.is_error(), "a channel of another slot: {reply:?}");
    for owner in ["b", "c"] {
        let reply = source.run(&format!("LOCK.ACQUIRE {{k}} {owner} PX 60000 BLOCK 0 NOTIFY {{k}}messages"));
        assert_eq!(reply.items()[1], Reply::Int(0));
    }
    let mut next = || {
        let push = messages.next_push(Duration::from_secs(5)).expect("a message comes");
        assert_eq!(push.items()[..2], [Reply::bulk("smessage"), Reply::bulk("{k}messages")]);
        serde_json::from_slice::<serde_json::Value>(push.items()[2].bytes()).expect("messages are JSON")
    };
    source.run("LOCK.RELEASE {k} a");
    let granted = next();
    assert_eq!((&granted["token"], &granted["outcome"]), (&"b".into(), &"granted".into()));

    cluster.begin_to_move("{k}");
    cluster.migrate("{k}");
    let moved = next();
    assert_eq!((&moved["token"], &moved["outcome"]), (&"c".into(), &"moved".into()));
    cluster.finish_to_move("{k}");
    assert_eq!(holders(&mut cluster.target.client(), "{k}"), ["b"]);
}

#[test]
fn multiple_keys_of_a_moving_slot_are_granted_by_one_node_or_none() {
    let cluster = Cluster::start();
    let (mut source, mut target) = (cluster.source.client(), cluster.target.client());
    for key in ["{k}here", "{k}gone"] {
        hold(&mut source, key, "a");
    }
    cluster.begin_to_move("{k}");
    cluster.migrate("{k}gone");
    let requests = ["{k}here {k}gone", "{k}gone {k}here"];
    for keys in requests {
        for line in [format!("MLOCK.ACQUIRE 2 {keys} a"), format!("MLOCK.RELEASE 2 {keys} a")] {
            let early_reply = source.run(&line);
            let error = early_reply.error();
            assert!(error.starts_with("TRYAGAIN ") || error.starts_with("ASK "), "{line}: {error}");
            let replies = target.pipeline(&["ASKING", &line]);
            assert!(replies[1].error().starts_with("TRYAGAIN "), "{line}: {replies:?}");
        }
    }
    assert_eq!(source.run("MLOCK.RELEASE 1 {k}here a"), Reply::Int(1));
    let fence = source.run("MLOCK.ACQUIRE 1 {k}here a");
    assert!(fence.error().starts_with("ASK "), "{fence:?}");
    cluster.finish_to_move("{k}");
    for keys in requests {
        assert!(target.run(&format!("MLOCK.ACQUIRE 2 {keys} a")).fence() > 0);
    }
}

#[test]
fn while_the_cluster_is_down_no_lock_is_granted() {
    let server = single_node();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let other = (slot(&server, "k") + 1) % 16_384;
    // In one round trip, because the lease must not expire before the cluster is down.
    let replies = client.pipeline(&["PEXPIRE k 300".into(), format!("CLUSTER DELSLOTS {other}")]);
    assert_eq!(replies, [Reply::Int(1), Reply::ok()]);
    until_cluster(&server, "fail", 1);
    assert!(client.run("LOCK.ACQUIRE k z").error().starts_with("CLUSTERDOWN "));
    let early_reply = b.client.read_within(Duration::from_millis(600));
    let is_redirected = |reply: &Reply| match reply {
        Reply::Error(error) => error.starts_with("CLUSTERDOWN ") || error.starts_with("TRYAGAIN "),
        _ => false,
    };
    assert!(early_reply.as_ref().is_none_or(is_redirected), "{early_reply:?}");
    expect_ok(&server, &format!("CLUSTER ADDSLOTS {other}"));
    until_cluster(&server, "ok", 1);
    // It may have got its reply while the cluster was down, after the check above.
    let reply = early_reply.unwrap_or_else(|| b.reply());
    let grant = if is_redirected(&reply) { b.client.run("LOCK.ACQUIRE k b PX 60000 BLOCK 5000") } else { reply };
    assert!(grant.fence() > 0);
    assert_eq!(holders(&mut client, "k"), ["b"]);
    assert_eq!(client.run("LOCK.ACQUIRE k z"), Reply::NullArray);
}

#[test]
fn an_undelivered_grant_of_a_moved_lock_is_not_revoked() {
    let cluster = Cluster::start();
    let mut source = cluster.source.client();
    hold(&mut source, "k", "a");
    let [b] = line_up(&cluster.source, "k", ["b"]);
    cluster.begin_to_move("k");
    // In one iteration: b is granted the lock, the lock moves away, and b disconnects before it sees the grant.
    let migrate = format!("MIGRATE 127.0.0.1 {} k 0 5000", cluster.target.port());
    let replies = source.pipeline(&["LOCK.RELEASE k a", &migrate, &format!("CLIENT KILL ID {}", b.id)]);
    assert_eq!(replies, [Reply::Int(1), Reply::ok(), Reply::Int(1)]);
    cluster.finish_to_move("k");
    assert_eq!(holders(&mut cluster.target.client(), "k"), ["b"], "until its lease ends");
    // The source does not keep retrying, which would wake it every millisecond.
    let Some(before) = wake_ups(&cluster.source) else {
        return skip("the system does not report how often a process sleeps");
    };
    let_time_pass(Duration::from_millis(500));
    let wake_ups = wake_ups(&cluster.source).map(|after| after - before);
    assert!(wake_ups.is_some_and(|count| count < 150), "{wake_ups:?} times in 500 ms");
}
