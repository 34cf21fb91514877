//! A future or a guard that is dropped leaves nothing behind: the case cancellation-leaves-nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_client::Error;
use support::{Reply, Server, LIMIT};

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, tasks, Observed, BUSY, LONG};

#[tokio::test]
async fn cancellation_leaves_nothing() {
    let server = Server::start();
    let holder = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let mut holder = Some(holder);
    let proxy = Proxy::to(server.port()).await;
    // Once out of the queue, and once while the grant is on its way, unknown to the caller.
    for granted in [false, true] {
        if granted {
            holder.take().unwrap().release().await.unwrap();
            proxy.hold_reply("LOCK.ACQUIRE");
        }
        let lock = client_of(proxy.port).mutex("k").lease(LONG);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        if granted {
            eventually("a grant that was not delivered", || proxy.done() == 1 && server.holds("k") == 1).await;
        } else {
            eventually("a waiter", || server.waiters("k").len() == 1).await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        // Withdrawn by the client, whose process goes on.
        eventually("an empty queue", || server.waiters("k").is_empty()).await;
        if granted {
            eventually("a free lock", || server.is_free("k")).await;
        }
        eventually("the request is cancelled", || server.calls("lock.cancel") == 1 + i64::from(granted)).await;
    }
}

#[tokio::test]
async fn an_owner_that_holds_keeps_what_it_held_before() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let reentrant = client.reentrant("r").lease(LONG);
    let guard = reentrant.acquire().await.unwrap();
    proxy.hold_reply("RLOCK.ACQUIRE");
    {
        let again = reentrant.acquire();
        tokio::pin!(again);
        let delivered = eventually("a grant that was not delivered", || proxy.done() == 1 && server.holds("r") == 2);
        tokio::select! {
            _ = &mut again => panic!("its reply is held back"),
            () = delivered => {}
        }
    }
    eventually("one hold", || server.holds("r") == 1).await;
    assert_eq!(guard.holds(), 1);
    guard.release().await.unwrap();
    assert!(server.is_free("r"));
}

