//! Thousands of clients that all wait: each is granted its lock, twice, and the server frees their memory.
//! `REDIS_LOCK_FAULT_CLIENTS` sets the number, 1,000 by default.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use async_executor::LocalExecutor;
use async_io::Timer;
use faults::judge::{breaches, Scope};
use faults::{Action, Kind, Lock, Mode, Operation, Outcome, Recorder, Row};
use futures_lite::future::{block_on, or};
use support::{raise_file_limit, skip, until, Client, Connection, Reply, Server};

use crate::judged::assert_none;
use crate::memory::Memory;

const DEFAULT_CLIENTS: usize = 1_000;

/// The number of clients that wait for one lock.
const CROWD: usize = 100;

const THREADS: usize = 2;

/// The number of files apart from the connections.
const OTHER_FILES: u64 = 200;

/// No lease expires here.
const LEASE: Duration = Duration::from_secs(600);

/// The longest time until a reply arrives, with ten thousand requests ahead.
const REPLY_TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn each_of_thousands_of_clients_is_granted_its_lock_and_leaves_nothing() {
    let clients = match std::env::var("REDIS_LOCK_FAULT_CLIENTS") {
        Ok(clients) => clients.parse().expect("REDIS_LOCK_FAULT_CLIENTS is a number"),
        Err(_) => DEFAULT_CLIENTS,
    };
    let files = raise_file_limit().expect("the system reports its limits");
    if files < clients as u64 + OTHER_FILES {
        return skip(&format!("{clients} clients need as many open files, and {files} are allowed"));
    }
    let server = Server::builder()
        .config(format!("maxclients {}", clients + 100))
        .config(format!("lock.max-waiters {clients}"))
        .start();
    let mut client = server.client();
    // The first clients make the server and its allocator fill their tables, so memory is measured from then on.
    let recorder = Recorder::new();
    let (first, second) = (0..clients, clients..clients * 2);
    wait_and_hold(&server, &recorder, first);
    let before = at_rest(&server, &mut client);
    wait_and_hold(&server, &recorder, second);
    let after = at_rest(&server, &mut client);
    let history = recorder.history();
    assert_eq!(recorder.grants(), clients * 4);
    assert_none(&breaches(&history, Scope::Server));
    assert!(!after.has_grown_since(before), "before {before:?}, after {after:?}");
    let version = server.info("server").version();
    let mut row = Row::of(&format!("{clients} waiting clients"), &version, 0, &history);
    let [before, after] = [before, after].map(|memory| format!("{} KB", memory.used >> 10));
    row.fences = format!("{}; memory {before} before, {after} after", row.fences);
    row.report();
}

/// The memory after all clients are gone.
fn at_rest(server: &Server, client: &mut Client) -> Memory {
    until("all clients are gone", || server.info("clients").number("connected_clients") == 2);
    until("no position is reserved", || server.info("lock").number("lock_kept_places") == 0);
    assert_eq!(client.run("DBSIZE"), Reply::Int(0), "every lock was released");
    Memory::at_rest(client)
}

/// Lets clients with these numbers queue, and then each be granted.
fn wait_and_hold(server: &Server, recorder: &Recorder, numbers: Range<usize>) {
    let locks: Vec<Lock> = (0..numbers.len().div_ceil(CROWD)).map(lock).collect();
    let mut admin = server.client();
    for lock in &locks {
        hold_all(&mut admin, lock).fence();
    }
    thread::scope(|scope| {
        let all: Vec<usize> = numbers.clone().collect();
        for some in all.chunks(all.len().div_ceil(THREADS)) {
            let (some, locks) = (some.to_vec(), &locks);
            scope.spawn(move || {
                let executor = LocalExecutor::new();
                let calls = |number| take_twice(server.port(), recorder, &locks[number / CROWD % locks.len()], number);
                let tasks: Vec<_> = some.into_iter().map(|number| executor.spawn(calls(number))).collect();
                let all = async {
                    for task in tasks {
                        task.await.expect("every client gets its reply");
                    }
                };
                block_on(executor.run(all));
            });
        }
        // All of them, in one queue or another.
        let started = Instant::now();
        while server.info("lock").number("lock_waiters") != numbers.len() as i64 {
            assert!(started.elapsed() < REPLY_TIMEOUT, "not all of them wait");
            thread::sleep(Duration::from_millis(10));
        }
        for lock in &locks {
            admin.cmd(&["LOCK.BREAK", &lock.key]);
        }
    });
}

/// A lock of each type in turn.
fn lock(number: usize) -> Lock {
    let kinds = [Kind::Mutex, Kind::Reentrant, Kind::ReadWrite, Kind::Semaphore { limit: 2 }];
    Lock::new(format!("lock-{number}"), kinds[number % kinds.len()])
}

fn mode(lock: &Lock, number: usize) -> Mode {
    let modes = lock.kind.modes();
    modes[number % modes.len()]
}

/// Acquires the lock exclusively, or all its permits.
fn hold_all(admin: &mut Client, lock: &Lock) -> Reply {
    match lock.kind {
        Kind::Mutex | Kind::Pair | Kind::Adopted => admin.cmd(&["LOCK.ACQUIRE", &lock.key, "admin", "PERSIST"]),
        Kind::Reentrant => admin.cmd(&["RLOCK.ACQUIRE", &lock.key, "admin", "PERSIST"]),
        Kind::ReadWrite => admin.cmd(&["RWLOCK.ACQUIRE", &lock.key, "admin", "WRITE", "PERSIST"]),
        Kind::Semaphore { limit } => {
            let limit = limit.to_string();
            admin.cmd(&["SEM.ACQUIRE", &lock.key, "admin", "LIMIT", &limit, "PERMITS", &limit, "PERSIST"])
        }
    }
}

async fn take_twice(port: u16, recorder: &Recorder, lock: &Lock, number: usize) -> io::Result<()> {
    let mut connection = Connection::connect_shared(port).await?;
    let mode = mode(lock, number);
    for iteration in 0..2 {
        let owner = format!("{number}-{iteration}");
        let mut acquire = mode.acquire(&lock.key, &owner);
        acquire.extend(["PX", &LEASE.as_millis().to_string(), "BLOCK", "0"].map(String::from));
        let record = |invoked, action, outcome| {
            recorder.record(Operation {
                client: number,
                key: lock.key.clone(),
                owner: owner.clone(),
                action,
                invoked,
                returned: recorder.now(),
                outcome,
            });
        };
        let invoked = recorder.now();
        let grant = call(&mut connection, &acquire).await?;
        let action = Action::Acquire { mode, lease: LEASE, block: Some(REPLY_TIMEOUT) };
        record(invoked, action, Outcome::Granted { fence: grant.fence() });
        let invoked = recorder.now();
        let released = call(&mut connection, &mode.release(&lock.key, &owner)).await?;
        assert_eq!(released, Reply::Int(mode.released()), "{owner}");
        record(invoked, Action::Release { mode }, Outcome::Done);
    }
    Ok(())
}

async fn call(connection: &mut Connection, request: &[String]) -> io::Result<Reply> {
    let request: Vec<&str> = request.iter().map(String::as_str).collect();
    in_time(connection.call(&request)).await
}

async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    or(answer, async {
        Timer::after(REPLY_TIMEOUT).await;
        Err(io::ErrorKind::TimedOut.into())
    })
    .await
}
