//! The network is cut: the primary and some of the clients are on one side (near), a replica and the others on the
//! other (far). The replica is promoted, so there are two primaries until the cut heals.
//!
//! - Without further settings both sides grant, and two owners hold the lock at once. Fencing tokens do not go back: a
//!   resource that compares them admits the later holder and rejects the other.
//! - With `min-replicas-to-write 1` the near side stops granting and renewing once its replica has been silent for too
//!   long. Leases that it granted before keep running.
//! - With that, and a `lock.grace` as long as the longest lease plus that time, no two owners hold the lock at once.
//! - In any case, once the cut heals, what the near side granted alone is gone. LOCK.EXEC rejects its holders.

mod late;
mod sides;
mod world;

use support::skip;
use world::{Config, World};

/// On separate hosts, if the system supports such a network.
fn on_hosts(config: &Config) -> Option<World> {
    World::on_hosts(config).map_err(|error| skip(&format!("no network of hosts: {error}"))).ok()
}
