//! What locks are made of: where the servers are, and how long to wait for them.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo};

use crate::connector::Connector;
use crate::error::Result;
use crate::family::Family;
use crate::lock::Lock;
use crate::node::Node;
use crate::protocol;
use crate::servers::{Cluster, Sentinel, Servers};
use crate::transport::Transport;

/// A server, the primary behind sentinels, or a cluster. Cheap to clone; connections are made when they are needed, and
/// made again when they break.
///
/// What is answered at once goes over one connection to each server. Who waits has one of its own meanwhile: the server
/// holds back all that comes behind a waiting request on its connection.
#[derive(Clone)]
pub struct Client {
    connector: Connector,
}

impl Client {
    /// One server: a URL (`redis://user:password@host:port/db`, `rediss://…` for TLS, `redis+unix:///path`), or the
    /// redis crate's `ConnectionInfo`. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Redis`](crate::Error::Redis) for a URL that is none.
    pub fn open(server: impl IntoConnectionInfo) -> Result<Client> {
        let node = Node::new(prepared(server)?)?;
        Ok(Client::of(Servers::Single(Arc::new(node))))
    }

    /// A cluster, by any of its nodes. User, password and TLS of the first are those of all.
    ///
    /// # Errors
    /// As [`Client::open`], and without nodes.
    pub fn cluster<N: IntoConnectionInfo>(nodes: impl IntoIterator<Item = N>) -> Result<Client> {
        Ok(Client::of(Servers::Cluster(Cluster::new(all_prepared(nodes)?)?)))
    }

    /// The primary that sentinels watch under the name `master`. `node` says how to connect to it (user, password,
    /// database, TLS); its host and port do not matter.
    ///
    /// # Errors
    /// As [`Client::open`], and without sentinels.
    pub fn sentinel<S: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = S>,
        master: impl Into<String>,
        node: impl IntoConnectionInfo,
    ) -> Result<Client> {
        let sentinel = Sentinel::new(all_prepared(sentinels)?, master.into(), prepared(node)?)?;
        Ok(Client::of(Servers::Sentinel(sentinel)))
    }

    fn of(servers: Servers) -> Client {
        Client { connector: Connector::to(servers) }
    }

    /// How long making a connection may take: 2 s if left out.
    pub fn connect_timeout(mut self, timeout: Duration) -> Client {
        self.connector.timeouts.connect = timeout;
        self
    }

    /// How long a reply may take before its connection counts as lost: 5 s if left out, None: for ever. Waits are cut
    /// to fit, to three quarters of it, and resent with the same token, so that the place in the queue is kept.
    pub fn reply_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Client {
        self.connector.timeouts.reply = timeout.into();
        self
    }

    /// A lock of any family.
    pub fn lock(&self, family: Family) -> Lock {
        Lock::new(self.connector.clone(), family)
    }

    /// A mutex: one owner at a time. Each acquire is a new owner.
    pub fn mutex(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Mutex { key: key.into() })
    }

    /// A reentrant mutex. The returned [`Lock`] is one owner and may acquire again while it holds; another one, or a
    /// clone, is another owner. So it belongs to one line of execution: make one for each task.
    pub fn reentrant(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Reentrant { key: key.into() })
    }

    /// The readers' side of a read/write lock: many at once, and no writer. See [`Lock::as_owner_of`] for upgrades.
    pub fn read_lock(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Read { key: key.into() })
    }

    /// The writers' side of a read/write lock: one, and no other reader.
    pub fn write_lock(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Write { key: key.into() })
    }

    /// A semaphore: at most `limit` permits are out at once, and each guard has one. [`Lock::permits`] takes more.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Lock {
        self.lock(Family::Semaphore { key: key.into(), limit, permits: 1 })
    }

    /// One permit of a semaphore, with its number, the smallest from 0 that no other holder has:
    /// [`Guard::slot`](crate::Guard::slot). One worker for each GPU, each with a worker id of its own, which it keeps
    /// for as long as it holds.
    pub fn semaphore_slot(&self, key: impl Into<Vec<u8>>, limit: u32) -> Lock {
        self.lock(Family::Slot { key: key.into(), limit })
    }

    /// Several mutexes at once, all or none, with one fence. In a cluster all keys share one slot.
    pub fn multi_lock<K: Into<Vec<u8>>>(&self, keys: impl IntoIterator<Item = K>) -> Lock {
        self.lock(Family::Several { keys: keys.into_iter().map(Into::into).collect() })
    }

    /// Sends any command to the server that has `key`, and again for a second while the failure is transient: it must
    /// not matter how often the command runs.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn query<T: FromRedisValue>(&self, key: impl AsRef<[u8]>, command: &Cmd) -> Result<T> {
        let transport = Transport::pooled(&self.connector, key.as_ref());
        let reply = protocol::query(&transport, command).await?;
        Ok(redis::from_redis_value(reply).map_err(redis::RedisError::from)?)
    }

    /// Is ready when nothing goes on any more behind futures and guards that were dropped: for programs that end.
    pub async fn settled(&self) {
        self.connector.background.settled().await;
    }

    /// A connection of the caller's own to each server that has keys, one or a cluster's primaries, with its address.
    ///
    /// # Errors
    /// [`Error::Redis`](crate::Error::Redis) where one cannot be reached.
    pub async fn connections(&self) -> Result<Vec<(String, MultiplexedConnection)>> {
        let mut connections = Vec::new();
        for node in self.connector.servers.primaries(self.connector.timeouts.connect).await? {
            connections.push((node.name(), node.connect(self.connector.timeouts.connect).await?));
        }
        Ok(connections)
    }

    /// A connection of the caller's own to the server that has `key`: for what must not be sent twice.
    ///
    /// # Errors
    /// As [`Client::connections`].
    pub async fn connection(&self, key: impl AsRef<[u8]>) -> Result<MultiplexedConnection> {
        let node = self.connector.servers.node_of(key.as_ref(), self.connector.timeouts.connect).await?;
        Ok(node.connect(self.connector.timeouts.connect).await?)
    }
}

fn all_prepared<S: IntoConnectionInfo>(servers: impl IntoIterator<Item = S>) -> Result<Vec<ConnectionInfo>> {
    servers.into_iter().map(prepared).collect()
}

fn prepared(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    let info = server.into_connection_info()?;
    #[cfg(feature = "tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // Where the program has chosen none. An error says that another thread has just done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Ok(info)
}
