//! The network is cut: the primary and some of the clients are on one side (near), a replica and the others on the
//! other (far). The replica is promoted, so there are two primaries until the cut is healed.
//!
//! - By itself both sides grant, and two hold at once. Fences do not go back: a resource that compares them lets the
//!   later holder in and keeps the other out.
//! - With `min-replicas-to-write 1` the near side grants and renews nothing any more once its replica has been silent
//!   for too long. Leases that it granted before run on.
//! - With that and a `lock.grace` as long as the longest lease and that time no two hold at once.
//! - In any case, once the cut is healed, what the near side granted alone is gone. LOCK.EXEC refuses its holders.

mod late;
mod sides;
mod world;

use support::skip;
use world::{Config, World};

/// On hosts of their own, where the system has such a network.
fn on_hosts(config: &Config) -> Option<World> {
    World::on_hosts(config).map_err(|error| skip(&format!("no network of hosts: {error}"))).ok()
}
