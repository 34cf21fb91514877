//! At most once per interval: a release within `at_least` leaves the lock held until its lease expires.

use std::time::{Duration, Instant};

use redis_lock_client::{Error, Guard, Lock};
use support::{Reply, Server};

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, tasks, Observed, LONG};

/// One minute: no test waits for its end.
const MINUTE: Duration = Duration::from_secs(60);

/// The server counts whole milliseconds, both for the deadline and for the time left.
const CLOCK: Duration = Duration::from_millis(2);

/// Acquires the lock; returns the guard, and a time that is not later than the grant.
async fn granted(lock: &Lock) -> (Guard, Instant) {
    let before = Instant::now();
    (lock.acquire().await.unwrap(), before)
}

/// The key stays held for the rest of the minute that follows a grant after `before`.
#[track_caller]
fn assert_kept(server: &Server, key: &str, before: Instant) {
    let left = server.client().pttl(key);
    let left = Duration::from_millis(u64::try_from(left).unwrap_or_else(|_| panic!("{key}: {left}")));
    assert!(left <= MINUTE + CLOCK, "{left:?}");
    assert!(before.elapsed() + left + CLOCK >= MINUTE, "{left:?} after {:?}", before.elapsed());
}

#[tokio::test]
async fn at_least() {
    let server = Server::start();
    let client = client_of(server.port());
    // The lease becomes longer, and shorter.
    for lease in [Duration::from_secs(2), Duration::from_secs(600)] {
        let (guard, before) = granted(&client.mutex("k").lease(lease).at_least(MINUTE)).await;
        let fence = guard.fence();
        let lost = guard.lost();
        guard.release().await.unwrap();
        assert_kept(&server, "k", before);
        assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
        assert_eq!(server.holders("k")[0].get("fence").int(), i64::try_from(fence).unwrap());
        assert!(tokio::time::timeout(Duration::from_millis(10), lost).await.is_err(), "a release is no loss");
        server.break_lock("k");
    }
    // Later a release frees it, and so does the end of the lease.
    let short = client.mutex("k").lease(LONG).at_least(Duration::from_millis(200));
    let (guard, _) = granted(&short).await;
    tokio::time::sleep(Duration::from_millis(210)).await;
    guard.release().await.unwrap();
    assert!(server.is_free("k"));
    let (guard, again) = granted(&short).await;
    guard.release().await.unwrap();
    let next = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let waited = again.elapsed() + CLOCK;
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    // So does one that reports failed work.
    for lock in [client.mutex("f"), client.reentrant("f"), client.multi_lock(["f", "g"])] {
        let (guard, _) = granted(&lock.lease(LONG).at_least(MINUTE)).await;
        guard.release_failed().await.unwrap();
        assert!(server.is_free("f") && server.is_free("g"));
    }
    // Lost before the release: the release reports it, and the next owner keeps the lock.
    let fence = next.fence();
    drop(next);
    eventually("a free lock", || server.is_free("k")).await;
    let (guard, _) = granted(&client.mutex("k").at_least(MINUTE)).await;
    server.break_lock("k");
    let next = client.mutex("k").lease(LONG).acquire().await.unwrap();
    assert!(next.fence() > fence && matches!(guard.release().await, Err(Error::LockLost)));
    assert!(next.is_held().await.unwrap());
    assert_eq!(server.client().run("SET k else"), Reply::ok());
    drop(next);
    assert!(server.client().run("GET k").is_bulk("else"));
}

#[tokio::test]
async fn the_last_release_keeps_every_lock_type() {
    let server = Server::start();
    let client = client_of(server.port());
    let began = Instant::now();
    let locks = [
        (client.reentrant("r"), "r", 2),
        (client.read_lock("rw"), "rw", 2),
        (client.write_lock("w"), "w", 2),
        (client.semaphore("s", 4).permits(3), "s", 1),
        (client.multi_lock(["a", "b"]), "a", 1),
    ];
    for (lock, key, guards) in locks {
        let lock = lock.lease(LONG).at_least(MINUTE);
        let (last, before) = granted(&lock).await;
        if guards == 2 {
            lock.clone().as_owner_of(&last).acquire().await.unwrap().release().await.unwrap();
            assert!(server.client().pttl(key) > 60_001, "{key}: not the last one");
            assert_eq!(server.holds(key), 1, "{key}");
        }
        let holds = server.holds(key);
        last.release().await.unwrap();
        assert_kept(&server, key, before);
        assert_eq!(server.holds(key), holds, "{key}");
    }
    assert_kept(&server, "b", began);
    // Permits are released one by one, each by its own owner.
    let permits = client.semaphore("p", 2).lease(LONG).at_least(MINUTE);
    let (one, two) = (permits.acquire().await.unwrap(), permits.acquire().await.unwrap());
    one.release().await.unwrap();
    assert!(permits.try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    assert_eq!(server.holders("p").len(), 2);
}

#[tokio::test]
async fn none_of_several_keys_is_kept_after_one_was_lost() {
    let server = Server::start();
    let client = client_of(server.port());
    let (guard, _) = granted(&client.multi_lock(["a", "b"]).lease(LONG).at_least(MINUTE)).await;
    server.break_lock("b");
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::LockLost)), "{released:?}");
    assert!(server.is_free("a"));
}

