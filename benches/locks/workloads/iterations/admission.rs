//! Events that grant thousands of requests, or one of thousands.

use std::io;

use super::setup::{each, hold, holds, queue, watch, NOTIFIED};
use crate::server::Server;
use crate::watch::Longest;

pub fn release_one_key(server: &mut Server, n: usize) -> io::Result<Longest> {
    server.must(&["LOCK.ACQUIRE", "lock", "holder", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", "lock", &format!("waiter:{index}")]);
    })?;
    let release = |server: &mut Server| server.must(&["LOCK.RELEASE", "lock", "holder"]).map(drop);
    watch(server, release, |server| holds(server, "lock", "waiter:0"))
}

/// One owner waits for n locks, of which one is released.
pub fn release_one_owner(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))?;
    let _waiters = each(server, n, |pipeline, index| queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), "waiter"]))?;
    let release = |server: &mut Server| server.must(&["LOCK.RELEASE", "0", "holder"]).map(drop);
    watch(server, release, |server| holds(server, "0", "waiter"))
}

pub fn admit_readers(server: &mut Server, n: usize) -> io::Result<Longest> {
    server.must(&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE", "PX", "600000"])?;
    let _readers = each(server, n, |pipeline, index| {
        queue(pipeline, &["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ"]);
    })?;
    let release = |server: &mut Server| server.must(&["RWLOCK.RELEASE", "rw", "writer", "WRITE"]).map(drop);
    watch(server, release, |server| holds(server, "rw", &format!("reader:{}", n - 1)))
}

/// Raises the limit of a semaphore with one permit by one more request, so that all waiters are granted.
pub fn raise_limit(server: &mut Server, n: usize) -> io::Result<Longest> {
    server.must(&["SEM.ACQUIRE", "sem", "holder", "LIMIT", "1", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "sem", &format!("waiter:{index}"), "LIMIT", "1"]);
    })?;
    let limit = (n + 2).to_string();
    let request = [&["SEM.ACQUIRE", "sem", "newest", "LIMIT", &limit], &NOTIFIED[..]].concat();
    watch(server, |server| server.must(&request).map(drop), |server| holds(server, "sem", "newest"))
}
