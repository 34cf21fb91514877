//! Single-flight: the cases coalesce, once and once-… of clients/conformance.md.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_client::{Client, Coalesced, Error, Guard, Lock, Result};
use support::Server;
use tokio::sync::Notify;

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, Observed, LONG};

/// A value that is missing at first, and how often it was made.
#[derive(Clone)]
struct Cache {
    client: Client,
    made: Arc<AtomicUsize>,
}

impl Cache {
    fn of(port: u16) -> Cache {
        Cache { client: client_of(port), made: Arc::default() }
    }

    fn lock(&self) -> Lock {
        self.client.mutex("k").lease(LONG)
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    async fn read(&self) -> Result<Option<String>> {
        self.client.query("v", redis::cmd("GET").arg("v")).await
    }

    /// Makes the value, and numbers it.
    async fn make(&self) -> Result<String> {
        let value = format!("made {}", self.made.fetch_add(1, Ordering::SeqCst) + 1);
        self.client.query::<()>("v", redis::cmd("SET").arg("v").arg(&value)).await?;
        Ok(value)
    }

    async fn once(&self, wait: Duration) -> Result<String> {
        self.lock().once(wait, || self.read(), |_| self.make()).await
    }

    /// Like [`Cache::once`], in a task; its `make` continues on a signal from the test.
    fn slow_once(&self, lock: Lock) -> (tokio::task::JoinHandle<Result<String>>, Arc<Notify>) {
        let (cache, signal) = (self.clone(), Arc::new(Notify::new()));
        let go_on = signal.clone();
        let task = tokio::spawn(async move {
            let make = async |_| {
                signal.notified().await;
                cache.make().await
            };
            lock.once(LONG, || cache.read(), make).await
        });
        (task, go_on)
    }

    fn spawn_once(&self) -> tokio::task::JoinHandle<Result<String>> {
        let cache = self.clone();
        tokio::spawn(async move { cache.once(LONG).await })
    }
}

async fn until_held(server: &Server) {
    eventually("a holder", || server.holds("k") == 1).await;
}

async fn until_waiters(server: &Server, count: usize) {
    eventually("waiters", || server.waiters("k").len() == count).await;
}

#[tokio::test]
async fn coalesce() {
    let server = Server::start();
    let lock = client_of(server.port()).mutex("k").lease(LONG);
    let granted = async || match lock.acquire_coalesced(LONG).await.unwrap() {
        Coalesced::Granted(guard) => guard,
        other => panic!("{other:?}"),
    };
    let spawned = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire_coalesced(LONG).await.unwrap() })
    };
    let holder = granted().await;
    let waiting = [spawned(), spawned()];
    until_waiters(&server, 2).await;
    let fence = holder.fence();
    holder.release().await.unwrap();
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Coalesced::Done { fence: done } if done == fence), "{answer:?}");
    }
    assert!(server.is_free("k"));
    // After failed work, or a dropped guard, the next caller does the work.
    let mut holder = granted().await;
    for releases_failed in [true, false] {
        let (next, last) = (spawned(), spawned());
        until_waiters(&server, 2).await;
        if releases_failed {
            holder.release_failed().await.unwrap();
        } else {
            drop(holder);
        }
        eventually("one of them has its reply", || next.is_finished() || last.is_finished()).await;
        let (first, other) = if next.is_finished() { (next, last) } else { (last, next) };
        let Coalesced::Granted(guard) = first.await.unwrap() else { panic!("not granted") };
        guard.release().await.unwrap();
        assert!(matches!(other.await.unwrap(), Coalesced::Done { .. }));
        holder = granted().await;
    }
    let not_granted = lock.acquire_coalesced(Duration::from_millis(50)).await.unwrap();
    assert!(matches!(not_granted, Coalesced::NotGranted), "{not_granted:?}");
    holder.release().await.unwrap();
}

#[tokio::test]
async fn once() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let callers: Vec<_> = (0..1000).map(|_| cache.spawn_once()).collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "made 1");
    }
    assert_eq!(cache.made(), 1);
    assert!(server.is_free("k") && server.waiters("k").is_empty());
    // An existing value is read without a lock.
    let asked = server.calls("lock.acquire");
    assert_eq!(cache.once(LONG).await.unwrap(), "made 1");
    assert_eq!(server.calls("lock.acquire"), asked);
}

