//! `run`: the lock, one command and the release in one packet; what happens when replies or connections are lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{cmd, Cmd};
use redis_lock_client::{Client, Error, Event, EventKind, Lock};
use support::{Info, Reply, Server};

use crate::cluster::Cluster;
use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, Observed, LONG};

fn incr() -> Cmd {
    cmd("INCR").arg("n").to_owned()
}

fn one_of_each(client: &Client) -> Vec<Lock> {
    vec![
        client.mutex("k"),
        client.reentrant("r"),
        client.read_lock("rw"),
        client.write_lock("rw"),
        client.semaphore("s", 3).permits(2),
        client.multi_lock(["a", "b"]),
        client.mutex("k").session(),
    ]
}

fn keys(server: &Server) -> Vec<String> {
    server.client().run("KEYS *").items().iter().map(|key| key.text().to_string()).collect()
}

fn count(server: &Server) -> i64 {
    // Empty: no such key.
    server.client().run("GETRANGE n 0 -1").text().parse().unwrap_or(0)
}

#[tokio::test]
async fn a_command_in_one_packet_with_its_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let mut number = 0;
    for (index, lock) in one_of_each(&client).iter().enumerate() {
        for waits in [true, false] {
            number += 1;
            let ran =
                if waits { lock.run(&incr()).await.unwrap() } else { lock.try_run(&incr()).await.unwrap().unwrap() };
            assert_eq!((ran, keys(&server)), (number, vec!["n".to_string()]));
            let [packet] = &proxy.packets()[..] else { panic!("several packets") };
            assert!([".ACQUIRE", "INCR", ".RELEASE"].iter().all(|word| packet.contains(word)), "{packet}");
            assert_eq!((packet.contains("BLOCK"), packet.contains("SESSION")), (false, index == 6), "{packet}");
        }
    }
    let lock = client.mutex("k");
    lock.run::<()>(cmd("HSET").arg("h").arg("f").arg("1")).await.unwrap();
    let all: std::collections::HashMap<String, String> = lock.run(cmd("HGETALL").arg("h")).await.unwrap();
    assert_eq!(all["f"], "1");
    assert_eq!(lock.run::<Option<String>>(cmd("GET").arg("none")).await.unwrap(), None);
    // The command's own error, including its own WRONGTYPE.
    for command in [cmd("INCR").arg("h").to_owned(), cmd("NOSUCH")] {
        assert!(matches!(lock.run::<i64>(&command).await, Err(Error::Redis(_))));
        assert!(server.is_free("k"));
    }
}

#[tokio::test]
async fn it_waits_its_turn_or_reports_that_it_was_not_granted() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").acquire().await.unwrap();
    let lock = client.mutex("k");
    assert!(lock.try_run::<i64>(&incr()).await.unwrap().is_none());
    assert!(lock.run_within::<i64>(&incr(), Duration::from_millis(300)).await.unwrap().is_none());
    match lock.clone().tell_holder().try_run::<i64>(&incr()).await {
        Err(Error::NotGranted { holder, .. }) => assert_eq!(holder.unwrap().as_bytes(), guard.token()),
        other => panic!("{other:?}"),
    }
    // A wait of several requests is one wait.
    let slow = client.clone().reply_timeout(Duration::from_millis(400)).mutex("k");
    let running = tokio::spawn(async move { slow.run::<i64>(&incr()).await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    let asked = server.calls("lock.acquire");
    eventually("three slices more", || server.calls("lock.acquire") >= asked + 3).await;
    assert_eq!(count(&server), 0);
    guard.release().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap(), 1);
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn it_reports_that_the_lock_was_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    for lose in ["LOCK.BREAK k", "SET k something"] {
        // The packet arrives in two parts, and the lock is lost between them.
        proxy.split_request("LOCK.EXEC");
        let lock = client.mutex("k");
        let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
        eventually("the grant", || server.holders("k").len() == 1).await;
        assert!(!server.client().run(lose).is_error());
        proxy.deliver();
        assert!(matches!(running.await.unwrap(), Err(Error::LockLost)));
        assert_eq!(count(&server), 0);
    }
}

