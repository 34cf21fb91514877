//! How the client uses its connections.

use std::time::Duration;

use redis_lock_client::{Client, Error};
use support::{in_sync, Reply, Server};

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, tasks, Observed, LONG};

#[tokio::test]
async fn a_request_is_repeated_if_its_reply_never_comes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port).reply_timeout(Duration::from_millis(500));
    proxy.hold_reply("LOCK.ACQUIRE");
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    assert!(proxy.done() == 1 && server.holds("k") == 1);
    proxy.hold_reply("LOCK.RELEASE");
    guard.release().await.unwrap();
    assert!(proxy.done() == 2 && server.is_free("k"));
    proxy.hold_reply("LOCK.ACQUIRE");
    client.mutex("k").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(proxy.done(), 3);
}

#[tokio::test]
async fn a_late_reply_to_a_release_is_not_a_loss() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port).reply_timeout(Duration::from_secs(1));
    let guard = client.mutex("k").lease(Duration::from_millis(600)).auto_renew().acquire().await.unwrap();
    let lost = guard.lost();
    proxy.hold_reply("LOCK.RELEASE");
    // A renewal in that second would find no hold, and report a loss.
    guard.release().await.unwrap();
    assert!(proxy.done() == 1 && server.is_free("k"));
    assert!(tokio::time::timeout(Duration::ZERO, lost).await.is_err());
}

#[tokio::test]
async fn an_unreachable_server_ends_the_wait_in_time() {
    // Nothing listens there.
    let lock = client_of(1).mutex("k");
    for wait in [None, Some(Duration::from_millis(200))] {
        let ended = match wait {
            None => lock.try_acquire().await,
            Some(wait) => lock.acquire_within(wait).await,
        };
        assert!(matches!(ended, Err(Error::Redis(error)) if error.is_connection_refusal()));
    }
}

#[tokio::test]
async fn a_server_that_comes_back_grants_the_waiter() {
    let mut server = Server::start();
    let lock = client_of(server.port()).mutex("k").lease(LONG);
    let holder = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    server.kill();
    server.restart();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(matches!(holder.release().await, Err(Error::LockLost)));
}

