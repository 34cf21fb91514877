//! Waits for a replica.

use crate::server::Server;
use crate::wait::until;

/// Waits until `replica` has applied everything that `master` has written so far.
#[track_caller]
pub fn in_sync(master: &Server, replica: &Server) {
    until("the replica is in sync", || {
        let followed = replica.info("replication");
        let offset = master.info("replication").number("master_repl_offset");
        followed.text("role") == "slave"
            && followed.text("master_link_status") == "up"
            && followed.number("slave_repl_offset") >= offset
    });
}
