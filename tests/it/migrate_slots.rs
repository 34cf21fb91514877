//! Valkey's atomic slot migration, `CLUSTER MIGRATESLOTS`: a slot with its locks moves to another node in one step,
//! while clients continue to work. Before that step all decisions are made on the source, afterwards on the target.

use crate::support::cluster::*;
use crate::support::lock_types::{wait_for, Way, WAYS};
use crate::support::skip::skips_slot_migrations;
use crate::support::waiting::*;
use crate::support::{until, Builder, Client, Reply, Rng, Server, LIMIT};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Two nodes with half of the slots each. The tests move the slot of `{k}`, which belongs to the first one.
struct Cluster([Server; 2]);

/// A key on each node that does not move.
const STAYS: [&str; 2] = ["b", "l"];

impl Cluster {
    #[track_caller]
    fn start() -> Cluster {
        Cluster::of(Server::builder)
    }

    #[track_caller]
    fn of(node: impl Fn() -> Builder) -> Cluster {
        // One of them has an append-only file; the other shows that effects are built for a migration alone.
        let nodes = [plain_aof(node()), node()].map(|node| node.cluster().start());
        expect_ok(&nodes[0], "CLUSTER ADDSLOTSRANGE 0 8191");
        expect_ok(&nodes[1], "CLUSTER ADDSLOTSRANGE 8192 16383");
        meet(&nodes[0], &nodes[1]);
        Cluster(nodes)
    }

