//! Ten thousand clients that connect, wait and disconnect at random, native ones and some with other lock libraries,
//! while locks end in many ways. Every reply is one that the contract allows at that moment, no fencing token is
//! assigned twice, and afterwards no client and no lock is left. By default it takes some seconds; these variables make
//! it longer and wider:
//!
//! - `REDIS_LOCK_CHURN_SECONDS`: the duration (60 for the long run)
//! - `REDIS_LOCK_CHURN_AT_ONCE`: the number of concurrent clients (10000 requires as many open files)
//! - `REDIS_LOCK_CHURN_SEED`: the seed of a run that failed

use crate::adopt::{is_null, COMPARE_AND_DELETE};
use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Rng, Server};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 10_000;
const WORKERS: u64 = 2;
const KEYS: usize = 25;

/// How much more memory may be in use afterwards: some fifty bytes for each client that connected and left.
const SLACK: i64 = 512 * 1024;

/// The module remembers the connections of its latest 10,000 grants. A run of some seconds fills that table.
const REMEMBERED_GRANTS: i64 = 10_000 * 64;

#[test]
fn ten_thousand_random_clients_leave_nothing_behind() {
    let seconds = setting("REDIS_LOCK_CHURN_SECONDS");
    let at_once = setting("REDIS_LOCK_CHURN_AT_ONCE").unwrap_or(500);
    let seed = setting("REDIS_LOCK_CHURN_SEED").unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    // Shown when the test fails.
    eprintln!("REDIS_LOCK_CHURN_SEED={seed}");

    let builder = Server::builder().config(format!("maxclients {}", at_once + 1000));
    let server = builder.config("lock.adopt k*").config("lock.adopt-wait 50").start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG SET lock.keep-place 100"), Reply::ok());

    // The first clients make the server fill its tables, so memory is measured from then on.
    churn(&server, seed, at_once, |gone| gone >= CLIENTS / 10);
    let before = memory_after_all_left(&server, &mut client);
    let start = Instant::now();
    let fences = churn(&server, seed + 1, at_once, |gone| match seconds {
        Some(seconds) => start.elapsed() >= Duration::from_secs(seconds),
        None => gone >= CLIENTS,
    });
    assert!(fences > 0, "nothing was ever granted");
    let after = memory_after_all_left(&server, &mut client);
    let slack = SLACK + seconds.map_or(0, |_| REMEMBERED_GRANTS);
    assert!(after < before + slack, "{before} bytes before, {after} after");
}

