//! Each counter counts what its name says and nothing else.

use super::{field, COUNTERS};
use crate::support::lock_types::{wait_for, Way, WAYS};
use crate::support::waiting::*;
use crate::support::{in_sync, until, Client, Info, Server};
use std::collections::BTreeMap;

type Counts = BTreeMap<&'static str, i64>;

fn counts(server: &Server) -> Counts {
    let info = server.info("lock");
    COUNTERS.into_iter().map(|name| (name, info.number(&format!("lock_{name}")))).collect()
}

/// The counts since `before`, once they are as expected.
#[track_caller]
fn assert_counted(server: &Server, before: &Counts, expected: &[(&str, i64)], what: &str) {
    let counted = || {
        let now = counts(server).into_iter().map(|(name, count)| (name, count - before[name]));
        now.filter(|(_, count)| *count != 0).collect::<Counts>()
    };
    let expected: BTreeMap<&str, i64> = expected.iter().copied().collect();
    let mut last = counted();
    for _ in 0..200 {
        if last.len() == expected.len() && last.iter().all(|(name, count)| expected.get(name) == Some(count)) {
            return;
        }
        let_time_pass(std::time::Duration::from_millis(5));
        last = counted();
    }
    panic!("{what}: counted {last:?}, expected {expected:?}");
}

fn each_way(test: impl Fn(Way, &Server, &mut Client)) {
    for way in WAYS {
        let server = Server::start();
        test(way, &server, &mut server.client());
    }
}

#[test]
fn grants_releases_and_renewals_of_every_lock_type() {
    each_way(|way, server, client| {
        let keys = if way.prefix() == "mlock" { 2 } else { 1 };
        let mut before = counts(server);
        let mut counted = |expected: &[(&str, i64)], what: &str| {
            assert_counted(server, &before, expected, &format!("{way:?} {what}"));
            before = counts(server);
        };
        way.hold(client, "k", "a");
        counted(&[("grants_immediate", 1)], "granted");
        client.run(&way.renew("k", "a"));
        counted(&[("renewals", keys)], "renewed");
        client.run(&way.renew("k", "b"));
        counted(&[], "b does not hold it");
        client.run(&way.acquire("k", "b"));
        counted(&[("not_granted", 1)], "held");
        client.run(&way.release("k", "b"));
        counted(&[], "b does not hold it");
        let mut b = wait_for(way, server, "k", "b");
        counted(&[], "b waits");
        way.release_held(client, "k", "a");
        b.granted("b");
        counted(&[("releases", keys), ("grants_after_wait", 1)], "handed off");
        way.release_held(client, "k", "b");
        counted(&[("releases", keys)], "free");
        client.run(&format!("{} PX 1", way.acquire("k", "c")));
        until("the lease has expired", || client.run("EXISTS k k:too").int() == 0);
        counted(&[("grants_immediate", 1), ("leases_expired", keys)], "expired");
    });
}

#[test]
fn a_retry_counts_as_granted_and_fewer_holds_as_a_release() {
    let server = Server::start();
    let mut client = server.client();
    let before = counts(&server);
    client.run("LOCK.ACQUIRE k a");
    client.run("LOCK.ACQUIRE k a");
    client.run("RLOCK.ACQUIRE r a HOLDS 2");
    client.run("RLOCK.RELEASE r a");
    client.run("RLOCK.RELEASE r a HOLDS 1");
    client.run("SEM.ACQUIRE s a LIMIT 3 PERMITS 3");
    client.run("SEM.RELEASE s a PERMITS 2");
    assert_counted(&server, &before, &[("grants_immediate", 4), ("releases", 2)], "");
}

#[test]
fn in_a_transaction_a_request_that_may_not_wait_is_not_granted() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let before = counts(&server);
    multi(&mut client, &["LOCK.ACQUIRE k b BLOCK 0", "LOCK.ACQUIRE l b BLOCK 0"]);
    assert_counted(&server, &before, &[("grants_immediate", 1), ("not_granted", 1)], "");
}

