//! Requests for which deadlock detection inspects many others.

use std::io;

use support::Pipeline;

use super::setup::{each, hold, queue, watch, watch_command, NOTIFIED};
use crate::server::Server;
use crate::watch::Longest;

/// One of n holders of a semaphore with n waiters requests another permit.
pub fn semaphore(server: &mut Server, n: usize) -> io::Result<Longest> {
    let limit = n.to_string();
    let _holders = each(server, n, |pipeline, index| {
        pipeline.push(&["SEM.ACQUIRE", "sem", &format!("holder:{index}"), "LIMIT", &limit, "PX", "600000"]);
    })?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "sem", &format!("queued:{index}"), "LIMIT", &limit]);
    })?;
    watch_command(server, &[&["SEM.ACQUIRE", "sem", "holder:0", "LIMIT", &limit], &NOTIFIED[..]].concat())
}

/// Each of n owners waits for the next; the last one requests the lock of the first.
pub fn cycle(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _holders =
        each(server, n, |pipeline, index| hold(pipeline, &format!("own:{index}"), &format!("owner:{index}")))?;
    let _waiters = each(server, n - 1, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", &format!("own:{}", index + 1), &format!("owner:{index}")]);
    })?;
    let command = ["LOCK.ACQUIRE", "own:0", &format!("owner:{}", n - 1)];
    watch(server, |server| server.command(&[&command[..], &NOTIFIED].concat()).map(drop), |_| Ok(true))
}

/// The n holders of a semaphore wait for an owner, which requests a permit.
pub fn all_permits(server: &mut Server, n: usize) -> io::Result<Longest> {
    let limit = n.to_string();
    server.must(&["LOCK.ACQUIRE", "mine", "owner", "PX", "600000"])?;
    let _holders = each(server, n, |pipeline, index| {
        pipeline.push(&["SEM.ACQUIRE", "sem", &format!("holder:{index}"), "LIMIT", &limit, "PX", "600000"]);
    })?;
    let _waiters =
        each(server, n, |pipeline, index| queue(pipeline, &["LOCK.ACQUIRE", "mine", &format!("holder:{index}")]))?;
    let command = ["SEM.ACQUIRE", "sem", "owner", "LIMIT", &limit];
    watch(server, |server| server.command(&[&command[..], &NOTIFIED].concat()).map(drop), |_| Ok(true))
}

/// An owner with n requests, for which another owner waits, sends one more.
pub fn one_owner(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _holders = each(server, n + 1, |pipeline, index| hold(pipeline, &index.to_string(), "other"))?;
    let _requests = each(server, n, |pipeline, index| queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), "owner"]))?;
    server.must(&["LOCK.ACQUIRE", "mine", "owner", "PX", "600000"])?;
    server.must(&[&["LOCK.ACQUIRE", "mine", "waiter"], &NOTIFIED[..]].concat())?;
    watch_command(server, &[&["LOCK.ACQUIRE", &n.to_string(), "owner"], &NOTIFIED[..]].concat())
}

pub fn upgrade_apart(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _others = each(server, n, |pipeline, index| hold(pipeline, &format!("own:{index}"), "other"))?;
    upgrade(server, n, |pipeline, index, reader| queue(pipeline, &["LOCK.ACQUIRE", &format!("own:{index}"), reader]))
}

pub fn upgrade_to_read(server: &mut Server, n: usize) -> io::Result<Longest> {
    server.must(&["RWLOCK.ACQUIRE", "elsewhere", "other", "WRITE", "PX", "600000"])?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "READ"]))
}

pub fn upgrade_to_write(server: &mut Server, n: usize) -> io::Result<Longest> {
    let _others = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "elsewhere", &format!("other:{index}"), "READ", "PX", "600000"]);
    })?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "WRITE"]))
}

/// An owner for which others wait requests a write lock with n readers, which wait for something else.
fn upgrade(server: &mut Server, n: usize, wait: impl Fn(&mut Pipeline, usize, &str)) -> io::Result<Longest> {
    server.must(&["LOCK.ACQUIRE", "mine", "writer", "PX", "600000"])?;
    server.must(&[&["LOCK.ACQUIRE", "mine", "somebody"], &NOTIFIED[..]].concat())?;
    let _readers = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ", "PX", "600000"]);
    })?;
    let _waiters = each(server, n, |pipeline, index| wait(pipeline, index, &format!("reader:{index}")))?;
    watch_command(server, &[&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE"], &NOTIFIED[..]].concat())
}
