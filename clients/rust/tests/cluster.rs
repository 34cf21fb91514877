//! Two primaries that share the slots; and the case cluster-redirect-while-waiting.

use std::time::{Duration, Instant};

use redis_lock_client::Client;
use support::{until, Info, Reply, Server};

use crate::proxy::Proxy;
use crate::servers::{eventually, Observed, BUSY, LONG};

pub struct Cluster {
    pub nodes: [Server; 2],
}

impl Cluster {
    pub fn start() -> Cluster {
        let nodes = [0, 1].map(|_| Server::builder().cluster().config("cluster-node-timeout 60000").start());
        for (node, slots) in nodes.iter().zip(["0 8191", "8192 16383"]) {
            expect_ok(node, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        }
        expect_ok(&nodes[1], "CLUSTER SET-CONFIG-EPOCH 2");
        let bus = nodes[1].client().run("CONFIG GET cluster-port");
        let bus = bus.get("cluster-port").text();
        expect_ok(&nodes[0], &format!("CLUSTER MEET 127.0.0.1 {} {bus}", nodes[1].port()));
        for node in &nodes {
            until("the cluster works", || {
                let info = Info::parse(node.client().run("CLUSTER INFO").text());
                info.text("cluster_state") == "ok" && info.number("cluster_known_nodes") == 2
            });
        }
        Cluster { nodes }
    }

    /// The node that has the key initially, and the other one.
    pub fn of_key(&self, key: &str) -> (i64, &Server, &Server) {
        let [first, second] = &self.nodes;
        let slot = first.client().cmd(&["CLUSTER", "KEYSLOT", key]).int();
        match slot {
            0..=8191 => (slot, first, second),
            _ => (slot, second, first),
        }
    }

    /// From here on the source redirects requests for keys that it does not have to the target.
    pub fn begin_to_move(&self, slot: i64, from: &Server, to: &Server) {
        expect_ok(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        expect_ok(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
        let keys = from.client().run(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        for key in keys.items() {
            expect_ok(from, &format!("MIGRATE 127.0.0.1 {} {} 0 5000", to.port(), key.text()));
        }
    }

    pub fn finish_to_move(&self, slot: i64, from: &Server, to: &Server) {
        let id = id(to);
        for node in [to, from] {
            expect_ok(node, &format!("CLUSTER SETSLOT {slot} NODE {id}"));
        }
    }

    /// A node without slots, which no client knows.
    pub fn grow(&self) -> Server {
        let third = Server::builder().cluster().config("cluster-node-timeout 60000").start();
        expect_ok(&third, "CLUSTER SET-CONFIG-EPOCH 3");
        let bus = third.client().run("CONFIG GET cluster-port");
        let bus = bus.get("cluster-port").text();
        expect_ok(&self.nodes[0], &format!("CLUSTER MEET 127.0.0.1 {} {bus}", third.port()));
        for node in self.nodes.iter().chain([&third]) {
            until("a cluster of three", || {
                let info = Info::parse(node.client().run("CLUSTER INFO").text());
                info.text("cluster_state") == "ok" && info.number("cluster_known_nodes") == 3
            });
        }
        third
    }

    /// By one node; the client finds the other.
    pub fn client(&self) -> Client {
        Client::cluster([("127.0.0.1", self.nodes[0].port())]).expect("an address")
    }
}

fn id(node: &Server) -> String {
    node.client().run("CLUSTER MYID").text().to_string()
}

fn expect_ok(node: &Server, line: &str) {
    assert_eq!(node.client().run(line), Reply::ok(), "{line}");
}

#[tokio::test]
async fn cluster_redirect_while_waiting() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let (slot, source, target) = cluster.of_key("k");
    let lock = client.mutex("k").lease(LONG);
    let holder = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a waiter", || source.waiters("k").len() == 1).await;
    cluster.begin_to_move(slot, source, target);
    // The source says ASK now, and MOVED later.
    eventually("the same waiter, asked for", || target.blocked_clients() == 1).await;
    assert_eq!(target.calls("asking"), 1);
    cluster.finish_to_move(slot, source, target);
    eventually("the waiter at the slot's new node", || target.waiters("k").len() == 1).await;
    let fence = holder.fence();
    holder.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
    assert!(target.is_free("k"));
    let several = client.multi_lock(["{k}1", "{k}2"]).acquire().await.unwrap();
    several.exec::<()>(redis::cmd("SET").arg("{k}3").arg("v")).await.unwrap();
    several.release().await.unwrap();
    assert!(target.client().run("GET {k}3").is_bulk("v"));
}

#[tokio::test]
async fn keys_of_both_nodes_are_found() {
    let cluster = Cluster::start();
    let client = cluster.client();
    for key in ["k", "foo"] {
        let (_, mine, other) = cluster.of_key(key);
        let guard = client.mutex(key).acquire().await.unwrap();
        assert!(!mine.is_free(key));
        guard.release().await.unwrap();
        assert_eq!(other.calls("lock.acquire"), i64::from(key != "k"));
    }
    assert_eq!(client.connections().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_node_that_is_down_is_named_and_does_not_block_the_others() {
    let mut cluster = Cluster::start();
    let client = cluster.client();
    let [first, second] = cluster.nodes.each_ref().map(|node| format!("127.0.0.1:{}", node.port()));
    // The client's own node: from here on it uses the other one.
    client.servers().await.unwrap();
    cluster.nodes[0].kill();
    let mut answered = Vec::new();
    for server in client.servers().await.unwrap() {
        answered.push((server.name(), server.connect().await.is_ok()));
    }
    answered.sort();
    let mut expected = [(first.clone(), false), (second.clone(), true)];
    expected.sort();
    assert_eq!(answered, expected);
    let names = [client.server_of("k").await.unwrap().name(), client.server_of("foo").await.unwrap().name()];
    assert_eq!(names, [first, second]);
}

#[tokio::test]
async fn a_silent_node_does_not_delay_callers_of_another_one() {
    let cluster = Cluster::start();
    let [near, far] = &cluster.nodes;
    let proxy = Proxy::to(far.port()).await;
    expect_ok(far, &format!("CONFIG SET cluster-announce-port {}", proxy.port));
    let is_announced = |node: &Server| {
        let ranges = node.client().run("CLUSTER SLOTS");
        ranges.items().iter().any(|range| range.items()[2].items()[1].int() == i64::from(proxy.port))
    };
    eventually("the address of the proxy", || is_announced(near) && is_announced(far)).await;
    let nodes = [("127.0.0.1", proxy.port), ("127.0.0.1", near.port())];
    let client = || Client::cluster(nodes).unwrap().reply_timeout(Duration::from_millis(300));
    let warm = client();
    for key in ["k", "foo"] {
        warm.mutex(key).acquire().await.unwrap().release().await.unwrap();
    }
    proxy.silence();
    // The first query of the slot map, and those after each failure.
    for client in [client(), warm] {
        let lock = client.mutex("foo");
        let failing = tokio::spawn(async move { lock.acquire().await });
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            let asked = Instant::now();
            client.mutex("k").lease(LONG).acquire().await.unwrap().release().await.unwrap();
            // It would take two seconds, the limit for a connection.
            assert!(asked.elapsed() < Duration::from_secs(1) + BUSY, "{:?}", asked.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!failing.is_finished());
        failing.abort();
    }
}

/// A command to the node that imports a slot.
fn asking(node: &Server, line: &str) -> Reply {
    node.client().pipeline(&["ASKING", line]).pop().expect("two replies")
}

#[tokio::test]
async fn a_free_lock_of_the_first_slot_of_a_new_node_is_requested_there() {
    let cluster = Cluster::start();
    let client = cluster.client();
    // It knows the old state of the cluster.
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let third = cluster.grow();
    let (slot, source, _) = cluster.of_key("k");
    cluster.begin_to_move(slot, source, &third);
    let ways = [
        client.mutex("k"),
        client.mutex("k").token("mine"),
        client.mutex("k").mixed(Duration::from_millis(20)),
        client.mutex("k").session(),
        client.reentrant("k"),
        client.write_lock("k"),
        client.semaphore("k", 1),
        // Of several keys neither node grants any before the slot has moved.
        client.multi_lock(["k"]),
    ];
    for (number, lock) in ways.into_iter().enumerate() {
        let lock = lock.lease(LONG);
        let guard = lock.acquire_within(LONG).await.unwrap().unwrap_or_else(|| panic!("{number}"));
        assert!(!asking(&third, "LOCK.INFO k").is_nil());
        let next = lock.clone();
        if number == 1 {
            // The token holds it already.
            guard.release().await.unwrap();
        } else {
            let waiting = tokio::spawn(async move { next.acquire().await });
            if number != 2 {
                eventually("a waiter", || asking(&third, "LOCK.WAITERS k COUNT 0").items().len() == 1).await;
            }
            guard.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        assert!(asking(&third, "LOCK.INFO k").is_nil());
    }
    asking(&third, "SET {k}n 0");
    let incr = redis::cmd("INCR").arg("{k}n").to_owned();
    assert_eq!(client.mutex("k").run::<i64>(&incr).await.unwrap(), 1);
    assert_eq!(client.mutex("k").session().run::<i64>(&incr).await.unwrap(), 2);
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    assert_eq!(guard.exec::<i64>(&incr).await.unwrap(), 3);
    // The client checks it after a third of the lease, at a node that does not own the slot yet; nothing is renewed.
    let lease = Duration::from_secs(6);
    let session = client.mutex("{k}session").session().lease(lease).acquire().await.unwrap();
    let checks = third.calls("lock.held");
    eventually("a check of the session", || third.calls("lock.held") > checks).await;
    assert!(!session.is_lost());
    cluster.finish_to_move(slot, source, &third);
    expect_ok(
        &cluster.nodes[usize::from(source.port() == cluster.nodes[0].port())],
        &format!("CLUSTER SETSLOT {slot} NODE {}", id(&third)),
    );
    assert_eq!(guard.exec::<i64>(&incr).await.unwrap(), 4);
    assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let checks = third.calls("lock.held");
    eventually("a check of the session", || third.calls("lock.held") > checks).await;
    session.release().await.unwrap();
}
