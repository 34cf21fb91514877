//! The client: the addresses of the servers, the timeouts, and the constructors of locks.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo};

use crate::connector::Connector;
use crate::error::{Error, Result};
use crate::family::Family;
use crate::lock::Lock;
use crate::node::Node;
use crate::observer::{Observed, Observer};
use crate::protocol;
use crate::server::Server;
use crate::servers::{Cluster, Sentinel, Servers};
use crate::transport::Transport;

/// A client of a single server, of the primary behind sentinels, or of a cluster. Cheap to clone. It connects on first
/// use and reconnects when a connection breaks.
///
/// Requests that get their reply at once share one connection to each server. A waiting request has a dedicated
/// connection, because the server holds back every command behind it on the same connection.
///
/// ```no_run
/// # use redis_lock_client::{Client, Result};
/// # async fn report() -> Result<()> {
/// let client = Client::open("redis://127.0.0.1/")?;
/// let guard = client.mutex("report").auto_renew().acquire().await?;
/// // … work, with `guard.fence()` in each write …
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    connector: Arc<Connector>,
}

impl Client {
    /// A client of a single server. `server` is a URL (`redis://user:password@host:port/db`, `rediss://…` for TLS,
    /// `redis+unix:///path`) or a `ConnectionInfo` of the redis crate, such as that of its client
    /// (`client.get_connection_info().clone()`). Every connection uses its user and database, and its RESP version,
    /// except that of a session: the redis crate reports the end of a connection only in RESP3. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Redis`] if the URL is invalid.
    pub fn open(server: impl IntoConnectionInfo) -> Result<Client> {
        let node = Node::new(prepared(server)?)?;
        Ok(Client::of(Servers::Single(Arc::new(node))))
    }

    /// A client of a cluster, by any of its nodes. The user, password and TLS of the first one apply to all.
    ///
    /// # Errors
    /// As [`Client::open`], and for an empty list of nodes.
    pub fn cluster<N: IntoConnectionInfo>(nodes: impl IntoIterator<Item = N>) -> Result<Client> {
        Ok(Client::of(Servers::Cluster(Cluster::new(all_prepared(nodes)?)?)))
    }

