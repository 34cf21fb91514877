//! Ten thousand clients that come, wait and go as they please, while locks end in every way: afterwards nothing of
//! them is left. By default it takes some seconds; these make it longer and wider:
//!
//! - `REDIS_LOCK_CHURN_SECONDS`: go on for as long as this (60 for the long run)
//! - `REDIS_LOCK_CHURN_AT_ONCE`: so many clients at a time (10000 needs as many open files)
//! - `REDIS_LOCK_CHURN_SEED`: the random numbers of a run that failed

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Rng, Server};
use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 10_000;
const WORKERS: u64 = 2;
const KEYS: usize = 25;

/// How much more memory than before may be in use afterwards: some fifty bytes for each client that came and went.
const SLACK: i64 = 512 * 1024;

#[test]
fn ten_thousand_clients_that_come_wait_and_go_at_random_leave_nothing_behind() {
    let seconds = setting("REDIS_LOCK_CHURN_SECONDS");
    let at_once = setting("REDIS_LOCK_CHURN_AT_ONCE").unwrap_or(500);
    let seed = setting("REDIS_LOCK_CHURN_SEED").unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    // Shown when the test fails.
    eprintln!("REDIS_LOCK_CHURN_SEED={seed}");

    let server = Server::builder().config(format!("maxclients {}", at_once + 1000)).start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 100");

    // The first clients make the server fill its tables; what it needs from then on is the measure.
    churn(&server, seed, at_once, |gone| gone >= CLIENTS / 10);
    let before = memory_when_all_have_gone(&server, &mut client);
    let start = Instant::now();
    let fences = churn(&server, seed + 1, at_once, |gone| match seconds {
        Some(seconds) => start.elapsed() >= Duration::from_secs(seconds),
        None => gone >= CLIENTS,
    });
    assert!(fences > 0, "nobody was ever granted anything");
    let after = memory_when_all_have_gone(&server, &mut client);
    assert!(after < before + SLACK, "{before} bytes before, {after} after");
}

/// Lets clients come and go until `enough` have gone; returns how many grants were seen.
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
        // Before anything fails: the scope waits for whoever disturbs.
        over.store(true, Ordering::Relaxed);
        results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let fences = fences.concat();
    let distinct: HashSet<i64> = fences.iter().copied().collect();
    assert_eq!(fences.len(), distinct.len(), "a fence was given to two owners");
    fences.len()
}

/// What many requests needed is given back when they are gone, also by tables that grew for them.
#[test]
fn what_nine_thousand_requests_needed_is_given_back() {
    let server = Server::start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 0");
    let in_vain = |client: &mut Client, count: u64| {
        hold(client, "k0", "holder");
        let asks: Vec<String> = (0..count).map(|n| format!("LOCK.ACQUIRE k0 {n} BLOCK 0 NOTIFY ch")).collect();
        let cancels: Vec<String> = (0..count).map(|n| format!("LOCK.CANCEL k0 {n}")).collect();
        for some in asks.chunks(500).chain(cancels.chunks(500)) {
            assert!(client.pipeline(some).iter().all(|reply| !reply.is_error()));
        }
    };
    in_vain(&mut client, 50);
    let before = memory_when_all_have_gone(&server, &mut client);
    in_vain(&mut client, 9_000);
    let after = memory_when_all_have_gone(&server, &mut client);
    assert!(after < before + SLACK, "{before} bytes before, {after} after");
}

