//! Messages for people beside the output: on stderr, one line each.

use std::fmt;
use std::io::{self, Write};

/// Write errors are ignored: a closed stderr, or one without a reader, must not stop the program.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "redis-lock: {message}");
}
