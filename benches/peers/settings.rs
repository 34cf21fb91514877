//! Which peers are measured, each run as its documentation recommends: the reasons are in `peers/`.

use std::io;

use faults::judge::Scope;

use crate::peers::languages::Language;
use crate::peers::{etcd, postgres, redis_lock, zookeeper};
use crate::servers::{Location, Servers};

pub struct Setting {
    pub name: &'static str,
    /// The argument of the load: see `peers/`.
    pub kind: &'static str,
    /// Of its load; None: Rust, or Curator's.
    pub language: Option<Language>,
    pub start: fn(&Location) -> io::Result<Servers>,
    /// Which node is killed: the leader.
    pub leader: fn(&Location, &Servers) -> io::Result<usize>,
    /// After a node was killed.
    pub after: After,
    /// Whether its clients get a fencing token, and over which grants it must increase.
    pub fences: Option<Scope>,
    /// How many wait for one lock in the part with many waiters: fewer if each session is a process.
    pub waiters: u64,
    /// How many links they share.
    pub waiters_share: u64,
    /// Whether an acknowledged grant survives a crash of the server's process, a crash of its machine, and the loss of
    /// one node. From the documentation; the first is also measured.
    pub survives: [&'static str; 3],
    pub parts: &'static [&'static str],
    /// The row of redis-lock with which it is compared: as durable, and of the same language. None: it is redis-lock,
    /// or has consensus.
    pub compared_with: Option<&'static str>,
}

pub enum After {
    Restart,
    Promote,
    /// The other nodes continue.
    Nothing,
}

/// The parts that depend on persistence.
const LOAD: &[&str] = &["pair", "contended", "spread", "hold", "waiters", "kill"];
/// The part that depends only on the kind of lock.
const DEAD: &[&str] = &["dead"];
const ALL: &[&str] = &["pair", "contended", "spread", "hold", "waiters", "kill", "dead"];

const WAITERS: u64 = 5_000;
/// Each is a process. With a thousand, the last connections were not accepted in time. The cause was not measured. Each
/// session that waits longer than `deadlock_timeout` (1 s) runs deadlock detection with the whole lock table locked.
const SESSIONS: u64 = 500;

const REDIS: Setting = Setting {
    name: "redis-lock, no persistence",
    kind: "redis-lock",
    language: None,
    start: |location| redis_lock::start(location, "save \"\"", 0),
    leader: |_, _| Ok(0),
    after: After::Restart,
    fences: Some(Scope::Server),
    waiters: WAITERS,
    waiters_share: 50,
    survives: ["no", "no", "no"],
    parts: LOAD,
    compared_with: None,
};

const ETCD: Setting = Setting {
    name: "etcd, one node",
    kind: "etcd",
    start: |location| etcd::start(location, 1),
    // The revision is that of the whole store, so two grants with no write between them share it.
    fences: Some(Scope::Key),
    survives: ["yes", "yes", "no"],
    parts: ALL,
    ..REDIS
};

const ZOOKEEPER: Setting = Setting {
    name: "ZooKeeper, one node",
    kind: "curator",
    start: |location| zookeeper::start(location, 1),
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
    // Its link has no connection: each owner has one.
    waiters_share: 20,
    survives: ["no: the session ends, and its client reports it", "no", "no"],
    parts: ALL,
    compared_with: Some(REDIS.name),
    ..REDIS
};

/// With `lock.adopt`, clients wait in the server's queue for this long before they retry.
macro_rules! adopting {
    ($pattern:literal) => {
        |location| redis_lock::start(location, concat!("save \"\"\nlock.adopt ", $pattern), 0)
    };
    ($pattern:literal, waiting) => {
        |location| redis_lock::start(location, concat!("save \"\"\nlock.adopt ", $pattern, "\nlock.adopt-wait 1000"), 0)
    };
}