#[tokio::test]
async fn a_waiter_outlasts_a_demotion() {
    let server = Server::start();
    let lock = client_of(server.port()).mutex("k").lease(LONG);
    let holder = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    let asked = server.calls("lock.acquire");
    // The server does not close its connection: it replies UNBLOCKED, and READONLY from then on.
    assert_eq!(server.client().run("REPLICAOF 127.0.0.1 1"), Reply::ok());
    let refused = |server: &Server| server.info("errorstats").find("errorstat_READONLY").is_some();
    eventually("a replica that refuses", || refused(&server) || waiting.is_finished()).await;
    assert_eq!(server.client().run("REPLICAOF NO ONE"), Reply::ok());
    eventually("the same waiter", || server.waiters("k").len() == 1 || waiting.is_finished()).await;
    assert!(server.calls("lock.acquire") > asked);
    holder.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_was_lost_with_its_server_is_not_released() {
    let mut server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    // Over the connection that the release would take, which is gone then.
    assert!(guard.is_held().await.unwrap());
    server.kill();
    server.restart();
    eventually("the end of the connections", || tasks() == 0).await;
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    // A request that certainly did not run is resent.
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    server.client().run("CLIENT KILL TYPE normal SKIPME yes");
    eventually("the end of the connections", || tasks() == 0).await;
    assert_eq!(guard.exec::<i64>(redis::cmd("INCR").arg("n")).await.unwrap(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn waiters_delay_no_other_request() {
    let server = Server::start();
    let client = client_of(server.port());
    let holder = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let lock = client.mutex("k").lease(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    eventually("twenty waiters", || server.waiters("k").len() == 20).await;
    // On the same client, next to them.
    client.mutex("free").acquire().await.unwrap().release().await.unwrap();
    holder.release().await.unwrap();
    for turn in waiting {
        turn.await.unwrap();
    }
    // Their connections are reused.
    let made = server.info("stats").number("total_connections_received");
    for _ in 0..10 {
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    }
    // One belongs to the second attempt, and a stopped machine may cost another.
    let more = server.info("stats").number("total_connections_received") - made;
    assert!(more < 5, "{more} connections for ten acquires");
}

#[tokio::test]
async fn one_client_serves_many_threads() {
    let server = Server::start();
    let client = client_of(server.port());
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let turns: Vec<_> = (0..8)
        .map(|_| {
            let (lock, inside) = (client.mutex("k").lease(LONG), inside.clone());
            runtime.spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for turn in turns {
        turn.await.unwrap();
    }
    assert!(server.is_free("k"));
    runtime.shutdown_background();
}

#[tokio::test]
async fn user_password_and_database_are_those_of_the_url() {
    let server = Server::start();
    server.client().run("ACL SETUSER app on >secret ~* &* +@all");
    let url = |user: &str| format!("redis://{user}:secret@127.0.0.1:{}/3", server.port());
    let client = Client::open(url("app")).unwrap();
    let guard = client.mutex("k").session().acquire().await.unwrap();
    let mut admin = server.client();
    admin.run("SELECT 3");
    assert!(!admin.run("LOCK.INFO k").is_nil());
    assert!(admin.run("CLIENT LIST").text().contains("user=app"));
    assert!(!client.query::<bool>("k", redis::cmd("EXISTS").arg("j")).await.unwrap());
    guard.release().await.unwrap();
    // Waiting cannot fix a wrong password.
    let refused = Client::open(url("nobody")).unwrap().mutex("k").acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Redis(_)), "{refused}");
}

/// HELLO, which opens the connection of a session, accepts any password if the default user has none; AUTH does not.
#[tokio::test]
async fn a_password_for_a_server_without_one_is_refused_before_the_grant_also_with_a_session() {
    let server = Server::start();
    let client = Client::open(format!("redis://:secret@127.0.0.1:{}", server.port())).unwrap();
    for lock in [client.mutex("k"), client.mutex("k").session()] {
        let refused = lock.acquire().await.unwrap_err();
        assert!(matches!(refused, Error::Redis(_)), "{refused}");
        assert!(server.is_free("k"));
    }
}

#[tokio::test]
async fn every_connection_has_the_database_and_the_user_of_the_callers_client() {
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    in_sync(&server, &replica);
    server.client().run("ACL SETUSER app on >secret ~* &* +@all");
    for protocol in ["", "?protocol=resp3"] {
        let caller =
            redis::Client::open(format!("redis://app:secret@127.0.0.1:{}/5{protocol}", server.port())).unwrap();
        let client = Client::open(caller.get_connection_info().clone()).unwrap();
        let locks = [
            client.mutex("k"),
            client.mutex("k").session(),
            client.mutex("k").replicas(1, LONG),
            client.mutex("k").session().replicas(1, LONG),
        ];
        for holds in &locks {
            let guard = holds.acquire().await.unwrap();
            for other in &locks {
                assert!(other.try_acquire().await.unwrap().is_none());
                assert!(other.acquire_within(Duration::from_millis(5)).await.unwrap().is_none());
            }
            guard.release().await.unwrap();
        }
        let connections = server.client().run("CLIENT LIST").text().to_string();
        let here: Vec<&str> = connections.lines().filter(|line| line.contains("user=app")).collect();
        assert!(here.len() > 1 && here.iter().all(|line| line.contains(" db=5 ")), "{connections}");
    }
}

#[tokio::test]
async fn a_command_that_changes_its_connection_is_refused_on_the_shared_one() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    for line in ["SELECT 5", "select 5", "AUTH x", "HELLO 2", "RESET", "MULTI", "WATCH k", "CLIENT REPLY OFF", "QUIT"] {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        let refused = client.query::<redis::Value>("k", &command).await;
        assert!(matches!(refused, Err(Error::Usage(_))), "{line}: {refused:?}");
    }
    client.query::<String>("k", redis::cmd("CLIENT").arg("LIST")).await.unwrap();
    assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_command_that_may_have_run_is_not_run_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let guard = client_of(proxy.port).mutex("k").acquire().await.unwrap();
    proxy.cut_reply("LOCK.EXEC", 0);
    let error = guard.exec::<i64>(redis::cmd("INCR").arg("n")).await.unwrap_err();
    assert!(matches!(error, Error::Redis(_)), "{error}");
    assert!(server.client().run("GET n").is_bulk("1"));
    assert_eq!(guard.exec::<i64>(redis::cmd("INCR").arg("n")).await.unwrap(), 2);
    guard.release().await.unwrap();
}

/// A connection for each acquire would cost more than all its commands.
#[tokio::test]
async fn acquires_that_wait_for_replicas_share_a_connection() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let client = client_of(primary.port());
    let lock = client.mutex("k").lease(LONG).replicas(1, Duration::from_secs(10));
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = primary.info("stats").number("total_connections_received");
    for _ in 0..20 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    // One is the connection that queries.
    assert!(primary.info("stats").number("total_connections_received") <= before + 1);
}

#[tokio::test]
async fn replicas_of_another_primary_do_not_confirm_a_grant() {
    let (old, new) = (Server::start(), Server::start());
    let replica = Server::builder().replica_of(&new).start();
    in_sync(&new, &replica);
    let sentinel = Server::builder().sentinel().start();
    let mut watch = sentinel.client();
    let mut monitor = |primary: &Server| {
        watch.run("SENTINEL REMOVE main");
        let monitored = watch.run(&format!("SENTINEL MONITOR main 127.0.0.1 {} 1", primary.port()));
        assert_eq!(monitored, Reply::ok());
    };
    monitor(&old);
    let client = Client::sentinel([("127.0.0.1", sentinel.port())], "main", "redis://wherever").unwrap();
    // WAIT is repeated after half of the reply timeout.
    let client = client.reply_timeout(Duration::from_millis(600));
    assert!(!client.mutex("j").is_locked().await.unwrap());
    let lock = client.mutex("k").lease(LONG).replicas(1, Duration::from_secs(3));
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually("a grant that waits for a replica", || old.holds("k") == 1 && old.calls("wait") > 0).await;
    monitor(&new);
    // Another task learns of the new primary, as its connection has ended.
    let clients = old.client().run("CLIENT LIST").text().to_string();
    let shared = clients.lines().find(|line| line.contains(" cmd=exists ")).expect("the shared connection");
    let id = shared.strip_prefix("id=").and_then(|line| line.split(' ').next()).unwrap();
    old.client().run(&format!("CLIENT KILL ID {id}"));
    eventually("a broken connection", || !old.client().run("CLIENT LIST").text().contains(" cmd=exists ")).await;
    let asked = new.calls("exists");
    assert!(!client.mutex("j").is_locked().await.unwrap());
    assert!(new.calls("exists") > asked);
    let end = acquiring.await.unwrap();
    assert!(matches!(end, Err(Error::NotReplicated { confirmed: 0, .. })), "{end:?}");
    assert_eq!(new.calls("wait"), 0);
}
