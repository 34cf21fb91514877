//! Queries to servers in tests, and waits for a state that do not block the client's tasks.

use std::time::{Duration, Instant};

use redis_lock_client::{Client, Guard};
use support::{Info, Reply, Server, LIMIT};

/// A time that never runs out in a test.
pub const LONG: Duration = Duration::from_secs(120);

/// The allowance for a busy machine, on top of the times that the README guarantees.
pub const BUSY: Duration = Duration::from_millis(1500);

/// Waits for a state; fails the test when it does not come.
#[track_caller]
pub fn eventually(what: &str, mut state: impl FnMut() -> bool) -> impl std::future::Future<Output = ()> {
    let what = format!("{what}, asked for at {}", std::panic::Location::caller());
    async move {
        let began = Instant::now();
        while !state() {
            assert!(began.elapsed() < LIMIT, "never came: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until the guard knows that its lock is lost; fails the test when that does not come.
pub async fn until_lost(guard: &Guard) {
    tokio::time::timeout(LIMIT, guard.lost()).await.expect("the loss is reported");
}

/// A client of a server on this port.
pub fn client_of(port: u16) -> Client {
    Client::open(("127.0.0.1", port)).expect("an address")
}

/// The number of live tasks of this test: its own, connections, and those that keep locks alive.
pub fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

pub trait Observed {
    fn observed(&self) -> &Server;

    /// The waiting owners, in queue order.
    fn waiters(&self, key: &str) -> Vec<String> {
        let waiters = self.observed().client().cmd(&["LOCK.WAITERS", key, "COUNT", "0"]);
        if waiters.is_error() {
            // Not its slot, or no lock.
            return Vec::new();
        }
        waiters.items().iter().map(|waiter| waiter.get("owner").text().to_string()).collect()
    }

    fn waits(&self, key: &str, owners: &[&str]) -> bool {
        self.waiters(key) == owners
    }

    /// Releases the lock while two requests wait: a waiter that is between two requests is skipped.
    fn release_before_two(&self, key: &str, owner: &str) -> bool {
        let script = "return #redis.call('LOCK.WAITERS', KEYS[1], 'COUNT', 0) == 2 \
                      and redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) or 0";
        self.observed().client().cmd(&["EVAL", script, "1", key, owner]) == Reply::Int(1)
    }

    /// LOCK.INFO's map of each holder.
    fn holders(&self, key: &str) -> Vec<Reply> {
        let info = self.observed().client().cmd(&["LOCK.INFO", key]);
        if info.is_nil() {
            return Vec::new();
        }
        info.get("holders").items().to_vec()
    }

    /// The number of holds of the first holder, or 0 without a holder.
    fn holds(&self, key: &str) -> i64 {
        self.holders(key).first().map_or(0, |holder| holder.get("holds").int())
    }

    fn is_free(&self, key: &str) -> bool {
        self.observed().client().cmd(&["LOCK.INFO", key]).is_nil()
    }

    fn break_lock(&self, key: &str) {
        assert!(self.observed().client().cmd(&["LOCK.BREAK", key]).int() > 0);
    }

    /// How often a command was refused before it ran, such as by a redirection.
    fn rejected(&self, command: &str) -> i64 {
        let stats = self.observed().client().cmd(&["INFO", "commandstats"]);
        let line = Info::parse(stats.text()).find(&format!("cmdstat_{command}")).map(String::from);
        let rejected = line.as_deref().and_then(|line| line.split_once("rejected_calls=")?.1.split(',').next());
        rejected.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// How often a command has run.
    fn calls(&self, command: &str) -> i64 {
        let stats = self.observed().client().cmd(&["INFO", "commandstats"]);
        let line = Info::parse(stats.text()).find(&format!("cmdstat_{command}")).map(String::from);
        let calls = line.as_deref().and_then(|line| line.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }
}

impl Observed for Server {
    fn observed(&self) -> &Server {
        self
    }
}
