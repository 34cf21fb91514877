//! The cases of clients/conformance.md, except those of the cluster and of cancellation.

use std::time::{Duration, Instant};

use redis_lock_client::{Client, Error, Guard};
use support::{in_sync, until, Reply, Server};

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, tasks, until_lost, Observed, LONG};

#[tokio::test]
async fn acquire() {
    let server = Server::start();
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port())).unwrap();
        let lock = client.mutex("k").lease(Duration::from_secs(10));
        let guard = lock.acquire().await.unwrap();
        let left = guard.remaining().unwrap();
        assert!(left > Duration::from_secs(9) && left <= Duration::from_secs(10), "{left:?}");
        let holder = &server.holders("k")[0];
        assert_eq!(holder.get("owner").bytes(), guard.token());
        assert_eq!(holder.get("fence").int(), i64::try_from(guard.fence()).unwrap());
        let token = String::from_utf8(guard.token().to_vec()).unwrap();
        let [random, pid, host] = token.rsplitn(3, ':').collect::<Vec<_>>()[..] else { panic!("{token}") };
        assert!(token.len() <= 38 && !host.is_empty() && random.len() == 16, "{token}");
        assert_eq!(pid, std::process::id().to_string());
        assert!(guard.is_held().await.unwrap() && lock.is_locked().await.unwrap() && !guard.is_lost());
        assert!(lock.try_acquire().await.unwrap().is_none());
        let fence = guard.fence();
        guard.release().await.unwrap();
        assert!(server.is_free("k") && !lock.is_locked().await.unwrap());
        let next = lock.try_acquire().await.unwrap().unwrap();
        assert!(next.fence() > fence);
        next.release().await.unwrap();
        let unending = client.mutex("k").lease(None).acquire().await.unwrap();
        assert_eq!(unending.remaining(), None);
        assert_eq!(server.client().pttl("k"), -1);
        unending.release().await.unwrap();
    }
}

#[tokio::test]
async fn wait() {
    let server = Server::start();
    let lock = client_of(server.port()).mutex("k");
    let holder = lock.acquire().await.unwrap();
    let began = Instant::now();
    assert!(lock.acquire_within(Duration::from_millis(300)).await.unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(300));
    let waiting = tokio::spawn(async move { lock.acquire_within(LONG).await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    holder.release().await.unwrap();
    waiting.await.unwrap().unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn order() {
    let server = Server::start();
    let client = client_of(server.port());
    let holder = client.mutex("k").acquire().await.unwrap();
    let (got, mut turns) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let lock = client.mutex("k").token(format!("waiter-{number}"));
        let got = got.clone();
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            got.send(number).unwrap();
            guard.release().await.unwrap();
        });
        eventually("one more waiter", || server.waiters("k").len() == number + 1).await;
    }
    holder.release().await.unwrap();
    for number in 0..5 {
        assert_eq!(turns.recv().await, Some(number));
    }
}

