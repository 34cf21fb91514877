//! Connections to one server: a shared one for requests that are answered at once, and one for each waiting request.
//!
//! The server holds back every command behind a waiting request on the same connection, so a waiting request never
//! shares one. After a wait its connection is kept for the next wait.

use std::io;
use std::sync::Mutex as StdMutex;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
};
use tokio::sync::{watch, Mutex};

/// How many connections are kept for the next waits, and for how long.
const IDLE: usize = 128;
const IDLE_FOR: Duration = Duration::from_secs(30);

const UNPOISONED: &str = "nothing panics while it is locked";

/// Host and port.
pub(crate) type Address = (String, u16);

pub(crate) struct Node {
    client: redis::Client,
    /// Never locked during I/O.
    shared: StdMutex<Shared>,
    /// Held by the caller that opens the shared connection.
    connecting: Mutex<()>,
    idle: StdMutex<Vec<(Instant, MultiplexedConnection)>>,
}

/// `generation` distinguishes a broken connection from the one that has replaced it.
#[derive(Default)]
struct Shared {
    generation: u64,
    connection: Option<MultiplexedConnection>,
}

impl Node {
    pub(crate) fn new(info: ConnectionInfo) -> RedisResult<Node> {
        Ok(Node {
            client: redis::Client::open(info)?,
            shared: StdMutex::default(),
            connecting: Mutex::default(),
            idle: StdMutex::default(),
        })
    }

    /// Host and port; None for a Unix socket.
    pub(crate) fn address(&self) -> Option<Address> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
            _ => None,
        }
    }

    /// `host:port`, or the path of its socket.
    pub(crate) fn name(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Opens a new connection within `limit`.
    pub(crate) async fn connect(&self, limit: Duration) -> RedisResult<MultiplexedConnection> {
        let connected = self.client.get_multiplexed_async_connection_with_config(&config(limit)).await;
        connected.map_err(|error| if error.is_timeout() { self.no_connection(limit) } else { error })
    }

    fn no_connection(&self, limit: Duration) -> RedisError {
        io::Error::new(io::ErrorKind::TimedOut, format!("no connection to {} within {limit:?}", self.name())).into()
    }

    /// Opens a new connection that reports its end. It uses RESP3, because the redis crate reports the end only there.
    pub(crate) async fn connect_watched(
        &self,
        limit: Duration,
    ) -> RedisResult<(MultiplexedConnection, watch::Receiver<bool>)> {
        let info = self.client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.clone().set_redis_settings(settings))?;
        let (ended, watched) = watch::channel(false);
        let config = config(limit).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                ended.send_replace(true);
            }
            Ok::<(), std::convert::Infallible>(())
        });
        Ok((client.get_multiplexed_async_connection_with_config(&config).await?, watched))
    }

    /// The shared connection for requests that get their reply at once, and its generation.
    pub(crate) async fn shared(&self, limit: Duration) -> RedisResult<(u64, MultiplexedConnection)> {
        match self.known() {
            Some(known) => Ok(known),
            None => Box::pin(self.connect_shared(limit)).await,
        }
    }

    async fn connect_shared(&self, limit: Duration) -> RedisResult<(u64, MultiplexedConnection)> {
        let connected = tokio::time::timeout(limit, async {
            let _connecting = self.connecting.lock().await;
            if let Some(known) = self.known() {
                return Ok(known);
            }
            let connection = self.connect(limit).await?;
            let mut shared = self.shared.lock().expect(UNPOISONED);
            shared.generation += 1;
            shared.connection = Some(connection.clone());
            Ok((shared.generation, connection))
        });
        // Other callers may be connecting, and the limit includes the wait for them.
        connected.await.unwrap_or_else(|_| Err(self.no_connection(limit)))
    }

    fn known(&self) -> Option<(u64, MultiplexedConnection)> {
        let shared = self.shared.lock().expect(UNPOISONED);
        Some((shared.generation, shared.connection.clone()?))
    }

    /// Marks the shared connection of that generation as broken.
    pub(crate) fn forget(&self, generation: u64) {
        let mut shared = self.shared.lock().expect(UNPOISONED);
        if shared.generation == generation {
            shared.connection = None;
        }
    }

    /// A connection for a single caller.
    pub(crate) async fn take(&self, limit: Duration) -> RedisResult<MultiplexedConnection> {
        let kept = self.idle().pop();
        match kept {
            Some((_, connection)) => Ok(connection),
            // Boxed, like every rare future, because it would otherwise enlarge each request's future, which is moved.
            None => Box::pin(self.connect(limit)).await,
        }
    }

    /// Keeps a connection for the next wait. No reply may be outstanding on it.
    pub(crate) fn return_connection(&self, connection: MultiplexedConnection) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push((Instant::now(), connection));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, MultiplexedConnection)>> {
        let mut idle = self.idle.lock().expect(UNPOISONED);
        // The newest are used first, so the oldest are at the front.
        let fresh = idle.iter().position(|(since, _)| since.elapsed() < IDLE_FOR).unwrap_or(idle.len());
        idle.drain(..fresh);
        idle
    }
}

/// We apply the reply timeout ourselves, because it differs from command to command.
fn config(connect_limit: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(connect_limit)).set_response_timeout(None)
}

/// How to connect to another server of the same deployment, with the same credentials and TLS.
pub(crate) fn moved_to(info: &ConnectionInfo, (host, port): Address) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(address)
}
