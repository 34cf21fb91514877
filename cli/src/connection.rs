//! Connects to the server that the options name, and sends it commands about one key. For all servers, see `servers`.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    cmd, Arg, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult, TlsCertificates, Value,
};
use redis_lock_client::Client;

use crate::args::{ConnectionArgs, SENTINELS_VARIABLE, URL_VARIABLE};
use crate::error::{CutOff, Error};
use crate::text::Text;

/// The password if neither -a nor the URI contains one, as in redis-cli.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// The port of a Sentinel whose address does not include one.
const SENTINEL_PORT: u16 = 26379;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Long, because a reply with thousands of holders may take a busy server a while.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

impl ConnectionArgs {
    /// Connects to the server, the primary monitored by the Sentinels, or the cluster, on first use.
    pub fn client(&self) -> Result<Client, Error> {
        let node = self.node()?;
        let client = match &self.master {
            Some(master) => Client::sentinel(self.sentinels()?, master, node),
            None if self.cluster => Client::cluster([node]),
            None => Client::open(node),
        };
        Ok(client.map_err(|error| Error::Options(error.to_string()))?.connect_timeout(CONNECT_TIMEOUT))
    }

    /// The server's address, for messages.
    pub fn server(&self) -> String {
        match (&self.master, self.node()) {
            (Some(master), _) => format!("{master}, found by the Sentinels {}", self.sentinel.join(", ")),
            (None, Ok(node)) => node.addr().to_string(),
            (None, Err(_)) => "the server".to_string(),
        }
    }

    /// What to try after this connection error; empty if the message already says it.
    pub fn hint(&self, error: &Error) -> &'static str {
        let is_tls = || self.node().is_ok_and(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. }));
        match error.cut_off() {
            Some(_) if is_tls() => " (is this a TLS port?)",
            Some(CutOff::Ended) => " (a TLS port requires --tls)",
            Some(CutOff::Silent) | None => "",
        }
    }

    /// Whether the server is a Sentinel, which does not know the module's commands either.
    pub async fn is_of_a_sentinel(&self) -> bool {
        let Ok(client) = self.client() else { return false };
        let Ok(connection) = client.connection(b"").await else { return false };
        match send(connection, cmd("ROLE")).await {
            Ok(Value::Array(role)) => role.first() == Some(&Value::BulkString(b"sentinel".to_vec())),
            _ => false,
        }
    }

    /// The database for commands about one key.
    pub fn db(&self) -> Result<u64, Error> {
        Ok(self.node()?.redis_settings().db().try_into().unwrap_or_default())
    }

    /// How to connect to the server. With Sentinels, the host and port are not used.
    fn node(&self) -> Result<ConnectionInfo, Error> {
        let info = match &self.uri {
            Some(uri) => uri.as_str().into_connection_info().map_err(|_| self.no_uri())?,
            None => self.default_address().into_connection_info().map_err(Error::of_options)?,
        };
        let login = self.login(info.redis_settings().clone());
        self.encrypted(info.set_redis_settings(login))
    }

    /// Does not show the URI, because it usually contains a password.
    fn no_uri(&self) -> Error {
        let source = if self.is_from_environment { URL_VARIABLE } else { "-u" };
        Error::Options(format!(
            "{source} is not the URI of a server: \
             redis://[user[:password]@]host[:port][/db], rediss://… or unix:///path"
        ))
    }

    fn default_address(&self) -> ConnectionAddr {
        match &self.socket {
            Some(path) => ConnectionAddr::Unix(path.clone()),
            None => {
                let host = self.host.clone().unwrap_or_else(|| "127.0.0.1".to_string());
                ConnectionAddr::Tcp(host, self.port.unwrap_or(6379))
            }
        }
    }

    /// The options override the URI.
    fn login(&self, mut login: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(db) = self.db {
            login = login.set_db(db.into());
        }
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        let variable = || std::env::var(PASSWORD_VARIABLE).ok().filter(|_| login.password().is_none());
        match self.password.clone().or_else(variable) {
            Some(password) => login.set_password(password),
            None => login,
        }
    }

    fn sentinels(&self) -> Result<Vec<ConnectionInfo>, Error> {
        let of_address = |address: &String| {
            // A list in the environment may have blanks after its commas.
            let address = address.trim();
            let uri = match (address.contains("://"), address.contains(':')) {
                (true, _) => address.to_string(),
                (false, true) => format!("redis://{address}"),
                (false, false) => format!("redis://{address}:{SENTINEL_PORT}"),
            };
            let no_address = |_| {
                let source = format!("--sentinel ({SENTINELS_VARIABLE})");
                Error::Options(format!("{source} has an address that is neither host:port nor redis://…@host:port"))
            };
            self.encrypted(uri.into_connection_info().map_err(no_address)?)
        };
        self.sentinel.iter().map(of_address).collect()
    }

    /// Uses TLS if the options or the URI ask for it.
    fn encrypted(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        let (host, port, is_insecure) = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) if self.tls => (host, port, self.insecure),
            ConnectionAddr::TcpTls { host, port, insecure, .. } => (host, port, insecure || self.insecure),
            _ => return Ok(info),
        };
        let info = info.set_addr(ConnectionAddr::TcpTls { host, port, insecure: is_insecure, tls_params: None });
        // Only a client of the redis crate converts these files to TLS parameters.
        let client = redis::Client::build_with_tls(info, self.certificates()?).map_err(Error::of_options)?;
        Ok(client.get_connection_info().clone())
    }

    fn certificates(&self) -> Result<TlsCertificates, Error> {
        let root_cert = self.cacert.as_deref().map(read).transpose()?;
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            _ => None,
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|cause| Error::Io { what: path.display().to_string(), cause })
}

/// The server that serves a key; in a cluster this need not be the node that the options name.
pub struct Node {
    pub name: String,
    connection: MultiplexedConnection,
}

impl Node {
    pub async fn of(args: &ConnectionArgs, key: &Text) -> Result<Node, Error> {
        let server = args.client()?.server_of(&key.0).await.map_err(|error| Error::of_client(&args.server(), error))?;
        let name = server.name();
        let connection = server.connect().await.map_err(|error| Error::of_client(&name, error))?;
        Ok(Node { name, connection })
    }

    /// Sends a command once. No retry: after a lost reply, a second LOCK.BREAK would hit the next holder.
    pub async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        let error = match send(self.connection.clone(), command.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        if let (Some("WRONGTYPE"), Some(Arg::Simple(key))) = (error.code(), command.args_iter().nth(1)) {
            // Without permission for TYPE, the server's own message has to do.
            if let Ok(Value::SimpleString(found)) = send(self.connection.clone(), cmd("TYPE").arg(key).to_owned()).await
            {
                return Err(Error::no_lock(&Text(key.to_vec()), &found));
            }
        }
        Err(Error::of_command(&self.name, error))
    }
}

pub async fn send(connection: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    send_within(REPLY_TIMEOUT, connection, command).await
}

pub async fn send_within(limit: Duration, mut connection: MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    in_time(limit, connection.send_packed_command(&command)).await.and_then(Value::extract_error)
}

pub async fn in_time<T>(limit: Duration, reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no reply within {limit:?}")).into();
    tokio::time::timeout(limit, reply).await.unwrap_or_else(|_| Err(silent()))
}