#[test]
fn waits_that_end_without_a_grant() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let before = counts(&server);
    assert!(server.client().run("LOCK.ACQUIRE k * BLOCK 1").is_nil());
    assert_counted(&server, &before, &[("wait_timeouts", 1)], "");

    // Three requests of one wait, on two connections: nothing is counted until the reserved position expires.
    let before = counts(&server);
    let mut other = server.client();
    for number in 0..3 {
        let client = if number == 1 { &mut other } else { &mut client };
        assert!(client.run("LOCK.ACQUIRE k b BLOCK 20").is_nil());
    }
    assert_counted(&server, &before, &[], "");
    client.run("CONFIG SET lock.keep-place 1");
    assert!(client.run("LOCK.ACQUIRE k b BLOCK 20").is_nil());
    assert_counted(&server, &before, &[("wait_timeouts", 1)], "");
    client.run("CONFIG SET lock.keep-place 1000");

    // Granting a retry ends the wait that began earlier.
    hold(&mut client, "n", "a");
    let before = counts(&server);
    assert!(other.run("LOCK.ACQUIRE n b BLOCK 20").is_nil());
    client.run("LOCK.RELEASE n a");
    assert!(!other.run("LOCK.ACQUIRE n b BLOCK 20").is_nil());
    assert_counted(&server, &before, &[("releases", 1), ("grants_after_wait", 1)], "");

    // LOCK.CANCEL removes a reserved position.
    let before = counts(&server);
    assert!(client.run("LOCK.ACQUIRE k b BLOCK 1").is_nil());
    client.run("LOCK.CANCEL k b");
    assert_counted(&server, &before, &[("cancelled", 1)], "");

    let before = counts(&server);
    let _cancelled = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    client.run("LOCK.CANCEL k b");
    client.run("LOCK.CANCEL k b");
    assert_counted(&server, &before, &[("cancelled", 1)], "");

    let before = counts(&server);
    let mut first = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let _second = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    assert!(first.reply().is_error());
    assert_counted(&server, &before, &[("superseded", 1)], "");

    hold(&mut client, "m", "a");
    let before = counts(&server);
    let mut sharing = Waiter::park(&server, "LOCK.ACQUIRE m c BLOCK 0 COALESCE");
    client.run("LOCK.RELEASE m a");
    assert!(!sharing.reply().is_error());
    assert_counted(&server, &before, &[("releases", 1), ("coalesced", 1)], "");

    let before = counts(&server);
    hold(&mut client, "l", "b");
    client.run("LOCK.ACQUIRE l a BLOCK 100");
    assert_counted(&server, &before, &[("grants_immediate", 1), ("deadlocks", 1)], "");

    let before = counts(&server);
    client.run("CONFIG SET lock.max-waiters 1");
    client.run("LOCK.ACQUIRE k c BLOCK 100");
    assert_counted(&server, &before, &[("max_waiters_refusals", 1)], "");
}

#[test]
fn grace_refusals_and_remaining_time() {
    let server = Server::builder().config("lock.grace 600000").start();
    let before = counts(&server);
    assert!(server.client().run("LOCK.ACQUIRE k a").is_error());
    assert_counted(&server, &before, &[("grace_refusals", 1)], "");
    let remaining = field(&server, "grace_remaining_ms");
    assert!((500_000..=600_000).contains(&remaining), "{remaining}");
    server.client().run("CONFIG SET lock.grace 0");
    until("it has ended", || field(&server, "grace_remaining_ms") == 0);
}

