//! What is told to people beside the output: on stderr, one line each.

use std::fmt;
use std::io::{self, Write};

/// A closed stderr, or one whose reader has gone, stops nothing.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "redis-lock: {message}");
}
