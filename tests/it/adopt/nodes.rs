//! Clusters and I/O threads.

use super::*;
use crate::reshard::{assert_redirected, Cluster};
use crate::support::cluster::*;
use crate::support::io_threads::*;
use crate::support::waiting::Waiter;
use crate::support::{Pipeline, Rng};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_cluster_redirects_and_refuses_keys_of_multiple_slots() {
    let server =
        Server::builder().cluster().config("cluster-require-full-coverage no").config("lock.adopt *lock*").start();
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
    until_cluster(&server, "ok", 1);
    let mut client = server.client();
    assert!((0..8192).contains(&slot(&server, "k")) && slot(&server, "t") > 8191);
    assert!(set_nx(&mut client, "lock:{k}", "a"));
    assert_eq!(type_of(&mut client, "lock:{k}"), "redislock");
    assert_eq!(client.run("MSETNX lock:{k}1 a lock:{k}2 b"), Reply::Int(1));
    assert_eq!(client.run("MGET lock:{k}1 lock:{k}2 x{k}").items().len(), 3);
    let unserved = client.run("STRLEN lock:{t}");
    for line in ["SET lock:{t} a NX", "GET lock:{t}", "MSETNX lock:{t} a", "GETDEL lock:{t}"] {
        assert_eq!(client.run(line), unserved, "{line}");
    }
    for line in ["MSETNX lock:{k} a lock:{x} b", "MGET lock:{k} lock:{x}"] {
        assert!(client.run(line).error().starts_with("CROSSSLOT "), "{line}");
    }
    assert!(compare_and_delete(&mut client, "lock:{k}", "a"));
}

#[test]
fn a_cluster_node_redirects_clients_to_the_slots_owner() {
    let first = single_node_of(Server::builder().config("lock.adopt lock:*"));
    let second = Server::builder().cluster().config("lock.adopt lock:*").start();
    meet(&first, &second);
    let mut client = second.client();
    for line in ["SET lock:k a NX PX 9", "GET lock:k", "SETNX lock:k a"] {
        assert!(client.run(line).error().starts_with("MOVED "), "{line}");
    }
}

/// Moves a slot as `redis-cli --cluster reshard` does.
#[test]
fn adopted_locks_and_their_waiters_follow_a_moving_slot() {
    let cluster = Cluster::of(|| Server::builder().config("lock.adopt lock:*").config("lock.adopt-wait 60000"));
    let (mut source, mut target) = (cluster.source.client(), cluster.target.client());
    assert!(set_nx(&mut source, "lock:{k}", "a"));
    let mut waiter = Waiter::park(&cluster.source, "SET lock:{k} b NX PX 60000");
    cluster.begin_to_move("{k}");
    assert_eq!(source.run("GET lock:{k}"), Reply::bulk("a"), "it is still here");
    for line in ["SET lock:{k}new c NX PX 60000", "GET lock:{k}new", "SETNX lock:{k}new c", "MSETNX lock:{k}new c"] {
        assert!(source.run(line).error().starts_with("ASK "), "{line}");
        assert!(target.run(line).error().starts_with("MOVED "), "{line}");
    }
    let replies = target.pipeline(&["ASKING", "SET lock:{k}new c NX PX 60000"]);
    assert_eq!(replies[1], Reply::ok());
    cluster.migrate("lock:{k}");
    assert!(source.run("SET lock:{k} c NX").error().starts_with("ASK "));
    cluster.finish_to_move("{k}");
    assert_redirected(&waiter.only_reply());
    for (key, token) in [("lock:{k}", "a"), ("lock:{k}new", "c")] {
        assert_eq!(type_of(&mut target, key), "redislock", "{key}");
        assert!(compare_and_delete(&mut target, key, token), "{key}");
    }
}

/// A client of both nodes that follows redirections.
struct Follower {
    nodes: [Client; 2],
    node: usize,
}

impl Follower {
    /// The reply of the node that serves the key.
    fn query(&mut self, words: &[&str]) -> Reply {
        let start = Instant::now();
        loop {
            let mut reply = self.nodes[self.node].cmd(words);
            if matches!(&reply, Reply::Error(error) if error.starts_with("ASK ")) {
                let other = &mut self.nodes[1 - self.node];
                assert_eq!(other.cmd(&["ASKING"]), Reply::ok());
                reply = other.cmd(words);
            }
            match &reply {
                // The slot is moving back.
                Reply::Error(error) if error.starts_with("ASK ") => {}
                Reply::Error(error) if error.starts_with("MOVED ") => self.node = 1 - self.node,
                Reply::Error(error) if error.starts_with("TRYAGAIN ") || error.starts_with("CLUSTERDOWN ") => {
                    thread::sleep(Duration::from_millis(1));
                }
                _ => return reply,
            }
            assert!(start.elapsed() < crate::support::LIMIT, "{words:?}: {reply:?}");
        }
    }

