//! A server that has keys, for a caller that sends it other commands: a tool that queries every node of a cluster
//! and must name the node that does not reply.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::error::Result;
use crate::node::Node;

/// A server that has keys: the single server, the primary behind the sentinels, or a node of a cluster. Returned by
/// [`Client::servers`](crate::Client::servers) and [`Client::server_of`](crate::Client::server_of).
#[derive(Clone)]
pub struct Server {
    node: Arc<Node>,
    connect_timeout: Duration,
}

impl Server {
    pub(crate) fn new(node: Arc<Node>, connect_timeout: Duration) -> Server {
        Server { node, connect_timeout }
    }

    /// `host:port`, or the path of its socket.
    pub fn name(&self) -> String {
        self.node.name()
    }

    /// Opens a new connection for the caller.
    ///
    /// # Errors
    /// [`Error::Redis`](crate::Error::Redis) if the server cannot be reached, or refuses the login.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        Ok(self.node.connect(self.connect_timeout).await?)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.name()).finish()
    }
}
