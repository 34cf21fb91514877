//! Which peers are measured, each as its documentation says to run it: the reasons are in `peers/`.

use std::io;

use faults::judge::Scope;

use crate::peers::{etcd, postgres, redis_lock, zookeeper};
use crate::servers::{Place, Servers};

pub struct Setting {
    pub name: &'static str,
    /// What the load is told: see `peers/`.
    pub kind: &'static str,
    pub start: fn(&Place) -> io::Result<Servers>,
    /// Which node is killed: the one that leads.
    pub leader: fn(&Place, &Servers) -> io::Result<usize>,
    /// After a node was killed.
    pub after: After,
    /// Whether its clients get a number for fencing, and over which grants it has to grow.
    pub fences: Option<Scope>,
    /// How many wait for one lock where many do: sessions that are processes are fewer.
    pub waiters: u64,
    /// How many links they share.
    pub waiters_share: u64,
    /// What of an acknowledged grant survives a crash of the server's process, of its machine, the loss of one node.
    /// From the documentation; the first is also measured.
    pub survives: [&'static str; 3],
    pub parts: &'static [&'static str],
}

pub enum After {
    Restart,
    Promote,
    /// The others go on.
    Nothing,
}

/// What depends on persistence.
const LOAD: &[&str] = &["pair", "contended", "spread", "hold", "waiters", "kill"];
/// What depends on the kind of lock alone.
const DEAD: &[&str] = &["dead"];
const ALL: &[&str] = &["pair", "contended", "spread", "hold", "waiters", "kill", "dead"];

const WAITERS: u64 = 5_000;
/// Each is a process. With a thousand, the last connections were not accepted in time. The cause was not measured: each
/// that waits for longer than `deadlock_timeout` (1 s) searches for a deadlock, with the whole lock table locked.
const SESSIONS: u64 = 500;

const REDIS: Setting = Setting {
    name: "redis-lock, no persistence",
    kind: "redis-lock",
    start: |place| redis_lock::start(place, "save \"\"", 0),
    leader: |_, _| Ok(0),
    after: After::Restart,
    fences: Some(Scope::Server),
    waiters: WAITERS,
    waiters_share: 50,
    survives: ["no", "no", "no"],
    parts: LOAD,
};

const ETCD: Setting = Setting {
    name: "etcd, one node",
    kind: "etcd",
    start: |place| etcd::start(place, 1),
    // A revision belongs to the whole store, and two grants that nothing is written between share it.
    fences: Some(Scope::Key),
    survives: ["yes", "yes", "no"],
    parts: ALL,
    ..REDIS
};

const ZOOKEEPER: Setting = Setting {
    name: "ZooKeeper, one node",
    kind: "curator",
    start: |place| zookeeper::start(place, 1),
    fences: Some(Scope::Key),
    survives: ["yes", "yes", "no"],
    parts: ALL,
    ..REDIS
};

const POSTGRES: Setting = Setting {
    name: "Postgres, advisory lock",
    kind: "postgres:advisory",
    start: postgres::start,
    fences: None,
    waiters: SESSIONS,
    // Its link is no connection: each owner has one.
    waiters_share: 20,
    survives: ["no: the session ends, its client is told", "no", "no"],
    parts: ALL,
    ..REDIS
};

pub const SETTINGS: &[Setting] = &[
    REDIS,
    Setting {
        name: "redis-lock, AOF everysec",
        start: |place| redis_lock::start(place, "save \"\"\nappendonly yes\nappendfsync everysec", 0),
        survives: [
            "yes; all but the last two seconds where the disk falls behind",
            "all but the last second or two",
            "no",
        ],
        ..REDIS
    },
    Setting {
        name: "redis-lock, AOF always",
        start: |place| redis_lock::start(place, "save \"\"\nappendonly yes\nappendfsync always", 0),
        survives: ["yes", "yes", "no"],
        ..REDIS
    },
    Setting {
        name: "redis-lock, replica, WAIT 1",
        kind: "redis-lock:wait",
        start: |place| redis_lock::start(place, "save \"\"\nrepl-diskless-sync-delay 0", 1),
        after: After::Promote,
        survives: ["yes, if the replica is promoted", "yes, the same", "yes, the same; no consensus"],
        ..REDIS
    },
    Setting { name: "redis-lock, lease that the client renews", kind: "redis-lock:renewed", parts: DEAD, ..REDIS },
    Setting { name: "redis-lock, SESSION", kind: "redis-lock:session", parts: DEAD, ..REDIS },
    Setting { name: "SET NX and Lua, asked each 100 ms", kind: "set-lua:100", fences: None, parts: ALL, ..REDIS },
    Setting { name: "SET NX and Lua, asked each 1 ms", kind: "set-lua:1", fences: None, ..REDIS },
    ETCD,
    Setting {
        name: "etcd, three nodes",
        start: |place| etcd::start(place, 3),
        leader: etcd::leader,
        after: After::Nothing,
        survives: ["yes", "yes", "yes: consensus"],
        ..ETCD
    },
    ZOOKEEPER,
    Setting {
        name: "ZooKeeper, three nodes",
        start: |place| zookeeper::start(place, 3),
        leader: zookeeper::leader,
        after: After::Nothing,
        survives: ["yes", "yes", "yes: consensus"],
        ..ZOOKEEPER
    },
    POSTGRES,
    Setting { name: "Postgres, row lock", kind: "postgres:row", ..POSTGRES },
];
