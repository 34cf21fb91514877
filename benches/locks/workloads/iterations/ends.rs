//! Events that end thousands of locks, waits or leases.

use std::io;

use support::{Connection, Pipeline, Reply};

use super::setup::{each, hold, holds, none_waits, now_ms, queue, sleep_until, watch, watch_end};
use crate::server::Server;
use crate::watch::Longest;

/// The owner that waits for the lock with this index.
pub type Waiter = fn(usize) -> String;

pub fn each_its_own(index: usize) -> String {
    format!("waiter:{index}")
}

pub fn one_for_all(_: usize) -> String {
    "waiter".to_owned()
}

pub fn flush(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<Longest> {
    let _holders = held(server, n)?;
    let _waiters = waited_for(server, n, waiter)?;
    watch(server, |server| server.must(&["FLUSHDB"]).map(drop), |server| all_handed_over(server, n, waiter))
}

/// The baseline: what the server itself needs for that many keys.
pub fn flush_strings(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _strings = strings(server, n)?;
    watch(server, |server| server.must(&["FLUSHDB"]).map(drop), no_key_is_left)
}

/// The same, for keys that expire in the same millisecond.
pub fn strings_end(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _strings = strings(server, n)?;
    expire_at_once(server, n)?;
    watch(server, |_| Ok(()), no_key_is_left)
}

/// The leases of all locks expire in the same millisecond.
pub fn leases_end(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<Longest> {
    let _holders = held(server, n)?;
    let _waiters = waited_for(server, n, waiter)?;
    expire_at_once(server, n)?;
    watch(server, |_| Ok(()), |server| all_handed_over(server, n, waiter))
}

/// BLOCK times out for all requests within a millisecond or two, and later their reserved positions expire.
pub fn waits_end(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<Longest> {
    // Few enough to be queued in less than a millisecond.
    const SLICE: usize = 20;
    let _holders = held(server, n)?;
    let end_ms = now_ms(server)? + 5000;
    let mut waiters = Connection::connect(server.port())?;
    for from in (0..n).step_by(SLICE) {
        let block_ms = end_ms.saturating_sub(now_ms(server)?).to_string();
        let mut pipeline = Pipeline::default();
        for index in from..n.min(from + SLICE) {
            let (key, owner) = (index.to_string(), waiter(index));
            pipeline.push(&["LOCK.ACQUIRE", &key, &owner, "PX", "600000", "BLOCK", &block_ms, "NOTIFY", "outcomes"]);
        }
        waiters.run(&pipeline)?;
    }
    sleep_until(server, end_ms)?;
    watch(server, |_| Ok(()), none_waits)
}

/// The connection of the requests ends, and later their reserved positions expire.
pub fn waiters_end(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<Longest> {
    let _holders = held(server, n)?;
    let waiters = waited_for(server, n, waiter)?;
    watch_end(server, waiters)
}

pub fn session_ends(server: &mut Server, n: usize) -> io::Result<Longest> {
    let session = session(server, n)?;
    let last = (n - 1).to_string();
    let end = |_: &mut Server| {
        drop(session);
        Ok(())
    };
    watch(server, end, |server| Ok(!holds(server, "0", "holder")? && !holds(server, &last, "holder")?))
}

pub fn waited_session_ends(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<Longest> {
    let session = session(server, n)?;
    let _waiters = waited_for(server, n, waiter)?;
    let end = |_: &mut Server| {
        drop(session);
        Ok(())
    };
    watch(server, end, |server| all_handed_over(server, n, waiter))
}

/// Returns just before the keys expire.
fn expire_at_once(server: &mut Server, n: usize) -> io::Result<()> {
    let end_ms = now_ms(server)? + 2000;
    let words = end_ms.to_string();
    each(server, n, |pipeline, index| pipeline.push(&["PEXPIREAT", &index.to_string(), &words]))?;
    sleep_until(server, end_ms)
}

fn strings(server: &Server, n: usize) -> io::Result<Connection> {
    each(server, n, |pipeline, index| pipeline.push(&["SET", &index.to_string(), "holder", "PX", "600000"]))
}

fn no_key_is_left(server: &mut Server) -> io::Result<bool> {
    Ok(matches!(server.must(&["DBSIZE"])?, Reply::Int(0)))
}

/// Acquires that many locks for one owner.
fn held(server: &Server, n: usize) -> io::Result<Connection> {
    each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))
}

/// The same, with holds bound to the connection.
fn session(server: &Server, n: usize) -> io::Result<Connection> {
    each(server, n, |pipeline, index| {
        pipeline.push(&["LOCK.ACQUIRE", &index.to_string(), "holder", "PX", "600000", "SESSION"]);
    })
}

/// Queues a request for each lock, all on one connection.
fn waited_for(server: &Server, n: usize, waiter: Waiter) -> io::Result<Connection> {
    each(server, n, |pipeline, index| queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), &waiter(index)]))
}

/// Whether the first and the last lock have been granted to their waiters.
fn all_handed_over(server: &mut Server, n: usize, waiter: Waiter) -> io::Result<bool> {
    let last = n - 1;
    Ok(holds(server, &last.to_string(), &waiter(last))? && holds(server, "0", &waiter(0))?)
}