#[tokio::test]
async fn the_loss_of_one_of_several_keys_is_reported_even_after_a_lost_reply() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (guard, _) = granted(&client_of(proxy.port).multi_lock(["a", "b"]).lease(LONG).at_least(MINUTE)).await;
    server.break_lock("b");
    proxy.cut_reply("MLOCK.RENEW", 0);
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::LockLost)), "{released:?}");
    assert!(server.is_free("a"));
}

#[tokio::test]
async fn a_dropped_guard_is_kept_and_a_cancelled_acquire_is_not() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let lock = || client.mutex("k").lease(LONG).at_least(MINUTE);
    let (guard, before) = granted(&lock()).await;
    drop(guard);
    client.settled().await;
    assert_kept(&server, "k", before);
    server.break_lock("k");
    // The same for a guard whose release is dropped half-way.
    let (guard, before) = granted(&lock()).await;
    drop(tokio::time::timeout(Duration::ZERO, guard.release()).await);
    client.settled().await;
    assert_kept(&server, "k", before);
    server.break_lock("k");
    proxy.hold_reply("LOCK.ACQUIRE");
    let given_up = lock();
    let waiting = tokio::spawn(async move { given_up.acquire().await });
    eventually("a grant that was not delivered", || proxy.done() == 1 && server.holds("k") == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    eventually("a free lock", || server.is_free("k")).await;
    let error = lock().replicas(1, Duration::from_millis(20)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::NotReplicated { .. }) && server.is_free("k"), "{error}");
}

#[tokio::test]
async fn no_renewal_follows_the_release_that_keeps_it() {
    let server = Server::start();
    let client = client_of(server.port());
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let before = tasks();
    let lock = client.mutex("k").lease(Duration::from_millis(300)).auto_renew().at_least(Duration::from_secs(2));
    let (guard, began) = granted(&lock).await;
    eventually("renewals", || server.calls("lock.renew") >= 3).await;
    guard.release().await.unwrap();
    let renewals = server.calls("lock.renew");
    eventually("no task left", || tasks() == before).await;
    assert!(!server.is_free("k"));
    eventually("a free lock", || server.is_free("k")).await;
    assert!(began.elapsed() + CLOCK >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(server.calls("lock.renew"), renewals);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_still_keeps_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let (guard, before) = granted(&client.mutex("k").lease(LONG).at_least(MINUTE)).await;
    proxy.cut_reply("LOCK.RENEW", 0);
    guard.release().await.unwrap();
    assert_eq!(proxy.done(), 1);
    assert_kept(&server, "k", before);
    server.break_lock("k");
    // The time ends before the retry: the repeated request finds a free lock, which is not a loss.
    let client = client.reply_timeout(Duration::from_millis(600));
    let guard = client.mutex("k").lease(LONG).at_least(Duration::from_millis(300)).acquire().await.unwrap();
    proxy.hold_reply("LOCK.RENEW");
    guard.release().await.unwrap();
    assert!(proxy.done() == 2 && server.is_free("k"));
}

#[tokio::test]
async fn at_least_counts_from_the_grant_and_not_from_the_request() {
    let server = Server::start();
    let client = client_of(server.port());
    let holder = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let lock = client.mutex("k").lease(LONG).at_least(MINUTE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let waited = |server: &Server| {
        let waiters = server.client().run("LOCK.WAITERS k");
        waiters.items().first().map_or(0, |waiter| waiter.get("waited").int())
    };
    eventually("a waiter", || waited(&server) > 500).await;
    let before = Instant::now();
    holder.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_kept(&server, "k", before);
}

#[tokio::test]
async fn a_time_above_the_longest_lease_is_refused_before_the_work_runs() {
    let server = Server::builder().module_args("max-lease 60000").start();
    let client = client_of(server.port());
    let (lease, longest) = (Duration::from_secs(10), Duration::from_secs(60));
    let locks = [
        client.mutex("k"),
        client.mutex("k").auto_renew(),
        client.mutex("k").mixed(LONG),
        client.reentrant("k"),
        client.semaphore("k", 3),
        client.multi_lock(["k", "k2"]),
    ];
    for lock in locks {
        let lock = lock.lease(lease).at_least(longest + Duration::from_nanos(1));
        for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
            assert!(error.to_string().contains("more than lock.max-lease (60000)"), "{error}");
        }
        assert_eq!(server.client().run("DBSIZE").int(), 0);
    }
    client.mutex("k").lease(lease).at_least(longest).acquire().await.unwrap().release().await.unwrap();
    assert!(server.client().pttl("k") > 50_000);
    // The acquire itself reports a key of another type.
    server.client().run("SET k v");
    let refused = client.mutex("k").lease(lease).at_least(longest).acquire().await;
    assert!(matches!(refused, Err(Error::WrongType(_))), "{refused:?}");
}