/// Runs clients until `enough` have gone; returns how many grants were seen.
fn churn(server: &Server, seed: u64, at_once: u64, enough: impl Fn(u64) -> bool + Sync) -> usize {
    let gone = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let fences: Vec<Vec<i64>> = thread::scope(|scope| {
        scope.spawn(|| disturb(server, seed ^ 0xd157, &over));
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (gone, enough) = (&gone, &enough);
                let worker = Worker::new(server, seed, number);
                scope.spawn(move || worker.run(at_once / WORKERS, gone, enough))
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Set before a panic is propagated, because the scope waits for the disturbing threads.
        over.store(true, Ordering::Relaxed);
        results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let fences = fences.concat();
    let distinct: HashSet<i64> = fences.iter().copied().collect();
    assert_eq!(fences.len(), distinct.len(), "a fence was given to two owners");
    fences.len()
}

/// The memory of many requests is freed when they are gone, including tables that grew for them.
#[test]
fn the_memory_of_nine_thousand_requests_is_freed() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG SET lock.keep-place 0"), Reply::ok());
    let in_vain = |client: &mut Client, count: u64| {
        hold(client, "k0", "holder");
        let asks: Vec<String> = (0..count).map(|n| format!("LOCK.ACQUIRE k0 {n} BLOCK 0 NOTIFY ch")).collect();
        let cancels: Vec<String> = (0..count).map(|n| format!("LOCK.CANCEL k0 {n}")).collect();
        for some in asks.chunks(500).chain(cancels.chunks(500)) {
            for (line, reply) in some.iter().zip(client.pipeline(some)) {
                let is_done =
                    if line.contains("CANCEL") { reply == Reply::Int(1) } else { reply.items()[1] == Reply::Int(0) };
                assert!(is_done, "{line}: {reply:?}");
            }
        }
    };
    in_vain(&mut client, 50);
    let before = memory_after_all_left(&server, &mut client);
    in_vain(&mut client, 9_000);
    let after = memory_after_all_left(&server, &mut client);
    assert!(after < before + SLACK, "{before} bytes before, {after} after");
}

/// Includes the memory of requests for 128 keys each, when they are gone with their connection.
#[test]
fn the_memory_of_requests_for_many_keys_is_freed_when_their_connection_closes() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG SET lock.keep-place 0"), Reply::ok());
    let in_vain = |client: &mut Client, count: usize| {
        hold(client, "k0", "holder");
        let mut multi_key = server.client();
        for n in 0..count {
            let keys: String = (0..127).map(|key| format!("{n}:{key} ")).collect();
            let queued = multi_key.run(&format!("MLOCK.ACQUIRE 128 k0 {keys}{n} BLOCK 0 NOTIFY ch"));
            assert_eq!(queued.items()[1], Reply::Int(0));
        }
    };
    in_vain(&mut client, 3);
    let before = memory_after_all_left(&server, &mut client);
    in_vain(&mut client, 1_000);
    let after = memory_after_all_left(&server, &mut client);
    assert!(after < before + SLACK, "{before} bytes before, {after} after");
}

/// Waits until the server has freed all clients and requests, and returns its memory use then.
fn memory_after_all_left(server: &Server, client: &mut Client) -> i64 {
    client.run("CLIENT UNPAUSE");
    server.wait_blocked(0);
    until("all clients are gone", || server.info("clients").number("connected_clients") == 2);
    for db in [1, 0] {
        client.run(&format!("SELECT {db}"));
        for key in keys() {
            until(&format!("{key} has no queue"), || client.cmd(&["LOCK.WAITERS", &key]) == Reply::Array(vec![]));
            let info = client.cmd(&["LOCK.INFO", &key]);
            assert!(info.is_nil() || info.get("waiters").int() == 0, "{info:?}");
        }
    }
    client.run("FLUSHALL SYNC");
    for key in keys() {
        let command = if key.starts_with('r') { "RLOCK.ACQUIRE" } else { "LOCK.ACQUIRE" };
        assert!(client.cmd(&[command, &key, "last"]).fence() > 0, "a free lock is granted");
    }
    client.run("FLUSHALL SYNC");
    lowest_memory(server, client)
}

/// The memory in use when the server has cleaned up: it frees the helpers of blocked clients and shrinks its tables
/// step by step.
fn lowest_memory(server: &Server, client: &mut Client) -> i64 {
    // Counts readings, not seconds: on a busy machine there may be fewer readings in a second.
    let (mut lowest, mut readings) = (i64::MAX, 0);
    while readings < 24 {
        client.run("MEMORY PURGE");
        let used = server.info("memory").number("used_memory");
        readings += 1;
        if used < lowest - 16 * 1024 {
            (lowest, readings) = (used, 0);
        }
        let_time_pass(Duration::from_millis(50));
    }
    lowest
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(key)
}

/// A fifth of the locks are reentrant.
fn key(number: usize) -> String {
    format!("{}{number}", if number % 5 == 0 { 'r' } else { 'k' })
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// A client: its connection and its request.
struct Contender {
    client: Client,
    key: String,
    owner: String,
    /// Whether this name is used only once, so that each of its grants is a new one.
    unique: bool,
}

/// Connects contenders, reads their replies, and disconnects them.
struct Worker<'server> {
    server: &'server Server,
    admin: Client,
    rng: Rng,
    number: u64,
    born: u64,
    contenders: Vec<Contender>,
    fences: Vec<i64>,
}

