//! Output on stdout. A closed pipe (`redis-lock ls | head`) ends the program quietly, as it ends other programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::error::Error;

/// The output format that the options ask for.
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

/// On one line.
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
