//! The deadline of a hold after renewals, extensions and nested acquires, and how long its cleanup is retried.

use std::time::{Duration, Instant};

use redis_lock_client::{Client, Error, Guard};
use support::Server;

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, until_lost, Observed, BUSY, LONG};

/// Longer than any pause of the machine, and shorter than [`LONG`].
const SHORT: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// The timeouts of a client whose requests are to fail soon.
const SOON: Duration = Duration::from_millis(500);

fn impatient(proxy: &Proxy) -> Client {
    client_of(proxy.port).connect_timeout(SOON).reply_timeout(SOON)
}

/// As if the server's clock were behind: it has the hold for a minute, and the client does not know that.
fn renewed_by_admin(server: &Server, command: &str, guard: &Guard) {
    let token = String::from_utf8_lossy(guard.token());
    assert_eq!(server.client().run(&format!("{command} {token} PX 60000")).int(), 1);
}

#[tokio::test]
async fn a_hold_that_is_known_to_be_lost_is_neither_renewed_nor_extended_nor_used() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").lease(Duration::from_secs(1)).acquire().await.unwrap();
    renewed_by_admin(&server, "LOCK.RENEW k", &guard);
    until_lost(&guard).await;
    assert!(matches!(guard.renew(LONG).await, Err(Error::LockLost)));
    assert!(matches!(guard.extend(LONG).await, Err(Error::LockLost)));
    let ran = guard.exec::<i64>(redis::cmd("INCR").arg("n")).await;
    assert!(matches!(ran, Err(Error::LockLost)), "{ran:?}");
    assert_eq!((server.calls("lock.renew"), server.calls("lock.held"), server.calls("lock.exec")), (1, 0, 0));
    assert_eq!((guard.is_lost(), server.holds("k"), server.client().run("EXISTS n").int()), (true, 1, 0));
    assert!(matches!(guard.release().await, Err(Error::LockLost)) && server.is_free("k"));
}

#[tokio::test]
async fn a_renewal_during_which_the_loss_was_reported_fails() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let lock = client_of(proxy.port).reentrant("r").lease(Duration::from_millis(1500));
    for what in ["renew", "extend", "acquire"] {
        let guard = lock.acquire().await.unwrap();
        renewed_by_admin(&server, "RLOCK.RENEW r", &guard);
        proxy.silence();
        let request = async {
            match what {
                "renew" => guard.renew(LONG).await,
                "extend" => guard.extend(LONG).await,
                _ => lock.acquire().await.map(drop),
            }
        };
        let trouble = async {
            until_lost(&guard).await;
            proxy.speak();
        };
        let (end, ()) = tokio::join!(request, trouble);
        assert!(matches!(end, Err(Error::LockLost)) && guard.is_lost(), "{what}: {end:?}");
        assert!(matches!(guard.release().await, Err(Error::LockLost)), "{what}");
        eventually("a free lock", || server.is_free("r")).await;
    }
}