#[tokio::test]
async fn position_kept_over_short_sockets() {
    let server = Server::start();
    let client = client_of(server.port());
    let short = client.clone().reply_timeout(Duration::from_millis(600));
    let holder = client.mutex("k").lease(LONG).token("holder").acquire().await.unwrap();
    let lock = short.mutex("k").lease(LONG).token("early");
    let early = tokio::spawn(async move { lock.acquire().await });
    eventually("the first waiter", || server.waits("k", &["early"])).await;
    let lock = client.mutex("k").lease(LONG).token("late");
    let late = tokio::spawn(async move { lock.acquire().await });
    eventually("the second waiter", || server.waiters("k").contains(&"late".to_string())).await;
    let asked = server.calls("lock.acquire");
    eventually("five slices more", || server.calls("lock.acquire") >= asked + 5).await;
    eventually("both, in order", || server.waits("k", &["early", "late"])).await;
    _ = holder.into_token();
    eventually("both at the release", || server.release_before_two("k", "holder")).await;
    let early = early.await.unwrap().unwrap();
    assert!(!late.is_finished());
    early.release().await.unwrap();
    late.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn lost_reply_of_acquire() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    for after in [0, 3] {
        let reentrant = client.reentrant("r");
        let locks = [
            (&client.mutex("k"), "k", 1),
            (&reentrant, "r", 1),
            (&reentrant, "r", 2),
            (&client.semaphore("s", 5).permits(2), "s", 2),
            (&client.read_lock("rw"), "rw", 1),
            (&client.multi_lock(["a", "b"]), "a", 1),
        ];
        let mut guards = Vec::new();
        for (lock, key, holds) in locks {
            let cuts = proxy.done();
            proxy.cut_reply(".ACQUIRE", after);
            guards.push(lock.acquire().await.unwrap());
            assert_eq!(proxy.done(), cuts + 1);
            assert_eq!((server.holders(key).len(), server.holds(key)), (1, holds), "{key}");
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        // The same without waiting.
        proxy.cut_reply(".ACQUIRE", after);
        client.mutex("k").try_acquire().await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(server.client().run("DBSIZE").int(), 0);
    }
}

#[tokio::test]
async fn lost_reply_of_release() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let guard = client.mutex("k").acquire().await.unwrap();
    proxy.cut_reply("LOCK.RELEASE", 0);
    guard.release().await.unwrap();
    assert!(proxy.done() == 1 && server.is_free("k"));
    let reentrant = client.reentrant("r");
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(reentrant.acquire().await.unwrap());
    }
    for left in [2, 1, 0] {
        proxy.cut_reply("RLOCK.RELEASE", 0);
        guards.pop().unwrap().release().await.unwrap();
        assert_eq!(server.holds("r"), left);
    }
    assert_eq!(proxy.done(), 4);
    // Releasing a lock that was lost before never succeeds, even if more replies are lost.
    let guard = client.mutex("k").acquire().await.unwrap();
    server.break_lock("k");
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    // The same if the lease has expired by the local clock when the reply to the release is lost too.
    let guard = client.mutex("k").lease(Duration::from_millis(50)).acquire().await.unwrap();
    until_lost(&guard).await;
    eventually("the lease's end", || server.is_free("k")).await;
    proxy.cut_reply("LOCK.RELEASE", 0);
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
}

#[tokio::test]
async fn failover_while_waiting() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let sentinel = Server::builder().sentinel().start();
    let mut watch = sentinel.client();
    assert_eq!(watch.run(&format!("SENTINEL MONITOR main 127.0.0.1 {} 1", primary.port())), Reply::ok());
    for setting in ["info-period 250", "publish-period 250", "ask-period 250"] {
        assert_eq!(watch.run(&format!("SENTINEL DEBUG {setting}")), Reply::ok());
    }
    for setting in ["down-after-milliseconds 5000", "failover-timeout 30000"] {
        assert_eq!(watch.run(&format!("SENTINEL SET main {setting}")), Reply::ok());
    }
    until("sentinel knows the replica", || !watch.run("SENTINEL REPLICAS main").items().is_empty());

    let sentinels = [("127.0.0.1", 1), ("127.0.0.1", sentinel.port())];
    let client = Client::sentinel(sentinels, "main", "redis://wherever").unwrap();
    let lock = client.mutex("k").lease(LONG);
    let holder = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a waiter", || primary.waiters("k").len() == 1).await;
    eventually("the lock at the replica", || !replica.is_free("k")).await;
    // Sentinel refuses until it has seen the replica's INFO.
    eventually("a failover that sentinel agrees to", || match watch.run("SENTINEL FAILOVER main") {
        Reply::Error(refusal) => {
            assert!(refusal.contains("NOGOODSLAVE") || refusal.contains("INPROG"), "{refusal}");
            false
        }
        _ => true,
    })
    .await;
    eventually("a new primary", || has_role(&replica, "master")).await;
    eventually("the old one is a replica", || has_role(&primary, "slave")).await;
    eventually("the same waiter at the new primary", || replica.waiters("k").len() == 1).await;
    let fence = holder.fence();
    holder.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();

    let unknown = Client::sentinel([("127.0.0.1", sentinel.port())], "other", "redis://wherever").unwrap();
    let error = unknown.mutex("k").acquire().await.unwrap_err();
    assert!(error.to_string().contains("sentinel knows no such master"), "{error}");
}

