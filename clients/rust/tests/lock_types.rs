//! The tests of each lock type.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_client::{Client, Error, Guard};
use support::{Reply, Server};

use crate::proxy::Proxy;
use crate::servers::{client_of, eventually, tasks, until_lost, Observed, BUSY, LONG};

#[tokio::test]
async fn a_reentrant_lock_is_free_when_it_was_released_as_often() {
    let server = Server::start();
    let client = client_of(server.port());
    let lock = client.reentrant("r").lease(LONG);
    let mut guards = Vec::new();
    for holds in 1..=3 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!((guard.holds(), server.holds("r")), (holds, i64::from(holds)));
        guards.push(guard);
    }
    assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence() && guard.token() == guards[0].token()));
    // A clone is a different owner, and so is another value.
    for other in [lock.clone(), client.reentrant("r")] {
        assert!(other.try_acquire().await.unwrap().is_none());
    }
    for left in [2, 1, 0] {
        guards.pop().unwrap().release().await.unwrap();
        assert_eq!(server.holds("r"), left);
    }
    assert!(server.is_free("r"));
    let again = lock.acquire().await.unwrap();
    drop(again);
    eventually("a free lock", || server.is_free("r")).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn holds_of_an_owner_with_a_token_of_its_own_add_up() {
    let server = Server::start();
    let client = client_of(server.port());
    let locks = [client.reentrant("k"), client.read_lock("k"), client.write_lock("k"), client.semaphore("k", 2)];
    for lock in locks {
        let lock = lock.lease(LONG).token("me");
        let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        assert_eq!((inner.holds(), server.holds("k")), (2, 2), "{:?}", lock.family());
        inner.release().await.unwrap();
        assert!(outer.is_held().await.unwrap(), "{:?}", lock.family());
        outer.release().await.unwrap();
        assert!(server.is_free("k"));
    }
}

