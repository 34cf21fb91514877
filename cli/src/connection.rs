//! From the options of the command line to a server: which one it is, and one connection to it, or to a whole cluster.

use std::fs;
use std::path::Path;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Arg, AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::args::ConnectionArgs;
use crate::error::Error;
use crate::text::Text;

/// Read where neither -a nor the URI has a password, as redis-cli does.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A busy server may take a while for thousands of holders.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The server that the options name: nothing has been sent yet.
pub enum Target {
    Server(Client),
    Cluster(ClusterClient),
    Sentinel(SentinelClient),
}

impl ConnectionArgs {
    pub fn target(&self) -> Result<Target, Error> {
        let certificates = self.certificates()?;
        if !self.sentinel.is_empty() {
            return self.sentinel_client(certificates).map(Target::Sentinel);
        }
        let info = self.info()?;
        if self.cluster {
            let mut builder =
                ClusterClient::builder([info]).connection_timeout(CONNECT_TIMEOUT).response_timeout(RESPONSE_TIMEOUT);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates);
            }
            return builder.build().map(Target::Cluster).map_err(Error::of_options);
        }
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let client = match certificates.filter(|_| is_tls) {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        };
        client.map(Target::Server).map_err(Error::of_options)
    }

    /// The server in words, for messages.
    pub fn server(&self) -> String {
        match (&self.master, self.info()) {
            (Some(master), _) => format!("{master} of the Sentinels {}", self.sentinel.join(", ")),
            (None, Ok(info)) => info.addr().to_string(),
            (None, Err(_)) => "the server".to_string(),
        }
    }

    pub fn info(&self) -> Result<ConnectionInfo, Error> {
        let from_uri = match &self.uri {
            Some(uri) => uri.as_str().into_connection_info().map_err(Error::of_options)?,
            None => self.default_address().into_connection_info().map_err(Error::of_options)?,
        };
        let address = match from_uri.addr().clone() {
            ConnectionAddr::Tcp(host, port) if self.tls => {
                ConnectionAddr::TcpTls { host, port, insecure: self.insecure, tls_params: None }
            }
            ConnectionAddr::TcpTls { host, port, insecure, tls_params } => {
                ConnectionAddr::TcpTls { host, port, insecure: insecure || self.insecure, tls_params }
            }
            address => address,
        };
        let login = self.login(from_uri.redis_settings().clone());
        Ok(from_uri.set_addr(address).set_redis_settings(login))
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

    /// The Sentinels, each with its own user and password.
    pub fn sentinels(&self) -> Result<Vec<ConnectionInfo>, Error> {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let uri = |address: &String| match address.contains("://") {
            true => address.clone(),
            false => format!("{scheme}://{address}"),
        };
        self.sentinel.iter().map(|address| uri(address).into_connection_info().map_err(Error::of_options)).collect()
    }

    /// What the options say goes before what the URI says.
    pub fn login(&self, mut login: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(db) = self.db {
            login = login.set_db(db.into());
        }
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        let variable = || std::env::var(PASSWORD_VARIABLE).ok();
        match &self.password {
            Some(password) => login.set_password(password),
            None if login.password().is_some() => login,
            None => match variable() {
                Some(password) => login.set_password(password),
                None => login,
            },
        }
    }

    fn sentinel_client(&self, certificates: Option<TlsCertificates>) -> Result<SentinelClient, Error> {
        let master = self.master.clone().unwrap_or_default();
        let mut sentinels = Vec::new();
        let mut login = RedisConnectionInfo::default();
        for info in self.sentinels()? {
            login = info.redis_settings().clone();
            sentinels.push(info.addr().clone());
        }
        let mut builder =
            SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master).map_err(Error::of_options)?;
        if let Some(user) = login.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        let login = self.login(RedisConnectionInfo::default());
        builder = builder.set_client_to_redis_db(login.db());
        if let Some(user) = login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.tls {
            let mode = if self.insecure { TlsMode::Insecure } else { TlsMode::Secure };
            builder = builder.set_client_to_redis_tls_mode(mode).set_client_to_sentinel_tls_mode(mode);
            if let Some(certificates) = certificates {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates);
            }
        }
        builder.build().map_err(Error::of_options)
    }

    pub fn certificates(&self) -> Result<Option<TlsCertificates>, Error> {
        if self.cacert.is_none() && self.cert.is_none() {
            return Ok(None);
        }
        let root_cert = self.cacert.as_deref().map(read).transpose()?;
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            _ => None,
        };
        Ok(Some(TlsCertificates { client_tls, root_cert }))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|cause| Error::Io { what: path.display().to_string(), cause })
}

