//! Reads the graph from the servers, and records what was omitted.

use redis::{cmd, pipe, Value};
use serde::Serialize;

use super::cycle::Cycle;
use super::model::{Graph, Lock};
use crate::error::Error;
use crate::info;
use crate::reply::{decode, Fields};
use crate::servers::Servers;
use crate::text::Text;
use crate::top::sample::{self as top, Sample};
use crate::waiters::Waiter;

/// The number of locks per batch; between two batches the server serves other clients.
const STEP: usize = 10;

pub struct Reader<'a> {
    servers: &'a mut Servers,
    pub db: u64,
    /// How many holders and waiters to read of each lock.
    count: u16,
    /// The database that each connection has selected, in the order of [`Servers::names`].
    selected: Vec<(String, u64)>,
    unreadable: u64,
    /// The number of unreadable locks whose cluster is down.
    in_cluster_down: u64,
}

#[derive(Serialize)]
pub struct Omitted {
    /// True if more locks than requested may have waiters.
    pub locks: bool,
    /// Locks that the user may not read, or that the server does not show.
    pub unreadable: u64,
    #[serde(skip)]
    in_cluster_down: u64,
    pub holders: u64,
    pub waiters: u64,
}

impl<'a> Reader<'a> {
    pub fn new(servers: &'a mut Servers, db: u64, count: u16) -> Reader<'a> {
        let selected = servers.names().into_iter().map(|name| (name, db)).collect();
        Reader { servers, db, count, selected, unreadable: 0, in_cluster_down: 0 }
    }

    /// True if this is the lock that KEY on the command line names.
    pub fn is(&self, lock: &Lock, key: &Text) -> bool {
        lock.db == self.db && lock.info.key == *key
    }

    /// The locks of LOCK.TOP, in its order. A lock that is gone, or that the user may not read, is omitted: the other
    /// locks may still show the cause.
    pub async fn locks_of(&mut self, sample: &Sample) -> Result<Vec<Lock>, Error> {
        let mut locks = Vec::new();
        for server in self.servers.names() {
            match self.locks_of_server(sample, &server).await {
                Ok(read) => locks.extend(read),
                Err(error) => self.servers.leave_out(&server, error)?,
            }
        }
        locks.sort_by_key(|(index, _)| *index);
        Ok(locks.into_iter().map(|(_, lock)| lock).collect())
    }

    /// The locks of one server, each with its index in the sample.
    async fn locks_of_server(&mut self, sample: &Sample, server: &str) -> Result<Vec<(usize, Lock)>, Error> {
        let mut locks = Vec::new();
        let of_server = sample.locks.iter().enumerate().filter(|(_, lock)| lock.server == server);
        let mut wanted: Vec<(usize, &top::Lock)> = of_server.collect();
        wanted.sort_by_key(|(_, lock)| lock.db);
        for of_db in wanted.chunk_by(|(_, a), (_, b)| a.db == b.db) {
            for step in of_db.chunks(STEP) {
                let keys: Vec<&Text> = step.iter().map(|(_, lock)| &lock.key).collect();
                let Some((_, top::Lock { db, .. })) = step.first() else { continue };
                let read = self.read(server, *db, &keys).await?;
                for ((index, _), lock) in step.iter().zip(read) {
                    match lock {
                        Ok(lock) => locks.extend(lock.map(|lock| (*index, lock))),
                        Err(Error::NoPermission(_)) => self.unreadable += 1,
                        // The key holds another data type by now.
                        Err(Error::WrongType(_)) => {}
                        Err(error) if self.is_of_another_node(&error) => {}
                        Err(Error::Server(message)) if message.starts_with("CLUSTERDOWN ") => {
                            self.unreadable += 1;
                            self.in_cluster_down += 1;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(locks)
    }

    /// The lock under one key of the selected database, from the node that serves the key.
    pub async fn lock(&mut self, key: &Text) -> Result<Option<Lock>, Error> {
        for server in self.servers.names() {
            let mut read = match self.read(&server, self.db, &[key]).await {
                Ok(read) => read,
                Err(error) => {
                    self.servers.leave_out(&server, error)?;
                    continue;
                }
            };
            match read.pop() {
                Some(Err(error)) if self.is_of_another_node(&error) => {}
                Some(Err(Error::WrongType(message))) => {
                    // This connection has already selected the database.
                    let found = self.servers.query_at(&server, cmd("TYPE").arg(&key.0)).await?;
                    let found = decode::<String>(found).unwrap_or(message);
                    return Err(Error::no_lock(key, &found));
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(lock)) => return Ok(lock),
                None => {}
            }
        }
        Ok(None)
    }

    /// Locks are read one after the other, so an owner may appear as the holder of one lock and, later, as a waiter for
    /// a lock that it acquired in between. A cycle is real if two readings both show all of its holds and waits,
    /// because then all of them existed at once between the readings.
    pub async fn confirmed(&mut self, cycles: Vec<Cycle>) -> Vec<Cycle> {
        let mut confirmed = Vec::new();
        for cycle in cycles {
            let mut is_there = true;
            for (step, holder) in cycle.steps() {
                // A server that has since become unreachable confirms nothing.
                let again = self.read(&step.server, step.db, &[&step.key]).await.ok().and_then(|mut read| read.pop());
                is_there &= again.and_then(Result::ok).flatten().is_some_and(|lock| {
                    let holds = |hold: &info::Holder| hold.owner == *holder && hold.fence == step.fence;
                    let waits = |waiter: &Waiter| waiter.owner == step.owner && waiter.waited >= step.waited;
                    lock.info.holders.iter().any(holds) && lock.queue.iter().any(waits)
                });
            }
            confirmed.extend(Some(cycle).filter(|_| is_there));
        }
        confirmed
    }

    pub fn left_out(&self, sample: &Sample, locks: u16, graph: &Graph) -> Omitted {
        Omitted {
            locks: sample.locks.len() >= locks.into(),
            unreadable: self.unreadable,
            in_cluster_down: self.in_cluster_down,
            holders: graph.shown().map(Lock::unread_holders).sum(),
            waiters: graph.shown().map(Lock::unread_waiters).sum(),
        }
    }

    /// The locks of one database, each with its own error; None for a key without a lock.
    async fn read(&mut self, server: &str, db: u64, keys: &[&Text]) -> Result<Vec<Result<Option<Lock>, Error>>, Error> {
        match self.select(server, db).await {
            Ok(()) => {}
            Err(Error::NoPermission(message)) => {
                return Ok(keys.iter().map(|_| Err(Error::NoPermission(message.clone()))).collect());
            }
            Err(error) => return Err(error),
        }
        let mut commands = pipe();
        for key in keys {
            commands.cmd("LOCK.INFO").arg(&key.0).arg("COUNT").arg(self.count);
            commands.cmd("LOCK.WAITERS").arg(&key.0).arg("COUNT").arg(self.count);
        }
        let mut replies = self.servers.pipeline_at(server, &commands).await?.into_iter();
        let mut locks = Vec::new();
        for key in keys {
            let (Some(info), Some(queue)) = (replies.next(), replies.next()) else {
                return Err(Error::Reply("fewer replies than commands".into()));
            };
            let decode = |info: Value, queue| match info {
                Value::Nil => Ok(None),
                info => Ok(Some(Lock {
                    server: server.to_string(),
                    db,
                    info: info::Lock::decode((*key).clone(), Fields::of(info)?)?,
                    queue: Fields::all_of(queue)?.into_iter().map(Waiter::decode).collect::<Result<_, _>>()?,
                })),
            };
            locks.push(info.and_then(|info| decode(info, queue?)));
        }
        Ok(locks)
    }

    async fn select(&mut self, server: &str, db: u64) -> Result<(), Error> {
        let selected = self.selected.iter_mut().find(|(name, _)| name == server).map(|(_, selected)| selected);
        if let Some(selected) = selected.filter(|selected| **selected != db) {
            self.servers.query_at(server, cmd("SELECT").arg(db)).await?;
            *selected = db;
        }
        Ok(())
    }

    /// True if another node of the cluster serves the key, or the key is moving there.
    fn is_of_another_node(&self, error: &Error) -> bool {
        let is_redirect = |message: &str| message.starts_with("MOVED ") || message.starts_with("ASK ");
        self.servers.are_all() && matches!(error, Error::Server(message) if is_redirect(message))
    }
}

impl Omitted {
    /// Sentences for people; empty if nothing was omitted.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let unread = [(self.holders, "holders"), (self.waiters, "waiters")];
        let unread: Vec<String> =
            unread.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if !unread.is_empty() {
            lines.push(format!("not shown, nor what else they hold: {} (--waiters N)", unread.join(" and ")));
        }
        if self.locks {
            lines.push("not shown: locks with fewer waiters (--locks N)".to_string());
        }
        let forbidden = self.unreadable - self.in_cluster_down;
        if forbidden > 0 {
            lines.push(format!("not shown for lack of permission: {forbidden} locks"));
        }
        if self.in_cluster_down > 0 {
            lines.push(format!("not shown while the cluster is down: {} locks (top shows them)", self.in_cluster_down));
        }
        lines
    }
}
