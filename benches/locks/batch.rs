//! A pipeline of uncontended pairs, ready to send, and its cost to the server.

use std::io;
use std::rc::Rc;

use support::{Connection, Pipeline, Reply};

use crate::rivals::{Names, Pair, Rival};
use crate::server::Server;

/// Locks in one batch, with an acquire and a release each.
pub const KEYS: usize = 1000;

/// Batches between two CPU readings: enough that the cost of the reading is negligible, few enough that the compared
/// ways run within the same few milliseconds.
const BATCHES: usize = 4;

/// First every acquire, then every release.
pub struct Batch {
    pipeline: Pipeline,
    /// The index of the first reply to a release.
    releases: usize,
    replies_per_release: usize,
    freed: fn(&Reply) -> bool,
    name: &'static str,
}

impl Batch {
    pub fn of(rival: &Rival, scripts: &Rc<[String]>) -> Batch {
        let mut pair = Pair::default();
        for index in 0..KEYS {
            (rival.pair)(&mut pair, &Names::numbered(index, scripts));
        }
        let mut pipeline = pair.acquire;
        let releases = pipeline.commands;
        pipeline.append(&pair.release);
        Batch {
            pipeline,
            releases,
            replies_per_release: pair.release.commands / KEYS,
            freed: rival.freed,
            name: rival.name,
        }
    }

    /// CPU time of the server for one pair, in µs, measured over a few batches. Every reply is checked.
    pub fn cpu_us_per_pair(&self, server: &mut Server, client: &mut Connection) -> io::Result<f64> {
        let before = server.cpu_us()?;
        for _ in 0..BATCHES {
            self.run(client)?;
        }
        let spent = server.cpu_us()? - before;
        await_free(server)?;
        Ok(spent / (BATCHES * KEYS) as f64)
    }

    /// Runs every pair once. Every reply is checked.
    pub fn run(&self, client: &mut Connection) -> io::Result<()> {
        let mut wrong = None;
        client.pipeline(&self.pipeline, |index, reply| {
            let last_of_release = index >= self.releases && (index - self.releases + 1) % self.replies_per_release == 0;
            let fine = !reply.is_error() && (!last_of_release || (self.freed)(&reply));
            if !fine {
                wrong.get_or_insert((index, reply));
            }
        })?;
        match wrong {
            None => Ok(()),
            Some((index, reply)) => Err(io::Error::other(format!("{}: reply {index} is {reply:?}", self.name))),
        }
    }
}

/// Waits until the last lock of a batch has expired, for ways that can only shorten the lease.
fn await_free(server: &mut Server) -> io::Result<()> {
    let last = Names::numbered(KEYS - 1, &Vec::new().into()).key;
    while server.must(&["EXISTS", &last])? != Reply::Int(0) {}
    Ok(())
}
