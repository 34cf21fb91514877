//! When `run` is granted the lock, and which type of lock it is.

use rustix::process::Signal;
use support::{until, Server};

use super::runner::{done, is_held, run, until_waiters, Runner};
use crate::tool::{at, command};

#[test]
fn a_held_lock_is_a_conflict_with_or_without_a_wait() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k other PERSIST").fence();
    for options in ["--no-wait k", "--wait 50ms k", "--wait 0s k"] {
        let end = done(&server, options, "echo ran");
        // Silent like flock, because cron would send mail for each line.
        assert_eq!((end.code(), end.stdout(), end.stderr.as_str()), (Some(1), "", ""), "{options}");
    }
    assert_eq!(done(&server, "--no-wait --conflict-exit-code 9 k", "true").code(), Some(9));
    let shown_text = done(&server, "--no-wait --verbose k", "true");
    assert!(
        shown_text.stderr.contains("k: not granted") && shown_text.stderr.contains(", held by other for "),
        "{}",
        shown_text.stderr
    );
    assert_eq!(at(&server, "waiters k --json").json().as_array().map(Vec::len), Some(0));
}

#[test]
fn verbose_shows_the_holder_that_it_waits_for() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k first PERSIST").fence();
    let runner = run(&server, "--verbose k", "true");
    runner.until_says("redis-lock: k: waiting, held by first for ");
    assert_eq!(client.run("LOCK.BREAK k").int(), 1);
    let end = runner.end();
    assert_eq!(end.code(), Some(0));
    assert_eq!(end.stderr.lines().count(), 2, "{}", end.stderr);
    assert!(end.stderr.contains("redis-lock: k: granted after "), "{}", end.stderr);

    client.run("SEM.ACQUIRE s first LIMIT 2 PERSIST");
    client.run("SEM.ACQUIRE s second LIMIT 2 PERSIST");
    let runner = run(&server, "--verbose --limit 2 s", "true");
    runner.until_says("redis-lock: s: waiting, held by first for ");
    runner.until_says(", and 1 more\n");
    client.run("SEM.RELEASE s first");
    assert_eq!(runner.end().code(), Some(0));

    // A user without permission for LOCK.INFO can still wait.
    client.run("LOCK.ACQUIRE k first PERSIST").fence();
    client.run("ACL SETUSER worker on >secret ~* &* +@all -lock.info");
    let runner = run(&server, "--user worker -a secret --verbose --wait 200ms k", "true");
    let end = runner.end();
    assert_eq!(end.code(), Some(1));
    assert!(end.stderr.starts_with("redis-lock: k: not granted after ") && !end.stderr.contains("held by"));
}

#[test]
fn by_default_it_waits_and_two_waiters_are_granted_in_order() {
    let server = Server::start();
    let mut holder = run(&server, "k", "read _; exit 0");
    until("it is held", || is_held(&server, "k"));
    let log = server.dir().join("order");
    let append = |word: &str| format!("echo {word} >> {}", log.display());
    let first = run(&server, "k", &append("first"));
    until_waiters(&server, "k", 1);
    let second = run(&server, "k", &append("second"));
    until_waiters(&server, "k", 2);
    holder.close_stdin();
    for runner in [holder, first, second] {
        assert_eq!(runner.end().code(), Some(0));
    }
    assert_eq!(std::fs::read_to_string(&log).expect("both wrote"), "first\nsecond\n");
}

#[test]
fn the_lock_outlasts_its_lease_by_renewals_or_in_a_session_without_any() {
    let server = Server::start();
    for (options, renews) in [("--lease 1500ms k", true), ("--lease 1500ms --session k", false)] {
        let before = renewals(&server);
        let mut runner = run(&server, options, "echo ready; read _; exit 0");
        runner.until_prints("ready");
        let fence = server.client().run("LOCK.INFO k").get("fence").int();
        let mut client = server.client();
        until("it has outlived its lease", || {
            client.run("LOCK.INFO k").get("holders").items()[0].get("age").int() > 2000
        });
        assert_eq!(client.run("LOCK.INFO k").get("fence").int(), fence);
        assert_eq!(renewals(&server) > before, renews, "{options}");
        runner.close_stdin();
        assert_eq!(runner.end().code(), Some(0));
        assert!(!is_held(&server, "k"));
    }
}

fn renewals(server: &Server) -> i64 {
    let stats = server.info("commandstats");
    let calls = stats.find("cmdstat_lock.renew").and_then(|line| line.split(['=', ',']).nth(1)?.parse().ok());
    calls.unwrap_or(0)
}

