//! The consumers of effects.

use std::io;
use std::time::Duration;

use support::Builder;

use super::plan::Plan;
use crate::server::Server;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    AppendOnlyFile,
    Replica,
}

impl Consumer {
    pub fn name(self) -> &'static str {
        match self {
            Consumer::AppendOnlyFile => "AOF, everysec",
            Consumer::Replica => "a replica",
        }
    }

    /// A server with this consumer; a replica is attached when it runs.
    pub fn config(self, builder: Builder) -> Builder {
        match self {
            // No AOF rewrite, because its fork would disturb a reading.
            Consumer::AppendOnlyFile => {
                builder.config("appendonly yes").config("appendfsync everysec").config("auto-aof-rewrite-percentage 0")
            }
            Consumer::Replica => builder,
        }
    }

    /// A replica in sync, for the replica consumer. It runs until it is dropped.
    pub fn attach(self, plan: &Plan, server: &mut Server) -> io::Result<Option<Server>> {
        if self != Consumer::Replica {
            return Ok(None);
        }
        let mut replica = Server::start(&plan.with_floor())?;
        replica.must(&["REPLICAOF", "127.0.0.1", &server.port().to_string()])?;
        while replica.info("replication")?.find("master_link_status") != Some("up") {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(replica))
    }
}