/// Sentinel closes a server's client connections when it changes the server's role, so the query may fail.
fn has_role(server: &Server, role: &str) -> bool {
    server.client().try_cmd(&["ROLE"]).is_ok_and(|reply| reply.items()[0].is_bulk(role))
}

#[tokio::test]
async fn renewal_stops_with_the_lock() {
    let server = Server::start();
    let client = client_of(server.port());
    // Opens its connections.
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let before = tasks();
    let lock = client.mutex("k").lease(Duration::from_secs(3)).auto_renew();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(tasks(), before + 1);
    eventually("renewals for longer than the lease", || server.calls("lock.renew") >= 4).await;
    let left = guard.remaining().unwrap();
    assert!(!guard.is_lost() && left > Duration::ZERO && left <= Duration::from_secs(3), "{left:?}");
    guard.release().await.unwrap();
    eventually("no task left", || tasks() == before).await;
    assert!(server.is_free("k"));
    let dropped = lock.acquire().await.unwrap();
    drop(dropped);
    eventually("a free lock", || server.is_free("k")).await;
    eventually("no task left", || tasks() == before).await;
}

#[tokio::test]
async fn loss_is_reported() {
    let server = Server::start();
    let client = client_of(server.port());
    let lock = client.mutex("k").lease(Duration::from_secs(6)).auto_renew();
    let guard = lock.acquire().await.unwrap();
    assert!(!guard.is_lost());
    server.break_lock("k");
    let began = Instant::now();
    until_lost(&guard).await;
    // A renewal reports the loss: the deadline is later.
    assert!(guard.is_lost() && guard.remaining().unwrap() > Duration::ZERO, "reported after {:?}", began.elapsed());
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    // Without renewals the local deadline reports the loss, without any reply of the server.
    let guard = client.mutex("k").lease(Duration::from_millis(400)).acquire().await.unwrap();
    let calls = server.calls("lock.held") + server.calls("lock.renew");
    until_lost(&guard).await;
    assert!(guard.is_lost() && guard.remaining() == Some(Duration::ZERO));
    assert_eq!(server.calls("lock.held") + server.calls("lock.renew"), calls);
    eventually("the lease's end", || server.is_free("k")).await;
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    // As if the server's clock were behind: its reply to the release is 1, which is not a success.
    let guard = client.mutex("k").lease(Duration::from_millis(400)).acquire().await.unwrap();
    server.client().run("PEXPIRE k 60000");
    until_lost(&guard).await;
    assert!(matches!(guard.release().await, Err(Error::LockLost)) && server.is_free("k"));
    // A renewal that cannot be sent: the deadline reports the loss.
    let mut stopped = Server::start();
    let lock = client_of(stopped.port()).mutex("k").lease(Duration::from_secs(1)).auto_renew();
    let guard = lock.acquire().await.unwrap();
    stopped.kill();
    until_lost(&guard).await;
    assert!(guard.is_lost());
    // A release is not a loss.
    let lock = client.mutex("k").lease(Duration::from_millis(1500));
    let guard = lock.acquire().await.unwrap();
    let lost = guard.lost();
    guard.release().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(2000), lost).await.is_err());
}

