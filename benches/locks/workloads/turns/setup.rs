//! What the cases of long turns are made of: holders, waiters, blocked clients, and the watch over an event.

use std::io;
use std::time::{Duration, Instant};

use async_io::block_on;
use support::{Connection, Pipeline, Reply};

use crate::server::Server;
use crate::watch::{Held, Watch};

const GRACE: Duration = Duration::from_secs(60);

/// Commands for each index, in pipelines on a connection of their own, which is returned: sessions and requests with
/// NOTIFY live as long as it does.
pub fn each(server: &Server, count: usize, push: impl Fn(&mut Pipeline, usize)) -> io::Result<Connection> {
    each_on(Connection::connect(server.port())?, count, push)
}

/// The same on this connection.
pub fn each_on(mut client: Connection, count: usize, push: impl Fn(&mut Pipeline, usize)) -> io::Result<Connection> {
    const SLICE: usize = 500;
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

/// What makes a request wait without blocking its connection.
pub const NOTIFIED: [&str; 6] = ["PX", "600000", "BLOCK", "600000", "NOTIFY", "outcomes"];

pub fn queue(pipeline: &mut Pipeline, request: &[&str]) {
    pipeline.push(&[request, &NOTIFIED].concat());
}

/// A connection for each index, blocked by its command.
pub fn block(server: &mut Server, count: usize, command: impl Fn(usize) -> Vec<String>) -> io::Result<Vec<Connection>> {
    let mut blocked = Vec::new();
    block_on(async {
        for index in 0..count {
            let mut client = Connection::connect_shared(server.port()).await?;
            let words = command(index);
            client.send(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            blocked.push(client);
        }
        io::Result::Ok(())
    })?;
    let all = count as f64;
    settle(server, |server| Ok(server.info_number("clients", "blocked_clients")? == all))?;
    Ok(blocked)
}

pub fn block_on_lock(server: &mut Server, count: usize, key: impl Fn(usize) -> String) -> io::Result<Vec<Connection>> {
    block(server, count, |index| {
        let owner = format!("waiter:{index}");
        ["LOCK.ACQUIRE", &key(index), &owner, "PX", "600000", "BLOCK", "0"].map(str::to_owned).to_vec()
    })
}

pub fn block_on_list(server: &mut Server, count: usize, key: impl Fn(usize) -> String) -> io::Result<Vec<Connection>> {
    block(server, count, |index| ["BLPOP", &key(index), "0"].map(str::to_owned).to_vec())
}

/// The longest turn from just before `event` until `is_over`.
pub fn watch(
    server: &mut Server,
    event: impl FnOnce(&mut Server) -> io::Result<()>,
    is_over: impl FnMut(&mut Server) -> io::Result<bool>,
) -> io::Result<Held> {
    let watch = Watch::start(server)?;
    event(server)?;
    settle(server, is_over)?;
    watch.longest()
}

/// [`watch`] of one command, which does all in its own turn.
pub fn watch_command(server: &mut Server, command: &[&str]) -> io::Result<Held> {
    watch(server, |server| server.must(command).map(drop), |_| Ok(true))
}

/// Waits until it is over, and the turns that follow from it are too.
pub fn settle(server: &mut Server, mut is_over: impl FnMut(&mut Server) -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !is_over(server)? {
        if start.elapsed() > GRACE {
            return Err(io::Error::other("it is not over after a minute"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(5));
    Ok(())
}

pub fn holds(server: &mut Server, key: &str, owner: &str) -> io::Result<bool> {
    Ok(matches!(server.must(&["LOCK.HELD", key, owner])?, Reply::Array(_)))
}

pub fn no_client_is_blocked(server: &mut Server) -> io::Result<bool> {
    Ok(server.info_number("clients", "blocked_clients")? == 0.0)
}

/// CPU time of the server and time of the clock, of each unit: `work` returns how many it did.
pub fn spent(server: &mut Server, work: impl FnOnce(&mut Server) -> io::Result<f64>) -> io::Result<Held> {
    let (before, start) = (server.cpu_us()?, Instant::now());
    let units = work(server)?;
    let us = server.cpu_us()? - before;
    Ok(Held { cpu: Some(Duration::from_secs_f64(us / 1e6 / units)), clock: start.elapsed().div_f64(units) })
}

/// The default database.
pub const FIRST: &str = "0";

/// As many locks, each held and waited for, in a database of the server.
pub fn waited_for(server: &Server, database: &str, n: usize) -> io::Result<(Connection, Connection)> {
    let connect = || -> io::Result<Connection> {
        let mut client = Connection::connect(server.port())?;
        client.command(&["SELECT", database])?;
        Ok(client)
    };
    let holders = each_on(connect()?, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))?;
    let waiters = each_on(connect()?, n, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), &format!("waiter:{index}")]);
    })?;
    Ok((holders, waiters))
}

/// Whether the first and the last of these locks are with their waiters, in the first database.
pub fn all_handed_over(server: &mut Server, n: usize) -> io::Result<bool> {
    let last = n - 1;
    Ok(holds(server, &last.to_string(), &format!("waiter:{last}"))? && holds(server, "0", "waiter:0")?)
}