/// A connection to one server, or to all primaries of a cluster, for commands that answer at once.
pub struct Connection {
    server: String,
    inner: Inner,
}

enum Inner {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub async fn open(args: &ConnectionArgs) -> Result<Connection, Error> {
        let server = args.server();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let opened = match args.target()? {
            Target::Server(client) => {
                client.get_multiplexed_async_connection_with_config(&config).await.map(Inner::Server)
            }
            Target::Sentinel(mut client) => client.get_async_connection_with_config(&config).await.map(Inner::Server),
            Target::Cluster(client) => client.get_async_connection().await.map(Inner::Cluster),
        };
        match opened {
            Ok(inner) => Ok(Connection { server, inner }),
            Err(error) => Err(Error::of_connecting(&server, error)),
        }
    }

    /// Sends a command to the server that has its key: its first argument.
    pub async fn query(&mut self, command: &Cmd) -> Result<Value, Error> {
        let answer = match &mut self.inner {
            Inner::Server(connection) => connection.req_packed_command(command).await,
            Inner::Cluster(connection) => connection.req_packed_command(command).await,
        };
        self.checked(answer).map_err(|error| match (error, command.args_iter().nth(1)) {
            (Error::WrongType(words), Some(Arg::Simple(key))) => {
                Error::WrongType(format!("{}: {words}", Text(key.to_vec())))
            }
            (error, _) => error,
        })
    }

    /// Sends a command to one of the [`Connection::servers`].
    pub async fn query_at(&mut self, server: &str, command: &Cmd) -> Result<Value, Error> {
        let Inner::Cluster(connection) = &mut self.inner else {
            return self.query(command).await;
        };
        let unknown = || Error::Reply(format!("the address {server:?} of a node"));
        let (host, port) = server.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_string(), port };
        let answer = connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await;
        self.checked(answer)
    }

    /// Sends a command to all primaries; each answer with the server that gave it.
    pub async fn query_all(&mut self, command: &Cmd) -> Result<Vec<(String, Value)>, Error> {
        let Inner::Cluster(connection) = &mut self.inner else {
            let answer = self.query(command).await?;
            return Ok(vec![(self.server.clone(), answer)]);
        };
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = connection.route_command(command.clone(), everywhere).await;
        match self.checked(answers)? {
            Value::Map(answers) => answers.into_iter().map(|(node, answer)| Ok((text(node)?, answer))).collect(),
            other => Err(Error::Reply(format!("{other:?}"))),
        }
    }

    /// The servers by address: one, or all primaries of the cluster.
    pub async fn servers(&mut self) -> Result<Vec<String>, Error> {
        if let Inner::Server(_) = self.inner {
            return Ok(vec![self.server.clone()]);
        }
        let answers = self.query_all(&redis::cmd("PING")).await?;
        Ok(answers.into_iter().map(|(node, _)| node).collect())
    }

    fn checked(&self, answer: RedisResult<Value>) -> Result<Value, Error> {
        answer.and_then(Value::extract_error).map_err(|error| Error::of_command(&self.server, error))
    }
}

fn text(value: Value) -> Result<String, Error> {
    redis::from_redis_value(value).map_err(|error| Error::Reply(error.to_string()))
}