#[tokio::test]
async fn a_reentrant_lock_that_was_lost_is_not_taken_again() {
    let server = Server::start();
    let lock = client_of(server.port()).reentrant("r").lease(LONG);
    let guard = lock.acquire().await.unwrap();
    server.break_lock("r");
    assert!(matches!(lock.acquire().await, Err(Error::LockLost)));
    assert!(server.is_free("r") && guard.is_lost());
    assert!(matches!(lock.acquire().await, Err(Error::LockLost)));
    assert_eq!(server.calls("rlock.acquire"), 2, "known to be lost without asking");
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    lock.try_acquire().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_after_a_waiting_one_of_its_owner_ends_in_its_own_time() {
    let server = Server::start();
    let client = client_of(server.port());
    let locks = [client.reentrant("r"), client.semaphore("s", 2), client.write_lock("w")];
    for (key, lock) in ["r", "s", "w"].into_iter().zip(locks) {
        let lock = lock.lease(LONG);
        let holder = lock.clone().permits(2).acquire().await.unwrap();
        let mine = Arc::new(lock.token("mine"));
        let first = mine.clone();
        let first = tokio::spawn(async move { first.acquire().await });
        eventually("a waiter", || server.waits(key, &["mine"])).await;
        let second = tokio::time::timeout(BUSY, mine.try_acquire()).await.expect("an answer at once");
        assert!(second.unwrap().is_none());
        let (wait, began) = (Duration::from_millis(200), Instant::now());
        let second = tokio::time::timeout(wait + BUSY, mine.acquire_within(wait)).await.expect("an answer in time");
        assert!(second.unwrap().is_none() && began.elapsed() >= wait);
        // A dropped one leaves nothing, and takes nothing from the first one.
        assert!(tokio::time::timeout(wait, mine.acquire()).await.is_err());
        client.settled().await;
        assert!(server.waits(key, &["mine"]) && server.calls("lock.cancel") == 0);
        holder.release().await.unwrap();
        let first = first.await.unwrap().unwrap();
        let again = mine.try_acquire().await.unwrap().expect("it holds the lock");
        assert_eq!((again.holds(), server.holds(key)), (2, 2));
        for guard in [first, again] {
            guard.release().await.unwrap();
        }
        assert!(server.is_free(key));
    }
}

#[tokio::test]
async fn a_release_does_not_wait_for_a_queued_acquire_of_its_owner() {
    let server = Server::start();
    let lock = client_of(server.port()).semaphore("s", 4).lease(LONG).permits(2);
    let other = lock.acquire().await.unwrap();
    let mine = Arc::new(lock.token("mine"));
    for is_dropped in [false, true] {
        let held = mine.acquire().await.unwrap();
        let first = mine.clone();
        let first = tokio::spawn(async move { first.acquire().await });
        eventually("a waiter", || server.waits("s", &["mine"])).await;
        if is_dropped {
            drop(held);
        } else {
            tokio::time::timeout(BUSY, held.release()).await.expect("an answer beside the queue").unwrap();
        }
        // It waited for the released hold.
        let first = tokio::time::timeout(BUSY, first).await.expect("a grant").unwrap().unwrap();
        assert_eq!((first.holds(), server.holders("s").len()), (2, 2));
        first.release().await.unwrap();
    }
    other.release().await.unwrap();
    assert!(server.is_free("s"));
}

#[tokio::test]
async fn an_acquire_comes_after_the_release_of_a_guard_that_was_dropped_before_it() {
    let server = Server::start();
    let client = client_of(server.port());
    let locks = [client.semaphore("k", 1), client.reentrant("k"), client.read_lock("k"), client.write_lock("k")];
    for lock in locks {
        let lock = lock.lease(LONG).token("me");
        drop(lock.acquire().await.unwrap());
        let guard = lock.acquire().await.unwrap();
        drop(guard);
        let guard = lock.try_acquire().await.unwrap().unwrap();
        assert_eq!((guard.holds(), server.holds("k")), (1, 1), "{:?}", lock.family());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_acquire_without_waiting_comes_after_a_release_of_its_owner() {
    let server = Server::start();
    let lock = client_of(server.port()).reentrant("r").lease(LONG);
    let guard = lock.acquire().await.unwrap();
    let (released, taken) = tokio::join!(guard.release(), lock.try_acquire());
    released.unwrap();
    taken.unwrap().expect("no other owner holds it").release().await.unwrap();
    assert!(server.is_free("r"));
}

#[tokio::test]
async fn an_acquire_without_waiting_does_not_wait_for_its_owner_on_a_silent_server() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let lock = client_of(proxy.port).reentrant("r").lease(LONG);
    let guard = lock.acquire().await.unwrap();
    proxy.silence();
    let second = async { tokio::time::timeout(Duration::from_secs(1) + BUSY, lock.try_acquire()).await };
    tokio::select! {
        biased;
        _ = guard.release() => panic!("nothing is answered"),
        second = second => {
            let error = second.expect("an answer in time").unwrap_err();
            assert!(matches!(error, Error::Redis(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn readers_share_and_a_writer_does_not() {
    let server = Server::start();
    let client = client_of(server.port());
    let (read, write) = (client.read_lock("rw").lease(LONG), client.write_lock("rw").lease(LONG));
    let (one, two) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    assert_eq!(server.holders("rw").len(), 2);
    assert!(write.try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    // The only reader may acquire the write lock, with a new fence, and keep the read lock.
    let writer = write.clone().as_owner_of(&two).acquire().await.unwrap();
    assert!(writer.fence() > two.fence() && writer.token() == two.token());
    let again = read.clone().as_owner_of(&writer).acquire().await.unwrap();
    assert_eq!((again.holds(), writer.holds()), (2, 1));
    assert!(read.try_acquire().await.unwrap().is_none());
    writer.release().await.unwrap();
    assert!(write.try_acquire().await.unwrap().is_none());
    let three = read.try_acquire().await.unwrap().unwrap();
    for guard in [two, again, three] {
        guard.release().await.unwrap();
    }
    assert!(server.is_free("rw"));
}

#[tokio::test]
async fn a_reader_may_be_released_while_its_owner_waits_to_write() {
    let server = Server::start();
    let client = client_of(server.port());
    let read = client.read_lock("rw").lease(LONG);
    let (mine, other) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    let write = client.write_lock("rw").lease(Duration::from_secs(30)).auto_renew().as_owner_of(&mine);
    let waiting = tokio::spawn(async move { write.acquire().await });
    eventually("an upgrade that waits", || server.waiters("rw").len() == 1).await;
    mine.release().await.unwrap();
    other.release().await.unwrap();
    let writer = waiting.await.unwrap().unwrap();
    assert!(!writer.is_lost() && server.holds("rw") == 1);
    server.break_lock("rw");
    assert!(matches!(writer.renew(LONG).await, Err(Error::LockLost)));
    assert!(writer.is_lost());
    drop(writer);
}

#[tokio::test]
async fn a_reader_that_is_lost_while_its_owner_waits_to_write_is_a_loss_of_both() {
    let server = Server::start();
    let client = client_of(server.port());
    let (read, write) = (client.read_lock("rw").lease(LONG), client.write_lock("rw").lease(LONG));
    for (is_broken, has_rival) in [(false, true), (false, false), (true, true), (true, false)] {
        let (mine, other) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
        let rival = has_rival.then(|| write.clone());
        let rival = tokio::spawn(async move { rival?.acquire().await.ok() });
        eventually("a rival that waits", || server.waiters("rw").len() == usize::from(has_rival)).await;
        let upgrade = write.clone().as_owner_of(&mine);
        let upgrade = tokio::spawn(async move { upgrade.acquire().await });
        let token = String::from_utf8(mine.token().to_vec()).unwrap();
        eventually("an upgrade, the next in the queue", || server.waiters("rw").first() == Some(&token)).await;
        if is_broken {
            assert_eq!(server.client().run(&format!("LOCK.BREAK rw OWNER {token}")).int(), 1);
        } else {
            mine.renew(Duration::from_millis(100)).await.unwrap();
        }
        eventually("one reader", || server.holders("rw").len() == 1).await;
        other.release().await.unwrap();
        if let Some(rival) = rival.await.unwrap() {
            rival.release().await.unwrap();
        }
        let end = upgrade.await.unwrap();
        assert!(matches!(end, Err(Error::LockLost)), "{end:?}, broken: {is_broken}, rival: {has_rival}");
        assert!(mine.is_lost() && server.is_free("rw"));
        assert!(matches!(mine.release().await, Err(Error::LockLost)));
    }
}

#[tokio::test]
async fn an_upgrade_checks_at_the_server_that_the_reader_was_kept() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = client_of(proxy.port);
    let (read, write) = (client.read_lock("rw").lease(LONG), client.write_lock("rw").lease(LONG));
    let (mine, other) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    mine.renew(Duration::from_millis(100)).await.unwrap();
    let token = String::from_utf8(mine.token().to_vec()).unwrap();
    assert_eq!(server.client().run(&format!("RWLOCK.RENEW rw {token} PX 120000")).int(), 1);
    let upgrade = write.as_owner_of(&mine);
    let upgrade = tokio::spawn(async move { upgrade.acquire().await });
    eventually("an upgrade that waits", || server.waiters("rw").len() == 1).await;
    // By the local clock, which does not know of the renewal.
    until_lost(&mine).await;
    proxy.cut_reply("LOCK.HELD", 0);
    other.release().await.unwrap();
    let writer = upgrade.await.unwrap().unwrap();
    assert_eq!((proxy.done(), server.calls("lock.held")), (1, 2));
    assert!(!mine.is_lost() && !writer.is_lost() && writer.fence() > mine.fence());
    // The writer reads under the same grant: no query is needed.
    let again = read.as_owner_of(&writer).acquire().await.unwrap();
    assert_eq!((again.holds(), again.fence(), server.calls("lock.held")), (2, writer.fence(), 2));
    for guard in [writer, again, mine] {
        guard.release().await.unwrap();
    }
    assert!(server.is_free("rw"));
}

/// The upgrade was granted, with its own fence, and released: the reader keeps that fence.
#[tokio::test]
async fn a_released_upgrade_keeps_the_reader() {
    let server = Server::start();
    let client = client_of(server.port());
    let (read, write) = (client.read_lock("rw").lease(LONG), client.write_lock("rw").lease(LONG));
    let mine = read.acquire().await.unwrap();
    let upgrade = write.as_owner_of(&mine).replicas(1, Duration::from_millis(20));
    assert!(matches!(upgrade.acquire().await, Err(Error::NotReplicated { .. })));
    let again = read.as_owner_of(&mine).acquire().await.unwrap();
    assert_eq!((again.holds(), server.holds("rw"), mine.is_lost()), (2, 2, false));
    again.release().await.unwrap();
    mine.release().await.unwrap();
    assert!(server.is_free("rw"));
}

#[tokio::test]
async fn a_cancelled_upgrade_reports_that_the_reader_was_lost() {
    let server = Server::start();
    let client = client_of(server.port());
    let (read, write) = (client.read_lock("rw").lease(LONG), client.write_lock("rw").lease(LONG));
    let (mine, other) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    let upgrade = write.as_owner_of(&mine);
    let upgrade = tokio::spawn(async move { upgrade.acquire().await });
    eventually("an upgrade that waits", || server.waiters("rw").len() == 1).await;
    let token = String::from_utf8(mine.token().to_vec()).unwrap();
    assert_eq!(server.client().run(&format!("LOCK.BREAK rw OWNER {token}")).int(), 1);
    assert!(!mine.is_lost(), "the client has no report of it");
    upgrade.abort();
    eventually("a loss", || mine.is_lost()).await;
    other.release().await.unwrap();
    assert!(server.waiters("rw").is_empty() && server.is_free("rw"));
}

/// A user without the permission to query the remaining lease.
#[tokio::test]
async fn a_grant_whose_lease_cannot_be_queried_is_released() {
    let server = Server::start();
    let mut admin = server.client();
    admin.run("ACL SETUSER worker on nopass ~* &* +@all -lock.held");
    let client = Client::open(format!("redis://worker:any@127.0.0.1:{}/", server.port())).unwrap();
    let holder = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let waiting = client.mutex("k").lease(Duration::from_secs(2));
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    eventually("a waiter", || server.waiters("k").len() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    holder.release().await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Redis(_))));
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn a_semaphore_counts_permits() {
    let server = Server::start();
    let client = client_of(server.port());
    let semaphore = client.semaphore("s", 3).lease(LONG);
    let (two, one) = (semaphore.clone().permits(2).acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    assert_eq!((two.holds(), one.holds(), server.holders("s").len()), (2, 1, 2));
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let other = semaphore.clone().permits(2);
    let waiting = tokio::spawn(async move { other.acquire_within(LONG).await });
    eventually("a waiter", || server.waiters("s").len() == 1).await;
    one.release().await.unwrap();
    assert_eq!(server.waiters("s").len(), 1, "one is not enough");
    two.release().await.unwrap();
    waiting.await.unwrap().unwrap().unwrap().release().await.unwrap();
    assert!(server.is_free("s"));
}

#[tokio::test]
async fn several_locks_are_taken_all_or_none() {
    let server = Server::start();
    let client = client_of(server.port());
    let (both, single) = (client.multi_lock(["a", "b"]).lease(LONG), client.mutex("b").lease(LONG));
    let guard = single.acquire().await.unwrap();
    assert!(both.try_acquire().await.unwrap().is_none() && server.is_free("a"));
    let waiter = both.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    eventually("a waiter", || server.waiters("b").len() == 1).await;
    waiting.abort();
    eventually("an empty queue", || server.waiters("b").is_empty() && server.waiters("a").is_empty()).await;
    eventually("the request is cancelled", || server.calls("mlock.release") == 1).await;
    guard.release().await.unwrap();
    let guard = both.acquire().await.unwrap();
    assert!(guard.is_held().await.unwrap() && both.is_locked().await.unwrap());
    for key in ["a", "b"] {
        assert_eq!(server.holders(key)[0].get("fence").int(), i64::try_from(guard.fence()).unwrap());
    }
    guard.extend(LONG).await.unwrap();
    assert!(server.client().pttl("b") > 130_000);
    guard.release().await.unwrap();
    assert_eq!(server.client().run("DBSIZE").int(), 0);
    let guard = both.acquire().await.unwrap();
    server.break_lock("b");
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    assert_eq!(server.client().run("DBSIZE").int(), 0);
}

#[tokio::test]
async fn a_lease_is_extended_by_what_is_left() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").lease(Duration::from_secs(20)).acquire().await.unwrap();
    guard.extend(Duration::from_secs(20)).await.unwrap();
    let (left, reported) = (server.client().pttl("k"), guard.remaining().unwrap());
    assert!((30_001..=40_000).contains(&left) && reported > Duration::from_secs(30), "{left} {reported:?}");
    guard.renew(Duration::from_secs(5)).await.unwrap();
    let (left, reported) = (server.client().pttl("k"), guard.remaining().unwrap());
    assert!((1..=5000).contains(&left) && reported <= Duration::from_secs(5), "{left} {reported:?}");
    guard.release().await.unwrap();
    let guard = client_of(server.port()).mutex("k").lease(None).acquire().await.unwrap();
    assert!(matches!(guard.extend(LONG).await, Err(Error::Usage(_))));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_waiting_cannot_solve_is_an_error_of_its_own() {
    let server = Server::start();
    let client = client_of(server.port());
    let lock = |key: &str, token: &str| client.mutex(key).lease(LONG).token(token);
    let (a, b) = (lock("a", "1").acquire().await.unwrap(), lock("b", "2").acquire().await.unwrap());
    let crossing = lock("b", "1");
    let waiting = tokio::spawn(async move { crossing.acquire().await });
    eventually("a waiter", || server.waits("b", &["1"])).await;
    let error = lock("a", "2").acquire().await.unwrap_err();
    assert!(matches!(&error, Error::Deadlock(words) if words.contains('1')), "{error:?}");
    assert_eq!(server.client().run("LOCK.CANCEL b 1").int(), 1);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Cancelled(words) if words == "cancelled"), "{error:?}");
    assert!(matches!(client.reentrant("a").acquire().await, Err(Error::WrongKind(_))));
    assert_eq!(server.client().run("CONFIG SET lock.max-waiters-per-key 1"), Reply::ok());
    let first = client.mutex("b");
    let waiting = tokio::spawn(async move { first.acquire().await });
    eventually("a waiter", || server.waiters("b").len() == 1).await;
    assert!(matches!(client.mutex("b").acquire().await, Err(Error::MaxWaiters(_))));
    b.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    a.release().await.unwrap();
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_before_anything_is_sent() {
    let server = Server::start();
    let client = client_of(server.port());
    let guard = client.mutex("k").acquire().await.unwrap();
    let mutex = || client.mutex("x");
    let refused = [
        mutex().as_owner_of(&guard),
        client.semaphore("x", 1).permits(2),
        client.semaphore("x", 0),
        client.semaphore_slot("x", 0),
        client.semaphore("x", 1).permits(0),
        client.multi_lock(Vec::<String>::new()),
    ];
    for lock in refused {
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{:?}: {error}", lock.family());
    }
    assert_eq!(server.calls("lock.acquire"), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_later_option_replaces_an_earlier_one_that_it_excludes() {
    let server = Server::start();
    let client = client_of(server.port());
    let mutex = || client.mutex("x").lease(LONG);
    let has_sessions = || server.client().run("INFO lock").text().contains("lock_sessions:1\r");
    for (lock, is_session) in [
        (mutex().auto_renew().session(), true),
        (mutex().session().auto_renew(), false),
        (mutex().session().no_renewal(), false),
        (mutex().session().lease(None), false),
        (mutex().session().mixed(LONG), false),
        (mutex().mixed(LONG).session(), true),
        (mutex().at_least(LONG).session(), true),
        (mutex().session().at_least(LONG), false),
        (mutex().token("me").at_least(LONG), false),
        (mutex().at_least(LONG).token("me"), false),
        (mutex().lease(None).session(), true),
        (mutex().lease(None).auto_renew(), false),
        (mutex().lease(None).at_least(LONG), false),
        (mutex().at_least(LONG).lease(None), false),
    ] {
        let number = server.calls("lock.acquire");
        let guard = lock.acquire().await.unwrap();
        assert_eq!(has_sessions(), is_session, "{number}");
        let (is_mine, pttl) = (guard.token() == b"me", server.client().pttl("x"));
        guard.release().await.unwrap();
        // The last of the options counts.
        let (keeps, has_lease) = (!server.is_free("x"), pttl > 0);
        let expected = match number {
            3 | 13 => (false, false, false),
            7 | 8 | 12 => (true, false, true),
            9 => (false, true, true),
            _ => (false, false, true),
        };
        assert_eq!((keeps, is_mine, has_lease), expected, "{number}");
        server.client().run("DEL x");
    }
}

#[tokio::test]
async fn the_lease_counts_from_the_grant_and_not_from_the_request() {
    let server = Server::start();
    let client = client_of(server.port()).reply_timeout(None);
    let holder = client.mutex("k").lease(LONG).acquire().await.unwrap();
    let lock = client.mutex("k").lease(Duration::from_secs(20));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let waited = |server: &Server| {
        let waiters = server.client().run("LOCK.WAITERS k");
        waiters.items().first().map_or(0, |waiter| waiter.get("waited").int())
    };
    eventually("a tenth of the lease", || waited(&server) > 2500).await;
    holder.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let left = guard.remaining().unwrap();
    let on_server = Duration::from_millis(u64::try_from(server.client().pttl("k")).unwrap());
    // Counted from the request, it would be 2.5 s less.
    assert!(
        left < on_server + Duration::from_millis(100) && left + Duration::from_millis(2400) > on_server,
        "{left:?}"
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn renewals_have_the_length_that_was_given_last() {
    let server = Server::start();
    let lease = || server.holders("k")[0].get("lease").int();
    // A shorter lease takes effect immediately: a renewal after a third of the old length would come too late.
    let guard = client_of(server.port()).mutex("k").lease(LONG).auto_renew().acquire().await.unwrap();
    guard.renew(Duration::from_millis(600)).await.unwrap();
    eventually("renewals", || server.calls("lock.renew") >= 5).await;
    assert!(lease() == 600 && !guard.is_lost());
    // A longer lease is not shortened again.
    guard.renew(Duration::from_millis(900)).await.unwrap();
    let calls = server.calls("lock.renew");
    eventually("renewals", || server.calls("lock.renew") >= calls + 3).await;
    assert_eq!(lease(), 900);
    guard.extend(Duration::from_secs(60)).await.unwrap();
    assert!((60_000..=60_900).contains(&lease()));
    guard.release().await.unwrap();
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn an_acquire_with_the_token_that_holds_is_the_same_hold() {
    let server = Server::start();
    let guard = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    let there = client_of(server.port()).mutex("k").lease(LONG).token(guard.token());
    let same = there.try_acquire().await.unwrap().expect("its own token holds it");
    assert_eq!(same.fence(), guard.fence());
    same.release().await.unwrap();
    assert!(server.is_free("k"));
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
}

#[tokio::test]
async fn a_guard_from_a_token_releases_all_that_the_token_holds() {
    let server = Server::start();
    let (here, there) = (client_of(server.port()), client_of(server.port()));
    let locks = |client: &Client| {
        [
            (client.mutex("k"), 1),
            (client.reentrant("r"), 2),
            (client.read_lock("rw"), 2),
            (client.write_lock("w"), 2),
            (client.semaphore("s", 5).permits(3), 3),
            (client.multi_lock(["a", "b"]), 1),
        ]
    };
    for ((taken, _), (used, holds)) in locks(&here).into_iter().zip(locks(&there)) {
        let guard = taken.clone().lease(LONG).acquire().await.unwrap();
        if holds == 2 {
            let again = taken.clone().lease(LONG).as_owner_of(&guard).acquire().await.unwrap();
            let _ = again.into_token();
        }
        let fence = guard.fence();
        let token = guard.into_token();
        let other = Guard::from_token(&used, token.clone()).await.unwrap();
        assert_eq!(
            (other.fence(), other.holds(), other.token()),
            (fence, holds, token.as_slice()),
            "{:?}",
            taken.family()
        );
        let left = other.remaining().unwrap();
        assert!(left > LONG / 2 && left <= LONG, "{left:?}");
        other.release().await.unwrap();
        assert!(!taken.is_locked().await.unwrap(), "{:?}", taken.family());
        assert!(matches!(Guard::from_token(&used, token).await, Err(Error::LockLost)), "{:?}", taken.family());
    }
    assert_eq!(server.client().run("DBSIZE").int(), 0);
}

#[tokio::test]
async fn a_transferred_hold_is_renewed_there_and_no_longer_here() {
    let server = Server::start();
    let client = client_of(server.port());
    let lease = Duration::from_millis(600);
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let idle = tasks();
    let guard = client.mutex("k").lease(lease).auto_renew().acquire().await.unwrap();
    let lost = guard.lost();
    let token = guard.into_token();
    eventually("no task of a renewal", || tasks() == idle).await;
    assert!(tokio::time::timeout(Duration::ZERO, lost).await.is_err());
    let renewals = server.calls("lock.renew");
    let renewed = client.mutex("k").lease(lease).auto_renew();
    let guard = Guard::from_token(&renewed, token.clone()).await.unwrap();
    // With its full lease, however little was left.
    assert_eq!(server.calls("lock.renew"), renewals + 1);
    let age = || server.holders("k")[0].get("age").int();
    eventually("a hold that outlives its lease", || age() > 1500).await;
    assert!(!guard.is_lost());
    // A forgotten lock ends with its lease.
    let token = guard.into_token();
    eventually("the lease's end", || server.is_free("k")).await;
    assert!(matches!(Guard::from_token(&renewed, token).await, Err(Error::LockLost)));
    for lock in [client.mutex("k").session(), client.mutex("k").at_least(LONG)] {
        assert!(matches!(Guard::from_token(&lock, "x").await, Err(Error::Usage(_))));
    }
}

#[tokio::test]
async fn a_key_that_became_something_else_is_a_loss_for_every_lock_type() {
    let server = Server::start();
    let client = client_of(server.port());
    let mut admin = server.client();
    let locks = || {
        [
            client.mutex("k"),
            client.reentrant("k"),
            client.read_lock("k"),
            client.write_lock("k"),
            client.semaphore("k", 2),
            client.multi_lock(["k", "other"]),
            client.mutex("k").at_least(LONG),
        ]
    };
    // A string, and a lock of another type.
    let others = ["SET k else", "RWLOCK.ACQUIRE k else READ PERSIST", "SEM.ACQUIRE k else LIMIT 1 PERSIST"];
    for (lock, other) in locks().into_iter().flat_map(|lock| others.map(|other| (lock.clone(), other))) {
        for what in ["release", "renew", "extend", "exec", "from_token"] {
            let mut guard = Some(lock.clone().lease(LONG).acquire().await.unwrap());
            admin.run("DEL k");
            assert!(!admin.run(other).is_error());
            let held = guard.as_ref().unwrap();
            let reported = match what {
                "release" => guard.take().unwrap().release().await,
                "renew" => held.renew(LONG).await,
                "extend" => held.extend(LONG).await,
                "exec" => held.exec(redis::cmd("SET").arg("v").arg("v")).await,
                _ => Guard::from_token(&client.lock(lock.family().clone()), held.token()).await.map(drop),
            };
            drop(guard);
            assert!(matches!(reported, Err(Error::LockLost)), "{what} {:?} {other}: {reported:?}", lock.family());
            client.settled().await;
            // The foreign value is kept; of several keys, the others are released.
            assert_eq!(admin.run("DBSIZE").int(), 1, "{what} {:?} {other}", lock.family());
            admin.run("FLUSHALL");
        }
    }
}