#[tokio::test]
async fn session() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").lease(Duration::from_millis(1500)).session().acquire().await.unwrap();
    let id = server.holders("k")[0].get("session").int();
    assert!(id > 0);
    eventually("a hold that outlives its lease", || server.holders("k")[0].get("age").int() > 3000).await;
    assert!(!guard.is_lost() && server.calls("lock.renew") == 0);
    // A client that is stopped for longer than the lease has not lost the lock: the server renews it.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    assert!(server.is_free("k"));
    eventually("the end of the connection", || !is_connected(&server, id)).await;
    // The end of the connection reports the loss: a check after a third of this lease would come too late.
    let guard = client.mutex("k").lease(Duration::from_secs(600)).session().acquire().await.unwrap();
    let id = server.holders("k")[0].get("session").int();
    server.client().run(&format!("CLIENT KILL ID {id}"));
    until_lost(&guard).await;
    assert!(guard.is_lost());
    eventually("a free lock", || server.is_free("k")).await;
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    // Broken by an operator: reported after a third of the lease.
    let guard = client.mutex("k").lease(Duration::from_millis(600)).session().acquire().await.unwrap();
    server.break_lock("k");
    until_lost(&guard).await;
    // A guard that is dropped ends the session.
    drop(guard);
    let guard = client.mutex("k").session().acquire().await.unwrap();
    let id = server.holders("k")[0].get("session").int();
    drop(guard);
    eventually("the end of the session", || server.is_free("k") && !is_connected(&server, id)).await;
}

#[tokio::test]
async fn a_session_ends_with_a_release_that_fails() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").session().acquire().await.unwrap();
    server.client().run("ACL SETUSER default -lock.release");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(&error, Error::Redis(error) if error.code() == Some("NOPERM")), "{error}");
    eventually("the end of the session", || server.is_free("k")).await;
}

fn is_connected(server: &Server, id: i64) -> bool {
    server.client().run("CLIENT LIST").text().lines().any(|line| line.starts_with(&format!("id={id} ")))
}

#[tokio::test]
async fn replicas() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let client = client_of(primary.port());
    let guard = client.mutex("k").lease(LONG).replicas(1, LONG).acquire().await.unwrap();
    assert_eq!(replica.holders("k")[0].get("fence").int(), i64::try_from(guard.fence()).unwrap());
    guard.release().await.unwrap();
    assert_eq!(primary.calls("wait"), 1);
    let error = client.mutex("k").replicas(2, Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::NotReplicated { confirmed: 1, wanted: 2, .. }), "{error}");
    assert!(primary.is_free("k"));
}

#[tokio::test]
async fn exec() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").acquire().await.unwrap();
    let word: String = guard.exec(redis::cmd("SET").arg("v").arg("held")).await.unwrap();
    assert_eq!(word, "OK");
    assert_eq!(guard.exec::<String>(redis::cmd("GET").arg("v")).await.unwrap(), "held");
    // The inner command's own error is not a loss.
    let error = guard.exec::<()>(redis::cmd("RPUSH").arg("v").arg("x")).await.unwrap_err();
    assert!(matches!(&error, Error::Redis(error) if error.code() == Some("WRONGTYPE")), "{error}");
    assert!(!guard.is_lost());
    server.break_lock("k");
    let error = guard.exec::<()>(redis::cmd("SET").arg("v").arg("lost")).await.unwrap_err();
    assert!(matches!(error, Error::LockLost) && guard.is_lost());
    assert!(server.client().run("GET v").is_bulk("held"));
}

#[tokio::test]
async fn slot() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", proxy.port)).unwrap();
        let lock = client.semaphore_slot("s", 3).lease(LONG);
        let mut guards = Vec::new();
        for slot in 0..3 {
            let guard = lock.acquire().await.unwrap();
            assert_eq!((guard.slot(), guard.holds()), (Some(slot), 1));
            guards.push(guard);
        }
        assert!(lock.try_acquire().await.unwrap().is_none());
        guards.remove(1).release().await.unwrap();
        // Its reply is lost: the retry gets the slot that the server has assigned.
        let cuts = proxy.done();
        proxy.cut_reply("SEM.ACQUIRE", 3);
        let next = lock.acquire().await.unwrap();
        assert_eq!((next.slot(), proxy.done()), (Some(1), cuts + 1));
        let slots: Vec<i64> = server.holders("s").iter().map(|holder| holder.get("slot").int()).collect();
        assert!(slots.len() == 3 && [0, 1, 2].iter().all(|slot| slots.contains(slot)), "{slots:?}");
        guards.push(next);
        // A waiter gets the released slot, even if its wait takes several requests.
        let short = client.clone().reply_timeout(Duration::from_millis(600)).semaphore_slot("s", 3).lease(LONG);
        let waiting = tokio::spawn(async move { short.acquire().await });
        let asked = server.calls("sem.acquire");
        eventually("two slices", || server.calls("sem.acquire") >= asked + 2).await;
        guards.remove(0).release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert_eq!(next.slot(), Some(0));
        guards.push(next);
        // The slot is transferred with the token.
        let token = guards.pop().unwrap().into_token();
        let there = Guard::from_token(&lock, token).await.unwrap();
        assert_eq!(there.slot(), Some(0));
        there.renew(LONG).await.unwrap();
        guards.push(there);
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert!(server.is_free("s"));
        let permits = client.semaphore("s", 3).acquire().await.unwrap();
        assert_eq!(permits.slot(), None);
        permits.release().await.unwrap();
    }
}