impl Worker<'_> {
    fn new(server: &Server, seed: u64, number: u64) -> Worker<'_> {
        let rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number));
        Worker { server, admin: server.client(), rng, number, born: 0, contenders: Vec::new(), fences: Vec::new() }
    }

    fn run(mut self, at_once: u64, gone: &AtomicU64, enough: impl Fn(u64) -> bool) -> Vec<i64> {
        while !enough(gone.load(Ordering::Relaxed)) {
            let is_full = self.contenders.len() as u64 >= at_once;
            if !is_full && (self.contenders.is_empty() || self.rng.below(5) < 3) {
                let contender = self.arrive();
                self.contenders.push(contender);
            } else {
                let which = self.rng.below(self.contenders.len());
                let contender = self.contenders.swap_remove(which);
                self.leave(contender);
                gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.fences
    }

    /// Connects a client, which requests a random lock in a random way. Does not wait for the reply.
    fn arrive(&mut self) -> Contender {
        self.born += 1;
        let rng = &mut self.rng;
        let key = key(rng.below(KEYS));
        let unique = rng.below(5) > 0;
        let owner = if unique {
            format!("contender-{}-{}", self.number, self.born)
        } else {
            format!("shared-{}", rng.below(30))
        };
        let prefix = if key.starts_with('r') { "RLOCK" } else { "LOCK" };
        let lease = 5 + rng.below(200);
        let wait = [0, 0, 0, 1, 50, 300][rng.below(6)];
        let more = ["", "", "", "", "SESSION", "NOTIFY ch"][rng.below(6)];
        let line = match rng.below(20) {
            1..=4 if prefix == "LOCK" => format!("SET {key} {owner} NX PX {lease}"),
            0 => format!("{prefix}.ACQUIRE {key} * PX {lease} BLOCK {wait}"),
            _ => format!("{prefix}.ACQUIRE {key} {owner} PX {lease} BLOCK {wait} {more}"),
        };
        let mut client = self.server.client();
        client.send_line(&line);
        Contender { client, key, owner, unique }
    }

    /// A contender leaves: some at once, others after checking for a reply.
    fn leave(&mut self, mut contender: Contender) {
        if self.rng.below(3) == 0 {
            return;
        }
        let grant = match contender.client.try_read(Duration::ZERO) {
            Ok(Reply::Array(grant)) => grant,
            Ok(reply) if reply == Reply::ok() => return self.release_adopted(&contender),
            Ok(reply) if is_null(&reply) => return,
            Ok(reply) => return assert_ends_a_request(&reply, &contender),
            // Still waiting, or killed.
            Err(end) => {
                let is_expected = matches!(
                    end.kind(),
                    ErrorKind::TimedOut | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                );
                return assert!(is_expected, "{end}");
            }
        };
        let fence = grant[1].int();
        if fence == 0 {
            return;
        }
        if contender.unique && grant[0] == Reply::bulk(&contender.owner) {
            self.fences.push(fence);
        }
        if self.rng.below(2) == 0 {
            let prefix = if contender.key.starts_with('r') { "RLOCK" } else { "LOCK" };
            let released = self.admin.run(&format!("{prefix}.RELEASE {} {}", contender.key, contender.owner));
            // By now the lock may have another holder, or the key may briefly be a string. Contenders with one name
            // share the holds of a reentrant lock.
            let replies = match (prefix, contender.unique) {
                ("LOCK", _) => 0..=1,
                (_, true) => -1..=0,
                (_, false) => -1..=i64::MAX,
            };
            assert!(
                matches!(&released, Reply::Int(holds) if replies.contains(holds))
                    || starts_with(&released, &["WRONGTYPE "]),
                "{prefix}.RELEASE {}: {released:?}",
                contender.key
            );
        }
    }

    /// Some release as old clients do; the lock may have another holder by now.
    fn release_adopted(&mut self, contender: &Contender) {
        if self.rng.below(2) == 0 {
            let words = ["EVAL", COMPARE_AND_DELETE, "1", &contender.key, &contender.owner];
            assert_is_flag(&self.admin.cmd(&words));
        }
    }
}

/// Any reply that is not a grant: the wait timed out, or an error says why the request ended. A deadlock can only be
/// closed by an owner that other requests wait for on another key, and a contender with a unique name has only one
/// request.
#[track_caller]
fn assert_ends_a_request(reply: &Reply, contender: &Contender) {
    let codes: &[&str] =
        if contender.unique { &["UNBLOCKED ", "WRONGTYPE "] } else { &["UNBLOCKED ", "WRONGTYPE ", "DEADLOCK "] };
    assert!(reply.is_nil() || starts_with(reply, codes), "{}: {reply:?}", contender.owner);
}

/// Whether it is an error with one of these codes.
fn starts_with(reply: &Reply, codes: &[&str]) -> bool {
    matches!(reply, Reply::Error(error) if codes.iter().any(|code| error.starts_with(code)))
}

/// Keeps ending locks and waits; a lock or a waiter that is already gone is not an error.
fn disturb(server: &Server, seed: u64, over: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    let mut client = server.client();
    while !over.load(Ordering::Relaxed) {
        let key = key(rng.below(KEYS));
        match rng.below(100) {
            0..=24 => assert_is_flag(&client.cmd(&["DEL", &key])),
            25..=34 => assert_is_flag(&client.cmd(&["PEXPIRE", &key, "3"])),
            35..=39 => {
                let renamed = client.cmd(&["RENAME", &key, "elsewhere"]);
                assert!(renamed == Reply::ok() || renamed == Reply::Error("ERR no such key".into()), "{renamed:?}");
            }
            40..=41 => {
                let replies = client.pipeline(&["SELECT 1", "FLUSHDB", "SELECT 0", "SWAPDB 0 1"]);
                assert!(replies.iter().all(|reply| *reply == Reply::ok()), "{replies:?}");
            }
            42..=43 => assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok()),
            44 => assert_eq!(client.run("CLIENT PAUSE 20 WRITE"), Reply::ok()),
            45..=46 => {
                let replies = client.pipeline(&[format!("SET {key} v"), format!("DEL {key}")]);
                // The adopted key is free, but earlier requests come first.
                assert!(replies[0] == Reply::ok() || starts_with(&replies[0], &["TRYAGAIN "]), "{replies:?}");
                assert_is_flag(&replies[1]);
            }
            47 => assert_eq!(client.run("DEBUG RELOAD"), Reply::ok()),
            way => disturb_a_waiter(&mut client, &key, way, &mut rng),
        }
        let_time_pass(Duration::from_millis(3));
    }
}

