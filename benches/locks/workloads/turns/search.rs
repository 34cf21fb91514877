//! Requests for which the module inspects many others: searches for a deadlock, and owners that may pass.

use std::io;

use support::{Connection, Pipeline};

use super::setup::{each, hold, queue, spent, watch_command, NOTIFIED};
use crate::server::Server;
use crate::watch::Held;

pub fn semaphore_search(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = semaphore(server, n)?;
    let search = search(n);
    watch_command(server, &search.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A semaphore with so many holders and as many waiters.
pub fn semaphore(server: &Server, n: usize) -> io::Result<[Connection; 2]> {
    let limit = n.to_string();
    let holders = each(server, n, |pipeline, index| {
        pipeline.push(&["SEM.ACQUIRE", "sem", &format!("holder:{index}"), "LIMIT", &limit, "PX", "600000"]);
    })?;
    let waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "sem", &format!("queued:{index}"), "LIMIT", &limit]);
    })?;
    Ok([holders, waiters])
}

/// One of the holders asks for another permit.
pub fn search(n: usize) -> Vec<String> {
    let limit = n.to_string();
    [&["SEM.ACQUIRE", "sem", "holder:0", "LIMIT", &limit], &NOTIFIED[..]]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// The mean of the last hundred.
pub fn one_queue(server: &mut Server, n: usize) -> io::Result<Held> {
    const LAST: usize = 100;
    server.must(&["LOCK.ACQUIRE", "one", "holder", "PX", "600000"])?;
    let _holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), &format!("owner:{index}")))?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), &format!("waiter:{index}")]);
    })?;
    let join = |pipeline: &mut Pipeline, index: usize| {
        queue(pipeline, &["LOCK.ACQUIRE", "one", &format!("owner:{index}")]);
    };
    let _queue = each(server, n - LAST, join)?;
    spent(server, |server| {
        let _last = each(server, LAST, |pipeline, index| join(pipeline, n - LAST + index))?;
        Ok(LAST as f64)
    })
}
pub fn upgrade_apart(server: &mut Server, n: usize) -> io::Result<Held> {
    let _others = each(server, n, |pipeline, index| hold(pipeline, &format!("own:{index}"), "other"))?;
    upgrade(server, n, |pipeline, index, reader| queue(pipeline, &["LOCK.ACQUIRE", &format!("own:{index}"), reader]))
}

pub fn upgrade_to_read(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["RWLOCK.ACQUIRE", "elsewhere", "other", "WRITE", "PX", "600000"])?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "READ"]))
}

pub fn upgrade_to_write(server: &mut Server, n: usize) -> io::Result<Held> {
    let _others = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "elsewhere", &format!("other:{index}"), "READ", "PX", "600000"]);
    })?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "WRITE"]))
}

/// A waited-for owner asks to write a lock with n readers, which wait for something else.
fn upgrade(server: &mut Server, n: usize, wait: impl Fn(&mut Pipeline, usize, &str)) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "mine", "writer", "PX", "600000"])?;
    server.must(&[&["LOCK.ACQUIRE", "mine", "somebody"], &NOTIFIED[..]].concat())?;
    let _readers = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ", "PX", "600000"]);
    })?;
    let _waiters = each(server, n, |pipeline, index| wait(pipeline, index, &format!("reader:{index}")))?;
    watch_command(server, &[&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE"], &NOTIFIED[..]].concat())
}

pub fn pass_same_keys(server: &mut Server, n: usize) -> io::Result<Held> {
    pass(server, n, |key, _| format!("shared:{key}"))
}

pub fn pass_own_keys(server: &mut Server, n: usize) -> io::Result<Held> {
    pass(server, n, |key, index| format!("own:{index}:{key}"))
}

/// An owner takes a free key out of many requests that wait for it: it passes them.
fn pass(server: &mut Server, n: usize, name: impl Fn(usize, usize) -> String) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "held", "owner", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        let others: Vec<String> = (0..126).map(|key| name(key, index)).collect();
        let waiter = format!("waiter:{index}");
        let mut request = vec!["MLOCK.ACQUIRE", "128"];
        request.extend(others.iter().map(String::as_str));
        request.extend(["free", "held", &waiter]);
        queue(pipeline, &request);
    })?;
    watch_command(server, &["LOCK.ACQUIRE", "free", "owner", "PX", "600000"])
}
