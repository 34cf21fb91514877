//! Limits that a server reaches: its memory, its clients, thousands of them at once.

mod thousands;

use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, holds, lost, Scope};
use faults::{seconds, Action, History, Kind, Lock, Mode, Outcome, Plan, Recorder, Row, Workers};
use support::{until, Client, Info, Reply, Rng, Server};

use crate::judged::assert_none;
use crate::load::route;
use crate::parked::{caller, Parked};

/// The minimum number of grants between two faults.
const GRANTS: usize = 20;

fn info(client: &mut Client, section: &str, field: &str) -> i64 {
    Info::parse(client.cmd(&["INFO", section]).text()).number(field)
}

/// `maxmemory` with noeviction: acquires fail with the server's error. Held locks can be used, renewed and released,
/// and waiters are granted.
#[test]
fn out_of_memory_holders_continue_and_waiters_are_granted() {
    let server = Server::start();
    let version = server.info("server").version();
    let mut client = server.client();
    let plan = Plan::mixed();
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(&server));
    let mut aside = caller(&server, &recorder);
    let (started, mut shortages) = (Instant::now(), 0);
    while shortages < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        let [released, ending] =
            ["released", "ending"].map(|name| Lock::new(format!("{name}-{shortages}"), Kind::Mutex));
        aside.acquire(&released, "holder", Mode::Mutex, Duration::from_secs(60), None);
        let next = Parked::behind(&server, &recorder, &released, "next");
        aside.acquire(&ending, "holder", Mode::Mutex, Duration::from_millis(300), None);
        let after = Parked::behind(&server, &recorder, &ending, "after");

        assert_eq!(client.run("CONFIG SET maxmemory 1"), Reply::ok());
        let newcomer = aside.acquire(&released, "newcomer", Mode::Mutex, plan.lease, Some(plan.block));
        assert!(matches!(&newcomer, Outcome::Refused(error) if error.starts_with("OOM ")), "{newcomer:?}");
        assert_eq!(aside.renew(&released, "holder", Mode::Mutex, Duration::from_secs(60)), Outcome::Done);
        assert_eq!(aside.release(&released, "holder", Mode::Mutex), Outcome::Done);
        next.assert_served();
        after.assert_served();
        assert_eq!(client.run("CONFIG SET maxmemory 0"), Reply::ok());
        shortages += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut client, &plan.locks);
    assert_none(&breaches(&history, Scope::Server));
    assert_none(&refused_otherwise(&history, "OOM "));
    Row::of("no memory, noeviction", &version, shortages, &history).report();
}

/// Refusals with another code, or of requests that need no memory.
fn refused_otherwise(history: &History, code: &str) -> Vec<String> {
    let wrong = history.operations().iter().filter(|operation| match (&operation.action, &operation.outcome) {
        (Action::Acquire { .. } | Action::Write { .. }, Outcome::Refused(error)) => !error.starts_with(code),
        (_, outcome) => matches!(outcome, Outcome::Refused(_)),
    });
    wrong.map(|operation| format!("{operation:?}")).collect()
}

#[test]
fn evicted_locks_go_to_waiters_allkeys_lru() {
    evict("allkeys-lru");
}

#[test]
fn evicted_locks_go_to_waiters_volatile_ttl() {
    evict("volatile-ttl");
}

/// A cache that evicts locks while they are held: the fencing token of such a lock is never assigned again, and waiters
/// are granted.
fn evict(policy: &str) {
    let server = Server::builder().config(format!("maxmemory-policy {policy}")).start();
    let version = server.info("server").version();
    let mut client = server.client();
    // Holders are idle long enough for their locks to be evicted.
    let plan = Plan { hold: Duration::from_millis(30), ..Plan::mixed() };
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(&server));
    workers.wait_for_grants(GRANTS);
    let room = info(&mut client, "memory", "used_memory") + (256 << 10);
    assert_eq!(client.run(&format!("CONFIG SET maxmemory {room}")), Reply::ok());
    let mut rng = Rng::new(1);
    let value = "x".repeat(1_000);
    let started = Instant::now();
    while started.elapsed() < seconds() || lost(&holds(&recorder.history())).is_empty() {
        // Refused if nothing is left to evict.
        for _ in 0..100 {
            let key = format!("cached-{}", rng.below(10_000));
            client.cmd(&["SET", &key, &value, "EX", "1000"]);
        }
        assert!(started.elapsed() < seconds() + support::LIMIT, "no lock was evicted");
    }
    assert_eq!(client.run("CONFIG SET maxmemory 0"), Reply::ok());
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut client, &plan.locks);
    assert_none(&breaches_despite_losses(&history, Scope::Server));
    let evicted = lost(&holds(&history)).len();
    let mut row = Row::of(&format!("eviction, {policy}"), &version, evicted, &history);
    row.fences = format!("{}; {evicted} holds evicted", row.fences);
    row.report();
}

/// `maxclients`: the server refuses new clients; connected ones continue.
#[test]
fn at_maxclients_connected_clients_continue() {
    let server = Server::start();
    let version = server.info("server").version();
    let mut client = server.client();
    let plan = Plan::mixed();
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(&server));
    let mut aside = caller(&server, &recorder);
    let (started, mut times) = (Instant::now(), 0);
    while times < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        let [held, bound] = ["held", "bound"].map(|name| Lock::new(format!("{name}-{times}"), Kind::Mutex));
        aside.acquire(&held, "holder", Mode::Mutex, Duration::from_secs(60), None);
        let next = Parked::behind(&server, &recorder, &held, "next");
        let mut session = server.client();
        session.cmd(&["LOCK.ACQUIRE", &bound.key, "session", "PX", "3000", "SESSION"]).fence();
        let after = Parked::behind(&server, &recorder, &bound, "after");
        let first_end = client.cmd(&["PEXPIRETIME", &bound.key]).int();

        let crowd = fill_up(&server, &mut client);
        workers.wait_for_grants(GRANTS);
        assert_eq!(aside.release(&held, "holder", Mode::Mutex), Outcome::Done);
        next.assert_served();
        // Longer than its lease, so it was renewed.
        until("the session is renewed", || client.cmd(&["PEXPIRETIME", &bound.key]).int() >= first_end + 1_000);
        after.assert_waits();
        drop(session);
        after.assert_served();
        drop(crowd);
        until("there is room again", || {
            Client::connect(server.port()).try_cmd(&["PING"]).is_ok_and(|pong| !pong.is_error())
        });
        assert_eq!(client.run("CONFIG SET maxclients 10000"), Reply::ok());
        times += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut client, &plan.locks);
    assert_none(&breaches(&history, Scope::Server));
    Row::of("maxclients reached", &version, times, &history).report();
}

/// Allows a hundred more clients, and connects so many that the next one is refused.
fn fill_up(server: &Server, client: &mut Client) -> Vec<Client> {
    let most = info(client, "clients", "connected_clients") + 100;
    assert_eq!(client.run(&format!("CONFIG SET maxclients {most}")), Reply::ok());
    let mut crowd = Vec::new();
    loop {
        let mut newcomer = Client::connect(server.port());
        match newcomer.try_cmd(&["PING"]) {
            Ok(Reply::Error(error)) => {
                assert!(error.starts_with("ERR max number of clients"), "{error}");
                return crowd;
            }
            // The refusal came before the command, and then the connection was closed.
            Err(_) => return crowd,
            Ok(_) => crowd.push(newcomer),
        }
        assert!(crowd.len() <= 200, "no client is refused");
    }
}