#[tokio::test]
async fn no_command_is_sent_twice() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut number = 0;
    // Before any reply, and within that of the acquire.
    for after in [0, 3] {
        for waits in [true, false] {
            for lock in one_of_each(&client_of(proxy.port)) {
                number += 1;
                proxy.cut_reply("LOCK.EXEC", after);
                let ran = if waits { lock.run::<i64>(&incr()).await.map(Some) } else { lock.try_run(&incr()).await };
                assert!(matches!(ran, Err(Error::Redis(_))), "{ran:?}");
                assert_eq!((proxy.done(), count(&server)), (number, number as i64));
                eventually("the end of the hold", || keys(&server) == ["n"]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_packet_that_arrives_in_part_leaves_nothing() {
    let server = Server::start();
    for is_session in [false, true] {
        let proxy = Proxy::to(server.port()).await;
        let lock = client_of(proxy.port).mutex("k").lease(LONG);
        let lock = if is_session { lock.session() } else { lock };
        proxy.split_request("LOCK.EXEC");
        let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
        eventually("the grant", || server.holders("k").len() == 1).await;
        if is_session {
            // Only the server can release it; no client can.
            assert_eq!(server.client().run("ACL SETUSER default -lock.release"), Reply::ok());
        }
        proxy.disconnect();
        assert!(matches!(running.await.unwrap(), Err(Error::Redis(_))));
        eventually("the end of the hold", || server.is_free("k")).await;
        assert_eq!(count(&server), 0);
    }
}

#[tokio::test]
async fn a_release_that_does_not_arrive_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.split_request("LOCK.RELEASE");
    let lock = client_of(proxy.port).mutex("k").lease(LONG);
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    eventually("the command", || count(&server) == 1).await;
    assert_eq!(server.holders("k").len(), 1);
    proxy.disconnect();
    // The replies of a packet arrive together.
    assert!(matches!(running.await.unwrap(), Err(Error::Redis(_))));
    eventually("the end of the hold", || server.is_free("k")).await;
    assert_eq!(count(&server), 1);
}

#[tokio::test]
async fn it_waits_in_the_queue_during_the_grace() {
    let server = Server::builder().config("lock.grace 1500").start();
    let lock = client_of(server.port()).mutex("k");
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    assert_eq!(running.await.unwrap().unwrap(), 1);
    assert!(server.calls("lock.acquire") <= 3);
}

#[tokio::test]
async fn a_connection_that_ends_while_it_waits_ends_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let guard = client_of(server.port()).mutex("k").acquire().await.unwrap();
    let lock = client_of(proxy.port).mutex("k");
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    // The first packet does not wait, and is not granted.
    let waits: Vec<_> = proxy.packets().iter().map(|packet| packet.contains("BLOCK")).collect();
    assert_eq!(waits, [false, true]);
    proxy.disconnect();
    assert!(matches!(running.await.unwrap(), Err(Error::Redis(_))));
    assert!(server.waiters("k").is_empty());
    guard.release().await.unwrap();
    assert!(server.is_free("k") && count(&server) == 0);
}

#[tokio::test]
async fn a_dropped_run_leaves_nothing() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").acquire().await.unwrap();
    let lock = client.mutex("k").lease(LONG);
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    running.abort();
    eventually("the withdrawal", || server.calls("lock.cancel") == 1).await;
    client.settled().await;
    assert!(server.waiters("k").is_empty());
    guard.release().await.unwrap();
    assert!(server.is_free("k") && count(&server) == 0);
}

#[tokio::test]
async fn options_that_do_not_apply_are_refused() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let reentrant = client.reentrant("r");
    let reader = client.read_lock("rw").acquire().await.unwrap();
    let guard = reentrant.acquire().await.unwrap();
    for lock in [
        &client.mutex("k").token("mine"),
        &client.mutex("k").at_least(LONG),
        &client.mutex("k").replicas(1, LONG),
        &client.semaphore_slot("s", 3),
        &client.write_lock("rw").as_owner_of(&reader),
        // It would wait for its own hold.
        &reentrant,
    ] {
        assert!(matches!(lock.run::<i64>(&incr()).await, Err(Error::Usage(_))));
    }
    guard.release().await.unwrap();
    assert_eq!(reentrant.run::<i64>(&incr()).await.unwrap(), 1);
    // Without a deadline a process that dies would leave the lock held indefinitely.
    proxy.packets();
    assert!(client.mutex("k").lease(None).run::<i64>(cmd("PTTL").arg("k")).await.unwrap() > 29_000);
    assert!(!proxy.packets()[0].contains("PERSIST"));
    reader.release().await.unwrap();
}

