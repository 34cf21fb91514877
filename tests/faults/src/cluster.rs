//! A cluster of real nodes, three primaries with one replica each, and what an operator or a power failure does to it.
//! The primary of a slot is always looked up, never remembered: when a machine pauses, the nodes elect another.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{until, Builder, Client, Info, Reply, Server};

use crate::caller::Route;
use crate::lock::ADOPT;

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// After this time the server forgets a pending takeover, and may be asked again (`CLUSTER_MF_TIMEOUT`, 5 s).
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(6);

/// The timeout of one MIGRATE in milliseconds. It must never expire, because then it would be unknown which node has
/// the keys.
const MIGRATE_TIMEOUT_MS: u32 = 60_000;

/// How many keys one MIGRATE moves. Few, so that requests meet a slot that is half here and half there.
const KEYS_AT_ONCE: usize = 3;

/// How an operator makes a replica take over from its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// `CLUSTER FAILOVER`: the primary stops writing, and the replica catches up to the last byte.
    Orderly,
    /// `CLUSTER FAILOVER FORCE`: the other primaries elect it, without its own primary.
    Force,
    /// `CLUSTER FAILOVER TAKEOVER`: without an election.
    Alone,
}

impl Takeover {
    fn line(self) -> &'static str {
        match self {
            Takeover::Orderly => "CLUSTER FAILOVER",
            Takeover::Force => "CLUSTER FAILOVER FORCE",
            Takeover::Alone => "CLUSTER FAILOVER TAKEOVER",
        }
    }
}

/// The point at which a Valkey migration is halted.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// Everything is sent except writes made since: both nodes work.
    BeforePause,
    /// The source has stopped writing, and the target is about to take over.
    Paused,
}

pub struct Cluster {
    nodes: Vec<Server>,
    /// The nodes' ids in the cluster, in the same order.
    ids: Vec<String>,
    is_up: Vec<bool>,
}

impl Cluster {
    /// Six nodes of this kind. The first three have a third of the slots each; the others replicate them in that order.
    /// Nodes consider a node failed that is silent for `node_timeout`.
    #[track_caller]
    pub fn start(node_timeout: Duration, node: impl Fn() -> Builder) -> Cluster {
        let nodes: Vec<Server> = (0..2 * PRIMARIES).map(|_| of_cluster(node(), node_timeout).start()).collect();
        let ids = nodes.iter().map(|node| node.client().run("CLUSTER MYID").text().to_string()).collect();
        let is_up = vec![true; nodes.len()];
        let cluster = Cluster { nodes, ids, is_up };
        for index in 0..PRIMARIES {
            let node = &cluster.nodes[index];
            // Distinct epochs from the start save an agreement.
            expect_ok(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            let [first, next] = [index, index + 1].map(|third| third * SLOTS / PRIMARIES);
            expect_ok(node, &format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1));
        }
        cluster.introduce();
        for index in 0..PRIMARIES {
            let line = format!("CLUSTER REPLICATE {}", cluster.ids[index]);
            expect_ok(&cluster.nodes[PRIMARIES + index], &line);
        }
        cluster.until_whole();
        cluster
    }

    /// Makes all nodes known to each other.
    fn introduce(&self) {
        for (index, newcomer) in self.nodes.iter().enumerate() {
            let bus = newcomer.client().run("CONFIG GET cluster-port");
            let line = format!("CLUSTER MEET 127.0.0.1 {} {}", newcomer.port(), bus.get("cluster-port").text());
            self.nodes[..index].iter().for_each(|node| expect_ok(node, &line));
        }
        for node in &self.nodes {
            let mut client = node.client();
            until("every node knows every other", || {
                let known = client.run("CLUSTER NODES");
                self.ids.iter().all(|id| known.text().contains(id)) && !known.text().contains("handshake")
            });
        }
    }

    /// A running node.
    #[track_caller]
    pub fn node(&self, index: usize) -> &Server {
        assert!(self.is_up[index], "node {index} was killed");
        &self.nodes[index]
    }

