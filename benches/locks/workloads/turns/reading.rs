//! Commands that show what there is, and the one that takes it away.

use std::io;

use super::search::semaphore;
use super::setup::{waited_for, watch_command, FIRST};
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

pub fn top(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = waited_for(server, FIRST, n)?;
    watch_command(server, &["LOCK.TOP", "COUNT", "1000"])
}

pub fn break_all(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = semaphore(server, n)?;
    watch_command(server, &["LOCK.BREAK", "sem"])
}