#[tokio::test]
async fn next_to_old_clients_it_polls() {
    let server = Server::start();
    assert_eq!(server.client().run("SET k old"), Reply::ok());
    let lock = client_of(server.port()).mutex("k").mixed(Duration::from_millis(20));
    assert!(lock.run_within::<i64>(&incr(), Duration::from_millis(100)).await.unwrap().is_none());
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    let asked = server.calls("lock.acquire");
    eventually("some polls", || server.calls("lock.acquire") > asked + 2).await;
    server.client().run("DEL k");
    assert_eq!(running.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn it_is_observed() {
    let server = Server::start();
    let reported: Arc<Mutex<Vec<Event>>> = Arc::default();
    let recorded = reported.clone();
    let client = client_of(server.port()).observer(move |event: &Event| recorded.lock().unwrap().push(event.clone()));
    let lock = client.mutex("k");
    lock.run::<()>(&incr()).await.unwrap();
    {
        let reported = std::mem::take(&mut *reported.lock().unwrap());
        let [granted, released] = &reported[..] else { panic!("{reported:?}") };
        assert!(
            matches!(granted.kind, EventKind::Granted { .. }) && matches!(released.kind, EventKind::Released { .. })
        );
        assert!(granted.fence.is_some() && (granted.fence, &granted.owner) == (released.fence, &released.owner));
    }
    let guard = lock.acquire().await.unwrap();
    reported.lock().unwrap().clear();
    assert!(lock.run_within::<()>(&incr(), Duration::from_millis(300)).await.unwrap().is_none());
    let kinds: Vec<_> = reported.lock().unwrap().iter().map(|event| event.kind).collect();
    assert!(matches!(kinds[..], [EventKind::Queued, EventKind::NotGranted { .. }]), "{kinds:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_is_refused_after_the_grant_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.split_request("LOCK.EXEC");
    let lock = client_of(proxy.port).mutex("k");
    let running = tokio::spawn(async move { lock.run::<i64>(&incr()).await });
    eventually("the grant", || server.holders("k").len() == 1).await;
    assert_eq!(server.client().run("CONFIG SET min-replicas-to-write 1"), Reply::ok());
    proxy.deliver();
    let refused = || {
        let errors = server.client().run("INFO errorstats");
        let found = Info::parse(errors.text()).find("errorstat_NOREPLICAS").map(String::from);
        found.is_some_and(|count| count.trim_start_matches("count=").parse::<u32>().is_ok_and(|count| count > 3))
    };
    eventually("the packet again", refused).await;
    assert_eq!(server.client().run("CONFIG SET min-replicas-to-write 0"), Reply::ok());
    // The command did not run: the packet was sent again.
    assert_eq!(running.await.unwrap().unwrap(), 1);
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn it_follows_a_slot_that_moves() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let (slot, source, target) = cluster.of_key("k");
    let counter = cmd("INCR").arg("{k}n").to_owned();
    let lock = client.mutex("k").lease(LONG);
    assert_eq!(lock.run::<i64>(&counter).await.unwrap(), 1);
    let guard = lock.acquire().await.unwrap();
    let (waiter, same) = (lock.clone(), counter.clone());
    let waiting = tokio::spawn(async move { waiter.run::<i64>(&same).await });
    eventually("a waiter", || source.waiters("k").len() == 1).await;
    cluster.begin_to_move(slot, source, target);
    eventually("the same waiter, asked for", || target.blocked_clients() == 1).await;
    // ASKING before each command of the packet.
    assert_eq!(client.mutex("{k}other").try_run::<i64>(&counter).await.unwrap(), Some(2));
    cluster.finish_to_move(slot, source, target);
    eventually("the waiter at the slot's new node", || target.waiters("k").len() == 1).await;
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 3);
    assert_eq!(lock.run::<i64>(&counter).await.unwrap(), 4);
    assert_eq!((source.calls("incr"), target.calls("incr")), (1, 3));
}

#[tokio::test]
async fn it_does_not_run_while_its_slot_moves_and_one_of_its_keys_does_not_exist() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let (slot, source, target) = cluster.of_key("k");
    cluster.begin_to_move(slot, source, target);
    let tries = || source.rejected("lock.exec") + target.rejected("lock.exec");
    let counter = cmd("INCR").arg("{k}n").to_owned();
    for lock in [client.mutex("k").lease(LONG), client.mutex("k").session()] {
        let asked = tries();
        let within = Duration::from_millis(700);
        for ran in [lock.try_run::<i64>(&counter).await, lock.run_within::<i64>(&counter, within).await] {
            let error = ran.unwrap_err();
            assert!(matches!(&error, Error::NotRun(_)), "{error:?}");
            assert!(error.to_string().starts_with("the command did not run: "), "{error}");
        }
        assert!(tries() - asked < 40, "with pauses");
    }
    let short = client.mutex("{k}short").lease(Duration::from_millis(700)).acquire().await.unwrap();
    assert!(matches!(short.exec::<i64>(&counter).await, Err(Error::LockLost)));
    let guard = client.mutex("{k}held").lease(LONG).acquire().await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    for lock in [client.mutex("k"), client.mutex("{k}s").session(), client.mutex("{k}m").mixed(LONG / 1000)] {
        let counter = counter.clone();
        running.spawn(async move { lock.run::<i64>(&counter).await });
    }
    running.spawn({
        let counter = counter.clone();
        async move { guard.exec::<i64>(&counter).await }
    });
    let asked = tries();
    eventually("some tries", || tries() > asked + 10).await;
    assert!(running.try_join_next().is_none());
    assert_eq!(source.calls("incr") + target.calls("incr"), 0);
    // The locks have moved with it.
    cluster.begin_to_move(slot, source, target);
    cluster.finish_to_move(slot, source, target);
    let mut counts: Vec<i64> = running.join_all().await.into_iter().map(|ran| ran.unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_command_that_could_not_be_sent_did_not_run() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let guard = client.mutex("k").lease(LONG).acquire().await.unwrap();
    server.client().run("ACL SETUSER default -lock.acquire");
    let refused = client.mutex("k2").run::<i64>(&incr()).await.unwrap_err();
    assert!(matches!(&refused, Error::NotRun(cause) if cause.code() == Some("NOPERM")), "{refused:?}");
    // The command's own.
    server.client().run("ACL SETUSER default +lock.acquire -incr");
    for ran in [guard.exec::<i64>(&incr()).await, client.mutex("k2").run::<i64>(&incr()).await] {
        assert!(matches!(&ran, Err(Error::Redis(error)) if error.code() == Some("NOPERM")), "{ran:?}");
    }
    server.client().run("ACL SETUSER default +incr");
    proxy.disconnect();
    drop(proxy);
    // A command that was written to a connection that is about to end may have run.
    assert!(guard.is_held().await.is_err());
    let within = Duration::from_millis(100);
    let ran = [
        guard.exec::<i64>(&incr()).await.map(Some),
        client.mutex("k2").try_run::<i64>(&incr()).await,
        client.mutex("k2").run_within::<i64>(&incr(), within).await,
    ];
    for ran in ran {
        assert!(matches!(ran, Err(Error::NotRun(_))), "{ran:?}");
    }
    assert_eq!(count(&server), 0);
    let _ = guard.into_token();
}
