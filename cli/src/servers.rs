//! Connects to all servers, and sends commands to each of them.
//!
//! If one of multiple servers cannot be queried, it is omitted, because during an outage of one shard an operator needs
//! the locks of the others. The omission is never silent: [`Servers::complete`] returns the error that names it.

use std::future::Future;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use redis_lock_client::Client;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::args::ConnectionArgs;
use crate::connection::{in_time, send_within, REPLY_TIMEOUT};
use crate::error::Error;

/// One server, or all primaries of a cluster.
pub struct Servers {
    source: Source,
    connected: Vec<Connected>,
    missing: Vec<Missing>,
    reply_timeout: Duration,
}

struct Connected {
    name: String,
    connection: MultiplexedConnection,
}

/// Where the servers were found, and are found again: the client remembers more nodes of a cluster than the options
/// name.
#[derive(Clone)]
pub struct Source {
    client: Client,
    /// For messages if no server has a name.
    address: String,
    is_cluster: bool,
    is_followed: bool,
}

/// A server that was omitted, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub server: String,
    pub error: String,
    #[serde(skip)]
    pub exit_code: u8,
}

impl Source {
    /// Whether another server may take over from one of these, and can be found then.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// New connections to the servers that currently have keys.
    ///
    /// # Errors
    /// If none of them can be queried.
    pub async fn connect(self) -> Result<Servers, Error> {
        let found = self.client.servers().await.map_err(|error| Error::of_client(&self.address, error))?;
        let connecting = found.into_iter().map(|server| async move {
            let name = server.name();
            let connection = server.connect().await.map_err(|error| Error::of_client(&name, error));
            (name.clone(), connection.map(|connection| Connected { name, connection }))
        });
        let connecting = at_once(connecting).await;
        let mut servers =
            Servers { source: self, connected: Vec::new(), missing: Vec::new(), reply_timeout: REPLY_TIMEOUT };
        servers.connected = servers.successful(connecting)?.into_iter().map(|(_, connected)| connected).collect();
        Ok(servers)
    }
}

impl Servers {
    /// # Errors
    /// If none of them can be queried.
    pub async fn connect(args: &ConnectionArgs) -> Result<Servers, Error> {
        let is_followed = args.cluster || args.master.is_some();
        let source = Source { client: args.client()?, address: args.server(), is_cluster: args.cluster, is_followed };
        source.connect().await
    }

    pub fn source(&self) -> Source {
        self.source.clone()
    }

    /// False if a single server is queried, which may be one node of a cluster.
    pub fn are_all(&self) -> bool {
        self.source.is_cluster
    }

    /// Their addresses, without the omitted servers.
    pub fn names(&self) -> Vec<String> {
        self.connected.iter().map(|one| one.name.clone()).collect()
    }

    /// The servers omitted so far.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// # Errors
    /// If a server was omitted.
    pub fn complete(self) -> Result<(), Error> {
        if self.missing.is_empty() {
            Ok(())
        } else {
            Err(Error::Omitted(self.missing))
        }
    }

    /// How long each of multiple servers may be silent before it is omitted.
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        if self.connected.len() > 1 {
            self.reply_timeout = timeout;
        }
    }

    /// Omits this server from now on.
    ///
    /// # Errors
    /// The error, if no other server is left.
    pub fn leave_out(&mut self, server: &str, error: Error) -> Result<(), Error> {
        if self.connected.iter().all(|one| one.name == server) {
            return Err(error);
        }
        self.connected.retain(|one| one.name != server);
        self.missing.push(Missing::of(server.to_string(), error));
        Ok(())
    }

    /// Sends a command to all servers concurrently, and returns each reply with its server, in the order of the
    /// servers.
    ///
    /// # Errors
    /// If no server replies.
    pub async fn query_all(&mut self, command: &Cmd) -> Result<Vec<(String, Value)>, Error> {
        let reply_timeout = self.reply_timeout;
        let asking = self.connected.iter().map(|one| {
            let (name, connection, command) = (one.name.clone(), one.connection.clone(), command.clone());
            async move {
                let reply = send_within(reply_timeout, connection, command).await;
                let reply = reply.map_err(|error| Error::of_command(&name, error));
                (name, reply)
            }
        });
        let replies = at_once(asking).await;
        self.successful(replies)
    }

    /// Sends a command to one of the [`Servers::names`].
    pub async fn query_at(&self, name: &str, command: &Cmd) -> Result<Value, Error> {
        let reply = send_within(self.reply_timeout, self.at(name)?, command.clone()).await;
        reply.map_err(|error| Error::of_command(name, error))
    }

    /// Sends commands to one of the [`Servers::names`] in one packet. Each gets its own reply or error.
    pub async fn pipeline_at(&self, name: &str, commands: &Pipeline) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut connection = self.at(name)?;
        let packet = connection.send_packed_commands(commands, 0, commands.len());
        let replies = in_time(self.reply_timeout, packet).await.map_err(|error| Error::of_command(name, error))?;
        let reply = |reply: Value| reply.extract_error().map_err(|error| Error::of_command(name, error));
        Ok(replies.into_iter().map(reply).collect())
    }

    fn at(&self, name: &str) -> Result<MultiplexedConnection, Error> {
        let found = self.connected.iter().find(|one| one.name == name);
        found.map(|one| one.connection.clone()).ok_or_else(|| Error::Reply(format!("no server {name}")))
    }

    /// The replies of the servers; those that returned an error are omitted.
    ///
    /// # Errors
    /// The first one, if all of them are errors.
    fn successful<T>(&mut self, replies: Vec<(String, Result<T, Error>)>) -> Result<Vec<(String, T)>, Error> {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (server, reply) in replies {
            match reply {
                Ok(reply) => successful.push((server, reply)),
                Err(error) => failed.push((server, error)),
            }
        }
        if successful.is_empty() {
            failed.truncate(1);
            return failed.pop().map_or(Ok(successful), |(_, error)| Err(error));
        }
        self.connected.retain(|one| failed.iter().all(|(server, _)| *server != one.name));
        self.missing.extend(failed.into_iter().map(|(server, error)| Missing::of(server, error)));
        Ok(successful)
    }
}

impl Missing {
    fn of(server: String, error: Error) -> Missing {
        Missing { server, exit_code: error.exit_code(), error: error.without_server() }
    }
}

/// The results of all futures, in their order.
async fn at_once<T: Send + 'static>(futures: impl Iterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let mut running = JoinSet::new();
    for (index, future) in futures.enumerate() {
        running.spawn(async move { (index, future.await) });
    }
    let mut done = running.join_all().await;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
