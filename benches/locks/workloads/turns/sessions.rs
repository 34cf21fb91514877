//! Thousands of locks that are bound to one connection.

use std::io;
use std::time::Duration;

use support::{Connection, Reply};

use super::setup::{each, spent, watch};
use crate::server::Server;
use crate::watch::Held;

pub fn session(server: &Server, n: usize, lease_ms: &str) -> io::Result<Connection> {
    each(server, n, |pipeline, index| {
        pipeline.push(&["LOCK.ACQUIRE", &format!("own:{index}"), "session", "PX", lease_ms, "SESSION"]);
    })
}

/// [`watch`] of a connection that ends.
pub fn watch_end(
    server: &mut Server,
    session: Connection,
    is_over: impl FnMut(&mut Server) -> io::Result<bool>,
) -> io::Result<Held> {
    let end = |_: &mut Server| {
        drop(session);
        Ok(())
    };
    watch(server, end, is_over)
}

pub fn session_ends(server: &mut Server, n: usize) -> io::Result<Held> {
    let session = session(server, n, "600000")?;
    let is_over = |server: &mut Server| Ok(server.must(&["DBSIZE"])? == Reply::Int(0));
    watch_end(server, session, is_over)
}

/// CPU time in each 10 ms of a pause in which the holds should be renewed.
pub fn paused(server: &mut Server, n: usize) -> io::Result<Held> {
    const TIME: Duration = Duration::from_millis(300);
    let _session = session(server, n, "2100")?;
    server.must(&["CLIENT", "PAUSE", "2000", "WRITE"])?;
    // A third of the lease.
    std::thread::sleep(Duration::from_millis(900));
    spent(server, |_| {
        std::thread::sleep(TIME);
        Ok(TIME.as_secs_f64() * 100.0)
    })
}

/// A pause in which all holds came due ends, and they are renewed.
pub fn pause_ends(server: &mut Server, n: usize) -> io::Result<Held> {
    const LEASE_MS: i64 = 3000;
    let _session = session(server, n, &LEASE_MS.to_string())?;
    server.must(&["CLIENT", "PAUSE", "60000", "WRITE"])?;
    // Past a third of the lease.
    std::thread::sleep(Duration::from_millis(1200));
    let is_renewed = |server: &mut Server, index: usize| -> io::Result<bool> {
        let left = server.must(&["PTTL", &format!("own:{index}")])?;
        Ok(matches!(left, Reply::Int(ms) if ms > LEASE_MS - 900))
    };
    let is_over = |server: &mut Server| Ok(is_renewed(server, 0)? && is_renewed(server, n - 1)?);
    watch(server, |server| server.must(&["CLIENT", "UNPAUSE"]).map(drop), is_over)
}