#[tokio::test]
async fn callers_that_wait_for_the_maker_read_what_it_made() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let (maker, go_on) = cache.slow_once(cache.lock());
    until_held(&server).await;
    let waiting: Vec<_> = (0..50).map(|_| cache.spawn_once()).collect();
    until_waiters(&server, 50).await;
    let grants = server.info("lock").number("lock_grants_after_wait");
    go_on.notify_one();
    assert_eq!(maker.await.unwrap().unwrap(), "made 1");
    for caller in waiting {
        assert_eq!(caller.await.unwrap().unwrap(), "made 1");
    }
    assert_eq!(server.info("lock").number("lock_grants_after_wait"), grants, "nobody had the lock after the maker");
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn once_in_time() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let holder = cache.lock().acquire().await.unwrap();
    let (began, wait) = (Instant::now(), Duration::from_millis(300));
    let error = cache.once(wait).await.unwrap_err();
    assert!(matches!(error, Error::NotMade { within } if within == wait) && began.elapsed() >= wait, "{error}");
    assert_eq!(error.to_string(), "no value within 300ms: another caller holds the lock");
    // Done but missing: the caller requests again and makes it.
    let caller = cache.spawn_once();
    until_waiters(&server, 1).await;
    holder.release().await.unwrap();
    assert_eq!(caller.await.unwrap().unwrap(), "made 1");
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn once_maker_is_slow() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let (maker, go_on) = cache.slow_once(cache.lock().lease(Duration::from_millis(600)).auto_renew());
    until_held(&server).await;
    let other = cache.spawn_once();
    eventually("four renewals", || server.calls("lock.renew") >= 4).await;
    go_on.notify_one();
    assert_eq!(maker.await.unwrap().unwrap(), "made 1");
    assert_eq!(other.await.unwrap().unwrap(), "made 1");
    assert_eq!(cache.made(), 1);
}

/// The caller's own error type, which `once` passes through.
#[derive(Debug)]
enum Failed {
    Work,
    Lock(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Lock(error)
    }
}

#[tokio::test]
async fn once_maker_fails() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    // With its own error, and with a panic.
    for panics in [false, true] {
        server.client().run("DEL v");
        let (failing, signal, lock) = (cache.clone(), Arc::new(Notify::new()), cache.lock());
        let go_on = signal.clone();
        let maker = tokio::spawn(async move {
            let make = async |_| {
                signal.notified().await;
                assert!(!panics, "the maker panics");
                Err(Failed::Work)
            };
            lock.once(LONG, async || Ok(failing.read().await?), make).await
        });
        until_held(&server).await;
        let waiting = [cache.spawn_once(), cache.spawn_once()];
        until_waiters(&server, 2).await;
        go_on.notify_one();
        match maker.await {
            Ok(failed) => assert!(matches!(failed, Err(Failed::Work)) && !panics, "{failed:?}"),
            Err(error) => assert!(error.is_panic() && panics),
        }
        let made = format!("made {}", 1 + usize::from(panics));
        for caller in waiting {
            assert_eq!(caller.await.unwrap().unwrap(), made);
        }
    }
    // The next caller did not get "done" and made it; the last one got "done".
    assert_eq!((cache.made(), server.info("lock").number("lock_coalesced")), (2, 2));
    // The caller also gets an error of `read`, whether it occurs before the grant or after it.
    for fails_at in [1, 2] {
        let mut looks = 0;
        let read = || {
            looks += 1;
            std::future::ready(if looks == fails_at { Err(Failed::Work) } else { Ok(None) })
        };
        let failed: std::result::Result<(), Failed> = cache.lock().once(LONG, read, async |_| Ok(())).await;
        assert!(matches!(failed, Err(Failed::Work)) && looks == fails_at && server.is_free("k"), "{failed:?}");
    }
    // Without a lease, a maker that dies would keep all others waiting.
    for unusable in [cache.lock().lease(None), cache.lock().auto_renew().lease(None)] {
        let failed: std::result::Result<(), Failed> = unusable.once(LONG, async || Ok(None), async |_| Ok(())).await;
        assert!(matches!(failed, Err(Failed::Lock(Error::Usage(_)))), "{failed:?}");
    }
}

#[tokio::test]
async fn once_maker_is_cancelled() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let (maker, _go_on) = cache.slow_once(cache.lock());
    until_held(&server).await;
    // A waiting caller is cancelled too: it leaves the queue.
    let (waiting, other) = (cache.spawn_once(), cache.spawn_once());
    until_waiters(&server, 2).await;
    waiting.abort();
    until_waiters(&server, 1).await;
    maker.abort();
    assert!(maker.await.unwrap_err().is_cancelled());
    assert_eq!(other.await.unwrap().unwrap(), "made 1");
    assert!(server.is_free("k"));
    assert_eq!(server.info("lock").number("lock_coalesced"), 0, "nothing was done by the one that was dropped");
}

