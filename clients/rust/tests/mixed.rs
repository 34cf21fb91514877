//! A migrating service: old clients, which hold the key as a string, and ours with `mixed`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis_lock_client::{Client, Error};
use support::Server;

use crate::servers::{client_of, eventually, Observed, LONG};

const EACH_SIDE: usize = 20;
/// The minimum number of grants on each side.
const TURNS: usize = 8;
const POLL: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Shared {
    inside: AtomicUsize,
    turns: [AtomicUsize; 2],
    is_over: AtomicBool,
}

impl Shared {
    async fn turn(&self, side: usize) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.turns[side].fetch_add(1, Ordering::SeqCst);
        if self.turns.iter().all(|turns| turns.load(Ordering::SeqCst) >= TURNS) {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// SET NX PX, and a script that compares and deletes, like every such lock.
async fn old(mut connection: MultiplexedConnection, number: usize, shared: Arc<Shared>) {
    let release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    while shared.goes_on() {
        let mut set = redis::cmd("SET");
        set.arg("k").arg(number).arg("NX").arg("PX").arg(60_000);
        if set.query_async::<Option<String>>(&mut connection).await.unwrap().is_some() {
            shared.turn(0).await;
            let deleted: i64 =
                redis::cmd("EVAL").arg(release).arg(1).arg("k").arg(number).query_async(&mut connection).await.unwrap();
            assert_eq!(deleted, 1);
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn new(client: Client, shared: Arc<Shared>) {
    let lock = client.mutex("k").lease(LONG).mixed(POLL);
    while shared.goes_on() {
        let guard = lock.acquire().await.unwrap();
        shared.turn(1).await;
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn old_and_new_clients_take_turns() {
    let server = Server::start();
    let client = client_of(server.port());
    let shared = Arc::new(Shared::default());
    let (_, connection) = client.connections().await.unwrap().remove(0);
    let mut tasks = Vec::new();
    for number in 0..EACH_SIDE {
        tasks.push(tokio::spawn(old(connection.clone(), number, shared.clone())));
        tasks.push(tokio::spawn(new(client.clone(), shared.clone())));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let [old, new] = &shared.turns;
    println!("turns until both sides had {TURNS}: old {old:?}, new {new:?}");
    assert_eq!(server.client().run("EXISTS k").int(), 0);
}

#[tokio::test]
async fn a_string_is_waited_for_only_with_mixed() {
    let server = Server::start();
    let client = client_of(server.port());
    server.client().run("SET k old NX PX 60000");
    let lock = client.mutex("k").mixed(Duration::from_millis(10));
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire_within(Duration::from_millis(100)).await.unwrap().is_none());
    assert!(matches!(client.mutex("k").acquire().await, Err(Error::WrongType(_))));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let asked = server.calls("lock.acquire");
    eventually("polls", || server.calls("lock.acquire") > asked + 2).await;
    assert!(!waiting.is_finished() && server.waiters("k").is_empty());
    server.client().run("DEL k");
    let guard = waiting.await.unwrap().unwrap();
    // Conversely, an old client finds the key in use.
    assert!(server.client().run("SET k old NX PX 60000").is_null());
    guard.release().await.unwrap();
}
