//! The network is cut: the primary and some of the clients are on one side (near), a replica and the others on the
//! other (far). The replica is promoted, so there are two primaries until the cut is healed.
//!
//! | what is set | what is promised |
//! | --- | --- |
//! | nothing | both sides grant, and two hold at once. Fences do not go back: a resource that compares them lets the later holder in and keeps the other out |
//! | `min-replicas-to-write 1` | the near side grants and renews nothing any more once its lag is too large; leases that it granted before run on |
//! | that, and `lock.grace` as long as the longest lease and the lag | no two holders at once |
//! | in any case | once the cut is healed, what the near side granted alone is gone: its holders are told so, LOCK.EXEC refuses them |

mod late;
mod sides;
mod world;

use support::skip;
use world::{Config, World};

/// On hosts of their own, where the system has such a network.
fn on_hosts(config: &Config) -> Option<World> {
    World::on_hosts(config).map_err(|error| skip(&format!("no network of hosts: {error}"))).ok()
}
