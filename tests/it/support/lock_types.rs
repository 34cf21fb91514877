//! The common promises of the lock types, checked with each, and locks with multiple holders.

use super::waiting::{Waiter, LONG};
use super::{until, Client, Reply, Server};

/// A way to hold a key exclusively.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The lock type as shown by LOCK.INFO.
    pub kind: &'static str,
    acquire: &'static str,
    release: &'static str,
    renew: &'static str,
    /// Whether replies contain the hold count.
    pub has_holds: bool,
}

/// Every lock type, with the options that allow one holder at a time.
pub const WAYS: [Way; 5] = [
    Way {
        kind: "mutex",
        acquire: "LOCK.ACQUIRE KEY OWNER",
        release: "LOCK.RELEASE KEY OWNER",
        renew: "LOCK.RENEW KEY OWNER",
        has_holds: false,
    },
    Way {
        kind: "reentrant",
        acquire: "RLOCK.ACQUIRE KEY OWNER",
        release: "RLOCK.RELEASE KEY OWNER",
        renew: "RLOCK.RENEW KEY OWNER",
        has_holds: true,
    },
    Way {
        kind: "rw",
        acquire: "RWLOCK.ACQUIRE KEY OWNER WRITE",
        release: "RWLOCK.RELEASE KEY OWNER WRITE",
        renew: "RWLOCK.RENEW KEY OWNER",
        has_holds: true,
    },
    Way {
        kind: "semaphore",
        acquire: "SEM.ACQUIRE KEY OWNER LIMIT 1",
        release: "SEM.RELEASE KEY OWNER",
        renew: "SEM.RENEW KEY OWNER",
        has_holds: true,
    },
    // These are mutexes too: the second key is the companion of the first.
    Way {
        kind: "mutex",
        acquire: "MLOCK.ACQUIRE 2 KEY KEY:too OWNER",
        release: "MLOCK.RELEASE 2 KEY KEY:too OWNER",
        renew: "MLOCK.RENEW 2 KEY KEY:too OWNER",
        has_holds: false,
    },
];

impl Way {
    pub fn acquire(&self, key: &str, owner: &str) -> String {
        fill(self.acquire, key, owner)
    }

    pub fn release(&self, key: &str, owner: &str) -> String {
        fill(self.release, key, owner)
    }

    pub fn renew(&self, key: &str, owner: &str) -> String {
        fill(self.renew, key, owner)
    }

    /// Gives `key` to `owner` for a long time.
    #[track_caller]
    pub fn hold(&self, client: &mut Client, key: &str, owner: &str) -> i64 {
        client.run(&format!("{} PX 60000", self.acquire(key, owner))).fence()
    }

    /// Gives `key` back, which `owner` must hold.
    #[track_caller]
    pub fn release_held(&self, client: &mut Client, key: &str, owner: &str) {
        let released = client.run(&self.release(key, owner)).int();
        assert!(if self.has_holds { released == 0 } else { released > 0 }, "{owner} released {released} of {self:?}");
    }

    /// The command prefix in lower case: `lock`, `rwlock`, …
    pub fn prefix(&self) -> String {
        self.acquire.split('.').next().expect("a command").to_lowercase()
    }
}

/// `owner` waits for `key` in this way, without a limit.
#[track_caller]
pub fn wait_for(way: Way, server: &Server, key: &str, owner: &str) -> Waiter {
    Waiter::park(server, &format!("{} {LONG} BLOCK 0", way.acquire(key, owner)))
}

fn fill(line: &str, key: &str, owner: &str) -> String {
    line.replace("KEY", key).replace("OWNER", owner)
}

/// Runs the test once for each way, each time on a fresh server.
pub fn each_way(builder: impl Fn() -> super::Builder, test: impl Fn(Way, &Server, &mut Client)) {
    for way in WAYS {
        let server = builder().start();
        test(way, &server, &mut server.client());
    }
}

/// The holders of `key` in LOCK.INFO: owner, mode and holds.
#[track_caller]
pub fn rows(client: &mut Client, key: &str) -> Vec<(String, String, i64)> {
    let info = client.cmd(&["LOCK.INFO", key, "COUNT", "0"]);
    if info.is_nil() {
        return Vec::new();
    }
    let row = |held: &Reply| {
        (held.get("owner").text().to_string(), held.get("mode").text().to_string(), held.get("holds").int())
    };
    info.get("holders").items().iter().map(row).collect()
}

/// The result of LOCK.HELD: fencing token, holds, and milliseconds left.
#[track_caller]
pub fn held(client: &mut Client, key: &str, owner: &str) -> Option<(i64, i64, i64)> {
    let reply = client.cmd(&["LOCK.HELD", key, owner]);
    if reply.is_nil() {
        return None;
    }
    let [fence, holds, ttl] = [0, 1, 2].map(|at| reply.items()[at].int());
    Some((fence, holds, ttl))
}

/// One holder's remaining time in milliseconds, from LOCK.HELD.
#[track_caller]
pub fn left(client: &mut Client, key: &str, owner: &str) -> i64 {
    held(client, key, owner).unwrap_or_else(|| panic!("{owner} does not hold {key}")).2
}

/// Waits until `owner` no longer holds `key`.
#[track_caller]
pub fn until_ended(client: &mut Client, key: &str, owner: &str) {
    until(&format!("{owner} holds {key} no more"), || held(client, key, owner).is_none());
}
