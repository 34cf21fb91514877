//! Checks that a server has forgotten no waiter once all faults are healed: no queue is left, and every lock can be
//! acquired.

use std::time::Duration;

use support::{until, Client, Reply};

use crate::lock::{Kind, Lock};

/// Longer than any lease used here.
const BLOCK: Duration = Duration::from_secs(15);

/// Fails the test unless every queue of these locks empties and each lock can be acquired and released. Workers must
/// have stopped.
#[track_caller]
pub fn assert_drained(client: &mut Client, locks: &[Lock]) {
    for lock in locks {
        let key = lock.key.as_str();
        until(&format!("{key} has no queue"), || client.cmd(&["LOCK.WAITERS", key]) == Reply::Array(Vec::new()));
        for mode in lock.kind.modes() {
            let mut request = mode.acquire(key, "last");
            request.extend(["PX", "60000", "BLOCK", &BLOCK.as_millis().to_string()].map(String::from));
            let grant = client.cmd(&request);
            assert!(matches!(grant, Reply::Array(_)) && grant.fence() > 0, "{request:?}: {grant:?}");
            assert_eq!(client.cmd(&mode.release(key, "last")), Reply::Int(mode.released()), "{key}");
        }
        // One permit may be free while another is held indefinitely.
        if let Kind::Semaphore { .. } = lock.kind {
            until(&format!("{key} is free"), || client.cmd(&["EXISTS", key]) == Reply::Int(0));
        }
    }
}