    /// The running nodes.
    pub fn up(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.is_up[*index]).collect()
    }

    /// A route to the cluster: a different node each time, which redirects.
    pub fn route(&self) -> Arc<dyn Route> {
        let addresses = self.nodes.iter().map(|node| ([127, 0, 0, 1], node.port()).into());
        Arc::new(AnyNode { addresses: addresses.collect(), next: AtomicUsize::new(0) })
    }

    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.node(self.up()[0]).client().cmd(&["CLUSTER", "KEYSLOT", key]).int();
        u16::try_from(slot).expect("there are 16,384 slots")
    }

    /// Kills a node, like a power failure.
    pub fn kill(&mut self, index: usize) {
        self.is_up[index] = false;
        self.nodes[index].kill();
    }

    /// Restarts a node that was killed. It remembers the cluster, and the keys if it stores them.
    #[track_caller]
    pub fn restart(&mut self, index: usize) {
        self.nodes[index].restart();
        self.is_up[index] = true;
    }

    /// The primary that has the slot, once it works and all running nodes agree on it.
    #[track_caller]
    pub fn primary_of(&self, slot: u16) -> usize {
        let mut primary = None;
        until(&format!("the nodes agree on the owner of slot {slot}"), || {
            primary = self.agreed_primary_of(slot);
            primary.is_some()
        });
        primary.expect("they agree")
    }

    fn agreed_primary_of(&self, slot: u16) -> Option<usize> {
        let mut views = self.up().into_iter().map(|index| primary_as_seen_by(&self.nodes[index], slot));
        let first = views.next()??;
        let primary = self.ids.iter().position(|id| *id == first)?;
        let is_agreed = self.is_up[primary] && views.all(|id| id.as_ref() == Some(&first));
        (is_agreed && is_ok(&self.nodes[primary])).then_some(primary)
    }

    /// The primary of each third of the slots. They may have changed since, but together they have all slots.
    #[track_caller]
    pub fn primaries(&self) -> Vec<usize> {
        let first_slots = (0..PRIMARIES).map(|third| u16::try_from(third * SLOTS / PRIMARIES).expect("it is a slot"));
        first_slots.map(|slot| self.primary_of(slot)).collect()
    }

    /// A replica that follows this primary.
    #[track_caller]
    pub fn replica_of(&self, primary: usize) -> usize {
        let mut replica = None;
        until(&format!("node {primary} has a replica"), || {
            replica = self.up().into_iter().find(|index| {
                let info = self.nodes[*index].info("replication");
                info.text("role") == "slave"
                    && info.number("master_port") == i64::from(self.nodes[primary].port())
                    && info.text("master_link_status") == "up"
            });
            replica.is_some()
        });
        replica.expect("it was found")
    }

    /// Waits until all six nodes run and each primary has its replica.
    #[track_caller]
    pub fn until_whole(&self) {
        until("the cluster is whole", || self.nodes.iter().all(is_settled));
    }

    /// Makes the replica take over from its primary.
    #[track_caller]
    pub fn fail_over(&self, replica: usize, takeover: Takeover) {
        let line = takeover.line();
        // A vote request with an outdated epoch is refused, and the next one comes much later.
        self.epoch();
        let mut client = self.node(replica).client();
        let mut requested_at: Option<Instant> = None;
        until(&format!("the replica has taken over: {line}"), || {
            if is_primary(&mut client) {
                return true;
            }
            if requested_at.is_none_or(|requested_at| requested_at.elapsed() > HANDOVER_TIMEOUT) {
                let reply = client.run(line);
                // The others may have elected it since the check.
                assert!(reply == Reply::ok() || is_primary(&mut client), "{line}: {reply:?}");
                requested_at = Some(Instant::now());
            }
            false
        });
    }

    /// The epoch that all nodes agree on: each election and each takeover starts a new one.
    #[track_caller]
    pub fn epoch(&self) -> i64 {
        let mut epoch = 0;
        until("the nodes agree on the epoch", || {
            let of = |index: &usize| cluster_info(&self.nodes[*index]).number("cluster_current_epoch");
            let epochs: Vec<i64> = self.up().iter().map(of).collect();
            epoch = epochs[0];
            epochs.iter().all(|other| *other == epoch)
        });
        epoch
    }

    /// From now on the primary's writes do not reach its replica, as with a broken link, so they are lost with the
    /// primary. [`Cluster::mend_link`] ends this.
    #[track_caller]
    pub fn break_link(&self, primary: usize, replica: usize) {
        // The replica cannot reconnect, because its link uses a user that does not exist.
        expect_ok(self.node(replica), "CONFIG SET masteruser nobody masterauth secret");
        let cut = self.node(primary).client().run("CLIENT KILL TYPE replica");
        assert!(cut.int() > 0, "the replica was connected");
        until("the link is broken", || self.nodes[replica].info("replication").text("master_link_status") == "down");
    }

    #[track_caller]
    pub fn mend_link(&self, replica: usize) {
        let words = ["CONFIG", "SET", "masteruser", "", "masterauth", ""];
        assert_eq!(self.node(replica).client().cmd(&words), Reply::ok());
    }

    /// Moves a slot key by key, with all its keys.
    #[track_caller]
    pub fn reshard(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot);
        self.begin_to_move(slot, from, to);
        while self.move_keys(slot, from, to) {}
        self.finish_to_move(slot, from, to);
    }

    /// From now on the source redirects requests for missing keys to the target.
    #[track_caller]
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        expect_ok(&self.nodes[to], &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.ids[from]));
        expect_ok(&self.nodes[from], &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.ids[to]));
    }

    /// Moves some keys of the slot. Returns whether there were any.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) -> bool {
        let mut client = self.nodes[from].client();
        let keys = client.run(&format!("CLUSTER GETKEYSINSLOT {slot} {KEYS_AT_ONCE}"));
        let keys: Vec<&str> = keys.items().iter().map(Reply::text).collect();
        if keys.is_empty() {
            return false;
        }
        let line =
            format!("MIGRATE 127.0.0.1 {}  0 {MIGRATE_TIMEOUT_MS} KEYS {}", self.nodes[to].port(), keys.join(" "));
        // The empty word means that keys follow.
        let words: Vec<&str> = line.split(' ').collect();
        // BUSYKEY would mean that both nodes have granted the lock.
        let reply = client.cmd(&words);
        assert!([Reply::ok(), Reply::Status("NOKEY".into())].contains(&reply), "{line}: {reply:?}");
        true
    }

    /// Assigns the slot to the target. The target is informed first, so that the slot always has a node.
    #[track_caller]
    pub fn finish_to_move(&self, slot: u16, from: usize, to: usize) {
        let line = format!("CLUSTER SETSLOT {slot} NODE {}", self.ids[to]);
        [to, from].iter().for_each(|index| expect_ok(&self.nodes[*index], &line));
    }

    /// `CLUSTER MIGRATESLOTS` of Valkey 9 moves the slot in one step. Does not wait for it.
    #[track_caller]
    pub fn begin_to_migrate(&self, slot: u16, from: usize, to: usize) {
        let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", self.ids[to]);
        expect_ok(self.node(from), &line);
    }

    /// Starts migrating a slot, and returns when the migration has halted at this point. Later migrations must be
    /// [allowed](Cluster::allow_migrations).
    #[track_caller]
    pub fn migrate_until(&self, slot: u16, from: usize, to: usize, point: Point) {
        let (node, prevent, state) = match point {
            Point::BeforePause => (from, "PREVENT-PAUSE", "waiting-to-pause"),
            Point::Paused => (to, "PREVENT-FAILOVER", "failover-granted"),
        };
        expect_ok(self.node(node), &format!("DEBUG SLOTMIGRATION {prevent} 1"));
        self.begin_to_migrate(slot, from, to);
        self.until_migration_is(from, state);
    }

    #[track_caller]
    pub fn allow_migrations(&self) {
        for (index, prevent) in self.up().into_iter().flat_map(|index| [(index, "PAUSE"), (index, "FAILOVER")]) {
            expect_ok(&self.nodes[index], &format!("DEBUG SLOTMIGRATION PREVENT-{prevent} 0"));
        }
    }

    #[track_caller]
    pub fn cancel_migrations(&self, from: usize) {
        expect_ok(self.node(from), "CLUSTER CANCELSLOTMIGRATIONS");
    }

    /// Waits until the node's newest migration is in this state, with the server's names: `success`, `failed`, …
    #[track_caller]
    pub fn until_migration_is(&self, index: usize, state: &str) {
        let mut client = self.node(index).client();
        until(&format!("the migration is {state}"), || {
            let migrations = client.run("CLUSTER GETSLOTMIGRATIONS");
            let now = migrations.items()[0].get("state").text();
            assert!(now == state || !["success", "failed", "cancelled"].contains(&now), "{migrations:?}");
            now == state
        });
    }
}