#[tokio::test]
async fn what_is_dropped_takes_nothing_from_the_next_request_of_its_owner() {
    let server = Server::start();
    let client = client_of(server.port());
    let locks = [client.mutex("m"), client.semaphore("s", 2), client.reentrant("r")];
    for (key, lock) in ["m", "s", "r"].into_iter().zip(locks) {
        let lock = lock.lease(LONG).permits(2);
        let mine = lock.clone().permits(1).token("mine");
        for _ in 0..10 {
            let holder = lock.acquire().await.unwrap();
            {
                let waiting = mine.acquire();
                tokio::pin!(waiting);
                tokio::select! {
                    _ = &mut waiting => panic!("it is held"),
                    () = eventually("a waiter", || server.waits(key, &["mine"])) => {}
                }
            }
            // Requested and granted while the earlier request is withdrawn.
            let (next, released) = tokio::join!(mine.acquire(), holder.release());
            released.unwrap();
            client.settled().await;
            assert_eq!(server.holds(key), 1, "{key}");
            // The same for a guard that is dropped.
            drop(next.unwrap());
            let next = mine.try_acquire().await.unwrap().unwrap();
            client.settled().await;
            assert_eq!(server.holds(key), 1, "{key}");
            next.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_future_dropped_outside_the_runtime_cleans_up_too() {
    let server = Server::start();
    let holder = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let lock = client_of(server.port()).mutex("k").lease(LONG);
    let mut waiting = Box::pin(async move { lock.acquire().await });
    tokio::select! {
        _ = &mut waiting => panic!("it is held"),
        () = eventually("a waiter", || server.waiters("k").len() == 1) => {}
    }
    std::thread::spawn(move || drop(waiting)).join().unwrap();
    eventually("the request is cancelled", || server.calls("lock.cancel") == 1).await;
    assert!(server.waiters("k").is_empty());
    let guard = holder;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("a free lock", || server.is_free("k")).await;
}

#[tokio::test]
async fn a_dropped_release_continues() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let guard = client_of(proxy.port).mutex("k").lease(LONG).acquire().await.unwrap();
    // Lost with its connection, or so it seems.
    drop(tokio::time::timeout(Duration::ZERO, guard.release()).await);
    eventually("a free lock", || server.is_free("k")).await;
}

#[tokio::test]
async fn a_grant_that_is_no_longer_wanted_is_released() {
    // The caller's time ends before the reply arrives.
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port).reply_timeout(Duration::from_millis(200));
    let before = tasks();
    proxy.hold_reply("LOCK.ACQUIRE");
    let error = client.mutex("k").lease(LONG).acquire_within(Duration::from_millis(100)).await.unwrap_err();
    assert!(error.to_string().contains("no reply within"), "{error}");
    assert!(proxy.done() == 1 && server.is_free("k"));
    assert!(tasks() >= before);
}

#[tokio::test]
async fn a_program_can_wait_for_the_work_in_the_background() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let other = client.mutex("k").lease(LONG);
    let waiting = tokio::spawn(async move { other.acquire().await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(guard);
    client.settled().await;
    assert!(server.is_free("k") && server.calls("lock.cancel") == 1 && server.calls("lock.release") == 2);
}

#[tokio::test]
async fn an_acquire_returns_within_two_seconds_of_its_limit_whatever_the_network_does() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let _held = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let wait = Duration::from_millis(500);
    let lock = || client.mutex("k").lease(LONG);
    let cut_and_silent = [false, true];
    for lock in [lock(), lock().session(), lock().replicas(1, Duration::from_secs(1))] {
        for is_cut in cut_and_silent {
            let began = Instant::now();
            let waiting = lock.acquire_within(wait);
            let trouble = async {
                eventually("a waiter", || server.waiters("k").len() == 1).await;
                tokio::time::sleep_until((began + wait - Duration::from_millis(100)).into()).await;
                if is_cut {
                    proxy.disconnect();
                }
                proxy.silence();
            };
            let (end, ()) = tokio::join!(waiting, trouble);
            assert!(matches!(end, Err(Error::Redis(_))), "{end:?}");
            let late = began.elapsed().saturating_sub(wait);
            assert!(late < Duration::from_secs(2) + BUSY, "{late:?} late, cut: {is_cut}");
            proxy.speak();
            eventually("an empty queue", || server.waiters("k").is_empty()).await;
            client.settled().await;
        }
    }
}

#[tokio::test]
async fn acquires_that_do_not_wait_also_end_in_time_on_a_silent_network() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let limit = Duration::from_millis(500);
    let client = client_of(proxy.port).reply_timeout(limit).connect_timeout(limit);
    let guard = Arc::new(client.mutex("held").lease(LONG).acquire().await.unwrap());
    proxy.silence();
    let callers: Vec<_> = (0..30)
        .map(|number| {
            let (guard, lock) = (guard.clone(), client.mutex(format!("k{number}")).lease(LONG));
            tokio::spawn(async move {
                // While others connect.
                tokio::time::sleep(Duration::from_millis(number * 50)).await;
                let began = Instant::now();
                let answer = match number % 3 {
                    0 => lock.try_acquire().await.map(drop),
                    1 => lock.session().try_acquire().await.map(drop),
                    _ => guard.extend(LONG).await,
                };
                (answer, began.elapsed())
            })
        })
        .collect();
    for caller in callers {
        let (answer, took) = caller.await.unwrap();
        // The first attempt, a second for others, the last one, and a second for the cleanup.
        assert!(matches!(answer, Err(Error::Redis(_))) && took < limit * 2 + Duration::from_secs(2) + BUSY, "{took:?}");
    }
    proxy.speak();
    client.settled().await;
}

