//! A thousand futures that are dropped within 1.5 ms, and a soak test, for each way to acquire a lock: nothing is left.

use std::time::Duration;

use redis_lock_client::{Client, Lock};
use support::Server;

use crate::servers::{client_of, eventually, tasks, Observed, LONG};

const TIMES: u32 = 1000;
const BESIDE: u32 = 8;

fn ways(client: &Client, key: &str) -> Vec<(&'static str, Lock)> {
    let mutex = || client.mutex(key).lease(LONG);
    vec![
        ("mutex", mutex()),
        ("auto_renew", mutex().auto_renew()),
        ("token", mutex().token("me")),
        ("mixed", mutex().mixed(Duration::from_millis(5))),
        ("session", mutex().session()),
        ("reentrant", client.reentrant(key).lease(LONG)),
        ("write", client.write_lock(key).lease(LONG)),
        ("semaphore", client.semaphore(key, 1).lease(LONG)),
        ("slot", client.semaphore_slot(key, 1).lease(LONG)),
        ("several", client.multi_lock([key.to_string(), format!("{key}:2")]).lease(LONG)),
    ]
}

/// One of a thousand futures, dropped after this many microseconds.
async fn dropped(lock: Lock, number: u32) {
    let after = Duration::from_micros(u64::from(number * 7919 % 1500));
    let asking = async {
        match number % 4 {
            0 => drop(lock.try_acquire().await.unwrap()),
            1 => drop(lock.acquire_within(LONG).await.unwrap()),
            // Not with a token or with slots.
            2 => drop(lock.run_within::<i64>(&redis::cmd("INCR").arg("n").to_owned(), LONG).await),
            _ => drop(lock.acquire().await.unwrap()),
        }
    };
    // The runtime's timers have a resolution of milliseconds.
    let begun = std::time::Instant::now();
    let ends = async {
        while begun.elapsed() < after {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { () = asking => {}, () = ends => {} }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_dropped_futures_leaves_no_hold_and_no_request() {
    let server = Server::start();
    let client = client_of(server.port());
    for (way, lock) in ways(&client, "k") {
        for number in (0..TIMES).step_by(BESIDE as usize) {
            let storm = (number..number + BESIDE).map(|number| tokio::spawn(dropped(lock.clone(), number)));
            for each in storm.collect::<Vec<_>>() {
                each.await.unwrap();
            }
        }
        client.settled().await;
        eventually("an empty queue", || server.waiters("k").is_empty()).await;
        eventually("a free lock", || server.is_free("k")).await;
        server.client().run("DEL n");
        assert_eq!(server.client().run("DBSIZE").int(), 0, "{way}");
        let next = client.mutex("k").acquire_within(LONG).await.unwrap();
        next.unwrap_or_else(|| panic!("{way}: held")).release().await.unwrap();
    }
}

/// The resident memory in KiB, if the system reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()
}

/// SOAK_PAIRS=100000 for a long one. The memory is that of all tests, so the length of the test is what it bounds here.
#[tokio::test]
async fn a_pair_leaks_no_task_and_no_memory() {
    let pairs: u32 = std::env::var("SOAK_PAIRS").map_or(Ok(500), |pairs| pairs.parse()).expect("a number");
    let server = Server::start();
    let client = client_of(server.port());
    for index in 0..ways(&client, "k").len() {
        let one = |number: u32| ways(&client, &format!("k{number}")).swap_remove(index);
        one(0).1.acquire().await.unwrap().release().await.unwrap();
        client.settled().await;
        let (before, held) = (tasks(), resident());
        for number in 0..pairs {
            one(number).1.acquire().await.unwrap().release().await.unwrap();
        }
        client.settled().await;
        let way = one(0).0;
        eventually(way, || tasks() <= before).await;
        if let (Some(before), Some(after), true) = (held, resident(), pairs >= 100_000) {
            assert!(after < before + 4096, "{way}: {before} KiB before, {after} after {pairs} pairs");
        }
    }
    assert_eq!(server.client().run("DBSIZE").int(), 0);
}
