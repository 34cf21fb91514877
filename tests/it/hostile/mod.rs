//! Whatever bytes arrive, as arguments, as a RESTORE payload or in an append-only file, the server stays up and
//! unrelated locks stay unchanged. A failure names its seed; `LOCK_TEST_SEED` reproduces it.

mod arguments;
pub mod effects;
mod payloads;

use crate::support::{Client, Reply, Server};

/// Locks with names that these tests do not use, one of each type.
const GUARDED: [(&str, &str); 5] = [
    ("guarded:mutex", "LOCK.ACQUIRE guarded:mutex guard PX 6000000"),
    ("guarded:forever", "LOCK.ACQUIRE guarded:forever guard PERSIST"),
    ("guarded:nested", "RLOCK.ACQUIRE guarded:nested guard HOLDS 3 PX 6000000"),
    ("guarded:rw", "RWLOCK.ACQUIRE guarded:rw guard READ HOLDS 2 PX 6000000"),
    ("guarded:permits", "SEM.ACQUIRE guarded:permits guard LIMIT 9 PERMITS 4 PX 6000000"),
];

/// A server, and the state that it must keep.
struct Guard {
    run_id: String,
    stored: Vec<(Reply, Reply)>,
}

impl Guard {
    fn new(server: &Server) -> Guard {
        let mut client = server.client();
        for (_, line) in GUARDED {
            client.run(line).fence();
        }
        Guard { run_id: server.info("server").text("run_id").into(), stored: stored(&mut client) }
    }

    #[track_caller]
    fn assert_untouched(&self, server: &mut Server, what: &str) {
        assert!(server.is_alive(), "the server went down: {what}");
        assert_eq!(server.info("server").text("run_id"), self.run_id, "{what}");
        assert_eq!(stored(&mut server.client()), self.stored, "{what}");
    }
}

fn stored(client: &mut Client) -> Vec<(Reply, Reply)> {
    GUARDED.iter().map(|(key, _)| client.stored(key)).collect()
}
