//! One client that acquires and releases one lock, over connections that block their thread or share it.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use support::{Connection, Reply};

use super::names::Names;

pub type Step<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + 'a>>;

/// A client that is still connecting.
pub type Opening = Step<'static, Box<dyn Locker>>;

pub trait Locker {
    /// Resolves when the lock is held.
    fn acquire(&mut self) -> Step<'_, ()>;
    /// Releases the lock. An error if it was no longer held.
    fn release(&mut self) -> Step<'_, ()>;
}

/// The server and the names that one client uses.
pub struct ClientConfig {
    pub port: u16,
    pub names: Names,
    pub threading: Threading,
    /// Counts the commands sent on all connections.
    pub sent: Rc<Cell<u64>>,
}

/// The thread on which a client waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threading {
    /// A dedicated thread, which blocks.
    Own,
    /// A thread shared with other clients.
    Shared,
}

impl ClientConfig {
    pub async fn connect(&self) -> io::Result<Connection> {
        let mut client = match self.threading {
            Threading::Own => Connection::connect(self.port)?,
            Threading::Shared => Connection::connect_shared(self.port).await?,
        };
        client.sent = self.sent.clone();
        Ok(client)
    }
}

/// The error of a release when the lock is no longer held.
pub fn lost(what: &str, reply: &Reply) -> io::Error {
    io::Error::other(format!("{what} lost its lock: {reply:?}"))
}