    /// A client of the primary that sentinels watch under the name `master`. `node` says how to connect to it (user,
    /// password, database, TLS); its host and port are not used.
    ///
    /// # Errors
    /// As [`Client::open`], and for an empty list of sentinels.
    pub fn sentinel<S: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = S>,
        master: impl Into<String>,
        node: impl IntoConnectionInfo,
    ) -> Result<Client> {
        let sentinel = Sentinel::new(all_prepared(sentinels)?, master.into(), prepared(node)?)?;
        Ok(Client::of(Servers::Sentinel(sentinel)))
    }

    fn of(servers: Servers) -> Client {
        Client { connector: Arc::new(Connector::to(servers)) }
    }

    /// Sets the timeout for connecting. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Client {
        Arc::make_mut(&mut self.connector).timeouts.connect = timeout;
        self
    }

    /// Sets how long a reply may take before its connection counts as lost; None: no limit. Default: 5 s. A wait is
    /// split into slices of three quarters of it, each with the same token, which keeps the queue position.
    pub fn reply_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Client {
        Arc::make_mut(&mut self.connector).timeouts.reply = timeout.into();
        self
    }

    /// Sets the observer of the locks that this client creates from now on: a closure, or `OpenTelemetry` (feature
    /// `opentelemetry`). It cannot change the outcome of a call.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Client {
        Arc::make_mut(&mut self.connector).observed = Observed::by(observer);
        self
    }

    /// Creates a lock of any type.
    pub fn lock(&self, family: Family) -> Lock {
        Lock::new(self.connector.clone(), Arc::new(family))
    }

    /// Creates a mutex: one owner holds it at a time. Each acquire is a new owner.
    pub fn mutex(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Mutex { key: key.into() })
    }

    /// Creates a reentrant mutex. The returned [`Lock`] is one owner, which may acquire it again; another `Lock`, or a
    /// clone, is another owner. So create one for each task.
    pub fn reentrant(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Reentrant { key: key.into() })
    }

    /// Creates the read side of a read/write lock: any number of readers, and no writer. See [`Lock::as_owner_of`] for
    /// upgrades.
    pub fn read_lock(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Read { key: key.into() })
    }

    /// Creates the write side of a read/write lock: one writer, and no other owner.
    pub fn write_lock(&self, key: impl Into<Vec<u8>>) -> Lock {
        self.lock(Family::Write { key: key.into() })
    }

    /// Creates a semaphore: at most `limit` permits are held at once, and each guard has one. [`Lock::permits`] sets
    /// more.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Lock {
        self.lock(Family::Semaphore { key: key.into(), limit, permits: 1 })
    }

    /// Creates a semaphore with slots: each guard has one permit, and [`Guard::slot`](crate::Guard::slot) is its
    /// number, the smallest from 0 that no other holder has. For example one worker per GPU, each with a stable worker
    /// ID while it holds its permit.
    pub fn semaphore_slot(&self, key: impl Into<Vec<u8>>, limit: u32) -> Lock {
        self.lock(Family::Slot { key: key.into(), limit })
    }

    /// Creates a lock of multiple mutexes that are acquired together, all or none, with one fencing token. In a cluster
    /// all keys must hash to one slot.
    pub fn multi_lock<K: Into<Vec<u8>>>(&self, keys: impl IntoIterator<Item = K>) -> Lock {
        self.lock(Family::Several { keys: keys.into_iter().map(Into::into).collect() })
    }

    /// Sends any command to the server that has `key`, and resends it for a second while the failure is transient, so
    /// the command must be safe to run more than once. Commands that change their connection (SELECT, MULTI, CLIENT
    /// REPLY, …) are refused, because all locks share this connection.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn query<T: FromRedisValue>(&self, key: impl AsRef<[u8]>, command: &Cmd) -> Result<T> {
        if changes_its_connection(command) {
            return Err(Error::Usage("this changes the connection that all locks share: use one of `connection`"));
        }
        let transport = Transport::pooled(&self.connector, key.as_ref());
        let reply = protocol::query(&transport, command).await?;
        Ok(redis::from_redis_value(reply).map_err(redis::RedisError::from)?)
    }

    /// Waits until all cleanup after dropped futures and guards is done. Await it before the program exits.
    pub async fn settled(&self) {
        self.connector.background.settled().await;
    }

    /// The servers that have keys, as reported now: a single one, or the primaries of a cluster. A primary that is down
    /// is included until another node has taken over from it.
    ///
    /// # Errors
    /// [`Error::Redis`] if no sentinel, or no node of the cluster, can be reached.
    pub async fn servers(&self) -> Result<Vec<Server>> {
        let Connector { servers, timeouts, .. } = &*self.connector;
        servers.look_again();
        let nodes = servers.primaries(timeouts.connect).await?;
        Ok(nodes.into_iter().map(|node| Server::new(node, timeouts.connect)).collect())
    }

    /// The server that has `key`.
    ///
    /// # Errors
    /// As [`Client::servers`].
    pub async fn server_of(&self, key: impl AsRef<[u8]>) -> Result<Server> {
        let Connector { servers, timeouts, .. } = &*self.connector;
        Ok(Server::new(servers.node_of(servers.slot_of(key.as_ref()), timeouts.connect).await?, timeouts.connect))
    }

    /// Opens a new connection for the caller to each of the [`Client::servers`], and returns it with the server's
    /// address.
    ///
    /// # Errors
    /// [`Error::Redis`] if one of them cannot be reached.
    pub async fn connections(&self) -> Result<Vec<(String, MultiplexedConnection)>> {
        let mut connections = Vec::new();
        for server in self.servers().await? {
            connections.push((server.name(), server.connect().await?));
        }
        Ok(connections)
    }

    /// Opens a new connection for the caller to the server that has `key`, for commands that must not be sent twice.
    ///
    /// # Errors
    /// As [`Client::connections`].
    pub async fn connection(&self, key: impl AsRef<[u8]>) -> Result<MultiplexedConnection> {
        self.server_of(key).await?.connect().await
    }
}

/// True for commands that change the state of their connection.
fn changes_its_connection(command: &Cmd) -> bool {
    const CHANGING: &str = "ASKING AUTH DISCARD EXEC HELLO MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY \
                            READWRITE RESET SELECT SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WATCH";
    const OF_CLIENT: &str = "CACHING CAPA IMPORT-SOURCE NO-EVICT NO-TOUCH REPLY SETNAME TRACKING";
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => String::from_utf8_lossy(word).to_ascii_uppercase(),
        _ => String::new(),
    });
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_one_of = |list: &str, word: &str| list.split(' ').any(|one| one == word);
    is_one_of(CHANGING, &first) || (first == "CLIENT" && is_one_of(OF_CLIENT, &second))
}

fn all_prepared<S: IntoConnectionInfo>(servers: impl IntoIterator<Item = S>) -> Result<Vec<ConnectionInfo>> {
    servers.into_iter().map(prepared).collect()
}

fn prepared(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    let info = server.into_connection_info()?;
    #[cfg(feature = "tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // Only if the program has not chosen a provider. An error means that another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Ok(info)
}
