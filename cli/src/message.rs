//! Messages for people, apart from the output: on stderr, one line each.

use std::fmt;
use std::io::{self, Write};

/// Ignores write errors: a closed stderr, or one without a reader, must not stop the program.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "redis-lock: {message}");
}