#[test]
fn readers_share_and_a_writer_does_not() {
    let server = Server::start();
    let mut readers: Vec<Runner> = (0..2).map(|_| run(&server, "--shared k", "echo ready; read _; exit 0")).collect();
    readers.iter().for_each(|reader| reader.until_prints("ready"));
    assert_eq!(done(&server, "--no-wait --exclusive k", "true").code(), Some(1));
    readers.iter_mut().for_each(Runner::close_stdin);
    for reader in readers {
        assert_eq!(reader.end().code(), Some(0));
    }
    assert_eq!(done(&server, "--no-wait --exclusive k", "true").code(), Some(0));
}

#[test]
fn another_lock_type_or_data_type_exits_with_65() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE k other READ PERSIST");
    let end = done(&server, "k", "true");
    assert_eq!(end.code(), Some(65), "{end:?}");
    assert!(end.stderr.contains("--shared"), "{}", end.stderr);
    client.run("SET string x");
    let end = done(&server, "string", "true");
    assert_eq!(end.code(), Some(65), "{end:?}");
    assert!(end.stderr.contains("string"), "{}", end.stderr);
}

#[test]
fn a_semaphore_has_its_limit_of_permits() {
    let server = Server::start();
    let mut holders: Vec<Runner> = (0..2).map(|_| run(&server, "--limit 2 k", "echo ready; read _; exit 0")).collect();
    holders.iter().for_each(|holder| holder.until_prints("ready"));
    assert_eq!(done(&server, "--no-wait --limit 2 k", "true").code(), Some(1));
    holders[0].close_stdin();
    assert_eq!(done(&server, "--limit 2 k", "true").code(), Some(0));
}

#[test]
fn with_slot_each_run_has_a_unique_number() {
    let server = Server::start();
    let script = "echo \"slot $REDIS_LOCK_SLOT\"; read _; exit 0";
    let mut workers: Vec<Runner> = (0..3).map(|_| run(&server, "--limit 3 --slot k", script)).collect();
    let mut slots: Vec<i32> = workers.iter().map(|worker| worker.printed_id("slot")).collect();
    let free = slots[1];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    assert_eq!(done(&server, "--no-wait --limit 3 --slot k", "true").code(), Some(1));
    workers[1].close_stdin();
    assert_eq!(workers.remove(1).end().code(), Some(0));
    assert_eq!(done(&server, "--limit 3 --slot k", script).stdout(), format!("slot {free}\n"));
    assert_eq!(done(&server, "--limit 3 permits", script).stdout(), "slot \n");
    let nested =
        format!("{} run -p {} inner -- sh -c 'echo \"slot $REDIS_LOCK_SLOT\"'", crate::tool::PROGRAM, server.port());
    assert_eq!(done(&server, "--limit 3 --slot outer", &nested).stdout(), "slot \n");
}

#[test]
fn multiple_keys_are_acquired_all_or_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE b other PERSIST").fence();
    assert_eq!(done(&server, "--no-wait a b c", "true").code(), Some(1));
    let waiting = run(&server, "a b c", "echo ready; read _; exit 0");
    until_waiters(&server, "b", 1);
    assert!(!is_held(&server, "a"), "no partial hold");
    client.run("LOCK.RELEASE b other");
    waiting.until_prints("ready");
    assert!(["a", "b", "c"].iter().all(|key| is_held(&server, key)));
    waiting.signal(Signal::TERM);
    waiting.end();
    assert!(!["a", "b", "c"].iter().any(|key| is_held(&server, key)));
}

#[test]
fn an_unreachable_server_or_a_missing_module_exits_with_69() {
    let port = support::free_port().to_string();
    let end = Runner::start(command().args(["-p", &port, "run", "--no-wait", "k", "--", "true"])).end();
    assert_eq!(end.code(), Some(69), "{end:?}");
    assert!(end.stderr.contains(&port), "{}", end.stderr);
    let bare = Server::builder().no_module().start();
    let end = done(&bare, "k", "true");
    assert_eq!(end.code(), Some(69), "{end:?}");
    assert!(end.stderr.contains("loadmodule"), "{}", end.stderr);
}

#[test]
fn a_wait_cancelled_by_an_operator_is_a_conflict_and_is_reported() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = run(&server, "k", "echo ran");
    until_waiters(&server, "k", 1);
    let waiter = server.client().run("LOCK.WAITERS k").items()[0].get("owner").text().to_string();
    assert_eq!(server.client().cmd(&["LOCK.CANCEL", "k", &waiter]).int(), 1);
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(1), ""));
    assert!(end.stderr.contains("k: the wait was cancelled"), "{}", end.stderr);
}
