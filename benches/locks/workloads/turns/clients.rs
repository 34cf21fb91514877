//! Clients blocked by the module, and by BLPOP.

use std::io;
use std::time::{Duration, Instant};

use async_io::block_on;
use support::Connection;

use super::sessions::{session, watch_end};
use super::setup::{block_on_list, block_on_lock, each, hold, no_client_is_blocked, settle, watch};
use crate::server::Server;
use crate::watch::{Held, Watch};

/// Long enough for thousands of clients to go away meanwhile.
const SLEEP: Duration = Duration::from_millis(400);

pub fn close(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "lock", "holder", "PX", "600000"])?;
    let clients = block_on_lock(server, n, |_| "lock".to_owned())?;
    close_all(server, clients)
}

pub fn close_blpop(server: &mut Server, n: usize) -> io::Result<Held> {
    let clients = block_on_list(server, n, |_| "list".to_owned())?;
    close_all(server, clients)
}

/// All of them while the server sleeps, so that it learns of all of them in one turn.
fn close_all(server: &mut Server, clients: Vec<Connection>) -> io::Result<Held> {
    let mut sleeper = Connection::connect(server.port())?;
    let watch = Watch::start(server)?;
    let start = Instant::now();
    block_on(sleeper.send(&["DEBUG", "SLEEP", &SLEEP.as_secs_f64().to_string()]))?;
    std::thread::sleep(Duration::from_millis(20));
    drop(clients);
    if start.elapsed() > SLEEP {
        return Err(io::Error::other("the clients took longer to close than the server slept"));
    }
    settle(server, no_client_is_blocked)?;
    let mut held = watch.longest()?;
    held.clock = held.clock.saturating_sub(SLEEP);
    Ok(held)
}

pub fn overwrite(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "lock", "holder", "PX", "600000"])?;
    let _clients = block_on_lock(server, n, |_| "lock".to_owned())?;
    watch(server, |server| server.must(&["SET", "lock", "value"]).map(drop), no_client_is_blocked)
}

/// One RPUSH that serves all of them.
pub fn push_one_list(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = block_on_list(server, n, |_| "list".to_owned())?;
    let values = vec!["value"; n];
    let push = [&["RPUSH", "list"], &values[..]].concat();
    watch(server, |server| server.must(&push).map(drop), no_client_is_blocked)
}

pub fn flush(server: &mut Server, n: usize) -> io::Result<Held> {
    let _holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))?;
    let _clients = block_on_lock(server, n, |index| index.to_string())?;
    watch(server, |server| server.must(&["FLUSHALL"]).map(drop), no_client_is_blocked)
}

pub fn waited_session_ends(server: &mut Server, n: usize) -> io::Result<Held> {
    let session = session(server, n, "600000")?;
    let _clients = block_on_lock(server, n, |index| format!("own:{index}"))?;
    watch_end(server, session, no_client_is_blocked)
}

/// One script that serves each at a list of its own.
pub fn push_many_lists(server: &mut Server, n: usize) -> io::Result<Held> {
    const PUSH: &str = "for i = 0, ARGV[1] - 1 do redis.call('RPUSH', 'list:' .. i, 'value') end";
    let _clients = block_on_list(server, n, |index| format!("list:{index}"))?;
    watch(server, |server| server.must(&["EVAL", PUSH, "0", &n.to_string()]).map(drop), no_client_is_blocked)
}
