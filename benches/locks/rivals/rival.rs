//! A way to lock: its name, its commands, and its requirements on the server.

use std::io;
use std::rc::Rc;

use support::{Pipeline, Reply};

use super::locker::{ClientConfig, Opening};
use super::names::Names;
use crate::server::Server;

pub struct Rival {
    /// Short, for tables and plots.
    pub name: &'static str,
    /// The commands that its users send, for the report.
    pub how: &'static str,
    /// A command that fails if the server lacks what this rival needs; empty if every server has it.
    pub probe: &'static [&'static str],
    pub scripts: &'static [&'static str],
    pub pair: fn(&mut Pair, &Names),
    /// Whether the last reply of a pair confirms that the lock was freed.
    pub freed: fn(&Reply) -> bool,
    /// None for floors, which are not locks.
    pub open: Option<fn(ClientConfig) -> Opening>,
}

/// One acquire and one release.
#[derive(Default)]
pub struct Pair {
    pub acquire: Pipeline,
    pub release: Pipeline,
}

/// A rival that the server can run, and the digests of its scripts there.
pub type Ready = (&'static Rival, Rc<[String]>);

/// The ways of `rivals` that the server can run, and the names of the others.
pub fn prepare(server: &mut Server, rivals: &[&'static Rival]) -> io::Result<(Vec<Ready>, Vec<&'static str>)> {
    let mut ready = Vec::new();
    let mut missing = Vec::new();
    for rival in rivals {
        match rival.load(server)? {
            Some(scripts) => ready.push((*rival, scripts)),
            None => missing.push(rival.name),
        }
    }
    Ok((ready, missing))
}

impl Rival {
    /// Loads the rival's scripts. None if the server lacks what it needs.
    fn load(&self, server: &mut Server) -> io::Result<Option<Rc<[String]>>> {
        if !self.probe.is_empty() && server.command(self.probe)?.is_error() {
            return Ok(None);
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
