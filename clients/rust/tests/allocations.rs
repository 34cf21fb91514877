//! How often the client allocates memory, which its CPU time follows, and which no other work on the machine changes.

use std::future::Future;

use redis::cmd;
use support::{CountingAllocator, Server};

use crate::servers::client_of;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// The mean number of allocations, rounded down, after some calls that connect.
async fn allocations<F: Future>(mut call: impl FnMut() -> F) -> u64 {
    for _ in 0..10 {
        call().await;
    }
    let before = CountingAllocator::count();
    for _ in 0..100 {
        call().await;
    }
    (CountingAllocator::count() - before) / 100
}

#[tokio::test]
async fn a_lock_costs_few_allocations_more_than_its_commands() {
    // Another test logs.
    let _unlogged = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default());
    let server = Server::start();
    let client = client_of(server.port());
    let connection = client.connection("k").await.unwrap();
    let named = |name: &str| cmd(name).arg("raw").arg("test:1:0123456789abcdef").to_owned();
    let acquire = named("LOCK.ACQUIRE").arg("PX").arg(30_000).arg("BLOCK").arg(3750).to_owned();
    let release = named("LOCK.RELEASE");
    let commands = allocations(|| async {
        let mut connection = connection.clone();
        acquire.query_async::<()>(&mut connection).await.unwrap();
        release.query_async::<()>(&mut connection).await.unwrap();
    })
    .await;
    let lock = client.mutex("k");
    let pair = allocations(|| async { lock.acquire().await.unwrap().release().await.unwrap() }).await;
    let incr = cmd("INCR").arg("n").to_owned();
    let run = allocations(|| async { lock.run::<u64>(&incr).await.unwrap() }).await;
    // Those of two commands that are made anew, of the token, and of the hold. `run` makes three, and sends one packet.
    assert!(pair <= commands + 8 && run <= commands + 6, "commands {commands}, pair {pair}, run {run}");
}