#[tokio::test]
async fn from_token() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").lease(Duration::from_secs(20)).acquire().await.unwrap();
    // The client asks immediately for what only the server knows, so that it is never unknown.
    let there = client_of(server.port()).mutex("k");
    let other = Guard::from_token(&there, guard.token()).await.unwrap();
    assert_eq!((other.fence(), server.calls("lock.held"), other.is_lost()), (guard.fence(), 1, false));
    assert!(other.is_held().await.unwrap() && other.remaining().unwrap() <= Duration::from_secs(20));
    other.extend(Duration::from_secs(20)).await.unwrap();
    assert!(server.client().pttl("k") > 30_000);
    other.exec::<()>(redis::cmd("SET").arg("v").arg("there")).await.unwrap();
    assert!(server.client().run("GET v").is_bulk("there"));
    let token = other.token().to_vec();
    other.release().await.unwrap();
    assert!(server.is_free("k"));
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    assert!(matches!(Guard::from_token(&there, token).await, Err(Error::LockLost)));
}

#[tokio::test]
async fn server_without_the_module() {
    let server = Server::builder().no_module().start();
    let client = client_of(server.port());
    for lock in [client.mutex("k"), client.reentrant("k"), client.semaphore("k", 1), client.multi_lock(["k"])] {
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::NoModule), "{error}");
        assert!(error.to_string().contains("loadmodule /path/to/libredis_lock.so"), "{error}");
    }
}

#[tokio::test]
async fn key_became_something_else() {
    let server = Server::start();
    let client = client_of(server.port());
    let mut admin = server.client();
    for what in ["release", "extend", "renew"] {
        let guard = client.mutex("k").acquire().await.unwrap();
        assert_eq!(admin.run("SET k else"), Reply::ok());
        assert!(!guard.is_held().await.unwrap());
        let reported = match what {
            "release" => guard.release().await,
            "extend" => guard.extend(LONG).await,
            _ => guard.renew(LONG).await,
        };
        assert!(matches!(reported, Err(Error::LockLost)), "{what}: {reported:?}");
        assert!(admin.run("GET k").is_bulk("else"));
        for error in
            [client.mutex("k").try_acquire().await.unwrap_err(), client.mutex("k").acquire().await.unwrap_err()]
        {
            assert!(matches!(error, Error::WrongType(_)), "{error:?}");
            assert!(error.to_string().starts_with("the key 'k' is a string, not a lock; a SET NX client"), "{error}");
        }
        admin.run("DEL k");
    }
}

#[tokio::test]
async fn no_polling() {
    let server = Server::start();
    let client = client_of(server.port()).reply_timeout(None);
    let holder = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let lock = client.mutex("k").lease(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    eventually("a hundred waiters", || server.waiters("k").len() == 100).await;
    let (began, asked) = (Instant::now(), server.calls("lock.acquire"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A request of a wait lasts 5 s: each waiter may have repeated it once in that time, not more often.
    let slices = i64::try_from(began.elapsed().as_secs() / 5).unwrap();
    assert!(server.calls("lock.acquire") - asked <= 100 * (1 + slices));
    holder.release().await.unwrap();
    for turn in waiting {
        turn.await.unwrap();
    }
    for command in ["lock.renew", "lock.held", "exists"] {
        assert_eq!(server.calls(command), 0, "{command}");
    }
}