/// The route for requests unless another is set.
struct AnyNode {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
}

impl Route for AnyNode {
    fn address(&self, _: &str) -> SocketAddr {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.addresses[next % self.addresses.len()]
    }
}

fn of_cluster(node: Builder, node_timeout: Duration) -> Builder {
    node.cluster()
        .config(ADOPT)
        .config(format!("cluster-node-timeout {}", node_timeout.as_millis()))
        // A replica takes over however outdated its copy is, because the scenarios are about such losses.
        .config("cluster-replica-validity-factor 0")
        // Each replica keeps its primary.
        .config("cluster-allow-replica-migration no")
}

#[track_caller]
fn expect_ok(node: &Server, line: &str) {
    assert_eq!(node.client().run(line), Reply::ok(), "{line}");
}

fn cluster_info(node: &Server) -> Info {
    Info::parse(node.client().run("CLUSTER INFO").text())
}

fn is_ok(node: &Server) -> bool {
    cluster_info(node).text("cluster_state") == "ok"
}

/// Whether it is a working primary with a replica, or a replica that follows.
fn is_settled(node: &Server) -> bool {
    let info = node.info("replication");
    let has_its_peer = match info.text("role") {
        "slave" => info.text("master_link_status") == "up",
        _ => info.number("connected_slaves") == 1,
    };
    has_its_peer && is_ok(node)
}

fn is_primary(client: &mut Client) -> bool {
    client.run("ROLE").items()[0].text() == "master"
}

/// The id of the primary that has the slot, as this node sees it.
fn primary_as_seen_by(node: &Server, slot: u16) -> Option<String> {
    let ranges = node.client().run("CLUSTER SLOTS");
    let range = ranges.items().iter().find(|range| {
        let [first, last] = [0, 1].map(|bound| range.items()[bound].int());
        (first..=last).contains(&i64::from(slot))
    })?;
    Some(range.items()[2].items()[2].text().to_string())
}
