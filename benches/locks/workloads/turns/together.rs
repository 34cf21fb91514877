//! All at once: what is due at one instant, and what clients send just then.

use std::io;
use std::time::Duration;

use support::{Connection, Reply};

use super::admission::{end_together, last_reads, now_ms, raise, wait_for_limit, wait_to_read, RELEASE_WRITER};
use super::search::{search, semaphore};
use super::sessions::session;
use super::setup::{all_handed_over, holds, waited_for, watch, FIRST};
use crate::server::Server;
use crate::watch::Held;

/// n leases end in one millisecond; in the same the end of a session with n locks, a flush of n waited-for keys, a
/// release that admits n readers, a limit that admits n, and a search among n holders and n waiters of a semaphore.
pub fn everything(server: &mut Server, n: usize) -> io::Result<Held> {
    let _leases = waited_for(server, FIRST, n)?;
    let _flushed = waited_for(server, "1", n)?;
    let session = session(server, n, "600000")?;
    let _readers = wait_to_read(server, n)?;
    let _limited = wait_for_limit(server, n)?;
    let _semaphore = semaphore(server, n)?;
    let mut flusher = Connection::connect(server.port())?;
    flusher.command(&["SELECT", "1"])?;
    let until = end_together(server, n)?;
    let events = |server: &mut Server| {
        while now_ms(server)? < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(session);
        flusher.command(&["FLUSHDB"])?;
        server.must(&RELEASE_WRITER)?;
        raise(server, n)?;
        let search = search(n);
        server.must(&search.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
    };
    watch(server, events, |server| {
        Ok(all_handed_over(server, n)?
            && last_reads(server, n)?
            && holds(server, "narrow", "newest")?
            && server.must(&["EXISTS", &format!("own:{}", n - 1)])? == Reply::Int(0))
    })
}
