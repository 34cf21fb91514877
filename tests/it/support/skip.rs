//! What cannot be tested on the server under test is skipped by name, with the reason, and counted by `make test-all`.
//! libtest knows no such thing: a test that skips itself returns, and passes in its eyes.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, SystemTime};

use super::Server;

/// Notes that the running test, or a part of it, says nothing on this server: `return skip("…")`. The note goes to
/// stderr, and into the file that `SKIPPED_TESTS` names. Call it on the test's own thread: it has the test's name.
pub fn skip(reason: &str) {
    let thread = thread::current();
    let note = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {note}");
    if let Some(path) = std::env::var_os("SKIPPED_TESTS") {
        let file = File::options().create(true).append(true).open(path);
        // One write: several tests append at the same time.
        file.and_then(|mut file| file.write_all(note.as_bytes())).expect("the skipped test is noted");
    }
}

/// Skips the test where a shifted clock does not reach the module: `if skips_shifted_clock() { return; }`. Valkey
/// loads modules with RTLD_DEEPBIND, so libfaketime reaches only the server. A grant tells, not the version: its fence
/// is the module's clock.
pub fn skips_shifted_clock() -> bool {
    static REACHES: OnceLock<bool> = OnceLock::new();
    let reaches = *REACHES.get_or_init(|| {
        if !cfg!(target_os = "linux") {
            return false;
        }
        let server = Server::builder().clock("-30d").start();
        let fence = server.client().run("LOCK.ACQUIRE k a").fence();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
        Duration::from_micros(fence.unsigned_abs()) < now - Duration::from_secs(24 * 3600)
    });
    if !reaches {
        skip("a clock that libfaketime shifts does not reach modules on this server");
    }
    !reaches
}