    /// Starts moving the slot from this node to the other, without waiting.
    #[track_caller]
    fn begin_to_move(&self, from: usize) {
        let slot = slot(&self.0[from], "{k}");
        let target = node_id(&self.0[1 - from]);
        expect_ok(&self.0[from], &format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"));
    }

    /// The node's report on the newest migration.
    #[track_caller]
    fn state(&self, node: usize) -> String {
        let migrations = self.0[node].client().run("CLUSTER GETSLOTMIGRATIONS");
        migrations.items()[0].get("state").text().to_string()
    }

    #[track_caller]
    fn until_state(&self, node: usize, state: &str) {
        until(&format!("the migration is {state}"), || {
            let now = self.state(node);
            assert!(now != "failed" || state == "failed", "the migration failed: {}", self.0[node].log());
            now == state
        });
    }

    /// Moves the slot from this node to the other, and waits for it.
    #[track_caller]
    fn migrate(&self, from: usize) {
        self.begin_to_move(from);
        self.until_state(from, "success");
    }

    /// Starts moving the slot, and stops before the last part is sent: source and target coexist until
    /// [`Cluster::go_on`] or the end of the migration.
    #[track_caller]
    fn hold_up(&self, from: usize) {
        expect_ok(&self.0[from], "DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        self.begin_to_move(from);
        self.until_state(from, "waiting-to-pause");
    }

    #[track_caller]
    fn go_on(&self, from: usize) {
        expect_ok(&self.0[from], "DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        self.until_state(from, "success");
    }
}

/// Every key of the node as stored, byte by byte, with its deadline.
#[track_caller]
fn stored(node: &Server) -> Vec<(String, Reply, Reply)> {
    let mut client = node.client();
    let keys = client.run("KEYS *");
    let keys = keys.items().iter().map(|key| key.text().to_string());
    let mut stored: Vec<_> = keys
        .map(|key| {
            let (value, deadline) = client.stored(&key);
            (key, value, deadline)
        })
        .collect();
    stored.sort_by_key(|(key, ..)| key.clone());
    stored
}

#[track_caller]
fn assert_retries(waiter: &mut Waiter) {
    let reply = waiter.reply();
    assert!(reply.error().starts_with("TRYAGAIN "), "{reply:?}");
}

/// Checks that the node redirects requests for the key and shows nothing of the slot.
#[track_caller]
fn assert_redirects(cluster: &Cluster, node: usize) {
    let mut client = cluster.0[node].client();
    for line in ["LOCK.ACQUIRE {k}1 z", "LOCK.INFO {k}1"] {
        let reply = client.run(line);
        assert!(reply.error().starts_with("MOVED "), "{line}: {reply:?}");
    }
}

#[test]
fn locks_of_every_type_are_moved_unchanged_and_waiters_follow_them() {
    if skips_slot_migrations() {
        return;
    }
    let cluster = Cluster::start();
    let mut client = cluster.0[0].client();
    for (n, way) in WAYS.into_iter().enumerate() {
        way.hold(&mut client, &format!("{{k}}{n}"), "a");
    }
    for line in [
        "RWLOCK.ACQUIRE {k}readers a READ PX 50000",
        "RWLOCK.ACQUIRE {k}readers b READ HOLDS 3 PX 70000",
        "SEM.ACQUIRE {k}permits a LIMIT 9 PERMITS 2 PX 70000",
        "SEM.ACQUIRE {k}permits b LIMIT 9 PERMITS 3 PX 50000",
        "SEM.ACQUIRE {k}permits c LIMIT 9 PX 60000",
        // The holder with the latest fencing token is gone, but the token is kept.
        "SEM.RELEASE {k}permits c",
        "RLOCK.ACQUIRE {k}ever a HOLDS 2 PERSIST",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }

    // There and back.
    for from in [0, 1] {
        let (source, target) = (&cluster.0[from], &cluster.0[1 - from]);
        let mut client = source.client();
        let mut waiters: Vec<_> = WAYS.into_iter().enumerate().map(|(n, way)| line_up_both(way, source, n)).collect();

        cluster.hold_up(from);
        // The source decides as before, and the target gets the effects.
        for ((n, way), waiters) in WAYS.into_iter().enumerate().zip(&mut waiters) {
            let key = format!("{{k}}{n}");
            way.release_held(&mut client, &key, "a");
            waiters[0].granted("b");
            way.release_held(&mut client, &key, "b");
            waiters[1].granted("c");
            way.release_held(&mut client, &key, "c");
            way.hold(&mut client, &key, "a");
        }
        assert_ends_in_the_background(source, STAYS[from]);
        // The lock has expired when its effect reaches the target, which still stores it.
        let mut brief = source.client();
        assert!(brief.run("LOCK.ACQUIRE {k}brief a PX 500 SESSION").fence() > 0);
        assert_eq!(put_to_sleep(target, Duration::from_millis(900)).read(), Reply::ok());
        assert_eq!(brief.run("LOCK.RELEASE {k}brief a"), Reply::Int(1));
        assert_redirects(&cluster, 1 - from);
        assert_eq!(target.client().run("DBSIZE"), Reply::Int(0), "nothing is seen of it");
        let mut waiters: Vec<_> = WAYS.into_iter().enumerate().map(|(n, way)| line_up_both(way, source, n)).collect();
        let mut other = source.client();
        hold(&mut other, STAYS[from], "a");
        let [mut stays] = line_up(source, STAYS[from], ["b"]);

        let before = stored(source);
        cluster.go_on(from);
        for waiter in waiters.iter_mut().flatten() {
            assert_retries(waiter);
        }
        assert_redirects(&cluster, from);
        assert_eq!(source.blocked_clients(), 1);
        stays.assert_silent();
        other.run(&format!("LOCK.RELEASE {} a", STAYS[from]));
        stays.granted("b");
        other.run(&format!("LOCK.RELEASE {} b", STAYS[from]));
        let moved: Vec<_> = before.into_iter().filter(|(key, ..)| key != STAYS[from]).collect();
        assert_eq!(moved.len(), WAYS.len() + 4);
        assert_eq!(stored(target), moved);
        assert_eq!(stored(source), []);

        let mut client = target.client();
        for (n, way) in WAYS.into_iter().enumerate() {
            let key = format!("{{k}}{n}");
            let fence = client.run(&format!("LOCK.HELD {key} a")).items()[0].int();
            let mut waiters = line_up_both(way, target, n);
            way.release_held(&mut client, &key, "a");
            assert!(waiters[0].granted("b") > fence);
            way.release_held(&mut client, &key, "b");
            waiters[1].granted("c");
            way.release_held(&mut client, &key, "c");
            way.hold(&mut client, &key, "a");
        }
    }
    // What the target has written can be loaded.
    let before = stored(&cluster.0[0]);
    assert_eq!(cluster.0[0].client().run("DEBUG LOADAOF"), Reply::ok());
    assert_eq!(stored(&cluster.0[0]), before);
}

/// `b` and `c` wait for a key.
#[track_caller]
fn line_up_both(way: Way, server: &Server, n: usize) -> [Waiter; 2] {
    ["b", "c"].map(|owner| wait_for(way, server, &format!("{{k}}{n}"), owner))
}

/// Decisions of the timer: a lease expires, and a connection closes that held keys of two slots.
#[track_caller]
fn assert_ends_in_the_background(server: &Server, stays: &str) {
    let (mut client, mut session) = (server.client(), server.client());
    for key in ["{k}bound", stays] {
        assert!(session.run(&format!("LOCK.ACQUIRE {key} a {LONG} SESSION")).fence() > 0);
    }
    let [mut next] = line_up(server, "{k}bound", ["b"]);
    let [mut other] = line_up(server, stays, ["b"]);
    drop(session);
    next.granted("b");
    other.granted("b");
    client.run("PEXPIRE {k}bound 50");
    let [mut last] = line_up(server, "{k}bound", ["c"]);
    last.granted("c");
    for (key, owner) in [("{k}bound", "c"), (stays, "b")] {
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} {owner}")), Reply::Int(1));
    }
}

/// The number of held keys in INFO, by lock type.
fn held(node: &Server) -> Vec<i64> {
    ["mutex", "reentrant", "rw", "semaphore"].map(|kind| crate::info::field(node, &format!("held_{kind}"))).into()
}

#[test]
fn held_locks_are_counted_on_the_node_with_the_slot() {
    if skips_slot_migrations() {
        return;
    }
    let cluster = Cluster::start();
    let mut client = cluster.0[0].client();
    for way in WAYS {
        way.hold(&mut client, &format!("{{k}}:{}", way.prefix()), "a");
    }
    for from in [0, 1] {
        assert_eq!(held(&cluster.0[from]), [3, 1, 1, 1]);
        cluster.migrate(from);
        until("the source has freed them", || held(&cluster.0[from]) == [0; 4]);
        assert_eq!(held(&cluster.0[1 - from]), [3, 1, 1, 1]);
    }
}

#[test]
fn an_aborted_migration_changes_no_holder_and_no_waiter() {
    if skips_slot_migrations() {
        return;
    }
    let cluster = Cluster::start();
    let [source, target] = &cluster.0;
    let (mut client, mut session) = (source.client(), source.client());
    hold(&mut client, "{k}", "a");
    assert!(session.run(&format!("LOCK.ACQUIRE {{k}}bound a {LONG} SESSION")).fence() > 0);
    let [mut b, mut c] = line_up(source, "{k}", ["b", "c"]);
    let [mut next] = line_up(source, "{k}bound", ["b"]);

    cluster.hold_up(0);
    expect_ok(source, "CLUSTER CANCELSLOTMIGRATIONS");
    cluster.until_state(1, "failed");
    b.assert_silent_for(A_WHILE);
    assert_eq!(queue(&mut client, "{k}"), ["b", "c"]);
    client.run("LOCK.RELEASE {k} a");
    b.granted("b");
    c.assert_silent();

    // Once more, now at the point where the source has stopped all writes.
    expect_ok(source, "DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
    expect_ok(target, "DEBUG SLOTMIGRATION PREVENT-FAILOVER 1");
    cluster.begin_to_move(0);
    cluster.until_state(0, "failover-granted");
    drop(session);
    next.assert_silent_for(A_WHILE);
    assert_eq!(cluster.state(0), "failover-granted");
    expect_ok(source, "CLUSTER CANCELSLOTMIGRATIONS");
    next.granted("b");
    client.run("LOCK.RELEASE {k} b");
    c.granted("c");
    cluster.until_state(1, "failed");
    assert_eq!(stored(target), []);

    expect_ok(target, "DEBUG SLOTMIGRATION PREVENT-FAILOVER 0");
    let before = stored(source);
    cluster.migrate(0);
    assert_eq!(stored(target), before);
}

#[test]
fn waiters_for_a_free_key_or_without_blocking_learn_that_the_slot_has_moved() {
    if skips_slot_migrations() {
        return;
    }
    let cluster = Cluster::of(|| Server::builder().module_args("grace 600000"));
    let [source, target] = &cluster.0;
    let [mut free] = line_up(source, "{k}free", ["b"]);
    cluster.migrate(0);
    assert_retries(&mut free);
    cluster.0.iter().for_each(|node| expect_ok(node, "CONFIG SET lock.grace 0"));

    let mut client = target.client();
    hold(&mut client, "{k}", "a");
    let request = "LOCK.ACQUIRE {k} b BLOCK 0 NOTIFY {k}messages";
    // RESP3, so that messages are distinct from replies.
    let [mut old, mut new] = [target, source].map(Server::client3);
    let next_of = |client: &mut Client, kind: &str| {
        let push = client.next_push(LIMIT).expect("a message comes");
        assert_eq!(push.items()[..2], [Reply::bulk(kind), Reply::bulk("{k}messages")]);
        push
    };
    old.send_line("SSUBSCRIBE {k}messages");
    next_of(&mut old, "ssubscribe");
    assert_eq!(client.run(request).items()[1], Reply::Int(0));
    cluster.migrate(1);
    // The channel moves with its slot.
    next_of(&mut old, "sunsubscribe");

    new.send_line("SSUBSCRIBE {k}messages");
    next_of(&mut new, "ssubscribe");
    let mut client = source.client();
    assert_eq!(client.run(request).items()[1], Reply::Int(0));
    client.run("LOCK.RELEASE {k} a");
    let message = next_of(&mut new, "smessage");
    assert!(message.items()[2].text().contains(r#""outcome":"granted""#), "{message:?}");
    assert_eq!(queue(&mut client, "{k}"), [""; 0]);
}

/// The holder of each key as the clients know it, and the fencing token of its latest grant.
type Ledger = Mutex<HashMap<String, (Option<String>, i64)>>;

/// A client that acquires and releases locks wherever their slot is.
struct Worker<'a> {
    cluster: &'a Cluster,
    ledger: &'a Ledger,
    owner: String,
    /// A connection to each node, and the node that had the slot last.
    clients: [Client; 2],
    at: usize,
}

impl Worker<'_> {
    /// Sends a request to the node that has the slot.
    fn run(&mut self, line: &str) -> Reply {
        loop {
            let reply = self.clients[self.at].run(line);
            match &reply {
                Reply::Error(error) if error.starts_with("MOVED ") => self.at = 1 - self.at,
                Reply::Error(error) if error.starts_with("TRYAGAIN ") => {}
                Reply::Error(error) => panic!("{line}: {error}"),
                _ => return reply,
            }
        }
    }

    /// Tries to acquire a lock and releases it; returns the node that granted it.
    fn acquire_and_release(&mut self, rng: &mut Rng) -> Option<usize> {
        let n = rng.below(WAYS.len());
        let (way, key) = (WAYS[n], format!("{{k}}{n}"));
        let is_bound = rng.one_in(8);
        let terms = if is_bound { "PX 500 SESSION" } else { LONG };
        let wait = *rng.pick(&["BLOCK 0", "BLOCK 0", "BLOCK 20", ""]);
        let reply = self.run(&format!("{} {terms} {wait}", way.acquire(&key, &self.owner)));
        if reply.is_nil() {
            return None;
        }
        let granted_at = self.at;
        {
            let mut ledger = self.ledger.lock().expect("no other worker failed");
            let (holder, last) = ledger.entry(key.clone()).or_default();
            assert_eq!(*holder, None, "{} is granted {key} while it is held", self.owner);
            assert!(reply.fence() > *last, "the fence of {key} went back: {} after {last}", reply.fence());
            (*holder, *last) = (Some(self.owner.clone()), reply.fence());
        }
        if !is_bound && rng.one_in(3) {
            assert_eq!(self.run(&way.renew(&key, &self.owner)), Reply::Int(1));
        }
        let leave = || self.ledger.lock().expect("no other worker failed").entry(key.clone()).or_default().0 = None;
        leave();
        if is_bound {
            // It ends with the connection, or with its lease if the slot has moved. It must not be resumed.
            self.owner.push('+');
            self.clients[granted_at] = self.cluster.0[granted_at].client();
        } else {
            let released = self.run(&way.release(&key, &self.owner)).int();
            assert!(if way.has_holds { released == 0 } else { released > 0 }, "{released}: {key}");
        }
        Some(granted_at)
    }
}

#[test]
fn under_load_a_slot_is_moved_there_and_back_and_no_lock_is_held_twice() {
    if skips_slot_migrations() {
        return;
    }
    let cluster = Cluster::start();
    let ledger = Ledger::default();
    let grants = [const { AtomicUsize::new(0) }; 2];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetAtEnd(&over);
        for number in 0..8 {
            let clients = [0, 1].map(|node| cluster.0[node].client());
            let owner = format!("worker{number}");
            let mut worker = Worker { cluster: &cluster, ledger: &ledger, owner, clients, at: 0 };
            let (grants, over) = (&grants, &over);
            scope.spawn(move || {
                let _over = SetAtEnd(over);
                let mut rng = Rng::new(number);
                while !over.load(Ordering::Relaxed) {
                    if let Some(node) = worker.acquire_and_release(&mut rng) {
                        grants[node].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for from in [0, 1, 0, 1] {
            let before = grants[from].load(Ordering::Relaxed);
            until("locks are taken", || {
                assert!(!over.load(Ordering::Relaxed), "a worker has failed");
                grants[from].load(Ordering::Relaxed) > before + 50
            });
            cluster.migrate(from);
        }
    });
    for node in &cluster.0 {
        node.wait_blocked(0);
    }
}

/// Sets a flag when dropped, even by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
