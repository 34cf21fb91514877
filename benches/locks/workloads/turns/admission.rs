//! One event after which thousands are granted, or go.

use std::io;

use support::{Connection, Reply};

use super::setup::{all_handed_over, each, holds, queue, waited_for, watch, FIRST, NOTIFIED};
use crate::server::Server;
use crate::watch::Held;

pub const RELEASE_WRITER: [&str; 4] = ["RWLOCK.RELEASE", "rw", "writer", "WRITE"];

pub fn admit_readers(server: &mut Server, n: usize) -> io::Result<Held> {
    let _waiters = wait_to_read(server, n)?;
    watch(server, |server| server.must(&RELEASE_WRITER).map(drop), |server| last_reads(server, n))
}

/// So many readers wait for one writer.
pub fn wait_to_read(server: &mut Server, n: usize) -> io::Result<Connection> {
    server.must(&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE", "PX", "600000"])?;
    each(server, n, |pipeline, index| {
        queue(pipeline, &["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ"]);
    })
}

pub fn last_reads(server: &mut Server, n: usize) -> io::Result<bool> {
    holds(server, "rw", &format!("reader:{}", n - 1))
}

pub fn raise_limit(server: &mut Server, n: usize) -> io::Result<Held> {
    let _waiters = wait_for_limit(server, n)?;
    watch(server, |server| raise(server, n), |server| holds(server, "narrow", "newest"))
}

/// So many wait for a semaphore of one permit.
pub fn wait_for_limit(server: &mut Server, n: usize) -> io::Result<Connection> {
    server.must(&["SEM.ACQUIRE", "narrow", "widest", "LIMIT", "1", "PX", "600000"])?;
    each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "narrow", &format!("limited:{index}"), "LIMIT", "1"]);
    })
}

/// One more request, with a limit that admits all of them.
pub fn raise(server: &mut Server, n: usize) -> io::Result<()> {
    let limit = (n + 2).to_string();
    server.must(&[&["SEM.ACQUIRE", "narrow", "newest", "LIMIT", &limit], &NOTIFIED[..]].concat()).map(drop)
}

pub fn flush_notified(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, FIRST, n)?;
    watch(server, |server| server.must(&["FLUSHALL"]).map(drop), |server| all_handed_over(server, n))
}

pub fn swap_databases(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, FIRST, n)?;
    watch(server, |server| server.must(&["SWAPDB", "0", "1"]).map(drop), |server| all_handed_over(server, n))
}

pub fn leases_end(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, FIRST, n)?;
    end_together(server, n)?;
    watch(server, |_| Ok(()), |server| all_handed_over(server, n))
}

/// Lets the leases of [`waited_for`] end at the instant that is returned, in ms since the epoch.
pub fn end_together(server: &mut Server, n: usize) -> io::Result<u64> {
    // Whole seconds; setting the deadlines must be over by then.
    let until = (now_ms(server)? / 1000 + 2) * 1000;
    let words = until.to_string();
    each(server, n, |pipeline, index| pipeline.push(&["PEXPIREAT", &index.to_string(), &words]))?;
    Ok(until)
}

/// The server's clock.
pub fn now_ms(server: &mut Server) -> io::Result<u64> {
    let Reply::Array(time) = server.must(&["TIME"])? else { return Err(io::Error::other("TIME is no array")) };
    let number = |place: usize| time.get(place).and_then(|reply| reply.text().parse::<u64>().ok()).unwrap_or_default();
    Ok(number(0) * 1000 + number(1) / 1000)
}

/// The server becomes a replica, and its waiters are sent away.
pub fn demote(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, FIRST, n)?;
    // No primary listens there.
    let demotion = ["REPLICAOF", "127.0.0.1", "1"];
    let is_over = |server: &mut Server| Ok(server.info_number("lock", "lock_waiters")? == 0.0);
    watch(server, |server| server.must(&demotion).map(drop), is_over)
}