    /// Tries to acquire the lock in one of the ways of old and native clients.
    fn take(&mut self, way: usize, key: &str, token: &str) -> bool {
        let script = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 60000)";
        let words: &[&str] = match way {
            0 | 1 => &["SET", key, token, "NX", "PX", "60000"],
            2 => &["SETNX", key, token],
            3 => &["MSETNX", key, token],
            4 => &["EVAL", script, "1", key, token],
            5 => &["LOCK.ACQUIRE", key, token, "PX", "60000"],
            _ => &["LOCK.ACQUIRE", key, token, "PX", "60000", "BLOCK", "20"],
        };
        match self.query(words) {
            Reply::Status(status) => status == "OK",
            Reply::Int(granted) => granted == 1,
            Reply::Array(grant) => !grant.is_empty(),
            reply if reply.is_null() => false,
            reply => panic!("{words:?}: {reply:?}"),
        }
    }

    /// Releases it in one of the ways. No other client can have taken it.
    fn release(&mut self, way: usize, is_native: bool, key: &str, token: &str) {
        if is_native && way < 2 {
            assert_eq!(self.query(&["DEL", key]), Reply::Int(0), "{token}");
            assert!(self.query(&["GETDEL", key]).is_null(), "{token}");
        }
        match way {
            0 | 1 if is_native => assert_eq!(self.query(&["LOCK.RELEASE", key, token]), Reply::Int(1), "{token}"),
            0 => assert_eq!(self.query(&["DEL", key]), Reply::Int(1), "{token}"),
            1 => assert_eq!(self.query(&["GETDEL", key]), Reply::bulk(token)),
            2 => assert_eq!(self.query(&["LOCK.RELEASE", key, token]), Reply::Int(1), "{token}"),
            _ => assert_eq!(self.query(&["EVAL", COMPARE_AND_DELETE, "1", key, token]), Reply::Int(1), "{token}"),
        }
    }
}

#[test]
fn while_slots_move_no_two_clients_hold_an_adopted_lock() {
    const KEYS: [&str; 2] = ["lock:{k}", "lock:{k}2"];
    let cluster = Cluster::of(|| Server::builder().config("lock.adopt lock:*").config("lock.adopt-wait 15"));
    // A node that loses its last slot becomes a replica, so it keeps this one.
    move_slot([&cluster.source, &cluster.target], "kept");
    let seed = Rng::new(461).seed();
    eprintln!("LOCK_TEST_SEED={seed}");
    let (inside, held, moves) = ([const { AtomicU32::new(0) }; 2], AtomicU32::new(0), AtomicU32::new(0));
    let iterations = [const { AtomicU32::new(0) }; 6];
    let end = Instant::now() + Duration::from_secs(2);
    let is_over = || Instant::now() >= end && held.load(Ordering::Relaxed) > 50 && moves.load(Ordering::Relaxed) > 3;
    thread::scope(|scope| {
        for (number, iterations) in iterations.iter().enumerate() {
            let mut client = Follower { nodes: [cluster.source.client(), cluster.target.client()], node: 0 };
            let (inside, held) = (&inside, &held);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed.wrapping_add(number as u64));
                while !is_over() {
                    let iteration = iterations.fetch_add(1, Ordering::SeqCst);
                    let (which, token) = (rng.below(KEYS.len()), format!("c{number}-{iteration}"));
                    let way = rng.below(8);
                    if client.take(way, KEYS[which], &token) {
                        assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0, "{token} is not alone");
                        thread::sleep(Duration::from_micros(rng.below(2_000) as u64));
                        assert_eq!(inside[which].fetch_sub(1, Ordering::SeqCst), 1, "{token} is not alone");
                        client.release(rng.below(6), way >= 5, KEYS[which], &token);
                        held.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut nodes = [&cluster.source, &cluster.target];
        while !is_over() {
            move_slot(nodes, "{k}");
            nodes.reverse();
            moves.fetch_add(1, Ordering::Relaxed);
            // An ASK that a client got earlier must not send it to a node that imports the slot a second time.
            let before = iterations.each_ref().map(|iterations| iterations.load(Ordering::SeqCst));
            let have_continued = || {
                iterations.iter().zip(before).all(|(iterations, before)| iterations.load(Ordering::SeqCst) > before + 1)
            };
            while !have_continued() && !is_over() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    for node in [&cluster.source, &cluster.target] {
        assert_eq!(node.client().run("DBSIZE"), Reply::Int(0), "seed {seed}");
    }
}

/// Moves a slot from the first to the second node, key by key.
fn move_slot(nodes: [&Server; 2], key: &str) {
    let [source, target] = nodes.map(|node| node_id(node));
    let slot = slot(nodes[0], key);
    expect_ok(nodes[1], &format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
    expect_ok(nodes[0], &format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    let mut client = nodes[0].client();
    loop {
        thread::sleep(Duration::from_millis(5));
        let keys = client.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let [key] = keys.items() else { break };
        // NOKEY: the lock may have ended in the meantime.
        let moved = client.run(&format!("MIGRATE 127.0.0.1 {} {} 0 5000", nodes[1].port(), key.text()));
        assert!(!moved.is_error(), "{moved:?}");
    }
    for node in [nodes[1], nodes[0]] {
        expect_ok(node, &format!("CLUSTER SETSLOT {slot} NODE {target}"));
    }
}

fn pipeline(lines: &[Vec<&str>]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    lines.iter().for_each(|words| pipeline.push(words));
    pipeline
}

#[test]
fn io_threads_serve_many_clients_of_adopted_locks() {
    let builders = [with_io_threads(), with_io_threads().cluster()];
    for builder in builders {
        let mut server = builder.config("lock.adopt lock:*").start();
        if server.info("cluster").number("cluster_enabled") == 1 {
            expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
            until_cluster(&server, "ok", 1);
        }
        assert_serves_many(&mut server, |number| {
            let (own, shared) = (format!("lock:{number}"), format!("lock:{{s}}{}", number % 3));
            let token = format!("t{number}");
            pipeline(&[
                vec!["SET", &own, &token, "NX", "PX", "60000"],
                vec!["GET", &own],
                vec!["EVAL", COMPARE_AND_DELETE, "1", &own, &token],
                vec!["SET", &shared, &token, "NX", "PX", "60000"],
                vec!["MGET", &shared, "plain{s}"],
                vec!["EVAL", COMPARE_AND_DELETE, "1", &shared, &token],
                vec!["SET", "plain{s}", &token],
            ])
        });
    }
}
