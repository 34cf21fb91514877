//! A replica takes over under load, and clients move to it.
//!
//! | what is done | what is promised |
//! | --- | --- |
//! | any failover | fences grow; an overlap of two holders is ordered by them |
//! | the replica lagged | what it did not have is lost |
//! | the same, and clients WAIT for the replica | nothing that was acknowledged is lost |
//! | the same, and `lock.grace` is as long as the longest lease | no two holders at once |
//! | FAILOVER | nothing is lost |

mod by_hand;
mod sentinel;

use faults::{Caller, Kind, Lock, Mode, Outcome, Recorder, Route};
use std::sync::Arc;
use std::time::Duration;
use support::{Client, Info, Server};

/// How many grants there are between two faults at least.
const GRANTS: usize = 30;

/// Longer than any fault lasts.
const LONG: Duration = Duration::from_secs(30);

/// The lock of two clients whose parts are written down: one holds it on the old primary, the other wants it on the new.
fn witnessed() -> Lock {
    Lock::new("witnessed", Kind::Mutex)
}

/// One of these two clients.
struct Witness {
    caller: Caller,
    lock: Lock,
    owner: String,
}

impl Witness {
    fn new(number: usize, owner: String, recorder: &Recorder, route: Arc<dyn Route>) -> Witness {
        Witness { caller: Caller::new(number, recorder.clone(), route), lock: witnessed(), owner }
    }

    fn acquire(&mut self, lease: Duration, block: Duration) -> Outcome {
        self.caller.acquire(&self.lock, &self.owner, Mode::Mutex, lease, Some(block))
    }

    fn renew(&mut self, lease: Duration) -> Outcome {
        self.caller.renew(&self.lock, &self.owner, Mode::Mutex, lease)
    }

    fn release(&mut self) -> Outcome {
        self.caller.release(&self.lock, &self.owner, Mode::Mutex)
    }
}

/// A server's role, as it says itself. None where it does not answer: Sentinels end its connections when they give it
/// another role.
fn role(server: &Server) -> Option<String> {
    let info = replication(server)?;
    info.find("role").map(String::from)
}

fn replication(server: &Server) -> Option<Info> {
    let mut client = Client::try_connect(server.port()).ok()?;
    let reply = client.try_cmd_within(&["INFO", "replication"], Duration::from_secs(1)).ok()?;
    match reply.is_error() {
        true => None,
        false => Some(Info::parse(reply.text())),
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