/// Locks of a language, no persistence.
const OF_LANGUAGE: &[&str] = &["pair", "contended", "left"];
const WITH_DEAD: &[&str] = &["pair", "contended", "left", "dead"];
const PAIR: &[&str] = &["pair", "left"];
const JAVA: Setting = Setting { language: Some(Language::Java), fences: None, parts: OF_LANGUAGE, ..REDIS };
const GO: Setting = Setting { language: Some(Language::Go), ..JAVA };
const PYTHON: Setting = Setting { language: Some(Language::Python), ..JAVA };

/// This repository's client for each language, alone and behind another library's interface.
const OF_JAVA: &str = "redis-lock for Java, Lettuce";
const OF_SPRING: &str = "redis-lock for Java, as Spring's LockRegistry";
const OF_SHEDLOCK: &str = "redis-lock for Java, as ShedLock's LockProvider";
const OF_GO: &str = "redis-lock for Go";
const OF_PYTHON: &str = "redis-lock for Python";

/// Each language's locks start with this repository's client.
pub const OF_LANGUAGES: &[Setting] = &[
    Setting { name: OF_JAVA, kind: "java:lettuce", ..JAVA },
    Setting { name: "redis-lock for Java, Jedis", kind: "java:jedis", ..JAVA },
    Setting { name: "redis-lock for Java, renewed", kind: "java:renewed", parts: DEAD, ..JAVA },
    Setting { name: "redis-lock for Java, SESSION", kind: "java:session", parts: DEAD, ..JAVA },
    Setting { name: "Redisson RLock", kind: "redisson", parts: WITH_DEAD, compared_with: Some(OF_JAVA), ..JAVA },
    Setting {
        name: "Redisson fair lock",
        kind: "redisson:fair",
        parts: WITH_DEAD,
        compared_with: Some(OF_JAVA),
        ..JAVA
    },
    Setting {
        name: "Redisson fenced lock",
        kind: "redisson:fenced",
        parts: WITH_DEAD,
        compared_with: Some(OF_JAVA),
        ..JAVA
    },
    Setting {
        name: "Redisson RLock, lock.adopt",
        kind: "redisson",
        start: adopting!("hash:lock-*"),
        parts: WITH_DEAD,
        compared_with: Some(OF_JAVA),
        ..JAVA
    },
    Setting { name: OF_SPRING, kind: "java:spring", parts: WITH_DEAD, ..JAVA },
    Setting {
        name: "Spring RedisLockRegistry",
        kind: "spring",
        parts: WITH_DEAD,
        compared_with: Some(OF_SPRING),
        ..JAVA
    },
    Setting {
        name: "Spring RedisLockRegistry, PUB_SUB_LOCK",
        kind: "spring:pubsub",
        parts: WITH_DEAD,
        compared_with: Some(OF_SPRING),
        ..JAVA
    },
    Setting {
        name: "Spring RedisLockRegistry, lock.adopt",
        kind: "spring",
        start: adopting!("locks:*"),
        parts: WITH_DEAD,
        compared_with: Some(OF_SPRING),
        ..JAVA
    },
    // ShedLock skips a job whose lock is held, so there is no wait.
    Setting { name: OF_SHEDLOCK, kind: "java:shedlock", parts: PAIR, ..JAVA },
    Setting { name: "ShedLock", kind: "shedlock", parts: PAIR, compared_with: Some(OF_SHEDLOCK), ..JAVA },
    Setting {
        name: "ShedLock, lock.adopt",
        kind: "shedlock",
        start: adopting!("job-lock:*"),
        parts: PAIR,
        compared_with: Some(OF_SHEDLOCK),
        ..JAVA
    },
    Setting { name: OF_GO, kind: "redislock", ..GO },
    Setting { name: "redis-lock for Go, renewed", kind: "redislock:renewed", parts: DEAD, ..GO },
    Setting { name: "redis-lock for Go, SESSION", kind: "redislock:session", parts: DEAD, ..GO },
    Setting { name: "redsync", kind: "redsync", parts: WITH_DEAD, compared_with: Some(OF_GO), ..GO },
    Setting {
        name: "redsync, lock.adopt",
        kind: "redsync",
        start: adopting!("lock-*"),
        parts: WITH_DEAD,
        compared_with: Some(OF_GO),
        ..GO
    },
    Setting {
        name: "redsync, lock.adopt-wait",
        kind: "redsync",
        start: adopting!("lock-*", waiting),
        parts: WITH_DEAD,
        compared_with: Some(OF_GO),
        ..GO
    },
    Setting { name: OF_PYTHON, kind: "redislock", ..PYTHON },
    Setting { name: "redis-lock for Python, renewed", kind: "redislock:renewed", parts: DEAD, ..PYTHON },
    Setting { name: "redis-lock for Python, SESSION", kind: "redislock:session", parts: DEAD, ..PYTHON },
    Setting { name: "redis-py Lock", kind: "redis-py", parts: WITH_DEAD, compared_with: Some(OF_PYTHON), ..PYTHON },
    Setting {
        name: "redis-py Lock, lock.adopt",
        kind: "redis-py",
        start: adopting!("lock-*"),
        parts: WITH_DEAD,
        compared_with: Some(OF_PYTHON),
        ..PYTHON
    },
    Setting {
        name: "redis-py Lock, lock.adopt-wait",
        kind: "redis-py",
        start: adopting!("lock-*", waiting),
        parts: WITH_DEAD,
        compared_with: Some(OF_PYTHON),
        ..PYTHON
    },
];

