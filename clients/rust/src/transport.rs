//! Sends the commands of one lock: over connections of the node that has its key, or over a dedicated connection.

use std::future::{poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{cmd, Cmd, RedisResult, Value};
use tokio::sync::{watch, Mutex};

use crate::connector::Connector;
use crate::error::{is_connection_failure, Failure};
use crate::node::{Address, Node};
use crate::servers::{redirected, Servers, Slot};

pub(crate) struct Transport {
    connector: Arc<Connector>,
    /// That of the lock's key, in a cluster.
    slot: Slot,
    own: Option<Mutex<Own>>,
    /// The node for the next request only, because the slot is moving to it.
    asked: StdMutex<Option<Address>>,
}

/// A connection that is kept from one command to the next.
#[derive(Default)]
struct Own {
    connection: Option<(Arc<Node>, MultiplexedConnection)>,
    /// It leads to a node to which an ASK has redirected. Each command of the key needs ASKING there until the slot has
    /// moved, and ASKING does no harm afterwards.
    asked: Option<Address>,
    /// For a session: turns true when its connection ends.
    ended: Option<watch::Receiver<bool>>,
    kind: OwnKind,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum OwnKind {
    /// Replaced when it breaks.
    #[default]
    Kept,
    /// Reports its end.
    Watched,
    /// Never replaced: a session ends with it, and WAIT must follow the grant on it.
    Pinned,
}

/// Whether the server may delay the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyTime {
    Immediate,
    Blocking,
}

impl Transport {
    /// Sends over connections that all locks share.
    pub(crate) fn pooled(connector: &Arc<Connector>, key: &[u8]) -> Transport {
        let slot = connector.servers.slot_of(key);
        Transport { connector: connector.clone(), slot, own: None, asked: StdMutex::default() }
    }

    /// Sends over a dedicated connection.
    pub(crate) fn own(connector: &Arc<Connector>, key: &[u8]) -> Transport {
        Transport { own: Some(Mutex::default()), ..Transport::pooled(connector, key) }
    }

    /// Sends over a dedicated connection that reports its end, for a session.
    pub(crate) fn watched(connector: &Arc<Connector>, key: &[u8]) -> Transport {
        let own = Own { kind: OwnKind::Watched, ..Own::default() };
        Transport { own: Some(Mutex::new(own)), ..Transport::pooled(connector, key) }
    }

    /// From here on the connection is never replaced. Returns a receiver that turns true when it ends.
    pub(crate) async fn pin(&self) -> Option<watch::Receiver<bool>> {
        let mut own = self.own.as_ref()?.lock().await;
        own.kind = OwnKind::Pinned;
        own.ended.clone()
    }

    /// Keeps the dedicated connection, to which no session is bound, for another caller. All of its replies have
    /// arrived.
    pub(crate) async fn return_connection(&self) {
        let Some(own) = &self.own else { return };
        if let Some((node, connection)) = own.lock().await.connection.take() {
            node.return_connection(connection);
        }
    }

    /// Closes the transport's dedicated connection.
    pub(crate) async fn close(&self) {
        if let Some(own) = &self.own {
            own.lock().await.connection = None;
        }
    }

    /// True if the error reply to LOCK.EXEC is the command's own, and not a refusal after which nothing ran. Outside a
    /// cluster TRYAGAIN is the command's own, on an adopted key.
    pub(crate) fn is_of_command(&self, failure: &Failure) -> bool {
        let is_cluster = matches!(*self.connector.servers, Servers::Cluster(_));
        failure.is_reply && (!failure.is_transient() || (failure.code() == "TRYAGAIN" && !is_cluster))
    }

    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        self.connector.timeouts.reply
    }

    /// Sends a command and returns its reply, within `limit` or the client's reply timeout, whichever is shorter.
    pub(crate) async fn send(&self, command: &Cmd, time: ReplyTime, limit: Option<Duration>) -> Result<Value, Failure> {
        let limit = self.limit(limit);
        let asked = self.asked.lock().expect(UNPOISONED).take();
        if let Some(own) = &self.own {
            return Box::pin(self.send_over_own(own, asked, command, limit)).await;
        }
        let node = self.node(&asked).await.map_err(Failure::unsent)?;
        let reply = match (time, &asked) {
            (ReplyTime::Immediate, None) => self.send_shared(&node, command, limit).await,
            // No command of another caller must come between ASKING and this one.
            _ => self.send_alone(&node, &asked, command, limit).await,
        };
        reply.map_err(|failure| self.recorded(&node, failure))
    }

    /// Sends commands in one packet and returns their replies, including errors. Like [`Transport::send`], but never
    /// over a dedicated connection.
    pub(crate) async fn send_packet(
        &self,
        commands: [Cmd; 3],
        time: ReplyTime,
        limit: Option<Duration>,
    ) -> Result<[Result<Value, Failure>; 3], Failure> {
        let limit = self.limit(limit);
        let asked = self.asked.lock().expect(UNPOISONED).take();
        let node = self.node(&asked).await.map_err(Failure::unsent)?;
        let timeout = self.connector.timeouts.connect;
        let replies = match (time, &asked) {
            (ReplyTime::Immediate, None) => {
                let (generation, mut connection) = node.shared(timeout).await.map_err(Failure::unsent)?;
                let replies = exchange_packet(&mut connection, &None, commands, limit).await;
                if replies.is_err() {
                    node.forget(generation);
                }
                replies
            }
            _ => {
                let mut connection = node.take(timeout).await.map_err(Failure::unsent)?;
                let replies = exchange_packet(&mut connection, &asked, commands, limit).await;
                if replies.is_ok() {
                    node.return_connection(connection);
                }
                replies
            }
        };
        match replies {
            Ok(replies) => {
                let recorded = |error| self.recorded(&node, Failure::sent(error));
                Ok(replies.map(|reply| reply.extract_error().map_err(recorded)))
            }
            Err(failure) => Err(self.recorded(&node, failure)),
        }
    }

    fn limit(&self, limit: Option<Duration>) -> Option<Duration> {
        match (limit, self.connector.timeouts.reply) {
            (Some(limit), Some(timeout)) => Some(limit.min(timeout)),
            (limit, timeout) => limit.or(timeout),
        }
    }

    async fn send_shared(&self, node: &Node, command: &Cmd, limit: Option<Duration>) -> Result<Value, Failure> {
        let (generation, mut connection) =
            node.shared(self.connector.timeouts.connect).await.map_err(Failure::unsent)?;
        let reply = exchange(&mut connection, &None, command, limit).await;
        if !is_answered(&reply) {
            node.forget(generation);
        }
        reply
    }

    async fn send_alone(
        &self,
        node: &Node,
        asked: &Option<Address>,
        command: &Cmd,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        let mut connection = node.take(self.connector.timeouts.connect).await.map_err(Failure::unsent)?;
        let reply = exchange(&mut connection, asked, command, limit).await;
        if is_answered(&reply) {
            node.return_connection(connection);
        }
        reply
    }

    async fn send_over_own(
        &self,
        own: &Mutex<Own>,
        asked: Option<Address>,
        command: &Cmd,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        let own = &mut *own.lock().await;
        if own.kind == OwnKind::Pinned && own.connection.is_none() {
            let error = io::Error::new(io::ErrorKind::NotConnected, "the lock's connection has ended");
            return Err(Failure::unsent(error.into()));
        }
        let node = match &own.connection {
            Some((node, _)) if own.kind == OwnKind::Pinned => node.clone(),
            _ => self.node(&asked).await.map_err(Failure::unsent)?,
        };
        let connected = match &own.connection {
            Some((to, _)) if Arc::ptr_eq(to, &node) => Ok(()),
            _ => {
                own.asked = None;
                self.connect_own(own, &node).await.map_err(Failure::unsent)
            }
        };
        own.asked = asked.or(own.asked.take());
        let reply = match (connected, &mut own.connection) {
            (Ok(()), Some((_, connection))) => exchange(connection, &own.asked, command, limit).await,
            (Err(failure), _) => Err(failure),
            (Ok(()), None) => unreachable!("connect_own puts one there"),
        };
        if !is_answered(&reply) {
            own.connection = None;
        }
        reply.map_err(|failure| self.recorded(&node, failure))
    }

    async fn connect_own(&self, own: &mut Own, node: &Arc<Node>) -> RedisResult<()> {
        own.connection = None;
        let limit = self.connector.timeouts.connect;
        let connection = match own.kind {
            OwnKind::Kept => node.take(limit).await?,
            OwnKind::Watched | OwnKind::Pinned => {
                // Log in with AUTH, as the connection of the release will. RESP3 logs in with HELLO, which accepts any
                // password if the user has none: the session would start, and its release would be refused.
                node.shared(limit).await?;
                let (connection, ended) = node.connect_watched(limit).await?;
                own.ended = Some(ended);
                connection
            }
        };
        own.connection = Some((node.clone(), connection));
        Ok(())
    }

    async fn node(&self, asked: &Option<Address>) -> RedisResult<Arc<Node>> {
        match asked {
            Some(address) => self.connector.servers.named(address.clone()),
            None => self.connector.servers.node_of(self.slot, self.connector.timeouts.connect).await,
        }
    }

    /// Takes from an error where to send the next request. Returns the error for the caller.
    fn recorded(&self, node: &Arc<Node>, failure: Failure) -> Failure {
        if !matches!(*self.connector.servers, Servers::Cluster(_)) && failure.is_of_cluster_node() {
            return failure.of_cluster_node();
        }
        let redirection = || {
            let (target, slot) = failure.error.redirect_node()?;
            let host = node.address().map(|(host, _)| host).unwrap_or_default();
            Some((slot, redirected(target, &host)?))
        };
        match (failure.code(), redirection()) {
            ("MOVED", Some((slot, address))) => self.connector.servers.moved(slot, address),
            ("ASK", Some((_, address))) => *self.asked.lock().expect(UNPOISONED) = Some(address),
            ("GRACE" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF" | "BUSY", _) => {}
            _ if failure.is_transient() => self.connector.servers.suspect(node),
            _ => {}
        }
        failure
    }
}

const UNPOISONED: &str = "nothing panics while it is locked";

async fn exchange(
    connection: &mut MultiplexedConnection,
    asked: &Option<Address>,
    command: &Cmd,
    limit: Option<Duration>,
) -> Result<Value, Failure> {
    let exchanged = pin!(async {
        if asked.is_some() {
            Box::pin(cmd("ASKING").exec_async(connection)).await.map_err(Failure::unsent)?;
        }
        sent(pin!(command.query_async(connection))).await
    });
    within(limit, exchanged).await
}

/// All replies, or the connection failure that came before the last of them.
async fn exchange_packet(
    connection: &mut MultiplexedConnection,
    asked: &Option<Address>,
    commands: [Cmd; 3],
    limit: Option<Duration>,
) -> Result<[Value; 3], Failure> {
    let mut packet = redis::Pipeline::with_capacity(if asked.is_some() { 6 } else { 3 });
    for command in commands {
        if asked.is_some() {
            // It is for a single command.
            packet.add_command(cmd("ASKING"));
        }
        packet.add_command(command);
    }
    let count = packet.len();
    let replies = within(limit, pin!(sent(pin!(connection.req_packed_commands(&packet, 0, count))))).await?;
    let every = if asked.is_some() { 2 } else { 1 };
    let mut replies = replies.into_iter().skip(every - 1).step_by(every);
    Ok(std::array::from_fn(|_| replies.next().expect("as many replies as commands")))
}

/// The result of a request to the connection.
async fn sent<T>(mut replied: Pin<&mut impl Future<Output = RedisResult<T>>>) -> Result<T, Failure> {
    match poll_fn(|context| Poll::Ready(replied.as_mut().poll(context))).await {
        // The connection had ended before, so the command was not accepted and nothing was written.
        Poll::Ready(Err(error)) if is_connection_failure(&error) => Err(Failure::unsent(error)),
        Poll::Ready(reply) => reply.map_err(Failure::sent),
        Poll::Pending => replied.await.map_err(Failure::sent),
    }
}

/// The future is pinned first, because one that is passed on would be moved.
async fn within<T>(
    limit: Option<Duration>,
    exchanged: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<T, Failure> {
    let Some(limit) = limit else { return exchanged.await };
    tokio::time::timeout(limit, exchanged).await.unwrap_or_else(|_| {
        let error = io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {limit:?}"));
        Err(Failure::sent(error.into()))
    })
}

/// True if a whole reply arrived, so the connection can be used again.
fn is_answered(reply: &Result<Value, Failure>) -> bool {
    reply.as_ref().map_or_else(|failure| !is_connection_failure(&failure.error), |_| true)
}
