//! Tests that cannot run here are skipped by name with a reason, and counted by `make test-all`. libtest has no such
//! concept: a test that skips itself returns, and counts as passed.

use std::fs::File;
use std::io::Write;
use std::thread;

/// Records that the running test, or a part of it, is skipped here: `return skip("…")`. The note goes to stderr and to
/// the file named by `SKIPPED_TESTS`. Call it on the test's own thread, which has the test's name.
pub fn skip(reason: &str) {
    let thread = thread::current();
    let note = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {note}");
    if let Some(path) = std::env::var_os("SKIPPED_TESTS") {
        let file = File::options().create(true).append(true).open(path);
        // A single write, because multiple tests append at the same time.
        file.and_then(|mut file| file.write_all(note.as_bytes())).expect("the skipped test is recorded");
    }
}