pub const SETTINGS: &[Setting] = &[
    REDIS,
    Setting {
        name: "redis-lock, AOF everysec",
        start: |location| redis_lock::start(location, "save \"\"\nappendonly yes\nappendfsync everysec", 0),
        survives: [
            "yes; all but the last two seconds where the disk falls behind",
            "all but the last second or two",
            "no",
        ],
        ..REDIS
    },
    Setting {
        name: "redis-lock, AOF always",
        start: |location| redis_lock::start(location, "save \"\"\nappendonly yes\nappendfsync always", 0),
        survives: ["yes", "yes", "no"],
        ..REDIS
    },
    Setting {
        name: "redis-lock, replica, WAIT 1",
        kind: "redis-lock:wait",
        start: |location| redis_lock::start(location, "save \"\"\nrepl-diskless-sync-delay 0", 1),
        after: After::Promote,
        survives: ["yes, if the replica is promoted", "yes, the same", "yes, the same; no consensus"],
        ..REDIS
    },
    Setting { name: "redis-lock, lease that the client renews", kind: "redis-lock:renewed", parts: DEAD, ..REDIS },
    Setting { name: "redis-lock, SESSION", kind: "redis-lock:session", parts: DEAD, ..REDIS },
    Setting {
        name: "SET NX and Lua, polled every 100 ms",
        kind: "set-lua:100",
        fences: None,
        parts: ALL,
        compared_with: Some(REDIS.name),
        ..REDIS
    },
    Setting {
        name: "SET NX and Lua, polled every 1 ms",
        kind: "set-lua:1",
        fences: None,
        compared_with: Some(REDIS.name),
        ..REDIS
    },
    ETCD,
    Setting {
        name: "etcd, three nodes",
        start: |location| etcd::start(location, 3),
        leader: etcd::leader,
        after: After::Nothing,
        survives: ["yes", "yes", "yes: consensus"],
        ..ETCD
    },
    ZOOKEEPER,
    Setting {
        name: "ZooKeeper, three nodes",
        start: |location| zookeeper::start(location, 3),
        leader: zookeeper::leader,
        after: After::Nothing,
        survives: ["yes", "yes", "yes: consensus"],
        ..ZOOKEEPER
    },
    POSTGRES,
    Setting { name: "Postgres, row lock", kind: "postgres:row", ..POSTGRES },
];
