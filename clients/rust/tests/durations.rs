//! Durations: zero is refused, fractions round up, and the largest one neither wraps nor panics.

use std::time::Duration;

use redis_lock_client::{Client, Error, Guard, Lock};
use support::{Reply, Server};

use crate::servers::{client_of, eventually, Observed, LONG};

const MAX: Duration = Duration::MAX;

#[tokio::test]
async fn a_duration_of_zero_is_refused_before_anything_is_sent() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("held").acquire().await.unwrap();
    let asked = server.calls("lock.acquire");
    let zero = Duration::ZERO;
    let locks: [fn(Lock) -> Lock; 4] = [
        |lock| lock.lease(Duration::ZERO),
        |lock| lock.at_least(Duration::ZERO),
        |lock| lock.mixed(Duration::ZERO),
        |lock| lock.replicas(1, Duration::ZERO),
    ];
    for (number, with) in locks.into_iter().enumerate() {
        let lock = with(client.mutex("k"));
        let ping = redis::cmd("PING");
        let refused = [
            lock.acquire().await.err(),
            lock.try_acquire().await.err(),
            lock.run::<()>(&ping).await.err(),
            Guard::from_token(&lock, "held").await.err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(Error::Usage(_))), "{number}: {error:?}");
        }
    }
    for refused in [guard.renew(zero).await, guard.extend(zero).await] {
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    }
    assert_eq!((server.calls("lock.acquire"), server.calls("lock.renew")), (asked, 0));
    guard.release().await.unwrap();
    // None turns it off.
    client
        .mutex("k")
        .at_least(LONG)
        .mixed(LONG)
        .at_least(None)
        .mixed(None)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(server.is_free("k"));
}

async fn lease_of(client: &Client, key: &str) -> Option<Duration> {
    client.mutex(key).info().await.unwrap().unwrap().holders[0].lease
}

#[tokio::test]
async fn fractions_of_a_millisecond_round_up() {
    let server = Server::start();
    let client = client_of(server.port());
    let (fraction, rounded) = (Duration::new(20, 1), Some(Duration::from_millis(20_001)));
    let guard = client.mutex("k").lease(fraction).acquire().await.unwrap();
    assert_eq!(lease_of(&client, "k").await, rounded);
    guard.renew(Duration::new(30, 1)).await.unwrap();
    assert_eq!(lease_of(&client, "k").await, Some(Duration::from_millis(30_001)));
    guard.release().await.unwrap();
    let guard = client.mutex("k").lease(Duration::from_nanos(1)).acquire().await.unwrap();
    assert!(guard.remaining().unwrap() < Duration::from_millis(1));
    let _ = guard.release().await;
}

#[tokio::test]
async fn the_largest_duration_neither_wraps_nor_panics() {
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    eventually("the replica", || replica.client().run("INFO replication").text().contains("master_link_status:up"))
        .await;
    let client = client_of(server.port());
    for lock in [
        client.mutex("k").lease(MAX),
        client.mutex("k").lease(MAX).auto_renew(),
        client.mutex("k").lease(MAX).session(),
    ] {
        let error = lock.acquire().await.unwrap_err();
        assert!(error.to_string().contains("invalid expire time"), "{error}");
        assert!(server.is_free("k"));
    }
    // Waits, and every limit of one, never end then.
    let patient = client_of(server.port()).connect_timeout(MAX).reply_timeout(MAX);
    for client in [&client, &patient] {
        let guard = client.mutex("k").lease(LONG).replicas(1, MAX).acquire_within(MAX).await.unwrap().unwrap();
        for refused in [guard.renew(MAX).await, guard.extend(MAX).await] {
            assert!(refused.unwrap_err().to_string().contains("invalid expire time"));
        }
        assert!(!guard.is_lost());
        let waiter = client.mutex("k");
        let waiting = tokio::spawn(async move { waiter.acquire_within(MAX).await });
        let runner = client.mutex("k");
        let running = tokio::spawn(async move { runner.run_within::<String>(&redis::cmd("PING"), MAX).await });
        eventually("the waiters", || server.waiters("k").len() == 2).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().unwrap().release().await.unwrap();
        assert_eq!(running.await.unwrap().unwrap().unwrap(), "PONG");
        let made = client.mutex("k").once(MAX, || async { Ok(None) }, |_guard| async { Ok::<_, Error>(7) }).await;
        assert_eq!(made.unwrap(), 7);
    }
    assert_eq!(server.client().run("SET old v"), Reply::ok());
    let polls = client.mutex("old").mixed(MAX);
    assert!(polls.acquire_within(Duration::from_millis(50)).await.unwrap().is_none());
}