#[tokio::test]
async fn replicas_that_do_not_confirm_in_time_end_the_acquire() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let wait = Duration::from_millis(100);
    let lock = client.mutex("k").lease(LONG).replicas(1, wait);
    client.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    proxy.hold_reply("WAIT");
    let began = Instant::now();
    let asking = lock.acquire();
    let trouble = async {
        eventually("a reply that is held back", || proxy.done() == 1).await;
        proxy.silence();
    };
    let (end, ()) = tokio::join!(asking, trouble);
    assert!(matches!(end, Err(Error::Redis(_))), "{end:?}");
    assert!(began.elapsed() < wait + Duration::from_secs(5) + BUSY, "{:?}", began.elapsed());
    proxy.speak();
    client.settled().await;
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn what_is_dropped_on_a_silent_network_is_withdrawn_when_it_is_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let holder = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let lock = client.mutex("k").lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    let guards = [client.mutex("held"), client.reentrant("again"), client.mutex("bound").session()];
    let mut held = Vec::new();
    for lock in guards {
        held.push(lock.lease(LONG).acquire().await.unwrap());
    }
    proxy.silence();
    holder.release().await.unwrap();
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(held);
    // Longer than a restart, and longer than a release that its caller waits for.
    tokio::time::sleep(Duration::from_secs(12)).await;
    for key in ["k", "held", "again"] {
        assert_eq!(server.holds(key), 1, "{key}");
    }
    // Its connection was closed, and the close still passes.
    assert!(server.is_free("bound"));
    proxy.disconnect();
    proxy.speak();
    client.settled().await;
    for key in ["k", "held", "again"] {
        assert!(server.is_free(key), "{key}");
    }
}

#[tokio::test]
async fn an_inner_hold_that_is_dropped_without_a_server_keeps_the_outer_one_for_ten_seconds() {
    let mut server = Server::builder().appendonly().start();
    let client = client_of(server.port());
    let lock = client.reentrant("k").lease(None);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    server.kill();
    drop(inner);
    let began = Instant::now();
    let waits_behind = |end: &Error| end.to_string().contains("earlier request");
    while waits_behind(&lock.try_acquire().await.expect_err("there is no server")) {
        assert!(began.elapsed() < LIMIT, "the release of the inner hold never ends");
    }
    assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
    server.restart();
    assert_eq!(server.holds("k"), 2);
    outer.release().await.unwrap();
    assert!(server.is_free("k"));
    client.settled().await;
}

#[tokio::test]
async fn a_session_is_ended_first_if_its_release_gets_no_reply() {
    let server = Server::start();
    let client = client_of(server.port()).reply_timeout(Duration::from_millis(500));
    let guard = client.mutex("k").session().acquire().await.unwrap();
    let session = server.holders("k")[0].get("session").int().to_string();
    let is_connected = || server.client().cmd(&["CLIENT", "LIST", "ID", &session]).text().contains("id=");
    assert!(is_connected());
    // No release is answered, while the connection would still work for renewals.
    assert_eq!(server.client().run("CLIENT PAUSE 60000 WRITE"), Reply::ok());
    let began = Instant::now();
    drop(guard);
    eventually("the session has ended", || !is_connected()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.client().run("CLIENT UNPAUSE");
    client.settled().await;
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn an_error_or_a_panic_of_the_work_is_neither_hidden_nor_delayed_by_a_server_that_is_silent() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    for (panics, lock) in [false, true].into_iter().zip([client.mutex("k"), client.mutex("k").session()]) {
        let lock = lock.lease(LONG);
        let work = async |_| {
            proxy.silence();
            assert!(!panics, "the work panics");
            Err::<(), Error>(Error::Usage("the work failed"))
        };
        let began = Instant::now();
        match Caught(Box::pin(lock.once(LONG, async || Ok::<_, Error>(None), work))).await {
            Ok(end) => assert!(matches!(end, Err(Error::Usage("the work failed"))) && !panics, "{end:?}"),
            Err(panic) => assert!(panics && panic.downcast_ref() == Some(&"the work panics")),
        }
        assert!(began.elapsed() < Duration::from_secs(1) + BUSY, "{:?}", began.elapsed());
        proxy.speak();
        client.settled().await;
        assert!(server.is_free("k"));
    }
    // A guard that is dropped by `?` or by a panic does not wait.
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    proxy.silence();
    let began = Instant::now();
    drop(guard);
    assert!(began.elapsed() < BUSY);
    proxy.speak();
    client.settled().await;
    assert!(server.is_free("k"));
}

/// A future that returns its panic as its result.
struct Caught<F>(std::pin::Pin<Box<F>>);

impl<F: std::future::Future> std::future::Future for Caught<F> {
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(output)) => std::task::Poll::Ready(Ok(output)),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    }
}
