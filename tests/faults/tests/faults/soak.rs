//! A long-running server: millions of calls with every lock type, native and adopted, with hand-offs, expiring leases,
//! waits that time out, and sessions that end with their connections. Each reply matches the contract, no fencing token
//! is assigned twice, the module has counted what its clients have seen, and memory stays at its level after the first
//! tenth of the run.
//!
//! `make faults FAULTS=soak` runs ten million calls. `REDIS_LOCK_SOAK_OPERATIONS` changes the number;
//! `REDIS_LOCK_SOAK_SEED` reproduces the random choices of a run.

mod script;

use std::thread;
use std::time::Instant;

use faults::Row;
use support::{until, Client, Connection, Reply, Rng, Server};

use crate::memory::Memory;
use script::{Script, Tally, ADOPT, BUSY, COUNTED};

const SHORT_RUN: u64 = 100_000;
const TENTHS: u64 = 10;
const CONNECTIONS: usize = 8;

/// The minimum number of commands in a pipeline.
const BATCH: usize = 200;

#[test]
fn replies_and_counts_are_correct_and_memory_stays_constant() {
    let operations = number("REDIS_LOCK_SOAK_OPERATIONS").unwrap_or(SHORT_RUN);
    let seed = number("REDIS_LOCK_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    // Shown when the test fails.
    eprintln!("REDIS_LOCK_SOAK_SEED={seed}");
    let server = ADOPT.iter().fold(Server::builder(), |builder, line| builder.config(*line)).start();
    let version = server.info("server").version();
    let mut admin = server.client();
    admin.run(&format!("LOCK.ACQUIRE {BUSY} admin PERSIST"));
    admin.run("CONFIG SET lock.keep-place 100");

    let start = Instant::now();
    let at_start = Memory::at_rest(&mut admin);
    let mut readings = Vec::new();
    let mut total = Tally::default();
    for tenth in 0..TENTHS {
        let tally = work(&server, seed ^ tenth << 32, tenth, operations / TENTHS);
        let last = total.fences.last().copied().unwrap_or(0);
        let mut fences = tally.fences.clone();
        fences.sort_unstable();
        assert!(fences.first().is_none_or(|first| *first > last), "a fence of this tenth is older than the last one");
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "a fence was given twice");
        total.add(tally);
        total.fences = fences.pop().into_iter().collect();
        wait_until_all_left(&server, &mut admin);
        assert_counted(&server, &mut admin, &total);
        readings.push(Memory::at_rest(&mut admin));
        eprintln!("{} operations, {:.1?}: {:?}", total.commands, start.elapsed(), readings.last());
    }
    let (first, last) = (readings[0], readings[readings.len() - 1]);
    assert!(!readings.iter().any(|memory| memory.has_grown_since(first)), "{readings:#?}");
    let kb = |of: fn(&Memory) -> i64| [at_start, first, last].map(|memory| (of(&memory) >> 10).to_string()).join(", ");
    Row {
        scenario: "soak; faults: connections that end with locks bound to them".into(),
        server: version,
        seconds: start.elapsed().as_secs(),
        faults: usize::try_from(total.sessions).expect("a count"),
        grants: usize::try_from(total.grants + total.published).expect("a count"),
        refused: usize::try_from(total.deadlocks).expect("a count"),
        unknown: 0,
        lost: 0,
        overlaps: 0,
        fences: format!(
            "grow; {} operations; KB at the start, after a tenth, at the end: {} in use, {} resident",
            total.commands,
            kb(|memory| memory.used),
            kb(|memory| memory.resident)
        ),
    }
    .report();
}

/// Every connection processes its share on a separate thread.
fn work(server: &Server, seed: u64, tenth: u64, operations: u64) -> Tally {
    let share = operations / CONNECTIONS as u64;
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let worker = |connection| scope.spawn(move || work_on(server, seed, tenth, connection, share));
        let workers: Vec<_> = (0..CONNECTIONS).map(worker).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut all = Tally::default();
    tallies.into_iter().for_each(|tally| all.add(tally));
    all
}

fn work_on(server: &Server, seed: u64, tenth: u64, number: usize, share: u64) -> Tally {
    let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64));
    let connect = || Connection::connect(server.port()).expect("the server listens");
    let mut connection = connect();
    let mut tally = Tally::default();
    let mut scripts = 0;
    while tally.commands < share {
        let name = (tenth * CONNECTIONS as u64 + number as u64) << 32 | scripts;
        let script = Script::random(&mut rng, number, name, BATCH);
        let run = connection.pipeline(&script.pipeline, |index, reply| {
            if let Err(wrong) = script.check(index, &reply, &mut tally) {
                panic!("connection {number}, script {scripts}, call {index}: {wrong}");
            }
        });
        run.expect("the server replies");
        script.count(&mut tally);
        if script.ends_connection {
            connection = connect();
        }
        scripts += 1;
    }
    tally
}

/// Waits until nothing of the connections is left except the lock that is always held, and counters.
fn wait_until_all_left(server: &Server, admin: &mut Client) {
    server.wait_blocked(0);
    until("every lease has expired", || admin.run("DBSIZE").int() <= 2);
    until("no waiter, reserved position or session is left", || {
        let info = server.info("lock");
        ["lock_waiters", "lock_kept_places", "lock_sessions"].iter().all(|field| info.number(field) == 0)
    });
    let info = server.info("lock");
    let held = ["lock_held_mutex", "lock_held_reentrant", "lock_held_rw", "lock_held_semaphore"];
    assert_eq!(held.map(|field| info.number(field)), [1, 0, 0, 0], "{held:?}");
}

/// Checks that the module and its clients have counted the same.
#[track_caller]
fn assert_counted(server: &Server, admin: &mut Client, total: &Tally) {
    let info = server.info("lock");
    let count = |field| u64::try_from(info.number(field)).expect("a count");
    // The lock that is always held was granted too.
    let granted = count("lock_grants_immediate") + count("lock_grants_after_wait");
    assert_eq!(granted, total.grants + total.published + 1, "grants");
    assert_eq!(count("lock_adopted_acquires"), total.adopted, "grants of adopted commands");
    assert_eq!(count("lock_wait_timeouts"), total.timeouts, "waits that ran out");
    assert_eq!(count("lock_cancelled"), total.cancels, "waits that were cancelled");
    assert_eq!(count("lock_deadlocks"), total.deadlocks, "deadlocks");
    assert_eq!(count("lock_execs"), total.execs, "commands of LOCK.EXEC");
    assert_eq!(admin.cmd(&["GET", COUNTED]), Reply::bulk(total.execs.to_string()), "commands of LOCK.EXEC that ran");
    assert_eq!(count("lock_leases_expired"), total.left_to_expire, "leases that ended by themselves");
}

/// A number from an environment variable.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
