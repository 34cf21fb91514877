//! The addresses of the servers, and the time-outs: the part of a client that each of its locks keeps.

use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::observer::Observed;
use crate::servers::Servers;

/// Cheap to clone: the clones share connections and background tasks.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) servers: Arc<Servers>,
    pub(crate) timeouts: Timeouts,
    pub(crate) background: Arc<Background>,
    pub(crate) observed: Observed,
}

#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) reply: Option<Duration>,
}

impl Connector {
    pub(crate) fn to(servers: Servers) -> Connector {
        Connector {
            servers: Arc::new(servers),
            timeouts: Timeouts::default(),
            background: Arc::default(),
            observed: Observed::default(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(2), reply: Some(Duration::from_secs(5)) }
    }
}
