//! Commands that show what there is.

use std::io;

use super::search::semaphore;
use super::setup::watch_command;
use crate::server::Server;
use crate::watch::Held;

pub fn info(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = semaphore(server, n)?;
    watch_command(server, &["LOCK.INFO", "sem"])
}

pub fn waiters(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = semaphore(server, n)?;
    watch_command(server, &["LOCK.WAITERS", "sem"])
}
