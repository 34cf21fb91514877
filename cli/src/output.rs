//! Output on stdout. A closed pipe (`redis-lock ls | head`) ends the program quietly, as with other programs.

use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::error::Error;

/// The output format that the options request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl Format {
    pub fn new(is_json: bool) -> Format {
        if is_json {
            Format::Json
        } else {
            Format::Text
        }
    }
}

pub fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// The width of the terminal; None: stdout is not a terminal, and the output is as wide as needed.
pub fn columns() -> Option<usize> {
    let terminal = io::stdout();
    let size = terminal.is_terminal().then(|| tcgetwinsize(&terminal).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Prints on one line.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), Error> {
    let json = serde_json::to_string(value).map_err(|error| Error::Reply(error.to_string()))?;
    print(&(json + "\n"))
}

fn written(result: io::Result<()>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|cause| Error::Io { what: "stdout".into(), cause }),
    }
}