/// Asserts that the server has let go of everybody, and returns the memory that it uses then.
fn memory_when_all_have_gone(server: &Server, client: &mut Client) -> i64 {
    client.run("CLIENT UNPAUSE");
    server.wait_blocked(0);
    until("everybody has gone", || server.info("clients").number("connected_clients") == 2);
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

/// What is in use when the server has done all its clearing up: it frees the helpers of blocked clients and shrinks its
/// tables step by step.
fn lowest_memory(server: &Server, client: &mut Client) -> i64 {
    // Looks are counted, not seconds: of those a busy machine may take one away.
    let (mut lowest, mut looks) = (i64::MAX, 0);
    while looks < 24 {
        client.run("MEMORY PURGE");
        let used = server.info("memory").number("used_memory");
        looks += 1;
        if used < lowest - 16 * 1024 {
            (lowest, looks) = (used, 0);
        }
        let_pass(Duration::from_millis(50));
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

/// One client that came: where it is, what it asked for.
struct Guest {
    client: Client,
    key: String,
    owner: String,
    /// Whether nobody else ever uses this name, so that each of its grants is a new one.
    unique: bool,
}

/// Brings guests, looks after them, and sends them away.
struct Worker<'server> {
    server: &'server Server,
    admin: Client,
    rng: Rng,
    number: u64,
    born: u64,
    guests: Vec<Guest>,
    fences: Vec<i64>,
}

impl Worker<'_> {
    fn new(server: &Server, seed: u64, number: u64) -> Worker<'_> {
        let rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number));
        Worker { server, admin: server.client(), rng, number, born: 0, guests: Vec::new(), fences: Vec::new() }
    }

    fn run(mut self, at_once: u64, gone: &AtomicU64, enough: impl Fn(u64) -> bool) -> Vec<i64> {
        while !enough(gone.load(Ordering::Relaxed)) {
            let house_is_full = self.guests.len() as u64 >= at_once;
            if !house_is_full && (self.guests.is_empty() || self.rng.below(5) < 3) {
                let guest = self.welcome();
                self.guests.push(guest);
            } else {
                let which = self.rng.below(self.guests.len());
                let guest = self.guests.swap_remove(which);
                self.part(guest);
                gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.fences
    }

    /// A new client asks for a random lock in a random way, and its answer is not awaited.
    fn welcome(&mut self) -> Guest {
        self.born += 1;
        let rng = &mut self.rng;
        let key = key(rng.below(KEYS));
        let unique = rng.below(5) > 0;
        let owner = match unique {
            true => format!("guest-{}-{}", self.number, self.born),
            false => format!("regular-{}", rng.below(30)),
        };
        let family = if key.starts_with('r') { "RLOCK" } else { "LOCK" };
        let lease = 5 + rng.below(200);
        let wait = [0, 0, 0, 1, 50, 300][rng.below(6)];
        let more = ["", "", "", "", "SESSION", "NOTIFY ch"][rng.below(6)];
        let line = match rng.below(20) {
            0 => format!("{family}.ACQUIRE {key} * PX {lease} BLOCK {wait}"),
            _ => format!("{family}.ACQUIRE {key} {owner} PX {lease} BLOCK {wait} {more}"),
        };
        let mut client = self.server.client();
        client.send_line(&line);
        Guest { client, key, owner, unique }
    }

    /// A guest goes: most at once, some after they have seen whether there is an answer.
    fn part(&mut self, mut guest: Guest) {
        if self.rng.below(3) == 0 {
            return;
        }
        // It may have been killed: then there is no reply, and nothing to see.
        let Ok(Reply::Array(grant)) = guest.client.try_read(Duration::ZERO) else {
            return;
        };
        let Reply::Int(fence) = grant[1] else {
            panic!("no grant: {grant:?}");
        };
        if fence == 0 {
            return;
        }
        if guest.unique && grant[0] == Reply::bulk(&guest.owner) {
            self.fences.push(fence);
        }
        if self.rng.below(2) == 0 {
            let family = if guest.key.starts_with('r') { "RLOCK" } else { "LOCK" };
            self.admin.run(&format!("{family}.RELEASE {} {}", guest.key, guest.owner));
        }
    }
}

/// Ends locks and waits in every way there is, all the time.
fn disturb(server: &Server, seed: u64, over: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    let mut client = server.client();
    while !over.load(Ordering::Relaxed) {
        let key = key(rng.below(KEYS));
        match rng.below(100) {
            0..=24 => drop(client.cmd(&["DEL", &key])),
            25..=34 => drop(client.cmd(&["PEXPIRE", &key, "3"])),
            35..=39 => drop(client.cmd(&["RENAME", &key, "elsewhere"])),
            40..=41 => drop(client.pipeline(&["SELECT 1", "FLUSHDB", "SELECT 0", "SWAPDB 0 1"])),
            42..=43 => drop(client.run("FLUSHALL ASYNC")),
            44 => drop(client.run("CLIENT PAUSE 20 WRITE")),
            45..=46 => drop(client.pipeline(&[format!("SET {key} v"), format!("DEL {key}")])),
            47 => drop(client.run("DEBUG RELOAD")),
            way => disturb_a_waiter(&mut client, &key, way, &mut rng),
        }
        let_pass(Duration::from_millis(3));
    }
}

fn disturb_a_waiter(client: &mut Client, key: &str, way: usize, rng: &mut Rng) {
    let waiters = client.cmd(&["LOCK.WAITERS", key]);
    let Reply::Array(waiters) = waiters else {
        return;
    };
    if waiters.is_empty() {
        return;
    }
    let waiter = &waiters[rng.below(waiters.len())];
    let (id, owner) = (waiter.get("client").int(), waiter.get("owner").text());
    match way {
        48..=59 => drop(client.run(&format!("CLIENT KILL ID {id}"))),
        60..=69 => drop(client.run(&format!("CLIENT UNBLOCK {id} TIMEOUT"))),
        70..=79 => drop(client.run(&format!("CLIENT UNBLOCK {id} ERROR"))),
        80..=89 => drop(client.run(&format!("LOCK.CANCEL {key} {owner}"))),
        // The two at once: the lock ends, and whoever is next dies.
        _ => drop(multi(client, &[&format!("DEL {key}"), &format!("CLIENT KILL ID {id}")])),
    }
}
