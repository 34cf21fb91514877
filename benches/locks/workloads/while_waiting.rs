//! What one waiter costs other clients, while it waits and afterwards.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use support::{Connection, Pipeline, Reply};

use crate::rivals::{self, Names, Pair, Rival};
use crate::server::Server;

/// A command or a pair for each index.
pub struct Task {
    pub name: &'static str,
    pub push: fn(&mut Pipeline, usize),
    /// Commands that prepare the keys.
    pub prepare: fn(&mut Pipeline, usize),
}

const TASK: Task = Task { name: "", push: |_, _| {}, prepare: |_, _| {} };

/// Other applications' keys, and other locks.
pub const TASKS: [Task; 5] = [
    Task { name: "PING", push: |pipeline, _| pipeline.push(&["PING"]), ..TASK },
    Task {
        name: "GET",
        push: |pipeline, index| pipeline.push(&["GET", &format!("read:{index}")]),
        prepare: |pipeline, index| pipeline.push(&["SET", &format!("read:{index}"), "value"]),
    },
    Task {
        name: "SET … EX",
        push: |pipeline, index| pipeline.push(&["SET", &format!("session:{index}"), "value", "EX", "3600"]),
        ..TASK
    },
    Task {
        name: "SET NX PX, DEL",
        push: |pipeline, index| push_pair(pipeline, &rivals::SET_DEL, index, &Vec::new().into()),
        ..TASK
    },
    Task {
        name: "LOCK",
        push: |pipeline, index| push_pair(pipeline, &rivals::LOCK, index, &Vec::new().into()),
        ..TASK
    },
];

/// One acquire and its release.
pub fn push_pair(pipeline: &mut Pipeline, rival: &Rival, index: usize, scripts: &Rc<[String]>) {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(index, scripts));
    pipeline.append(&pair.acquire);
    pipeline.append(&pair.release);
}

/// A lock that is held indefinitely, for a client to wait for. It exists before the first waiter, because the server
/// skips lookups in an empty database, and expiry lookups if no key has a time to live.
pub fn hold(server: &mut Server) -> io::Result<()> {
    server.must(&["SET", "expiring", "value", "EX", "86400"])?;
    server.must(&["CONFIG", "SET", "lock.keep-place", "0"])?;
    server.must(&["LOCK.ACQUIRE", "waited-for", "holder", "PERSIST"]).map(drop)
}

/// A client that waits for that lock.
pub struct Waiter {
    connection: Connection,
}

impl Waiter {
    pub fn start(server: &mut Server) -> io::Result<Waiter> {
        let mut connection = Connection::connect(server.port())?;
        futures_lite::future::block_on(connection.send(&["LOCK.ACQUIRE", "waited-for", "waiter", "BLOCK", "0"]))?;
        while server.info_number("clients", "blocked_clients")? < 1.0 {}
        Ok(Waiter { connection })
    }

    /// Closes its connection, after which the module no longer filters commands.
    pub fn leave(self, server: &mut Server) -> io::Result<()> {
        drop(self.connection);
        while server.info_number("clients", "blocked_clients")? > 0.0 {}
        let is_watched =
            |reply: &Reply| matches!(reply, Reply::Bulk(text) if String::from_utf8_lossy(text).contains("filters=1"));
        while is_watched(&server.must(&["INFO", "modules"])?) {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