fn disturb_a_waiter(client: &mut Client, key: &str, way: usize, rng: &mut Rng) {
    let waiters = client.cmd(&["LOCK.WAITERS", key]);
    let waiters = waiters.items();
    if waiters.is_empty() {
        return;
    }
    let waiter = &waiters[rng.below(waiters.len())];
    let (id, owner) = (waiter.get("client").int(), waiter.get("owner").text());
    match way {
        48..=59 => assert_is_flag(&client.run(&format!("CLIENT KILL ID {id}"))),
        60..=69 => assert_is_flag(&client.run(&format!("CLIENT UNBLOCK {id} TIMEOUT"))),
        70..=79 => assert_is_flag(&client.run(&format!("CLIENT UNBLOCK {id} ERROR"))),
        80..=89 => assert!((0..).contains(&client.run(&format!("LOCK.CANCEL {key} {owner}")).int())),
        // Two causes at once: the lock ends, and the next waiter dies.
        _ => multi(client, &[&format!("DEL {key}"), &format!("CLIENT KILL ID {id}")]).iter().for_each(assert_is_flag),
    }
}

/// It succeeded, or there was nothing to act on.
#[track_caller]
fn assert_is_flag(reply: &Reply) {
    assert!(matches!(reply, Reply::Int(0 | 1)), "{reply:?}");
}
