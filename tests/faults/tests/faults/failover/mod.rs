//! A replica takes over under load, and clients move to it.
//!
//! | scenario | promise |
//! | --- | --- |
//! | any failover | fencing tokens grow; they order two overlapping holders |
//! | the replica lagged | the writes that it lacked are lost |
//! | the same, and clients WAIT for the replica | nothing acknowledged is lost |
//! | the same, and `lock.grace` is as long as the longest lease | no two holders at once |
//! | FAILOVER | nothing is lost |

mod by_hand;
mod sentinel;

use std::time::Duration;

use support::{Client, Info, Server};

/// The minimum number of grants between two faults.
pub const GRANTS: usize = 30;

/// A server's role, as it reports it. None if it does not reply: Sentinels close its connections when they change its
/// role.
pub fn role(server: &Server) -> Option<String> {
    let info = replication(server)?;
    info.find("role").map(String::from)
}

pub fn replication(server: &Server) -> Option<Info> {
    let mut client = Client::try_connect(server.port()).ok()?;
    let reply = client.try_cmd_within(&["INFO", "replication"], Duration::from_secs(1)).ok()?;
    if reply.is_error() {
        None
    } else {
        Some(Info::parse(reply.text()))
    }
}

/// How many replicas a primary sends its writes to.
fn online_replicas(server: &Server) -> usize {
    let Some(info) = replication(server) else { return 0 };
    (0..8)
        .filter_map(|number| info.find(&format!("slave{number}")))
        .filter(|line| line.contains("state=online"))
        .count()
}
