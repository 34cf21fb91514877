//! What cannot be tested here is skipped by name, with the reason, and counted by `make test-all`. libtest knows no
//! such thing: a test that skips itself returns, and passes in its eyes.

use std::fs::File;
use std::io::Write;
use std::thread;

/// Notes that the running test, or a part of it, says nothing here: `return skip("…")`. The note goes to stderr, and
/// into the file that `SKIPPED_TESTS` names. Call it on the test's own thread: it has the test's name.
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