/// The holder's lease expires by itself with a waiter queued, or is found expired by the next request.
#[test]
fn expired_leases_are_counted_once() {
    for way in WAYS {
        let keys = if way.prefix() == "mlock" { 2 } else { 1 };
        let server = Server::start();
        let mut client = server.client();
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        let before = counts(&server);
        client.run(&format!("{} PX 1000", way.acquire("k", "a")));
        let mut b = wait_for(way, &server, "k", "b");
        b.granted_within("b", std::time::Duration::from_secs(1) + SOON);
        let expected = [("grants_immediate", 1), ("grants_after_wait", 1), ("leases_expired", keys)];
        assert_counted(&server, &before, &expected, &format!("{way:?}"));
        // No waiter: another client's request finds it expired.
        let before = counts(&server);
        client.run(&format!("{} PX 1", way.acquire("l", "a")));
        until("b is granted it", || !client.run(&way.acquire("l", "b")).is_nil());
        let counted = counts(&server);
        assert_eq!(counted["leases_expired"] - before["leases_expired"], keys, "{way:?}");
        assert_eq!(counted["grants_immediate"] - before["grants_immediate"], 2, "{way:?}");
    }
}

/// The server's own expiry uses a different clock reading than its commands, which lags on a busy server.
#[test]
fn leases_expired_by_the_server_between_thousands_of_commands_are_all_counted() {
    const LEASES: i64 = 40_000;
    let server = Server::start();
    let mut client = server.client();
    for first in (0..LEASES).step_by(2_000) {
        let acquires: Vec<String> = (first..first + 2_000).map(|n| format!("LOCK.ACQUIRE k{n} a PX 1")).collect();
        assert!(client.pipeline(&acquires).iter().all(|reply| reply.fence() > 0));
    }
    until("every lease has expired", || client.run("DBSIZE").int() == 0);
    assert_eq!(field(&server, "leases_expired"), LEASES);
}

#[test]
fn a_lock_deleted_before_its_lease_expires_is_not_lease_expiry() {
    let server = Server::start();
    let mut client = server.client();
    let before = counts(&server);
    for line in ["DEL k", "UNLINK k", "SET k v", "RENAME k l"] {
        client.run("DEL k l");
        hold(&mut client, "k", "a");
        client.run(line);
    }
    client.run("FLUSHALL");
    assert_counted(&server, &before, &[("grants_immediate", 4)], "");
}

#[test]
fn a_closed_connection_is_a_release_and_its_renewals_count() {
    let server = Server::start();
    let mut session = server.client();
    let before = counts(&server);
    session.run("LOCK.ACQUIRE k a PX 60 SESSION");
    session.run("RWLOCK.ACQUIRE rw a READ SESSION");
    assert_eq!(field(&server, "sessions"), 2);
    until("it was renewed", || field(&server, "renewals") > 0);
    let id = session.id();
    drop(session);
    until_exited(&mut server.client(), id);
    until("both are released", || field(&server, "releases") - before["releases"] == 2);
    assert_eq!((field(&server, "sessions"), field(&server, "leases_expired")), (0, 0));
}

#[test]
fn an_undelivered_grant_is_counted() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let before = counts(&server);
    // The client disconnects in the iteration of its grant.
    let replies = client.pipeline(&["LOCK.RELEASE k a".to_string(), format!("CLIENT KILL ID {}", b.id)]);
    assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
    assert!(b.client.try_read(LONG_ENOUGH).is_err(), "it got no reply");
    assert_counted(
        &server,
        &before,
        &[("releases", 1), ("grants_after_wait", 1), ("undelivered_grants", 1)],
        "the client was killed",
    );
}

const LONG_ENOUGH: std::time::Duration = std::time::Duration::from_secs(10);

#[test]
fn waiters_and_reserved_positions_are_counted() {
    let server = Server::builder().config("lock.keep-place 600000").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let _c = Waiter::park(&server, "LOCK.ACQUIRE k c BLOCK 0");
    assert_eq!((field(&server, "waiters"), field(&server, "kept_places")), (2, 0));
    drop(b);
    until("it has left", || (field(&server, "waiters"), field(&server, "kept_places")) == (1, 1));
}

#[test]
fn the_last_fence_is_that_of_the_last_grant() {
    let server = Server::start();
    let mut client = server.client();
    let fence = hold(&mut client, "k", "a");
    assert_eq!(field(&server, "last_fence"), fence);
}