#[tokio::test]
async fn no_automatic_renewal_brings_the_old_lease_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let lease = Duration::from_secs(6);
    let guard = client_of(proxy.port).mutex("k").lease(lease).auto_renew().acquire().await.unwrap();
    // Opens the connection of the renewals.
    assert!(guard.is_held().await.unwrap());
    // The next automatic renewal is due while the caller's waits for its reply.
    proxy.silence();
    let trouble = async {
        tokio::time::sleep(lease / 3 + lease / 12).await;
        proxy.speak();
    };
    let (renewed, ()) = tokio::join!(guard.renew(LONG), trouble);
    renewed.unwrap();
    for calls in [1, 2] {
        eventually("a renewal", || server.calls("lock.renew") == calls).await;
        assert!(server.client().pttl("k") > 60_000 && guard.remaining().unwrap() > MINUTE, "{calls}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_automatic_renewal_without_a_reply_is_sent_again_over_another_connection() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let lock = client_of(proxy.port).mutex("k").lease(Duration::from_secs(15)).auto_renew();
    let guard = lock.acquire().await.unwrap();
    proxy.hold_reply("LOCK.RENEW");
    // The first renewal is due after five seconds, and its reply is awaited for five.
    eventually("another renewal", || server.calls("lock.renew") >= 2 || guard.is_lost()).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_shorter_renewal_without_a_reply_shortens_the_deadline() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    for is_dropped in [false, true] {
        for lease in [Some(LONG), None] {
            let guard = client.mutex("k").lease(lease).acquire().await.unwrap();
            let done = proxy.done();
            proxy.hold_reply("LOCK.RENEW");
            let trouble = async {
                eventually("a reply that is held back", || proxy.done() > done).await;
                proxy.silence();
            };
            if is_dropped {
                tokio::select! {
                    _ = guard.renew(SHORT) => panic!("its reply is held back"),
                    () = trouble => {}
                }
            } else {
                let (end, ()) = tokio::join!(guard.renew(SHORT), trouble);
                assert!(matches!(end, Err(Error::Redis(_))), "{end:?}");
            }
            let left = guard.remaining().unwrap();
            assert!(left <= SHORT && server.client().pttl("k") <= 10_000, "{left:?}, dropped: {is_dropped}");
            proxy.disconnect();
            proxy.speak();
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_hold_is_renewed_at_once_after_a_renewal_without_a_reply() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    let guard = client.mutex("k").lease(LONG).auto_renew().acquire().await.unwrap();
    proxy.hold_reply("LOCK.RENEW");
    tokio::select! {
        _ = guard.renew(SHORT) => panic!("its reply is held back"),
        () = eventually("a reply that is held back", || proxy.done() == 1) => {}
    }
    let is_long = || server.client().pttl("k") > 60_000 && guard.remaining().unwrap() > MINUTE;
    eventually("an automatic renewal", is_long).await;
    guard.release().await.unwrap();
}

/// The lease of a nested acquire is longer than that of the automatic renewals.
#[tokio::test]
async fn an_automatic_renewal_without_a_reply_shortens_the_deadline_of_a_nested_acquire() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    let guard = client.reentrant("r").lease(SHORT).auto_renew().acquire().await.unwrap();
    let inner = client.reentrant("r").lease(LONG).as_owner_of(&guard).acquire().await.unwrap();
    assert!(server.client().pttl("r") > 60_000 && guard.remaining().unwrap() > MINUTE);
    proxy.hold_reply("RLOCK.RENEW");
    eventually("a reply that is held back", || proxy.done() == 1).await;
    proxy.silence();
    eventually("an earlier deadline", || guard.remaining().unwrap() <= SHORT).await;
    proxy.disconnect();
    proxy.speak();
    inner.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_nested_acquire_does_not_shorten_the_deadline() {
    let server = Server::start();
    let client = client_of(server.port());
    let lock = client.reentrant("r").lease(SHORT);
    let guard = lock.acquire().await.unwrap();
    guard.renew(LONG).await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert!(server.client().pttl("r") > 60_000 && guard.remaining().unwrap() > MINUTE);
    inner.release().await.unwrap();
    guard.release().await.unwrap();
    let guard = client.reentrant("r").lease(None).acquire().await.unwrap();
    let inner = client.reentrant("r").lease(SHORT).as_owner_of(&guard).acquire().await.unwrap();
    assert_eq!((server.client().pttl("r"), guard.remaining()), (-1, None));
    inner.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_guard_is_released_within_the_lease_that_a_renewal_without_a_reply_set() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    let guard = client.mutex("k").lease(Duration::from_secs(1)).acquire().await.unwrap();
    proxy.hold_reply("LOCK.RENEW");
    let trouble = async {
        eventually("a reply that is held back", || proxy.done() == 1).await;
        proxy.silence();
        until_lost(&guard).await;
    };
    let (end, ()) = tokio::join!(guard.renew(LONG), trouble);
    assert!(end.is_err() && guard.is_lost(), "{end:?}");
    drop(guard);
    // More than two attempts.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(server.holds("k"), 1);
    proxy.disconnect();
    proxy.speak();
    client.settled().await;
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn a_dropped_guard_is_released_however_long_its_lease_is() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (client, other) = (impatient(&proxy), client_of(server.port()));
    let short = |key: &str| client.mutex(key).lease(Duration::from_millis(1500));
    let mut guards = vec![short("renewed").acquire().await.unwrap()];
    guards[0].renew(LONG).await.unwrap();
    for (key, lease) in [("long", Some(LONG)), ("unlimited", None)] {
        let token = other.mutex(key).lease(lease).acquire().await.unwrap().into_token();
        guards.push(Guard::from_token(&short(key), token).await.unwrap());
    }
    proxy.silence();
    drop(guards);
    // Longer than the configured lease, and more than two attempts.
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.disconnect();
    proxy.speak();
    client.settled().await;
    for key in ["renewed", "long", "unlimited"] {
        assert!(server.is_free(key), "{key}");
    }
}

#[tokio::test]
async fn a_limited_acquire_ends_in_time_while_an_earlier_request_of_its_owner_has_no_reply() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let wait = Duration::from_millis(300);
    for (is_dropped, lock) in [(true, client.mutex("k")), (true, client.reentrant("k")), (false, client.reentrant("k"))]
    {
        let lock = lock.lease(LONG).token("me");
        let guard = lock.acquire().await.unwrap();
        proxy.silence();
        let releasing = tokio::spawn(async move {
            if is_dropped {
                drop(guard)
            } else {
                drop(guard.release().await)
            }
        });
        tokio::task::yield_now().await;
        for is_waiting in [false, true] {
            let began = Instant::now();
            let end = if is_waiting { lock.acquire_within(wait).await } else { lock.try_acquire().await };
            assert!(!matches!(end, Ok(Some(_))), "{end:?}");
            assert!(began.elapsed() < wait + Duration::from_secs(2) + BUSY, "{:?}", began.elapsed());
        }
        proxy.speak();
        releasing.await.unwrap();
        client.settled().await;
        assert!(server.is_free("k"));
    }
}

#[tokio::test]
async fn a_dropped_nested_acquire_is_withdrawn_within_the_longer_lease_of_its_owner() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    let lock = client.reentrant("r").lease(Duration::from_millis(1500));
    let outer = lock.clone().lease(LONG).acquire().await.unwrap();
    let nested = lock.as_owner_of(&outer);
    proxy.hold_reply("RLOCK.ACQUIRE");
    tokio::select! {
        _ = nested.acquire() => panic!("its reply is held back"),
        () = eventually("a grant that was not delivered", || proxy.done() == 1 && server.holds("r") == 2) => {
            proxy.silence();
        }
    }
    // Longer than the lease of the request, and two attempts for each command.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(server.holds("r"), 2);
    proxy.disconnect();
    proxy.speak();
    client.settled().await;
    assert_eq!(server.holds("r"), 1);
    outer.release().await.unwrap();
}

/// One of the keys is overwritten after a grant whose reply is lost.
#[tokio::test]
async fn an_error_reply_to_a_repeated_request_leaves_no_grant_behind() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = impatient(&proxy);
    let lock = client.multi_lock(["a", "b"]).lease(LONG);
    for is_mixed in [false, true] {
        let lock = if is_mixed { lock.clone().mixed(SOON) } else { lock.clone() };
        let done = proxy.done();
        proxy.hold_reply("MLOCK.ACQUIRE");
        let trouble = async {
            eventually("a grant that was not delivered", || proxy.done() > done).await;
            server.client().run("SET a else");
        };
        let (end, ()) = tokio::join!(lock.try_acquire(), trouble);
        match end {
            Ok(None) => assert!(is_mixed),
            end => assert!(matches!(end, Err(Error::WrongType(_))) && !is_mixed, "{end:?}"),
        }
        client.settled().await;
        assert!(server.is_free("b"), "mixed: {is_mixed}");
        server.client().run("DEL a");
    }
}

#[tokio::test]
async fn an_acquire_that_waited_for_a_failed_release_comes_after_its_repetition() {
    let server = Server::start();
    let lock = client_of(server.port()).reentrant("r").token("me").lease(Duration::from_millis(1500)).auto_renew();
    let guard = lock.acquire().await.unwrap();
    let mut admin = server.client();
    admin.run("ACL SETUSER default -rlock.release");
    let release = async {
        assert!(matches!(guard.release().await, Err(Error::Redis(_))));
        // Before the background task runs: this is the only thread.
        admin.run("ACL SETUSER default +rlock.release");
    };
    let ((), next) = tokio::join!(release, lock.acquire());
    let next = next.unwrap();
    let renewals = server.calls("rlock.renew");
    eventually("renewals", || server.calls("rlock.renew") >= renewals + 3).await;
    assert!(server.holds("r") == 1 && !next.is_lost());
    next.release().await.unwrap();
    assert!(server.is_free("r"));
}