#[tokio::test]
async fn a_grant_that_comes_too_late_does_not_report_work_as_done() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (cache, far) = (Cache::of(server.port()), Cache::of(proxy.port));
    // Opens its connection: the proxy holds back the reply to its first request.
    far.read().await.unwrap();
    proxy.hold_reply("LOCK.ACQUIRE");
    let given_up = far.spawn_once();
    eventually("a grant that was not delivered", || proxy.done() == 1 && server.holds("k") == 1).await;
    let (first, second) = (cache.spawn_once(), cache.spawn_once());
    until_waiters(&server, 2).await;
    given_up.abort();
    for caller in [first, second] {
        assert_eq!(caller.await.unwrap().unwrap(), "made 1");
    }
    // If they had got "done", they would have found no value and requested again.
    assert_eq!(server.info("lock").number("lock_coalesced"), 1);
    assert_eq!(cache.made(), 1);
}

#[tokio::test]
async fn a_grant_and_a_done_are_repeated_after_lost_replies() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (cache, far) = (Cache::of(server.port()), Cache::of(proxy.port));
    proxy.cut_reply("LOCK.ACQUIRE", 3);
    assert_eq!(far.once(LONG).await.unwrap(), "made 1");
    assert_eq!((proxy.done(), far.made()), (1, 1));
    server.client().run("DEL v");
    let (maker, go_on) = cache.slow_once(cache.lock());
    until_held(&server).await;
    proxy.cut_reply("LOCK.ACQUIRE", 3);
    let waiting = far.spawn_once();
    until_waiters(&server, 1).await;
    go_on.notify_one();
    assert_eq!(maker.await.unwrap().unwrap(), "made 1");
    assert_eq!(waiting.await.unwrap().unwrap(), "made 1");
    assert_eq!((proxy.done(), far.made()), (2, 1), "the lock was free when it asked again, and the value there");
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn once_maker_dies() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let theirs = Cache::of(server.port());
    dying.spawn(async move {
        let make = |_| std::future::pending::<Result<String>>();
        theirs.lock().lease(Duration::from_secs(1)).auto_renew().once(LONG, || theirs.read(), make).await
    });
    until_held(&server).await;
    let other = cache.spawn_once();
    until_waiters(&server, 1).await;
    // As if its process ended: none of its tasks runs any more, and its connections end.
    dying.shutdown_background();
    assert_eq!(other.await.unwrap().unwrap(), "made 1");
    assert_eq!(server.calls("lock.release"), 1);
    assert_eq!(server.info("lock").number("lock_leases_expired"), 1);
}

#[tokio::test]
async fn once_maker_loses_its_lock() {
    let server = Server::start();
    let cache = Cache::of(server.port());
    let (reported, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let spawn_losing = |lock: Lock| {
        let (cache, reported, go_on) = (cache.clone(), reported.clone(), go_on.clone());
        tokio::spawn(async move {
            let make = async |guard: Arc<Guard>| {
                guard.lost().await;
                reported.fetch_add(1, Ordering::SeqCst);
                go_on.notified().await;
                Ok("lost".to_string())
            };
            lock.once(LONG, || cache.read(), make).await
        })
    };
    let lock = cache.lock().lease(Duration::from_millis(600)).auto_renew();
    let first = spawn_losing(lock.clone());
    until_held(&server).await;
    server.break_lock("k");
    assert_eq!(cache.once(LONG).await.unwrap(), "made 1");
    eventually("the first one is notified", || reported.load(Ordering::SeqCst) == 1).await;
    go_on.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), "made 1", "what the others read");
    // With nothing to read, the result is what it made.
    server.client().run("DEL v");
    let alone = spawn_losing(lock);
    until_held(&server).await;
    server.break_lock("k");
    eventually("it is reported", || reported.load(Ordering::SeqCst) == 2).await;
    go_on.notify_one();
    assert_eq!(alone.await.unwrap().unwrap(), "lost");
}

#[tokio::test]
async fn only_a_mutex_that_waits_in_the_queue_coalesces() {
    let server = Server::start();
    let client = client_of(server.port());
    let refused = [
        client.reentrant("k"),
        client.read_lock("k"),
        client.write_lock("k"),
        client.semaphore("k", 2),
        client.semaphore_slot("k", 2),
        client.multi_lock(["k"]),
        client.mutex("k").mixed(LONG),
        client.mutex("k").at_least(LONG),
    ];
    for lock in refused {
        let refusal = lock.acquire_coalesced(LONG).await;
        assert!(matches!(refusal, Err(Error::Usage(_))), "{:?}: {refusal:?}", lock.family());
    }
    // With a session: its end does not report the work as done, and frees the lock immediately.
    let Coalesced::Granted(guard) = client.mutex("k").session().acquire_coalesced(LONG).await.unwrap() else {
        panic!("it is free");
    };
    let id = server.holders("k")[0].get("session").int();
    let cache = Cache::of(server.port());
    let other = cache.spawn_once();
    until_waiters(&server, 1).await;
    server.client().run(&format!("CLIENT KILL ID {id}"));
    assert_eq!(other.await.unwrap().unwrap(), "made 1");
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
}
