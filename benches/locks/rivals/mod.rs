//! The ways people lock with Redis, each as its users run it: the same commands in the same order with the same
//! sleeps. Where a rival has a choice, it gets the one that is kinder to it (scripts by EVALSHA, loaded before).
//!
//! A rival comes in two forms. A pair is the bytes of one uncontended acquire and release, for pipelines. A locker is
//! one client that takes and gives back one lock among many.

mod compare_delete;
mod counter;
mod floor;
mod lua_hash;
mod lua_mutex;
mod module;
mod python_redis_lock;
mod redis_py;
mod redisson;
mod redisson_fair;
mod set_lua;
mod setnx_watch;
mod two_keys;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use crate::client::Client;
use crate::resp::{Pipeline, Reply};
use crate::server::Server;

/// The lease of every lock in a workload that does not mean it to end, in ms.
pub const LEASE_MS: u32 = 30_000;

pub type Step<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + 'a>>;

/// A client that is still connecting.
pub type Opening = Step<'static, Box<dyn Locker>>;

/// One client of a lock.
pub trait Locker {
    /// Resolves when the lock is held.
    fn acquire(&mut self) -> Step<'_, ()>;
    /// Gives the lock back. An error if it was not held any more.
    fn release(&mut self) -> Step<'_, ()>;
}

/// Whom a free lock goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Whoever asked first.
    Queue,
    /// Whoever happens to ask at the right moment.
    Luck,
}

pub struct Rival {
    /// Short, for tables and plots.
    pub name: &'static str,
    /// What its users send, for the reader of the report.
    pub how: &'static str,
    pub order: Order,
    /// A command that errs where the server lacks what this rival needs; empty where every server has it.
    pub probe: &'static [&'static str],
    pub scripts: &'static [&'static str],
    pub pair: fn(&mut Pair, &Names),
    /// Whether the last reply of a pair says that the lock was freed.
    pub freed: fn(&Reply) -> bool,
    /// None for floors, which are no locks.
    pub open: Option<fn(ClientConfig) -> Opening>,
}

/// One acquire and one release.
#[derive(Default)]
pub struct Pair {
    pub acquire: Pipeline,
    pub release: Pipeline,
}

/// What a rival is given to name its things with.
pub struct Names {
    pub key: String,
    /// 36 characters, as a UUID has.
    pub token: String,
    pub lease_ms: String,
    /// The same in seconds, for those that can only count in them.
    pub lease_seconds: String,
    /// Digests of the rival's scripts, in its order.
    pub scripts: Rc<[String]>,
}

/// Where one client sits.
pub struct ClientConfig {
    pub port: u16,
    pub names: Names,
    /// Shares its thread with other clients.
    pub shared: bool,
    /// Counts the commands that are sent, on all connections.
    pub sent: Rc<Cell<u64>>,
}

impl ClientConfig {
    pub async fn connect(&self) -> io::Result<Client> {
        let mut client =
            if self.shared { Client::connect_shared(self.port).await? } else { Client::connect(self.port)? };
        client.sent = self.sent.clone();
        Ok(client)
    }
}

impl Rival {
    /// Loads the rival's scripts. None where the server lacks what it needs.
    pub fn prepare(&self, server: &mut Server) -> io::Result<Option<Rc<[String]>>> {
        if !self.probe.is_empty() {
            if let Reply::Error(_) = server.command(self.probe)? {
                return Ok(None);
            }
        }
        let mut digests = Vec::new();
        for script in self.scripts {
            match server.must(&["SCRIPT", "LOAD", script])? {
                Reply::Bulk(digest) => digests.push(String::from_utf8_lossy(&digest).into_owned()),
                other => return Err(io::Error::other(format!("SCRIPT LOAD answered {other:?}"))),
            }
        }
        Ok(Some(digests.into()))
    }
}

/// The module's own, by the name of their acquiring command.
pub use module::{LOCK, MLOCK, RLOCK, RWLOCK_READ, RWLOCK_WRITE, SEM};

pub use compare_delete::{DELEX, DELIFEQ, SET_IFEQ};
pub use counter::COUNTER;
pub use floor::{PING, SET_DEL};
pub use lua_hash::LUA_HASH;
pub use lua_mutex::LUA_MUTEX;
pub use python_redis_lock::PYTHON_REDIS_LOCK;
pub use redis_py::REDIS_PY;
pub use redisson::REDISSON;
pub use redisson_fair::REDISSON_FAIR;
pub use set_lua::SET_LUA;
pub use setnx_watch::SETNX_WATCH;
pub use two_keys::TWO_KEYS;

/// Those that a client can wait for, the module's own last.
pub const LOCKS: &[&Rival] = &[
    &SET_LUA,
    &SETNX_WATCH,
    &COUNTER,
    &LUA_MUTEX,
    &LUA_HASH,
    &TWO_KEYS,
    &DELIFEQ,
    &DELEX,
    &SET_IFEQ,
    &REDIS_PY,
    &PYTHON_REDIS_LOCK,
    &REDISSON,
    &REDISSON_FAIR,
    &LOCK,
    &RLOCK,
];

/// Everything that is measured, for the report's list.
pub const ALL: &[&Rival] = &[
    &PING,
    &SET_DEL,
    &SET_LUA,
    &SETNX_WATCH,
    &COUNTER,
    &LUA_MUTEX,
    &LUA_HASH,
    &TWO_KEYS,
    &DELIFEQ,
    &DELEX,
    &SET_IFEQ,
    &REDIS_PY,
    &PYTHON_REDIS_LOCK,
    &REDISSON,
    &REDISSON_FAIR,
    &LOCK,
    &RLOCK,
    &RWLOCK_READ,
    &RWLOCK_WRITE,
    &SEM,
    &MLOCK,
];

/// The error of a release that found its lock gone.
fn lost(what: &str, reply: &Reply) -> io::Error {
    io::Error::other(format!("{what} lost its lock: {reply:?}"))
}