#[test]
fn locks_may_be_evicted_with_a_limit_and_a_policy() {
    let server = Server::start();
    let mut client = server.client();
    for (maxmemory, policy, risk) in [
        ("0", "allkeys-lru", 0),
        ("100mb", "noeviction", 0),
        ("100mb", "allkeys-lru", 1),
        ("100mb", "volatile-ttl", 1),
        ("0", "volatile-ttl", 0),
    ] {
        client.run(&format!("CONFIG SET maxmemory {maxmemory} maxmemory-policy {policy}"));
        assert_eq!(field(&server, "eviction_risk"), risk, "{maxmemory} {policy}");
    }
}

#[test]
fn a_replica_does_not_count_its_primarys_decisions() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.client();
    let before = counts(&replica);
    for way in WAYS {
        let key = way.prefix();
        way.hold(&mut client, &key, "a");
        client.run(&way.renew(&key, "a"));
        way.release_held(&mut client, &key, "a");
        client.run(&format!("{} PX 1", way.acquire(&key, "b")));
    }
    until("the leases have expired", || client.run("DBSIZE").int() == 0);
    in_sync(&primary, &replica);
    assert_eq!(counts(&replica), before);
}

#[test]
fn each_broken_hold_is_counted() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.BREAK k");
    client.run("RLOCK.ACQUIRE r a HOLDS 3").fence();
    client.run("MLOCK.ACQUIRE 2 k l a").fence();
    for owner in ["a", "b", "c"] {
        client.run(&format!("SEM.ACQUIRE s {owner} LIMIT 3")).fence();
    }
    let before = counts(&server);
    for (line, broken) in [
        ("LOCK.BREAK r", 1),
        ("LOCK.BREAK k OWNER b", 0),
        ("LOCK.BREAK k", 1),
        ("LOCK.BREAK s OWNER b", 1),
        ("LOCK.BREAK s", 2),
        ("LOCK.BREAK s", 0),
    ] {
        assert_eq!(client.run(line).int(), broken, "{line}");
    }
    assert_counted(&server, &before, &[("broken", 5)], "");
}

#[test]
fn config_resetstat_resets_nothing() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let_time_pass(std::time::Duration::from_millis(20));
    client.run("LOCK.RELEASE k a");
    b.granted("b");
    let figures = ["wait_ms_p50", "wait_ms_max", "held_mutex", "last_fence"];
    let all = || (counts(&server), figures.map(|name| field(&server, name)));
    let before = all();
    assert!(before.1.iter().all(|figure| *figure > 0), "{before:?}");
    assert_eq!(client.run("CONFIG RESETSTAT"), crate::support::Reply::ok());
    assert_eq!(all(), before);
}

#[test]
fn it_is_shown_while_the_server_loads() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    // 10 ms for each key; the server processes events after each KB.
    client.run("DEBUG POPULATE 1000 key 100");
    for setting in ["loading-process-events-interval-bytes 1024", "key-load-delay 10000"] {
        client.run(&format!("CONFIG SET {setting}"));
    }
    client.send_line("DEBUG RELOAD");
    until("it loads", || server.info("persistence").number("loading") == 1);
    let info = server.info("lock");
    assert_eq!(server.info("persistence").number("loading"), 1);
    assert_eq!((info.number("lock_grants_immediate"), info.number("lock_waiters")), (1, 0));
    server.client().run("CONFIG SET key-load-delay 0");
    client.read();
    assert_eq!(field(&server, "held_mutex"), 1);
}

#[test]
fn it_is_shown_in_scripts_and_where_only_the_holder_may() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let _b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    for line in ["EVAL return(redis.call('INFO','lock')) 0", "LOCK.EXEC k a INFO lock"] {
        let info = client.run(line);
        assert_eq!(Info::parse(info.text()).number("lock_waiters"), 1, "{line}");
    }
}

#[test]
fn it_is_shown_in_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    let replies = multi(&mut client, &["LOCK.ACQUIRE k a", "INFO lock"]);
    assert_eq!(Info::parse(replies[1].text()).number("lock_held_mutex"), 1);
}
