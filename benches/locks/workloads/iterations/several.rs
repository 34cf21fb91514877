//! Many requests for 128 mutexes each, the maximum for one request, all on one connection.

use std::io;

use support::Connection;

use super::setup::{each, holds, queue, watch, watch_command, watch_end, NOTIFIED};
use crate::server::Server;
use crate::watch::Longest;

/// The name of a request's key.
pub type Name = fn(usize, usize) -> String;

pub fn shared(_: usize, key: usize) -> String {
    format!("shared:{key}")
}

pub fn own(request: usize, key: usize) -> String {
    format!("own:{request}:{key}")
}

/// An owner acquires a free key that all the requests contain. They wait for this owner, so it is granted ahead of
/// them.
pub fn pass(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let _waiters = queue_all(server, n, name)?;
    watch_command(server, &["LOCK.ACQUIRE", "free", "holder", "PX", "600000"])
}

pub fn release(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let _waiters = queue_all(server, n, name)?;
    watch(server, |server| server.must(&["LOCK.RELEASE", "held", "holder"]).map(drop), first_holds)
}

pub fn flush(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let _waiters = queue_all(server, n, name)?;
    watch(server, |server| server.must(&["FLUSHDB"]).map(drop), first_holds)
}

/// The first of the requests is removed.
pub fn cancel(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let _waiters = queue_all(server, n, name)?;
    watch_command(server, &["LOCK.CANCEL", "held", "waiter:0"])
}

pub fn queue_one_more(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let _waiters = queue_all(server, n, name)?;
    let request = request(n, name);
    let words: Vec<&str> = request.iter().map(String::as_str).chain(NOTIFIED).collect();
    watch_command(server, &words)
}

pub fn end(server: &mut Server, n: usize, name: Name) -> io::Result<Longest> {
    let waiters = queue_all(server, n, name)?;
    watch_end(server, waiters)
}

fn queue_all(server: &mut Server, n: usize, name: Name) -> io::Result<Connection> {
    server.must(&["LOCK.ACQUIRE", "held", "holder", "PX", "600000"])?;
    each(server, n, |pipeline, index| {
        queue(pipeline, &request(index, name).iter().map(String::as_str).collect::<Vec<_>>());
    })
}

/// A request for 126 keys with these names, one free key and one held key.
fn request(index: usize, name: Name) -> Vec<String> {
    let keys = (0..126).map(|key| name(index, key)).chain(["free", "held"].map(str::to_owned));
    let words = ["MLOCK.ACQUIRE", "128"].map(str::to_owned).into_iter().chain(keys);
    words.chain([format!("waiter:{index}")]).collect()
}

fn first_holds(server: &mut Server) -> io::Result<bool> {
    holds(server, "held", "waiter:0")
}
