//! Building blocks for the cases of long iterations: holders, waiters, and the watch during an event.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use support::{Connection, Pipeline, Reply};

use crate::server::Server;
use crate::watch::{Longest, Watch};

const GRACE: Duration = Duration::from_secs(60);

/// Sends commands for each index, in pipelines on a separate connection, and returns it: sessions and requests with
/// NOTIFY last as long as it does.
pub fn each(server: &Server, count: usize, push: impl Fn(&mut Pipeline, usize)) -> io::Result<Connection> {
    const SLICE: usize = 500;
    let mut client = Connection::connect(server.port())?;
    for from in (0..count).step_by(SLICE) {
        let mut pipeline = Pipeline::default();
        (from..count.min(from + SLICE)).for_each(|index| push(&mut pipeline, index));
        client.run(&pipeline)?;
    }
    Ok(client)
}

pub fn hold(pipeline: &mut Pipeline, key: &str, owner: &str) {
    pipeline.push(&["LOCK.ACQUIRE", key, owner, "PX", "600000"]);
}

/// Options that make a request wait without blocking its connection.
pub const NOTIFIED: [&str; 6] = ["PX", "600000", "BLOCK", "600000", "NOTIFY", "outcomes"];

pub fn queue(pipeline: &mut Pipeline, request: &[&str]) {
    pipeline.push(&[request, &NOTIFIED].concat());
}

/// The longest iteration and hand-off from just before `event` until `is_over`.
pub fn watch(
    server: &mut Server,
    event: impl FnOnce(&mut Server) -> io::Result<()>,
    is_over: impl FnMut(&mut Server) -> io::Result<bool>,
) -> io::Result<Longest> {
    let watch = Watch::start(server)?;
    event(server)?;
    await_end(server, is_over)?;
    watch.longest()
}

/// [`watch`] of one command that does all its work before its reply.
pub fn watch_command(server: &mut Server, command: &[&str]) -> io::Result<Longest> {
    watch(server, |server| server.must(command).map(drop), |_| Ok(true))
}

/// [`watch`] of the end of a connection with requests.
pub fn watch_end(server: &mut Server, waiters: Connection) -> io::Result<Longest> {
    let end = |_: &mut Server| {
        drop(waiters);
        Ok(())
    };
    watch(server, end, none_waits)
}

/// Waits until the event has ended, and the work that it causes.
fn await_end(server: &mut Server, mut is_over: impl FnMut(&mut Server) -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !is_over(server)? {
        if start.elapsed() > GRACE {
            return Err(io::Error::other("it is not over after a minute"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(5));
    Ok(())
}

pub fn holds(server: &mut Server, key: &str, owner: &str) -> io::Result<bool> {
    Ok(matches!(server.must(&["LOCK.HELD", key, owner])?, Reply::Array(_)))
}

/// Whether no request but the watch's waits, and no position is reserved.
pub fn none_waits(server: &mut Server) -> io::Result<bool> {
    let lock = server.info("lock")?;
    Ok(lock.number("lock_waiters") <= 1 && lock.number("lock_kept_places") == 0)
}

/// The server's clock, in ms since the epoch.
pub fn now_ms(server: &mut Server) -> io::Result<u64> {
    let Reply::Array(time) = server.must(&["TIME"])? else { return Err(io::Error::other("TIME is not an array")) };
    let number = |index: usize| time.get(index).and_then(|reply| reply.text().parse::<u64>().ok()).unwrap_or_default();
    Ok(number(0) * 1000 + number(1) / 1000)
}

/// Sleeps until shortly before this time, because a sleep may take longer than requested.
pub fn sleep_until(server: &mut Server, end_ms: u64) -> io::Result<()> {
    const BEFORE_MS: u64 = 200;
    match end_ms.checked_sub(now_ms(server)? + BEFORE_MS) {
        Some(ms) => thread::sleep(Duration::from_millis(ms)),
        None => return Err(io::Error::other("the leases or waits had ended before all were set")),
    }
    Ok(())
}
